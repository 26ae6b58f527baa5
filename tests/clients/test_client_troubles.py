"""`ordercast.Client` when servers fail: against a server that misbehaves as it is told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest
from fake_server import FakeServer, Published, Talk

from ordercast.client import Client, log_reader, servers, subscription
from ordercast.client.servers import LONGEST_WAIT_S, ServerPool, parse_server, parse_servers
from ordercast.client.subscription import Subscription
from ordercast.errors import (
    AccessDenied,
    AddressProblem,
    ClientClosed,
    ConfigProblem,
    Evicted,
    MessageTooLarge,
    NoResponders,
    NotAcknowledged,
    NotConnected,
    RequestTimeout,
    SendTimeout,
    Trimmed,
)

LONG_S = 60.0
NO_RESPONDERS = b"NATS/1.0 503\r\n\r\n"


def run(case: Callable[[list[FakeServer]], Coroutine[Any, Any, None]], count: int = 1) -> None:
    """A case with so many servers; it fails rather than hangs."""

    async def whole() -> None:
        async with AsyncExitStack() as stack, asyncio.timeout(LONG_S):
            await case([await stack.enter_async_context(FakeServer().running()) for _ in range(count)])

    asyncio.run(whole())


async def until(true: Callable[[], Any]) -> None:
    while not true():
        await asyncio.sleep(0.001)


class Stream:
    """A log behind fake servers: acknowledges, remembers identifiers, and serves consumers."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, bytes]] = []
        self.places: dict[str, int] = {}
        """By identifier."""
        self.first = 1
        """The place of the first message that is said to be kept."""
        self.starts: list[int] = []
        """Where consumers began."""
        self.before: Callable[[Talk, Published], bool] = lambda talk, published: False
        """Asked first; whether it has dealt with it."""

    def handle(self, talk: Talk, published: Published) -> None:
        if self.before(talk, published):
            return
        match published.subject.split("."):
            case ["$JS", "API", "STREAM", "NAMES"]:
                talk.answer(published, {"streams": ["S"]})
            case ["$JS", "API", "STREAM", "INFO", "S"]:
                talk.answer(published, {"state": {"first_seq": self.first, "last_seq": len(self.kept)}})
            case ["$JS", "API", "CONSUMER", "CREATE", "S"]:
                self.starts.append(published.document["config"]["opt_start_seq"])
                talk.answer(published, {"name": f"c{len(self.starts)}"})
            case ["$JS", "API", "CONSUMER", "MSG", "NEXT", "S", consumer]:
                self.serve(talk, published.reply, consumer, published.document["batch"])
            case ["$JS", *_]:
                pass
            case _:
                talk.answer(published, {"stream": "S", **self.keep(published)})

    def keep(self, published: Published) -> dict[str, Any]:
        name = published.header("Nats-Msg-Id") or ""
        duplicate = name in self.places
        if not duplicate:
            self.kept.append((published.subject, published.payload))
            self.places[name] = len(self.kept)
        return {"seq": self.places[name], "duplicate": duplicate}

    def serve(self, talk: Talk, reply: str, consumer: str, batch: int) -> None:
        start = self.starts[int(consumer[1:]) - 1]
        for number, (subject, payload) in enumerate(self.kept[start - 1 :][:batch], 1):
            self.deliver(talk, reply, consumer, start + number - 1, number, subject, payload)

    @staticmethod
    def deliver(
        talk: Talk, to: str, consumer: str, place: int, number: int, subject: str, payload: bytes
    ) -> None:
        """A message to a group, over the subscription of the reader's inbox."""
        wanted = next(sid for name, sid in talk.subscriptions.items() if name == to.rpartition(".")[0] + ".*")
        ack = f"$JS.ACK.S.{consumer}.1.{place}.{number}.0.0"
        talk.say(f"MSG {subject} {wanted} {ack} {len(payload)}\r\n".encode() + payload + b"\r\n")


@asynccontextmanager
async def reading(fake: FakeServer, stream: Stream) -> AsyncIterator[Subscription]:
    """What a client reads of a group, from the first message of a log behind a server on."""
    fake.on_published = stream.handle
    async with Client(fake.address) as client:
        yield await client.join("a", start=1)


# --- connections --------------------------------------------------------------------------------


def test_a_client_logs_in_and_says_who_it_is() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        (fake,) = fakes
        async with Client(fake.address, user="ann", password="x", name="me") as client:
            assert client.address == fake.address
            assert client.info["server_id"] == "fake"
            told = fake.talks[0].connect
            assert (told["user"], told["pass"], told["name"]) == ("ann", "x", "me")
            assert told["headers"] is told["no_responders"] is True
        with pytest.raises(ClientClosed, match="make a new Client"):
            await client.send("a", b"")

    run(case)


