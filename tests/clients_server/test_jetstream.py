"""JetStream on a node's stream, by hand; the node is alone and orders at once."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Coroutine
from typing import Any

import pytest
from one_node import LONG_S, Line, serving

from ordercast.clients.flow_control import FLOW_BYTES
from ordercast.clients.stream import Stream
from ordercast.errors import NoMajority

SETTINGS = {"client_stream": ("logged.>",), "log": "unused"}
HEADED = b'{"headers": true, "no_responders": true}'


def run(case: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(case, LONG_S))


class Asking(Line):
    """A client that asks JetStream."""

    async def ask(self, what: str, question: object = "") -> dict[str, Any]:
        """The answer to a request, as JSON."""
        body = question if isinstance(question, bytes) else json.dumps(question).encode() if question else b""
        self.say(f"PUB {what} inbox {len(body)}".encode(), body)
        answer: dict[str, Any] = json.loads((await self.message())[2])
        return answer

    async def message(self) -> tuple[list[str], bytes, bytes]:
        """The next message: the words of its line, its headers, its body."""
        words = (await self.read()).decode().split()
        sizes = [0, *map(int, words[-2:])] if words[0] == "HMSG" else [0, 0, int(words[-1])]
        data = await asyncio.wait_for(self.reader.readexactly(sizes[2] + 2), LONG_S)
        return words, data[: sizes[1]], data[sizes[1] : -2]

    async def put(self, subject: str, body: bytes, headers: bytes = b"") -> dict[str, Any]:
        """Publish a message; what is acknowledged."""
        if headers:
            sizes = f"{len(headers)} {len(headers) + len(body)}"
            self.say(f"HPUB {subject} inbox {sizes}".encode(), headers + body)
        else:
            self.say(f"PUB {subject} inbox {len(body)}".encode(), body)
        answer: dict[str, Any] = json.loads((await self.message())[2])
        return answer


async def asking(server: Any) -> Asking:
    line = await Asking.to(server, HEADED)
    assert isinstance(line, Asking)
    line.say(b"SUB inbox 1", b"SUB out 2")
    await line.settled()
    return line


def test_a_message_is_acknowledged_with_its_number_among_all_messages() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (_, at):
            one = await asking(at)
            assert await one.put("logged.a", b"x") == {"stream": "ORDERCAST", "seq": 1}
            one.say(b"PUB other 1", b"x")
            assert await one.put("logged.a", b"x") == {"stream": "ORDERCAST", "seq": 3}
            info = await one.ask("$JS.API.STREAM.INFO.ORDERCAST")
            assert (info["state"]["messages"], info["state"]["last_seq"]) == (2, 3)

    run(case())


def test_a_node_that_is_alone_acknowledges_what_is_on_its_disk() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (node, at):
            one = await asking(at)
            node.disk.clear()
            one.say(b"PUB logged.a inbox 1", b"x")
            await one.settled()
            assert (await one.ask("$JS.API.STREAM.INFO.ORDERCAST"))["state"]["last_seq"] == 1, "ordered"
            node.disk.set()
            assert json.loads((await one.message())[2]) == {"stream": "ORDERCAST", "seq": 1}

    run(case())


def test_an_identifier_is_taken_once() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (_, at):
            one, other = await asking(at), await asking(at)
            headers = b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n"
            first = await one.put("logged.a", b"x", headers)
            assert await other.put("logged.a", b"y", headers) == {**first, "duplicate": True}
            info = await one.ask("$JS.API.STREAM.INFO.ORDERCAST")
            assert info["state"]["messages"] == 1

    run(case())


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (b"Nats-Expected-Stream: OTHER", 10060),
        (b"Nats-Expected-Last-Sequence: 3", 10003),
        (b"Nats-Rollup: all", 10003),
    ],
)
def test_what_a_publisher_cannot_have_is_refused(header: bytes, code: int) -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (_, at):
            one = await asking(at)
            answer = await one.put("logged.a", b"x", b"NATS/1.0\r\n%b\r\n\r\n" % header)
            assert (answer["error"]["code"], answer["error"]["err_code"]) == (400, code)
            info = await one.ask("$JS.API.STREAM.INFO.ORDERCAST")
            assert info["state"]["last_seq"] == 0

    run(case())


DEEP = b"[" * 4000
REFUSED = [
    ("STREAM.INFO.X", "", 10059),
    ("STREAM.CREATE.X", {"name": "X"}, 10003),
    ("STREAM.PURGE.ORDERCAST", "", 10003),
    ("NONSENSE", "", 10003),
    ("STREAM.NAMES", DEEP, 10025),
    ("STREAM.NAMES", {"offset": 2**80}, 10025),
    ("STREAM.MSG.GET.ORDERCAST", DEEP, 10025),
    ("STREAM.MSG.GET.ORDERCAST", {"seq": -1}, 10025),
    ("STREAM.MSG.GET.ORDERCAST", {"seq": "1"}, 10025),
    ("STREAM.MSG.GET.ORDERCAST", {"seq": 99}, 10037),
    ("STREAM.MSG.GET.ORDERCAST", {"last_by_subj": "logged.none"}, 10037),
    ("CONSUMER.INFO.ORDERCAST.x", "", 10014),
    ("CONSUMER.INFO.X.x", "", 10059),
    ("CONSUMER.DELETE.ORDERCAST.x", "", 10014),
    ("CONSUMER.CREATE.X", {"config": {}}, 10059),
    ("CONSUMER.CREATE.ORDERCAST", b'{"config":{"metadata":' + DEEP, 10003),
    ("CONSUMER.CREATE.ORDERCAST", b'{"x":' * 4000, 10003),
    ("CONSUMER.CREATE.ORDERCAST", b"no JSON", 10025),
    ("CONSUMER.CREATE.ORDERCAST", {"config": {"durable_name": "d"}}, 10003),
    ("CONSUMER.CREATE.ORDERCAST", {"config": {"replay_policy": "original"}}, 10003),
    ("CONSUMER.CREATE.ORDERCAST", {"config": {"max_bytes": 5}}, 10003),
    ("CONSUMER.CREATE.ORDERCAST", {"config": {"ack_policy": "all"}}, 10003),
    ("CONSUMER.CREATE.ORDERCAST", {"config": {"unheard_of": 1}}, 10003),
    ("CONSUMER.CREATE.ORDERCAST", {"config": {"deliver_policy": "by_start_sequence"}}, 10094),
    ("CONSUMER.CREATE.ORDERCAST", {"config": {"flow_control": True}}, 10089),
    ("CONSUMER.CREATE.ORDERCAST", {"config": {"num_replicas": 3}}, 10126),
    ("CONSUMER.CREATE.ORDERCAST", {"config": {"direct": True}}, 10003),
    ("CONSUMER.CREATE.ORDERCAST", {"config": {"priority_policy": "overflow"}}, 10003),
    ("STREAM.INFO.ORDERCAST", {"subjects_filter": ">"}, 10003),
    ("STREAM.INFO.ORDERCAST", b"no JSON", 10025),
    (
        "CONSUMER.CREATE.ORDERCAST",
        {"config": {"deliver_policy": "by_start_time", "opt_start_time": "x"}},
        10003,
    ),
    ("CONSUMER.CREATE.ORDERCAST", {"config": {"filter_subject": "a..b"}}, 10003),
    ("CONSUMER.CREATE.ORDERCAST.n.a", {"config": {"filter_subject": "b"}}, 10003),
    ("CONSUMER.DURABLE.CREATE.ORDERCAST.d", {"config": {}}, 10003),
]


def test_what_there_is_not_gets_an_error_of_jetstream() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (_, at):
            one = await asking(at)
            for what, question, code in REFUSED:
                answer = await one.ask(f"$JS.API.{what}", question)
                assert answer["error"]["err_code"] == code, (what, question, answer)
                assert answer["type"].startswith("io.nats.jetstream.api.v1.")
                assert answer["error"]["description"]

    run(case())


def test_names_lists_and_the_account() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (_, at):
            one = await asking(at)
            assert (await one.ask("$JS.API.INFO"))["streams"] == 1
            assert (await one.ask("$JS.API.STREAM.NAMES"))["streams"] == ["ORDERCAST"]
            for subject, there in (("logged.a", 1), ("logged.*", 1), ("other", 0), (">", 1)):
                names = await one.ask("$JS.API.STREAM.NAMES", {"subject": subject})
                assert (len(names["streams"]), names["total"]) == (there, there)
            listed = await one.ask("$JS.API.STREAM.LIST")
            assert listed["streams"][0]["config"]["subjects"] == ["logged.>"]

    run(case())


def test_single_messages() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (_, at):
            one = await asking(at)
            headers = b"NATS/1.0\r\nA: b\r\n\r\n"
            await one.put("logged.a", b"x", headers)
            await one.put("logged.b", b"y")
            for question in (
                {"seq": 1},
                {"last_by_subj": "logged.a"},
                {"seq": 1, "next_by_subj": "logged.*"},
            ):
                found = (await one.ask("$JS.API.STREAM.MSG.GET.ORDERCAST", question))["message"]
                assert (found["subject"], found["seq"]) == ("logged.a", 1)
                assert base64.b64decode(found["hdrs"]) == headers
                assert base64.b64decode(found["data"]) == b"x"
            one.say(b"PUB $JS.API.DIRECT.GET.ORDERCAST.logged.a inbox 0", b"")
            _, told, body = await one.message()
            assert body == b"x"
            assert told.startswith(
                b"NATS/1.0\r\nA: b\r\nNats-Stream: ORDERCAST\r\nNats-Subject: logged.a\r\n"
            )
            one.say(b"PUB $JS.API.DIRECT.GET.ORDERCAST inbox 9", b'{"seq":9}')
            assert (await one.message())[1].startswith(b"NATS/1.0 404")
            one.say(b"PUB $JS.API.DIRECT.GET.ORDERCAST inbox 1", b"[")
            assert (await one.message())[1].startswith(b"NATS/1.0 408")

    run(case())


def config(**wanted: Any) -> dict[str, Any]:
    return {"stream_name": "ORDERCAST", "config": wanted}


def test_a_consumer_that_is_pushed_to_gets_what_there_is_and_what_comes() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (_, at):
            one = await asking(at)
            for number in range(3):
                await one.put(f"logged.{number % 2}", b"%d" % number)
            made = await one.ask(
                "$JS.API.CONSUMER.CREATE.ORDERCAST", config(deliver_subject="out", filter_subject="logged.0")
            )
            assert made["num_pending"] == 2
            one.say(b"PUB logged.0 1", b"3")
            got = [await one.message() for _ in range(3)]
            assert [body for _, _, body in got] == [b"0", b"2", b"3"]
            assert {words[1] for words, _, _ in got} == {"logged.0"}
            places = [words[3].split(".")[4:] for words, _, _ in got]
            assert [(each[0], each[1], each[2], each[4]) for each in places] == [
                ("1", "1", "1", "1"),
                ("1", "3", "2", "0"),
                ("1", "4", "3", "0"),
            ]
            assert (await one.ask(f"$JS.API.CONSUMER.DELETE.ORDERCAST.{made['name']}"))["success"] is True
            one.say(b"PUB logged.0 1", b"4")
            await one.settled()

    run(case())


def test_where_a_consumer_begins() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (_, at):
            one = await asking(at)
            for number in range(3):
                await one.put("logged.a", b"%d" % number)
            for wanted, left in (
                ({"deliver_policy": "all"}, 3),
                ({"deliver_policy": "last"}, 1),
                ({"deliver_policy": "new"}, 0),
                ({"deliver_policy": "by_start_sequence", "opt_start_seq": 2}, 2),
                ({"deliver_policy": "by_start_time", "opt_start_time": "2000-01-01T00:00:00Z"}, 3),
                ({"deliver_policy": "by_start_time", "opt_start_time": "2999-01-01T00:00:00Z"}, 0),
            ):
                made = await one.ask("$JS.API.CONSUMER.CREATE.ORDERCAST", config(**wanted))
                assert made["num_pending"] == left

    run(case())


def test_messages_are_pulled_acknowledged_and_given_again() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (_, at):
            one = await asking(at)
            for number in range(3):
                await one.put("logged.a", b"%d" % number)
            made = await one.ask(
                "$JS.API.CONSUMER.CREATE.ORDERCAST.c",
                config(name="c", ack_policy="explicit", max_ack_pending=2),
            )
            assert made["name"] == "c"
            ask = json.dumps({"batch": 5, "no_wait": True}).encode()
            one.say(f"PUB $JS.API.CONSUMER.MSG.NEXT.ORDERCAST.c out {len(ask)}".encode(), ask)
            first, second, none = [await one.message() for _ in range(3)]
            assert (first[2], second[2]) == (b"0", b"1"), "no more than may be open"
            assert none[1].startswith(b"NATS/1.0 404 No Messages")
            one.say(f"PUB {second[0][3]} 4".encode(), b"-NAK")
            one.say(f"PUB {first[0][3]} inbox 4".encode(), b"+ACK")
            assert (await one.message())[2] == b""
            one.say(f"PUB $JS.API.CONSUMER.MSG.NEXT.ORDERCAST.c out {len(ask)}".encode(), ask)
            again, third, _ = [await one.message() for _ in range(3)]
            assert (again[2], third[2]) == (b"1", b"2")
            assert again[0][3].split(".")[4] == "2", "it is given for the second time"
            info = await one.ask("$JS.API.CONSUMER.INFO.ORDERCAST.c")
            assert (info["num_ack_pending"], info["num_redelivered"], info["num_pending"]) == (2, 1, 0)

    run(case())


def test_a_request_for_messages_ends_in_time_and_is_told_of_meanwhile() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (_, at):
            one = await asking(at)
            await one.ask("$JS.API.CONSUMER.CREATE.ORDERCAST.c", config(name="c"))
            ask = json.dumps({"batch": 2, "expires": 200_000_000, "idle_heartbeat": 50_000_000}).encode()
            one.say(f"PUB $JS.API.CONSUMER.MSG.NEXT.ORDERCAST.c out {len(ask)}".encode(), ask)
            told: list[bytes] = []
            while not told or b" 408 " not in told[-1]:
                told.append((await one.message())[1])
            assert told[0].startswith(b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 0")
            assert told[-1].startswith(b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 2")

    run(case())


def test_a_consumer_says_now_and_then_that_it_is_there() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (_, at):
            one = await asking(at)
            await one.ask(
                "$JS.API.CONSUMER.CREATE.ORDERCAST", config(deliver_subject="out", idle_heartbeat=100_000_000)
            )
            assert (await one.message())[1].startswith(b"NATS/1.0 100 Idle Heartbeat")

    run(case())


def test_consumers_end_with_their_client() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (_, at):
            one = await asking(at)
            await one.ask("$JS.API.CONSUMER.CREATE.ORDERCAST", config(deliver_subject="out"))
            assert at.report()["consumers"] == 1
            one.close()
            while at.report()["consumers"]:
                await asyncio.sleep(0.01)

    run(case())


# --- the stream -------------------------------------------------------------------------------------


def test_the_oldest_messages_go_and_numbers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    async def case() -> None:
        async with serving(client_stream_bytes=65_536, **SETTINGS) as (_, at):
            one = await asking(at)
            for number in range(40):
                await one.put("logged.a", bytes(5_000) + b"%d" % number)
            state = (await one.ask("$JS.API.STREAM.INFO.ORDERCAST"))["state"]
            assert (state["last_seq"], state["messages"]) == (40, 12)
            assert state["first_seq"] == 29
            assert state["bytes"] <= 65_536

    run(case())


def test_a_stream_goes_on_where_another_node_had_counted_further() -> None:
    stream = Stream((">",), 1 << 20)
    stream.restart(10)
    assert (stream.first, stream.last, stream.messages) == (11, 10, 0)


def test_who_publishes_outside_the_primary_partition_is_told_that_jetstream_is_unavailable() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (node, at):
            one = await asking(at)
            node.refusal = NoMajority("nobody else is there")
            answer = await one.put("logged.a", b"x")
            assert (answer["error"]["code"], answer["error"]["err_code"]) == (503, 10008)
            assert "not in the primary partition" in answer["error"]["description"]
            node.refusal = None
            assert await one.put("logged.a", b"x") == {"stream": "ORDERCAST", "seq": 1}

    run(case())


def test_a_client_with_flow_control_gets_more_when_it_says_that_it_has_handled_what_came() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (_, at):
            one = await asking(at)
            count, body = 40, bytes(100_000)
            for _ in range(count):
                await one.put("logged.a", body)
            flowing = config(deliver_subject="out", flow_control=True, idle_heartbeat=100_000_000)
            await one.ask("$JS.API.CONSUMER.CREATE.ORDERCAST", flowing)
            got = beats = 0
            questions: list[str] = []
            while got < count:
                words, headers, body = await one.message()
                if body:
                    got += 1
                elif b"FlowControl Request" in headers:
                    questions.append(words[3])
                elif b"Nats-Consumer-Stalled" in headers:
                    beats += 1
                    assert f"Nats-Consumer-Stalled: {questions[-1]}\r\n".encode() in headers
                    assert got * 100_000 < 2.3 * FLOW_BYTES * len(questions), "it waits"
                    one.say(b"PUB $JS.FC.ORDERCAST.nobody.1 0", b"", f"PUB {questions[-1]}9 0".encode(), b"")
                    one.say(f"PUB {questions[-1]} 0".encode(), b"")
            assert len(set(questions)) == len(questions) >= 2
            assert beats >= 1

    run(case())


def test_a_consumer_that_nobody_wants_anything_of_ends_after_its_threshold() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (_, at):
            one = await asking(at)
            jetstream = at.jetstream
            assert jetstream is not None
            for name, deliver in (("pull", None), ("push", "nowhere"), ("read", "out"), ("kept", None)):
                threshold = 0 if name == "kept" else 1_000
                wanted = config(name=name, deliver_subject=deliver, inactive_threshold=threshold)
                assert "error" not in await one.ask("$JS.API.CONSUMER.CREATE.ORDERCAST", wanted)
            one.say(b"PUB $JS.API.CONSUMER.MSG.NEXT.ORDERCAST.pull inbox 0", b"")
            await one.settled()
            jetstream.look()
            assert set(jetstream.consumers) == {"pull", "read", "kept"}
            one.say(b"UNSUB 2")
            await one.settled()
            jetstream.consumers["pull"].forget(jetstream.consumers["pull"].client)
            await asyncio.sleep(0.001)
            jetstream.look()
            assert set(jetstream.consumers) == {"kept"}

    run(case())


def test_a_request_for_messages_that_asks_for_more_than_there_is_is_refused() -> None:
    async def case() -> None:
        async with serving(**SETTINGS) as (_, at):
            one = await asking(at)
            await one.ask("$JS.API.CONSUMER.CREATE.ORDERCAST", config(name="pull"))
            ask = json.dumps({"batch": 1, "min_pending": 3}).encode()
            one.say(b"PUB $JS.API.CONSUMER.MSG.NEXT.ORDERCAST.pull inbox %d" % len(ask), ask)
            assert (await one.message())[1].startswith(b"NATS/1.0 400 Bad Request")

    run(case())
