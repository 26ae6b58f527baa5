"""The parser of what NATS clients send."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.clients.parser import (
    LINE_TOO_LONG,
    LONGEST_LINE,
    MALFORMED,
    NOT_TEXT,
    PAYLOAD_TOO_LARGE,
    UNKNOWN,
    UNTERMINATED,
    Connect,
    Operation,
    Parser,
    Ping,
    Pong,
    Publish,
    Subscribe,
    Unsubscribe,
    Violation,
)

MOST = 200


def parse(*chunks: bytes) -> list[Operation]:
    parser = Parser(MOST)
    return [operation for chunk in chunks for operation in parser.feed(chunk)]


@pytest.mark.parametrize(
    ("sent", "operation"),
    [
        (b'CONNECT {"verbose": false}\r\n', Connect(b'{"verbose": false}')),
        (b"PING\r\n", Ping()),
        (b"ping \n", Ping()),
        (b"PONG\r\n", Pong()),
        (b"PUB a.b 5\r\nhello\r\n", Publish("a.b", None, 0, b"hello")),
        (b"pub\ta.b\t \t5 \r\nhello\r\n", Publish("a.b", None, 0, b"hello")),
        (b"PUB a r 0\r\n\r\n", Publish("a", "r", 0, b"")),
        (b"PUB a 7 2\n\r\n\r\n", Publish("a", "7", 0, b"\r\n")),
        ("PUB ä.ö 1\r\nx\r\n".encode(), Publish("ä.ö", None, 0, b"x")),
        (b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", Publish("a", None, 12, b"NATS/1.0\r\n\r\nhi")),
        (b"HPUB a r 12 12\r\nNATS/1.0\r\n\r\n\r\n", Publish("a", "r", 12, b"NATS/1.0\r\n\r\n")),
        (b"HPUB a 5 12 12\r\nNATS/1.0\r\n\r\n\r\n", Publish("a", "5", 12, b"NATS/1.0\r\n\r\n")),
        (b"SUB a.* 1\r\n", Subscribe("a.*", None, b"1")),
        (b"SUB a.> workers 22\r\n", Subscribe("a.>", "workers", b"22")),
        (b"UNSUB 1\r\n", Unsubscribe(b"1", None)),
        (b"UNSUB 1 10\r\n", Unsubscribe(b"1", 10)),
    ],
)
def test_each_operation_is_read(sent: bytes, operation: Operation) -> None:
    assert parse(sent) == [operation]
    assert parse(*(sent[at : at + 1] for at in range(len(sent)))) == [operation]


@pytest.mark.parametrize(
    ("sent", "violation"),
    [
        (b"GET / HTTP/1.1\r\n", UNKNOWN),
        (b"\r\n", UNKNOWN),
        (b" PING\r\n", UNKNOWN),
        (b"\x16\x03\x01", UNKNOWN),
        (b"PINGS\r\n", UNKNOWN),
        (b"INFO {}\r\n", UNKNOWN),
        (b"PING now\r\n", MALFORMED),
        (b"CONNECT\r\n", MALFORMED),
        (b"PUB a\r\n", MALFORMED),
        (b"PUB a b c 1\r\n", MALFORMED),
        (b"PUB a -1\r\n", MALFORMED),
        (b"PUB a 99999999999999999999\r\n", MALFORMED),
        (b"PUB a b 3 4\r\n", MALFORMED),
        (b"HPUB a 4\r\n", MALFORMED),
        (b"HPUB a 5 4\r\n", MALFORMED),
        (b"SUB a\r\n", MALFORMED),
        (b"SUB a b c d\r\n", MALFORMED),
        (b"UNSUB\r\n", MALFORMED),
        (b"UNSUB 1 x\r\n", MALFORMED),
        (b"PUB a 201\r\n", PAYLOAD_TOO_LARGE),
        (b"HPUB a 1 201\r\n", PAYLOAD_TOO_LARGE),
        (b"PUB a 2\r\nabc\r\n", UNTERMINATED),
        (b"PUB a 2\r\nab\rc", UNTERMINATED),
        (b"PUB \xff\xfe 2\r\nab\r\n", NOT_TEXT),
        (b"SUB \xff 1\r\n", NOT_TEXT),
        (b"SUB " + b"a" * LONGEST_LINE, LINE_TOO_LONG),
        (b"PUB " + b"a" * LONGEST_LINE + b" 1\r\n", LINE_TOO_LONG),
    ],
)
def test_what_is_no_operation_is_the_last_thing_read(sent: bytes, violation: Violation) -> None:
    assert parse(b"PING\r\n" + sent, b"PING\r\n") == [Ping(), violation]
    assert parse(b"PING\r\n", *(sent[at : at + 1] for at in range(len(sent)))) == [Ping(), violation]


def test_a_line_may_be_as_long_as_allowed() -> None:
    subject = b"a" * (LONGEST_LINE - len(b"SUB  1\r"))
    assert parse(b"SUB " + subject + b" 1\r\n") == [Subscribe(subject.decode(), None, b"1")]


def test_no_more_is_held_than_one_operation_may_have() -> None:
    parser = Parser(MOST)
    parser.feed(b"PUB a %d\r\n" % MOST)
    for _ in range(2 * MOST):
        parser.feed(b"x")
        assert parser.held <= MOST + LONGEST_LINE
    parser = Parser(MOST)
    parser.feed(b"CONNECT ")
    for _ in range(2 * LONGEST_LINE):
        parser.feed(b"{")
        assert parser.held <= LONGEST_LINE


WORD = st.text("ab.*>$_é", min_size=1, max_size=8)
SIZED = st.binary(max_size=MOST)


@st.composite
def publishes(draw: st.DrawFn) -> tuple[bytes, Operation]:
    subject, reply, payload = draw(WORD), draw(st.none() | WORD), draw(SIZED)
    headers = draw(st.none() | st.integers(0, len(payload)))
    words = [subject.encode(), *([] if reply is None else [reply.encode()])]
    sizes = [b"%d" % len(payload)] if headers is None else [b"%d" % headers, b"%d" % len(payload)]
    name = b"PUB" if headers is None else b"HPUB"
    line = b" ".join((name, *words, *sizes))
    return line + b"\r\n" + payload + b"\r\n", Publish(subject, reply, headers or 0, payload)


@st.composite
def others(draw: st.DrawFn) -> tuple[bytes, Operation]:
    subject, queue, sid = draw(WORD), draw(st.none() | WORD), draw(st.integers(1, 99))
    words = subject if queue is None else f"{subject} {queue}"
    options = json.dumps({"name": subject}).encode()
    choices: list[tuple[bytes, Operation]] = [
        (b"PING\r\n", Ping()),
        (b"PONG\r\n", Pong()),
        (b"CONNECT " + options + b"\r\n", Connect(options)),
        (f"SUB {words} {sid}\r\n".encode(), Subscribe(subject, queue, b"%d" % sid)),
        (b"UNSUB %d\r\n" % sid, Unsubscribe(b"%d" % sid, None)),
        (b"UNSUB %d 3\r\n" % sid, Unsubscribe(b"%d" % sid, 3)),
    ]
    return draw(st.sampled_from(choices))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(st.lists(publishes() | others(), max_size=12), st.lists(st.integers(0, 10_000), max_size=20))
@settings(max_examples=150, deadline=None)
def test_operations_are_the_same_however_the_bytes_are_cut(
    sent: list[tuple[bytes, Operation]], places: list[int]
) -> None:
    data = b"".join(each for each, _ in sent)
    wanted = [operation for _, operation in sent]
    assert parse(data) == wanted
    assert parse(*cut(data, places)) == wanted


NOISE = st.lists(
    st.sampled_from(
        [b"PUB ", b"HPUB ", b"SUB ", b"UNSUB ", b"CONNECT ", b"PING", b"PONG", b"a ", b"a.b ", b"3", b" 2"]
    )
    | st.sampled_from(
        [b"\r\n", b"\n", b"\r", b"{}", b"abc", b"\xff", b"\x00", b"\t", b"9" * 12, b"b" * 4090, b"201"]
    )
    | st.binary(max_size=5),
    max_size=14,
).map(b"".join)


@given(NOISE, st.lists(st.integers(0, 10_000), max_size=20))
@settings(max_examples=400, deadline=None)
def test_anything_at_all_gives_the_same_operations_however_it_is_cut(data: bytes, places: list[int]) -> None:
    whole = parse(data)
    assert parse(*cut(data, places)) == whole
    assert all(not isinstance(operation, Violation) for operation in whole[:-1])