def test_a_client_that_was_not_started_says_so() -> None:
    async def case(_: list[FakeServer]) -> None:
        with pytest.raises(ClientClosed, match="async with"):
            await Client("127.0.0.1:1").send("a", b"")

    run(case, 0)


def test_nobody_there() -> None:
    async def case(_: list[FakeServer]) -> None:
        with pytest.raises(NotConnected, match=r"127\.0\.0\.1:1: .*See that a node runs there"):
            await Client("127.0.0.1:1", connect_timeout=0.1).start()

    run(case, 0)


def test_who_is_refused_is_told_why() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        fakes[0].refusal = "Authorization Violation"
        with pytest.raises(AccessDenied, match="see to user, password or token"):
            await Client(fakes[0].address).start()

    run(case)


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"PING\r\n", b""])
def test_something_that_is_no_node(said: bytes) -> None:
    async def case(_: list[FakeServer]) -> None:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(said)
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
            port = other.sockets[0].getsockname()[1]
            with pytest.raises(NotConnected, match=f"127.0.0.1:{port}: "):
                await Client(f"127.0.0.1:{port}", connect_timeout=0.2).start()

    run(case, 0)


def test_a_server_that_is_lost_is_replaced_and_told_of_subscriptions() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        async with Client([fake.address for fake in fakes]) as client:
            joined = await client.join("a", log=False)
            first = next(fake for fake in fakes if fake.talks)
            other = next(fake for fake in fakes if not fake.talks)
            first.talks[0].cut()
            await until(lambda: other.talks and "a" in other.talks[0].subscriptions)
            other.talks[0].deliver("a", b"x")
            assert (await anext(joined)).payload == b"x"
            assert (client.address, client.connections) == (other.address, 2)

    run(case, 2)


def test_a_server_that_speaks_no_nats_any_more_is_left() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        async with Client(fakes[0].address) as client:
            fakes[0].talks[0].say(b"what?\r\n")
            await until(lambda: client.connections == 2)

    run(case)


def test_a_server_that_does_not_answer_is_left() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        async with Client(fakes[0].address, ping_interval=0.05) as client:
            await asyncio.sleep(0)
            fakes[0].answers_pings = False
            await until(lambda: fakes[0].talks[0]._writer.is_closing())
            fakes[0].answers_pings = True
            await until(lambda: client.connections >= 2 and client.address)

    run(case)


@pytest.mark.parametrize("late", [False, True])
def test_servers_that_a_server_tells_of_are_used(late: bool) -> None:
    async def case(fakes: list[FakeServer]) -> None:
        first, second = fakes
        if not late:
            first.fields["connect_urls"] = [second.address, "nonsense", 7]
        async with Client(first.address) as client:
            if late:
                first.talks[0].info(**first.fields, connect_urls=[first.address, second.address])
                await client.flush()
            first.talks[0].cut()
            await until(lambda: client.address == second.address)

    run(case, 2)


def test_a_server_that_is_about_to_end_is_left_in_time() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        first, second = fakes
        async with Client(first.address) as client:
            first.talks[0].info(**first.fields, connect_urls=[second.address], ldm=True)
            await until(lambda: client.address == second.address)

    run(case, 2)


def test_a_client_that_gave_up_says_so_to_all() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        (fake,) = fakes
        fake.on_published = lambda talk, published: talk.cut() if published.subject == "cut" else None
        async with Client(fake.address, give_up_after=0.05) as client:
            joined = await client.join("a", log=False)
            fake.refusal = "not now"
            await client.send("cut", b"")
            with pytest.raises(NotConnected, match="no node lets this client in"):
                await anext(joined)
            with pytest.raises(NotConnected):
                await client.send("a", b"")

    run(case)


# --- sending ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [False, True])
def test_a_safe_message_is_sent_again_with_its_number_over_a_fail_over(kept: bool) -> None:
    """Whether or not the server that ended had kept it: it is in the log once."""

    async def case(fakes: list[FakeServer]) -> None:
        stream = Stream()
        cut = [True]

        def before(talk: Talk, published: Published) -> bool:
            if published.subject == "a" and cut:
                cut.pop()
                if kept:
                    stream.keep(published)
                talk.cut()
                return True
            return False

        stream.before = before
        for fake in fakes:
            fake.on_published = stream.handle
        async with Client([fake.address for fake in fakes], session="me") as client:
            found = await client.send("a", b"x", safe=True)
            assert (found.seq, found.duplicate, found.stream) == (1, kept, "S")
            assert (await client.send("a", b"y", safe=True)).seq == 2
        assert stream.kept == [("a", b"x"), ("a", b"y")]
        assert list(stream.places) == ["me-1", "me-2"]

    run(case, 2)


