"""What the official client for Python gets, from Debian's nats-server and from nodes alike."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Coroutine
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import MaxPayloadError, NoRespondersError, NoServersError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, Header
from nats.js.errors import APIError, NotFoundError
from nats_servers import LONG_S, STREAM, Login, Server, Starting, add_stream


def run(case: Coroutine[Any, Any, None]) -> None:
    """One case, which fails rather than hangs."""
    asyncio.run(asyncio.wait_for(case, LONG_S))


async def connect(*servers: Server, **more: Any) -> Client:
    """A client that is told of these servers, and fails at once where it cannot connect."""
    settings = {"allow_reconnect": False, "connect_timeout": LONG_S, **more}
    return await nats.connect([server.url for server in servers], **settings)


async def flushed(client: Client) -> None:
    """Wait until the server has handled all that the client has said.

    `Client.flush` asks the server before it sends what is pending: the second time, that was sent before.
    """
    await client.flush()
    await client.flush()


async def take(subscription: Subscription, count: int) -> list[Msg]:
    """The next so many messages."""
    return [await subscription.next_msg(LONG_S) for _ in range(count)]


def data(messages: list[Msg]) -> list[bytes]:
    return [message.data for message in messages]


# --- plain --------------------------------------------------------------------------------------


def test_messages_come_in_the_order_they_were_published_in(server: Server, subject: str) -> None:
    async def case() -> None:
        async with await connect(server) as one, await connect(server) as other:
            subscription = await other.subscribe(subject)
            await flushed(other)
            sent = [b"%d" % number for number in range(500)]
            for each in sent:
                await one.publish(subject, each)
            await flushed(one)
            messages = await take(subscription, len(sent))
            assert data(messages) == sent
            assert {message.subject for message in messages} == {subject}

    run(case())


def test_a_client_gets_what_it_publishes_itself_unless_it_wants_no_echo(server: Server, subject: str) -> None:
    async def case() -> None:
        async with await connect(server) as one, await connect(server, no_echo=True) as other:
            own, others = await one.subscribe(subject), await other.subscribe(subject)
            await flushed(one)
            await flushed(other)
            await other.publish(subject, b"not to itself")
            await flushed(other)
            await one.publish(subject, b"")
            assert data(await take(own, 2)) == [b"not to itself", b""]
            assert data(await take(others, 1)) == [b""]

    run(case())


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("a.*", [b"a.b", b"a.c"]),
        ("*.b", [b"a.b"]),
        ("a.>", [b"a.b", b"a.c", b"a.b.c"]),
        (">", [b"a", b"a.b", b"a.c", b"a.b.c"]),
        ("a.b.*", [b"a.b.c"]),
        ("a", [b"a"]),
    ],
)
def test_wildcards(server: Server, subject: str, pattern: str, matched: list[bytes]) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            subscription = await one.subscribe(f"{subject}.{pattern}")
            everything = await one.subscribe(f"{subject}.>")
            for name in ("a", "a.b", "a.c", "a.b.c"):
                await one.publish(f"{subject}.{name}", name.encode())
            await take(everything, 4)
            await flushed(one)
            assert data(await take(subscription, len(matched))) == matched
            assert subscription.pending_msgs == 0

    run(case())


def test_of_a_queue_group_one_member_gets_each_message(server: Server, subject: str) -> None:
    async def case() -> None:
        clients = [await connect(server) for _ in range(4)]
        got: list[bytes] = []
        come = asyncio.Event()
        shares = [0, 0, 0]

        def member(number: int) -> Any:
            async def on_message(message: Msg) -> None:
                shares[number] += 1
                got.append(message.data)
                if len(got) >= 300:
                    come.set()

            return on_message

        for number, client in enumerate(clients[:3]):
            await client.subscribe(subject, "workers", cb=member(number))
            await flushed(client)
        plain = await clients[3].subscribe(subject)
        await flushed(clients[3])
        sent = [b"%d" % number for number in range(300)]
        for each in sent:
            await clients[3].publish(subject, each)
        assert data(await take(plain, 300)) == sent
        await come.wait()
        for client in clients:
            await client.drain()
        assert sorted(got) == sorted(sent), "each once"
        assert all(shares), "all have a share of the work"

    run(case())


def test_of_a_queue_group_others_get_what_a_member_without_echo_publishes(
    server: Server, subject: str
) -> None:
    async def case() -> None:
        async with await connect(server, no_echo=True) as one, await connect(server) as other:
            own = await one.subscribe(subject, "workers")
            await flushed(one)
            others = await other.subscribe(subject, "workers")
            await flushed(other)
            sent = [b"%d" % number for number in range(40)]
            for each in sent:
                await one.publish(subject, each)
            await flushed(one)
            assert data(await take(others, len(sent))) == sent
            await others.unsubscribe()
            await flushed(other)
            with pytest.raises(NoRespondersError):
                await one.request(subject, b"to nobody but itself", LONG_S)
            assert own.pending_msgs == 0

    run(case())


def test_a_request_is_answered(server: Server, subject: str) -> None:
    async def case() -> None:
        async with await connect(server) as one, await connect(server) as other:

            async def answer(message: Msg) -> None:
                await message.respond(message.data.upper())

            await other.subscribe(subject, cb=answer)
            await flushed(other)
            answers = await asyncio.gather(
                *(one.request(subject, b"ask %d" % number, LONG_S) for number in range(20))
            )
            assert data(list(answers)) == [b"ASK %d" % number for number in range(20)]
            old = await one.request(subject, b"old style", LONG_S, old_style=True)
            assert old.data == b"OLD STYLE"

    run(case())


def test_a_request_that_nobody_is_there_for_fails_at_once(server: Server, subject: str) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            with pytest.raises(NoRespondersError):
                await one.request(subject, b"anybody?", LONG_S)

    run(case())


def test_headers(server: Server, subject: str) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            subscription = await one.subscribe(subject)
            headers = {"Trace": "a b: c", "Empty": "", "Sign": "✓"}
            await one.publish(subject, b"with", headers=headers)
            await one.publish(subject, b"", headers={"Only": "headers"})
            await one.publish(subject, b"without")
            first, second, third = await take(subscription, 3)
            assert first.header is not None
            assert {name: first.header[name] for name in headers} == headers
            assert (first.data, second.data, second.header) == (b"with", b"", {"Only": "headers"})
            assert (third.data, third.headers) == (b"without", None)

    run(case())


def test_a_subscription_ends_after_the_most_it_wanted(server: Server, subject: str) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            few, all_of_them = await one.subscribe(subject), await one.subscribe(subject)
            await few.unsubscribe(limit=3)
            await flushed(one)
            for number in range(10):
                await one.publish(subject, b"%d" % number)
            await take(all_of_them, 10)
            assert data(await take(few, 3)) == [b"0", b"1", b"2"]
            assert few.delivered == 3

    run(case())


def test_what_was_under_way_arrives_before_a_drain_ends(server: Server, subject: str) -> None:
    async def case() -> None:
        got: list[bytes] = []

        async def slowly(message: Msg) -> None:
            await asyncio.sleep(0)
            got.append(message.data)

        async with await connect(server) as one:
            other = await connect(server)
            await other.subscribe(subject, cb=slowly)
            await flushed(other)
            sent = [b"%d" % number for number in range(200)]
            for each in sent:
                await one.publish(subject, each)
            await flushed(one)
            await other.drain()
            assert other.is_closed
            assert got == sent
            await one.publish(subject, b"to nobody")
            await flushed(one)
            assert got == sent

    run(case())


def test_a_payload_that_is_too_large_is_refused(start: Starting, subject: str) -> None:
    (small,) = start(max_payload=1_000)

    async def case() -> None:
        async with await connect(small) as one:
            subscription = await one.subscribe(subject)
            assert one.max_payload == 1_000
            with pytest.raises(MaxPayloadError):
                await one.publish(subject, bytes(1_001))
            await one.publish(subject, bytes(1_000))
            assert data(await take(subscription, 1)) == [bytes(1_000)]

    run(case())


# --- connections --------------------------------------------------------------------------------


def test_a_client_goes_on_when_its_server_is_back(start: Starting, subject: str) -> None:
    (only,) = start()

    async def case() -> None:
        again = asyncio.Event()

        async def reconnected() -> None:
            again.set()

        client = await connect(
            only,
            allow_reconnect=True,
            reconnect_time_wait=0.05,
            max_reconnect_attempts=-1,
            reconnected_cb=reconnected,
            error_cb=ignore,
        )
        subscription = await client.subscribe(subject)
        await flushed(client)
        only.kill()
        await asyncio.to_thread(only.start)
        await again.wait()
        await client.publish(subject, b"still here")
        assert data(await take(subscription, 1)) == [b"still here"]
        await client.close()

    run(case())


def test_a_client_goes_over_to_a_server_that_it_was_told_of(start: Starting, subject: str) -> None:
    """It is given one address; `connect_urls` names the other."""
    first, second = start(2)

    async def case() -> None:
        again = asyncio.Event()

        async def reconnected() -> None:
            again.set()

        while second.address not in ((await asyncio.to_thread(first.info)) or {}).get("connect_urls", ()):
            await asyncio.sleep(0.05)
        client = await connect(
            first,
            allow_reconnect=True,
            reconnect_time_wait=0.05,
            max_reconnect_attempts=-1,
            reconnected_cb=reconnected,
            error_cb=ignore,
        )
        assert second.port in {url.port for url in client.discovered_servers}
        subscription = await client.subscribe(subject)
        await flushed(client)
        first.kill()
        await again.wait()
        await flushed(client)
        async with await connect(second) as other:
            await other.publish(subject, b"from the other")
            assert data(await take(subscription, 1)) == [b"from the other"]
        await client.close()

    run(case())


def test_clients_of_several_servers_hear_each_other(start: Starting, subject: str) -> None:
    servers = start(2)

    async def case() -> None:
        async with await connect(servers[0]) as one, await connect(servers[1]) as other:
            subscription = await other.subscribe(f"{subject}.*")
            await flushed(other)
            while True:  # news of a subscription takes a moment from server to server
                await one.publish(f"{subject}.a", b"first")
                try:
                    await subscription.next_msg(0.1)
                    break
                except TimeoutError:
                    continue
            for number in range(100):
                await one.publish(f"{subject}.b", b"%d" % number)
            got: list[bytes] = []
            while len(got) < 100:
                message = await subscription.next_msg(LONG_S)
                if message.subject.endswith(".b"):
                    got.append(message.data)
            assert got == [b"%d" % number for number in range(100)]

    run(case())


async def ignore(_: Exception) -> None:
    """Errors of a connection that is cut on purpose."""


@pytest.mark.parametrize(
    ("login", "right", "wrong"),
    [
        (
            Login(user="ann", password="s3cret"),
            {"user": "ann", "password": "s3cret"},
            [{}, {"user": "ann", "password": "other"}, {"user": "bob", "password": "s3cret"}],
        ),
        (Login(token="t0ken"), {"token": "t0ken"}, [{}, {"token": "other"}]),
    ],
    ids=["password", "token"],
)
def test_who_is_not_known_is_not_let_in(
    start: Starting, subject: str, login: Login, right: dict[str, str], wrong: list[dict[str, str]]
) -> None:
    (closed,) = start(login=login)
    told = closed.info()
    assert told is not None
    assert told["auth_required"] is True

    async def case() -> None:
        async with await connect(closed, **right) as one:
            subscription = await one.subscribe(subject)
            await one.publish(subject, b"in")
            assert data(await take(subscription, 1)) == [b"in"]
        for each in wrong:
            with pytest.raises((nats.errors.Error, NoServersError), match=r"(?i)authorization|no servers"):
                await connect(closed, error_cb=ignore, **each)

    run(case())


def test_tls(start: Starting, subject: str) -> None:
    (closed,) = start(tls=True)
    told = closed.info()
    assert told is not None
    assert told["tls_required"] is True

    async def case() -> None:
        known = ssl.create_default_context(cafile=str(closed.directory / "ca.pem"))
        async with await connect(closed, tls=known) as one:
            subscription = await one.subscribe(subject)
            await one.publish(subject, bytes(100_000))
            assert data(await take(subscription, 1)) == [bytes(100_000)]
        with pytest.raises((ssl.SSLError, NoServersError)):
            await connect(closed, tls=ssl.create_default_context(), error_cb=ignore)

    run(case())


# --- JetStream ----------------------------------------------------------------------------------


def test_a_publish_is_acknowledged_with_its_number(server: Server, logged: str) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            stream = one.jetstream(timeout=LONG_S)
            plain = await one.subscribe(logged)
            acknowledged = [await stream.publish(logged, b"%d" % number) for number in range(10)]
            numbers = [each.seq for each in acknowledged]
            assert numbers == sorted(set(numbers))
            assert {each.stream for each in acknowledged} == {STREAM}
            assert data(await take(plain, 10)) == [b"%d" % number for number in range(10)]
            many = [await stream.publish_async(logged, b"%d" % number) for number in range(200)]
            later = [(await each).seq for each in many]
            assert later == sorted(set(later))
            assert later[0] > numbers[-1]

    run(case())


def test_a_message_of_an_identifier_that_was_there_before_is_dropped(server: Server, logged: str) -> None:
    async def case() -> None:
        async with await connect(server) as one, await connect(server) as other:
            first = await one.jetstream(timeout=LONG_S).publish(
                logged, b"first", headers={Header.MSG_ID: f"{logged}-1"}
            )
            again = await other.jetstream(timeout=LONG_S).publish(
                logged, b"again", headers={Header.MSG_ID: f"{logged}-1"}
            )
            assert (first.duplicate, again.duplicate) == (None, True)
            assert again.seq == first.seq
            second = await one.jetstream(timeout=LONG_S).publish(
                logged, b"second", headers={Header.MSG_ID: f"{logged}-2"}
            )
            assert second.duplicate is None
            assert second.seq > first.seq
            reader = await one.jetstream(timeout=LONG_S).subscribe(logged, ordered_consumer=True)
            assert data(await take(reader, 2)) == [b"first", b"second"]

    run(case())


def test_a_publish_that_expects_another_stream_is_refused(server: Server, logged: str) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            with pytest.raises(APIError) as refused:
                await one.jetstream(timeout=LONG_S).publish(logged, b"x", stream="OTHER")
            assert (refused.value.code, refused.value.err_code) == (400, 10060)

    run(case())


def test_an_ordered_consumer_gets_what_there_is_and_what_comes(server: Server, logged: str) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            stream = one.jetstream(timeout=LONG_S)
            before = [await stream.publish(f"{logged}.{name}", name.encode()) for name in "abc"]
            await stream.publish(f"{logged}-other", b"for others")
            every = await stream.subscribe(f"{logged}.*", ordered_consumer=True)
            later = await stream.subscribe(
                f"{logged}.*",
                ordered_consumer=True,
                config=ConsumerConfig(
                    deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=before[1].seq
                ),
            )
            new = await stream.subscribe(
                f"{logged}.*",
                ordered_consumer=True,
                config=ConsumerConfig(deliver_policy=DeliverPolicy.NEW),
            )
            after = await stream.publish(f"{logged}.d", b"d")
            messages = await take(every, 4)
            assert data(messages) == [b"a", b"b", b"c", b"d"]
            assert [message.metadata.sequence.stream for message in messages] == [
                *(each.seq for each in before),
                after.seq,
            ]
            assert [message.metadata.sequence.consumer for message in messages] == [1, 2, 3, 4]
            assert [message.metadata.num_pending for message in messages[:3]] == [2, 1, 0]
            assert data(await take(later, 3)) == [b"b", b"c", b"d"]
            assert data(await take(new, 1)) == [b"d"]
            for each in (every, later, new):
                await each.unsubscribe()

    run(case())


def test_a_consumer_from_a_time(server: Server, logged: str) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            stream = one.jetstream(timeout=LONG_S)
            await stream.publish(logged, b"before")
            second = await stream.publish(logged, b"after")
            found = await stream.get_msg(STREAM, second.seq)
            assert found.time is not None
            reader = await stream.subscribe(
                logged,
                ordered_consumer=True,
                config=ConsumerConfig(
                    deliver_policy=DeliverPolicy.BY_START_TIME,
                    opt_start_time=found.time.isoformat(),  # type: ignore[arg-type]
                ),
            )
            assert (await take(reader, 1))[0].data in (b"before", b"after")
            await stream.publish(logged, b"last")
            while (await take(reader, 1))[0].data != b"last":
                pass

    run(case())


def test_a_pull_consumer(server: Server, logged: str) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            stream = one.jetstream(timeout=LONG_S)
            for number in range(10):
                await stream.publish(logged, b"%d" % number)
            puller = await stream.pull_subscribe(logged, stream=STREAM)
            first = await puller.fetch(4, timeout=LONG_S)
            for message in first:
                await message.ack()
            second = await puller.fetch(6, timeout=LONG_S)
            assert data(first + second) == [b"%d" % number for number in range(10)]
            for message in second:
                await message.ack_sync(timeout=LONG_S)
            with pytest.raises(TimeoutError):
                await puller.fetch(1, timeout=0.2)
            await stream.publish(logged, b"one more")
            (last,) = await puller.fetch(5, timeout=2)
            assert last.data == b"one more"
            assert last.metadata.num_delivered == 1
            await puller.unsubscribe()

    run(case())


def test_a_pulled_message_that_is_not_acknowledged_comes_again(server: Server, logged: str) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            stream = one.jetstream(timeout=LONG_S)
            await stream.publish(logged, b"work")
            puller = await stream.pull_subscribe(
                logged, stream=STREAM, config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=30)
            )
            (message,) = await puller.fetch(1, timeout=LONG_S)
            await message.nak()
            (again,) = await puller.fetch(1, timeout=LONG_S)
            assert (again.data, again.metadata.num_delivered) == (b"work", 2)
            assert again.metadata.sequence.stream == message.metadata.sequence.stream
            await again.ack()
            await puller.unsubscribe()

    run(case())


async def pulled(
    client: Client, logged: str, count: int
) -> tuple[JetStreamContext.PullSubscription, list[Msg]]:
    """A consumer with acknowledgements, and so many messages that it has given."""
    stream = client.jetstream(timeout=LONG_S)
    for number in range(count):
        await stream.publish(logged, b"%d" % number)
    puller = await stream.pull_subscribe(
        logged, stream=STREAM, config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=600)
    )
    given = await puller.fetch(count, timeout=LONG_S)
    assert data(given) == [b"%d" % number for number in range(count)]
    return puller, given


def test_what_waits_to_be_given_again_can_be_acknowledged_still(server: Server, logged: str) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            puller, given = await pulled(one, logged, 3)
            for message in given:
                await message.nak()
            await one.publish(given[0].reply, b"+ACK")
            await one.publish(given[1].reply, b"+TERM")
            await flushed(one)
            assert (await puller.consumer_info()).num_ack_pending == 1
            (again,) = await puller.fetch(1, timeout=LONG_S)
            assert (again.data, again.metadata.num_delivered) == (b"2", 2)

    run(case())


def test_a_message_comes_again_after_the_delay_that_its_client_asks_for(server: Server, logged: str) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            puller, given = await pulled(one, logged, 2)
            await given[0].nak(delay=500)
            await given[1].nak(delay=0.2)
            await flushed(one)
            assert (await puller.consumer_info()).num_ack_pending == 2
            (again,) = await puller.fetch(1, timeout=LONG_S)
            assert (again.data, again.metadata.num_delivered) == (b"1", 2)

    run(case())


def test_a_consumer_tells_up_to_where_all_is_acknowledged(server: Server, logged: str) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            puller, given = await pulled(one, logged, 3)
            for at, upto in ((2, 0), (0, 1), (1, 3)):
                await given[at].ack_sync(LONG_S)
                floor = (await puller.consumer_info()).ack_floor
                assert floor is not None
                assert floor.consumer_seq == upto
                if upto:
                    assert floor.stream_seq == given[upto - 1].metadata.sequence.stream

    run(case())


def test_the_stream_tells_of_itself_and_of_single_messages(server: Server, logged: str) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            stream = one.jetstream(timeout=LONG_S)
            sent = await stream.publish(logged, b"payload", headers={"Kind": "test"})
            told = await stream.stream_info(STREAM)
            assert (told.config.name, told.config.allow_direct) == (STREAM, True)
            assert told.state.last_seq >= sent.seq
            assert told.state.messages >= 1
            assert await stream.find_stream_name_by_subject(logged) == STREAM
            for direct in (False, True):
                found = await stream.get_msg(STREAM, sent.seq, direct=direct)
                assert (found.subject, found.data, found.seq) == (logged, b"payload", sent.seq)
                assert found.headers == {"Kind": "test"} or (
                    found.headers is not None and found.headers["Kind"] == "test"
                )
                last = await stream.get_last_msg(STREAM, logged, direct=direct)
                assert (last.seq, last.data) == (sent.seq, b"payload")
                with pytest.raises(NotFoundError):
                    await stream.get_msg(STREAM, sent.seq + 1_000_000, direct=direct)

    run(case())


def test_what_is_not_there_is_said_to_be_not_there(server: Server, logged: str) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            stream = one.jetstream(timeout=LONG_S)
            with pytest.raises(NotFoundError) as missing:
                await stream.stream_info("NOWHERE")
            assert missing.value.err_code == 10059
            with pytest.raises(NotFoundError) as missing:
                await stream.consumer_info(STREAM, "nobody")
            assert missing.value.err_code == 10014

    run(case())


def test_after_a_kill_the_stream_has_its_headers_and_identifiers(start: Starting, logged: str) -> None:
    (server,) = start()

    async def before() -> list[int]:
        await add_stream(server)
        async with await connect(server) as one:
            stream = one.jetstream(timeout=LONG_S)
            await one.publish(logged, b"not acknowledged")
            headers = {"Kind": "test", "Nats-Msg-Id": f"{logged}-1"}
            first = await stream.publish(logged, b"first", headers=headers)
            plain = await stream.publish(logged, b"plain")
            return [first.seq, plain.seq]

    async def after(numbers: list[int]) -> None:
        async with await connect(server) as one:
            stream = one.jetstream(timeout=LONG_S)
            again = await stream.publish(logged, b"again", headers={"Nats-Msg-Id": f"{logged}-1"})
            assert (again.duplicate, again.seq) == (True, numbers[0])
            reader = await stream.subscribe(logged, ordered_consumer=True)
            messages = [await reader.next_msg(LONG_S) for _ in range(3)]
            assert [each.data for each in messages] == [b"not acknowledged", b"first", b"plain"]
            assert [each.metadata.sequence.stream for each in messages[1:]] == numbers
            assert (messages[1].headers or {})["Kind"] == "test"
            assert (await stream.publish(logged, b"next")).seq > numbers[1]

    numbers = asyncio.run(asyncio.wait_for(before(), LONG_S))
    server.kill()
    server.start()
    asyncio.run(asyncio.wait_for(after(numbers), LONG_S))


HEARTBEAT = 1_000_000_000


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"deliver_subject": "out", "flow_control": True}, 10108),
        ({"deliver_subject": "out", "idle_heartbeat": 1_000}, 10083),
        ({"deliver_subject": "out", "max_waiting": 5}, 10080),
        ({"deliver_subject": "out.*"}, 10079),
        ({"idle_heartbeat": HEARTBEAT}, 10088),
        ({"opt_start_seq": 4}, 10094),
        ({"opt_start_time": "2024-01-01T00:00:00Z"}, 10094),
        ({"deliver_policy": "by_start_sequence"}, 10094),
        ({"deliver_policy": "by_start_time"}, 10094),
    ],
)
def test_settings_of_a_consumer_that_do_not_fit_are_refused(
    server: Server, wanted: dict[str, Any], code: int
) -> None:
    async def case() -> None:
        async with await connect(server) as one:
            policies = {"ack_policy": "none", "deliver_policy": "all", "replay_policy": "instant"}
            question = {"stream_name": STREAM, "config": {**policies, **wanted}}
            asked = f"$JS.API.CONSUMER.CREATE.{STREAM}"
            answer = json.loads((await one.request(asked, json.dumps(question).encode(), LONG_S)).data)
            assert (answer["error"]["code"], answer["error"]["err_code"]) == (400, code), answer

    run(case())


def test_an_ordered_consumer_that_is_slow_gets_everything(server: Server, logged: str) -> None:
    """It asks for flow control: what is not handled yet is not overrun by what comes."""

    async def case() -> None:
        async with await connect(server) as one:
            stream = one.jetstream(timeout=LONG_S)
            count, body = 60, bytes(100_000)
            for _ in range(count):
                await stream.publish(logged, body)
            reader = await stream.subscribe(logged, ordered_consumer=True, pending_bytes_limit=5_000_000)
            for _ in range(count):
                assert len((await reader.next_msg(LONG_S)).data) == len(body)
                await asyncio.sleep(0.005)

    run(case())
