"""The client's reading of what servers say, from any bytes, in any pieces."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.client import parser, wire
from ordercast.client.parser import Delivered, Event, Info, Malformed, Ok, Parser, Ping, Pong, Refusal

WORDS = st.text("abc.$-_09äß✓", min_size=1, max_size=12)
NUMBERS = st.integers(0, 10**9)
INFOS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3)


def written(event: Event) -> bytes:
    """As a server says it."""
    match event:
        case Info(fields):
            return b"INFO " + json.dumps(fields).encode() + b"\r\n"
        case Delivered(sid, subject, reply, headers, payload):
            middle = f"{subject} {sid} {reply + ' ' if reply else ''}".encode()
            if headers:
                sizes = b"%d %d" % (len(headers), len(headers) + len(payload))
                return b"HMSG " + middle + sizes + b"\r\n" + headers + payload + b"\r\n"
            return b"MSG " + middle + b"%d" % len(payload) + b"\r\n" + payload + b"\r\n"
        case Refusal(reason):
            return f"-ERR '{reason}'\r\n".encode()
        case Ping():
            return b"PING\r\n"
        case Pong():
            return b"PONG\r\n"
        case Ok():
            return b"+OK\r\n"


EVENTS = st.one_of(
    st.builds(Info, INFOS),
    st.builds(
        Delivered,
        NUMBERS,
        WORDS,
        st.just("") | WORDS,
        st.just(b"") | st.binary(min_size=1, max_size=40),
        st.binary(max_size=300),
    ),
    st.sampled_from([Ping(), Pong(), Ok(), Refusal("Authorization Violation")]),
)


@given(st.lists(EVENTS, max_size=8), st.data())
def test_what_is_said_is_read_in_whatever_pieces_it_comes(events: list[Event], data: st.DataObject) -> None:
    said = b"".join(map(written, events))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(said)), max_size=12)))
    reading = Parser()
    found: list[Event] = []
    for begin, end in zip([0, *cuts], [*cuts, len(said)], strict=True):
        found += reading.feed(said[begin:end])
    assert found == events


PIECES = st.lists(
    st.sampled_from(
        [b"MSG a 1 5\r\n", b"MSG ", b"HMSG a 1 4 9\r\n", b"HMSG\t", b"INFO {}", b"INFO [", b"\r\n"]
    )
    | st.sampled_from(
        [b"PING\r\n", b"+OK\r\n", b"-ERR 'x'\r\n", b" 99999999999999999999\r\n", b" -1\r\n", b"\r"]
    )
    | st.binary(max_size=20),
    max_size=20,
)


@given(PIECES)
def test_whatever_comes_is_read_or_refused(pieces: list[bytes]) -> None:
    reading = Parser()
    with suppress(Malformed):
        for piece in pieces:
            for event in reading.feed(piece):
                assert isinstance(event, Event)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"MSG a 1\r\n", "it has 3 words"),
        (b"MSG a b c d e f\r\n", "it has 7 words"),
        (b"MSG a x 1\r\n", "is no number"),
        (b"MSG a 1 -1\r\n", "is no number"),
        (b"MSG a 1 99999999999\r\n", "sizes that cannot be"),
        (b"HMSG a 1 5 4\r\n", "sizes that cannot be"),
        (b"MSG \xff 1 0\r\n", "is no text"),
        (b"MSG a 1 1\r\nxyz", "longer than its line says"),
        (b"INFO {\r\n", "no JSON"),
        (b"INFO 3\r\n", "no JSON object"),
        (b"HTTP/1.1 400 Bad Request\r\n", "no word of the protocol"),
    ],
)
def test_what_is_wrong_is_said(said: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        Parser().feed(said)


def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    reading = Parser()
    for _ in range(parser.LONGEST_LINE // 1_024):
        assert reading.feed(b"x" * 1_024) == []
    with pytest.raises(Malformed, match="a line of more than"):
        reading.feed(b"x")


HEADER_NAMES = st.text("abcXYZ-_09!~", min_size=1, max_size=10)
HEADER_VALUES = st.text("abc:, ;09äß✓", max_size=20).map(str.strip)


@given(st.dictionaries(HEADER_NAMES, HEADER_VALUES, max_size=5))
def test_headers_are_read_as_they_were_written(headers: dict[str, str]) -> None:
    assert wire.read_headers(wire.write_headers(headers)).fields == headers


@given(st.binary(max_size=100))
def test_any_headers_can_be_read(data: bytes) -> None:
    for each in (data, wire.VERSION + data):
        assert isinstance(wire.read_headers(each), wire.Headers)


def test_the_status_of_an_answer_by_the_server_itself() -> None:
    assert wire.read_headers(b"NATS/1.0 503\r\n\r\n") == wire.Headers(503, "", {})
    assert wire.read_headers(b"NATS/1.0 408 Request Timeout\r\nA: b\r\nA: c\r\n\r\n") == wire.Headers(
        408, "Request Timeout", {"A": "b, c"}
    )


@pytest.mark.parametrize("headers", [{"a b": "c"}, {"a:": "c"}, {"": "c"}, {"ä": "c"}, {"a": "b\nc"}])
def test_what_cannot_be_a_header_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="header"):
        wire.write_headers(headers)


@pytest.mark.parametrize("name", ["", "a b", "a..b", ".a", "a.", "a.*", "a.>", "a\r\nPUB b", "x" * 2_000])
def test_what_cannot_be_a_group_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"(the|no) name of a group"):
        wire.check_group(name)


def test_patterns_are_for_those_who_receive() -> None:
    for name in ("a.*", "*.a", "a.>", ">"):
        assert wire.check_group(name, pattern=True) == name
    for name in ("a.>.b", "a*", "a.b>"):
        with pytest.raises(ValueError, match="no name of a group"):
            wire.check_group(name, pattern=True)