def test_a_session_goes_on_where_it_was() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        stream = Stream()
        fakes[0].on_published = stream.handle
        async with Client(fakes[0].address, session="me") as client:
            await client.send("a", b"one", safe=True)
            assert client.number == 2
        async with Client(fakes[0].address, session="me") as client:
            again = await client.send("a", b"one", safe=True)
            assert (again.seq, again.duplicate) == (1, True)
            assert (await client.send("a", b"two", safe=True)).duplicate is False
        async with Client(fakes[0].address, session="me", number=2) as client:
            assert (await client.send("a", b"two", safe=True)).duplicate is True
            assert (await client.send("a", b"nine", safe=True, number=9)).duplicate is False
            assert client.number == 10

    run(case)


def test_what_a_log_refuses_is_told() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        stream = Stream()
        answers: list[Any] = [
            {"error": {"code": 400, "description": "expected stream does not match"}},
            ["what"],
            {"error": {"code": 503, "description": "no leader"}},
            {"stream": "S", "seq": 7},
        ]

        def before(talk: Talk, published: Published) -> bool:
            if published.subject == "a":
                talk.answer(published, answers.pop(0))
            return published.subject == "a"

        stream.before = before
        fakes[0].on_published = stream.handle
        async with Client(fakes[0].address) as client:
            with pytest.raises(NotAcknowledged, match="expected stream does not match"):
                await client.send("a", b"", safe=True)
            with pytest.raises(NotAcknowledged, match="somebody else answered"):
                await client.send("a", b"", safe=True)
            assert (await client.send("a", b"", safe=True)).seq == 7, (
                "it is tried again while there is no leader"
            )

    run(case)


def test_without_a_log_nothing_is_acknowledged() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        fakes[0].on_published = lambda talk, published: talk.deliver(
            published.reply, b"", headers=NO_RESPONDERS
        )
        async with Client(fakes[0].address) as client:
            with pytest.raises(NotAcknowledged, match="give its nodes log = DIR"):
                await client.send("a", b"", safe=True)
            with pytest.raises(NotAcknowledged, match="give its nodes log = DIR"):
                await client.join("a", log=True)
            assert (await client.join("a")).logged is False
            with pytest.raises(NoResponders, match="nobody receives in a"):
                await client.request("a", b"")

    run(case)


def test_what_takes_too_long() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        stream = Stream()
        stream.before = lambda talk, published: published.subject == "a"
        fakes[0].on_published = stream.handle
        async with Client(fakes[0].address) as client:
            with pytest.raises(SendTimeout, match="send it again with the same session and number"):
                await client.send("a", b"", safe=True, timeout=0.05)
            with pytest.raises(RequestTimeout, match="nobody in a answered within"):
                await client.request("a", timeout=0.05)
            fakes[0].refusal = "not now"
            fakes[0].talks[0].cut()
            await until(lambda: client.address is None)
            with pytest.raises(SendTimeout, match="no node is connected"):
                await client.send("b", b"", timeout=0.05)

    run(case)


def test_what_cannot_be_sent_is_refused_at_once() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        fakes[0].fields["max_payload"] = 10
        async with Client(fakes[0].address) as client:
            with pytest.raises(MessageTooLarge, match="this node takes 10"):
                await client.send("a", bytes(11))
            with pytest.raises(TypeError, match="a message is bytes, not str"):
                await client.send("a", "text")  # type: ignore[call-overload]
            with pytest.raises(ValueError, match="no name of a group"):
                await client.send("a b", b"")
            with pytest.raises(ConfigProblem, match="leave out log and start"):
                await client.join("a", queue="q", start=1)
            with pytest.raises(ConfigProblem, match="it is a place in the log"):
                await client.join("a", start=0)

    run(case)


@pytest.mark.parametrize(
    "given",
    [{"session": "a b"}, {"number": 0}, {"user": "u", "token": "t"}, {"ping_interval": 0}, {"tls": "no"}],
)
def test_what_cannot_be_asked_of_a_client(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigProblem):
        Client("127.0.0.1:1", **given)


# --- receiving ----------------------------------------------------------------------------------


def test_a_reader_that_stands_still_gets_what_it_has_and_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "MOST_MESSAGES", 3)

    async def case(fakes: list[FakeServer]) -> None:
        async with Client(fakes[0].address) as client:
            joined = await client.join("a", log=False)
            for _ in range(10):
                fakes[0].talks[0].say(b"MSG a 1 1\r\nx\r\n")
            await client.flush()
            assert [(await anext(joined)).payload for _ in range(3)] == [b"x"] * 3
            with pytest.raises(Evicted, match=r"3 messages .* of a were not read"):
                await anext(joined)
            await client.flush()
            assert not fakes[0].talks[0].subscriptions

    run(case)


def test_a_subscription_that_is_left_ends() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        async with Client(fakes[0].address) as client:
            joined = await client.join("a", log=False)
            fakes[0].talks[0].deliver("a", b"x")
            await client.flush()
            await joined.leave()
            assert [message.payload async for message in joined] == [b"x"]
            await client.flush()
            assert not fakes[0].talks[0].subscriptions

    run(case)


def test_a_log_is_read_on_behind_the_last_message_over_fail_overs() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        stream = Stream()
        stream.kept = [("a", b"%d" % number) for number in range(1, 6)]
        for fake in fakes:
            fake.on_published = stream.handle
        async with Client([fake.address for fake in fakes]) as client:
            joined = await client.join("a", start=2)
            assert [(await anext(joined)).seq for _ in range(4)] == [2, 3, 4, 5]
            stream.kept += [("a", b"6"), ("a", b"7")]
            next(fake for fake in fakes if fake.talks).talks[0].cut()
            assert [(await anext(joined)).payload for _ in range(2)] == [b"6", b"7"]
            assert joined.last_seq == 7
            assert stream.starts == [2, 6]

    run(case, 2)


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_server_that_lacks_what_follows_is_left_for_another(elsewhere: bool) -> None:
    """And if no server keeps it, the reader is told: nothing is left out in silence."""

    async def case(fakes: list[FakeServer]) -> None:
        streams = [Stream() for _ in fakes]
        for fake, stream in zip(fakes, streams, strict=True):
            stream.kept = [("a", b"%d" % number) for number in range(1, 6)]
            fake.on_published = stream.handle
        async with Client([fake.address for fake in fakes]) as client:
            joined = await client.join("a", start=2)
            assert [(await anext(joined)).seq for _ in range(4)] == [2, 3, 4, 5]
            for fake, stream in zip(fakes, streams, strict=True):
                stream.kept += [("a", b"6")]
                if not elsewhere or not fake.talks:
                    stream.first = 7
            next(fake for fake in fakes if fake.talks).talks[0].cut()
            if elsewhere:
                assert (await anext(joined)).payload == b"6"
            else:
                with pytest.raises(Trimmed, match="the first one kept is 7; join anew with start=7"):
                    await anext(joined)

    run(case, 2)


def test_a_log_is_read_from_behind_its_end_unless_told() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        stream = Stream()
        stream.kept = [("a", b"old")] * 5
        fakes[0].on_published = stream.handle
        async with Client(fakes[0].address) as client:
            joined = await client.join("a")
            assert (joined.logged, stream.starts) == (True, [6])

    run(case)


def test_a_message_that_is_missing_is_asked_for_again() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        stream = Stream()
        stream.kept = [("a", b"%d" % number) for number in range(1, 4)]

        def before(talk: Talk, published: Published) -> bool:
            if "NEXT.S.c1" not in published.subject:
                return False
            stream.deliver(talk, published.reply, "c1", 1, 1, "a", b"1")
            stream.deliver(talk, published.reply, "c1", 3, 3, "a", b"3")
            stream.deliver(talk, published.reply, "c1", 4, 4, "a", b"4")
            return True

        stream.before = before
        async with reading(fakes[0], stream) as joined:
            assert [(await anext(joined)).payload for _ in range(3)] == [b"1", b"2", b"3"]
            assert stream.starts == [1, 2]

    run(case)


@pytest.mark.parametrize(
    "status", [b"409 Consumer Deleted", b"503", b"409 Exceeded MaxWaiting", b"404 No Messages", None]
)
def test_a_consumer_that_is_gone_or_silent_is_replaced(
    status: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "HEARTBEAT_S", 0.02)

    async def case(fakes: list[FakeServer]) -> None:
        stream = Stream()
        stream.kept = [("a", b"1")]

        def before(talk: Talk, published: Published) -> bool:
            if "NEXT.S.c1" not in published.subject:
                return False
            if status is not None:
                talk.deliver(published.reply, b"", headers=b"NATS/1.0 " + status + b"\r\n\r\n")
            return True

        stream.before = before
        async with reading(fakes[0], stream) as joined:
            assert (await anext(joined)).payload == b"1"
            assert stream.starts[:2] == [1, 1]

    run(case)


def test_a_question_that_has_expired_is_asked_again() -> None:
    async def case(fakes: list[FakeServer]) -> None:
        stream = Stream()
        asked: list[int] = []

        def before(talk: Talk, published: Published) -> bool:
            if "NEXT" not in published.subject:
                return False
            asked.append(published.document["batch"])
            talk.deliver(published.reply, b"", headers=b"NATS/1.0 100 Idle Heartbeat\r\n\r\n")
            if len(asked) < 3:
                left = b"Nats-Pending-Messages: %d\r\n" % asked[-1] if len(asked) == 1 else b""
                talk.deliver(published.reply, b"", headers=b"NATS/1.0 408 Timeout\r\n" + left + b"\r\n")
            else:
                stream.deliver(talk, published.reply, "c1", 1, 1, "a", b"1")
            return True

        stream.before = before
        async with reading(fakes[0], stream) as joined:
            assert (await anext(joined)).payload == b"1"
            assert len(set(asked)) == 1
            assert stream.starts == [1]

    run(case)


def test_more_than_there_is_room_for_is_asked_for_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "MOST_MESSAGES", 4)

    async def case(fakes: list[FakeServer]) -> None:
        stream = Stream()
        stream.kept = [("a", b"%d" % number) for number in range(20)]
        async with reading(fakes[0], stream) as joined:
            assert [(await anext(joined)).seq for _ in range(20)] == list(range(1, 21))
            assert len(stream.starts) > 1

    run(case)


# --- addresses ----------------------------------------------------------------------------------


def test_addresses_of_servers() -> None:
    assert [server.address for server in parse_servers("a:1, b , [::1]:3")] == ["a:1", "b:4222", "[::1]:3"]
    assert parse_server("nats://ann:s%40@h:1") == servers.Server("h", 1, user="ann", password="s@")
    assert parse_server("tls://h").tls
    assert parse_server("unix:/run/x.sock").address == "unix:/run/x.sock"
    for wrong in ("", "http://h:1", "h:x", "unix:", "a b:1"):
        with pytest.raises(AddressProblem):
            parse_servers(wrong)


def test_attempts_begin_at_once_with_others_and_become_rarer() -> None:
    one, two = parse_servers("a:1,b:1")
    pool = ServerPool([one, two], random.Random(1))
    pool.learn(["c:1", "a:1"], one)
    attempts = pool.attempts(one)
    rounds = [[next(attempts) for _ in range(3)] for _ in range(12)]
    assert all(each[-1][0] == one for each in rounds), "the one that was lost comes last"
    assert [wait for _, wait in rounds[0]] == [0, 0, 0]
    waits = [each[0][1] for each in rounds[1:]]
    assert waits[0] < 0.1
    assert LONGEST_WAIT_S / 2 <= waits[-1] <= LONGEST_WAIT_S
    assert all(wait == 0 for each in rounds for _, wait in each[1:])


def test_servers_that_were_told_of_are_forgotten_at_some_time() -> None:
    (one,) = parse_servers("a:1")
    pool = ServerPool([one], random.Random(1))
    pool.learn([f"b:{port}" for port in range(1, 1_000)], one)
    assert len(pool.known) == servers.MOST_SERVERS + 1
    assert pool.known[-1].port == 999


def test_a_node_outside_the_primary_partition_is_left_for_another_one() -> None:
    """It says of plain messages that they are not sent, and of safe ones that it cannot acknowledge them."""

    async def case(fakes: list[FakeServer]) -> None:
        stream = Stream()
        outside = set(fakes)

        def publish(fake: FakeServer, talk: Talk, published: Published) -> None:
            if fake not in outside or published.subject != "a":
                stream.handle(talk, published)
            elif published.reply:
                talk.answer(
                    published, {"error": {"code": 503, "err_code": 10008, "description": "not primary"}}
                )
            else:
                talk.say(b"-ERR 'Permissions Violation for Publish to \"a\": not primary'\r\n")

        for fake in fakes:
            fake.on_published = partial(publish, fake)
        async with Client(fakes[0].address) as client:
            await client.send("a", b"plain")
            with pytest.raises(NotAcknowledged, match="not primary"):
                await client.flush()
            await client.flush()
            assert client.connections == 1, "there is no other node"
        outside.remove(fakes[1])
        fakes[0].fields["connect_urls"] = [fakes[1].address]
        async with Client(fakes[0].address) as client:
            await client.send("a", b"plain")
            await until(lambda: client.address == fakes[1].address)
        async with Client(fakes[0].address) as client:
            assert (await client.send("a", b"safe", safe=True)).seq == 1
            assert client.address == fakes[1].address

    run(case, 2)
