"""`ordercast.Client` with real servers: Debian's nats-server and nodes alike."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from nats_servers import LONG_S, STREAM, Login, Server, Starting, add_stream

from ordercast import Client
from ordercast.errors import AccessDenied, MessageTooLarge, NoResponders


def run(case: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(case, LONG_S))


def test_messages_with_headers_to_patterns(server: Server, subject: str) -> None:
    async def case() -> None:
        async with Client(server.address) as one, Client(server.url) as other:
            joined = await other.join(f"{subject}.*", log=False)
            for number in range(200):
                await one.send(f"{subject}.{number % 2}", b"%d" % number, headers={"Number": str(number)})
            for number in range(200):
                message = await anext(joined)
                assert message.payload == b"%d" % number
                assert message.group == f"{subject}.{number % 2}"
                assert message.headers == {"Number": str(number)}
            assert (joined.logged, message.seq, message.reply) == (False, None, "")

    run(case())


def test_those_with_one_queue_share_the_work(server: Server, subject: str) -> None:
    async def case() -> None:
        async with Client(server.address) as one, Client(server.address) as other:
            workers = [await client.join(subject, queue="workers") for client in (one, other)]
            for number in range(100):
                await one.send(subject, b"%d" % number)
            await one.flush()
            await other.flush()
            for worker in workers:
                await worker.leave()
            done = [message.payload for worker in workers async for message in worker]
            assert sorted(done) == sorted(b"%d" % number for number in range(100))

    run(case())


def test_requests(server: Server, subject: str) -> None:
    async def case() -> None:
        async with Client(server.address) as one, Client(server.address) as other:
            service = await other.join(subject, queue="service")

            async def serve() -> None:
                async for request in service:
                    await other.respond(request, request.payload.upper(), headers={"By": "other"})

            serving = asyncio.create_task(serve())
            answer = await one.request(subject, b"ask")
            assert (answer.payload, answer.headers) == (b"ASK", {"By": "other"})
            with pytest.raises(NoResponders):
                await one.request(f"{subject}.nobody")
            await service.leave()
            await serving

    run(case())


def test_safe_messages_are_acknowledged_and_read_from_the_log(server: Server, logged: str) -> None:
    async def case() -> None:
        async with Client(server.address) as one, Client(server.address) as other:
            joined = await other.join(f"{logged}.>")
            sent = await asyncio.gather(
                *(one.send(f"{logged}.{number}", b"%d" % number, safe=True) for number in range(300))
            )
            places = [each.seq for each in sent]
            assert places == sorted(set(places)), "in the order they were sent in"
            assert {(each.stream, each.duplicate) for each in sent} == {(STREAM, False)}
            read = [await anext(joined) for _ in range(300)]
            assert [message.payload for message in read] == [b"%d" % number for number in range(300)]
            assert [message.seq for message in read] == places
            assert joined.logged
            again = await other.join(f"{logged}.*", start=places[250])
            assert [(await anext(again)).seq for _ in range(50)] == places[250:]

    run(case())


def test_messages_of_a_session_are_in_the_log_once(server: Server, logged: str) -> None:
    """A program that is started anew sends from the beginning, or from where it was."""

    async def case() -> None:
        async with Client(server.address, session=logged) as client:
            first = [await client.send(logged, b"%d" % number, safe=True) for number in range(5)]
        async with Client(server.address, session=logged) as client:
            again = [await client.send(logged, b"%d" % number, safe=True) for number in range(8)]
            assert [each.seq for each in again[:5]] == [each.seq for each in first]
            assert [each.duplicate for each in again] == [True] * 5 + [False] * 3
            joined = await client.join(logged, start=first[0].seq)
            assert [(await anext(joined)).payload for _ in range(8)] == [
                b"%d" % number for number in range(8)
            ]

    run(case())


def test_a_slow_reader_of_a_log_loses_nothing(server: Server, logged: str) -> None:
    async def case() -> None:
        async with Client(server.address) as one, Client(server.address) as other:
            joined = await other.join(logged)
            await asyncio.gather(*(one.send(logged, bytes(10_000), safe=True) for _ in range(1_500)))
            seen = set()
            for _ in range(1_500):
                message = await anext(joined)
                seen.add(message.seq)
                assert len(joined._inbox) <= 1_024, "no more than there is room for was asked for"
            assert len(seen) == 1_500

    run(case())


def test_nothing_is_lost_or_repeated_while_the_server_ends_and_comes_back(
    start: Starting, logged: str
) -> None:
    (only,) = start()

    async def case() -> None:
        await add_stream(only)
        async with Client(only.address) as one, Client(only.address) as other:
            joined = await other.join(logged)
            sent: list[int] = []
            done = asyncio.Event()

            async def send(which: int) -> None:
                number = 0
                while not done.is_set():
                    found = await one.send(logged, b"%d %d" % (which, number), safe=True)
                    sent.append(found.seq)
                    number += 1

            senders = [asyncio.create_task(send(which)) for which in range(10)]
            for _ in range(2):
                enough = len(sent) + 100
                while len(sent) < enough:
                    await asyncio.sleep(0.01)
                only.kill()
                await asyncio.to_thread(only.start)
            enough = len(sent) + 100
            while len(sent) < enough:
                await asyncio.sleep(0.01)
            done.set()
            await asyncio.gather(*senders)
            read = [await anext(joined) for _ in range(len(sent))]
            assert [message.seq for message in read] == sorted(sent)
            assert len({message.payload for message in read}) == len(sent), "each message once"
            for which in range(10):
                mine = [m.payload for m in read if m.payload.startswith(b"%d " % which)]
                assert mine == [b"%d %d" % (which, number) for number in range(len(mine))]
            assert one.connections >= 3

    run(case())


def test_a_client_goes_over_to_a_server_that_it_was_told_of(start: Starting, subject: str) -> None:
    first, second = start(2)

    async def case() -> None:
        while second.address not in ((await asyncio.to_thread(first.info)) or {}).get("connect_urls", ()):
            await asyncio.sleep(0.05)
        async with Client(first.address) as one:
            joined = await one.join(subject, log=False)
            first.kill()
            while one.address != second.address:
                await asyncio.sleep(0.01)
            await one.send(subject, b"here")
            assert (await anext(joined)).payload == b"here"

    run(case())


@pytest.mark.parametrize(
    ("login", "right", "wrong"),
    [
        (Login(user="ann", password="x"), {"user": "ann", "password": "x"}, {"user": "ann", "password": "y"}),
        (Login(token="t"), {"token": "t"}, {"token": "other"}),
    ],
    ids=["password", "token"],
)
def test_who_is_not_known_is_not_let_in(
    start: Starting, subject: str, login: Login, right: dict[str, str], wrong: dict[str, str]
) -> None:
    (closed,) = start(login=login)

    async def case() -> None:
        async with Client(closed.address, **right) as client:  # type: ignore[arg-type]
            await client.send(subject, b"in")
            await client.flush()
        with pytest.raises(AccessDenied, match=f"{closed.address} does not let this client in"):
            await Client(closed.address, **wrong).start()  # type: ignore[arg-type]
        if login.user:
            async with Client(f"nats://{login.user}:{login.password}@{closed.address}") as client:
                await client.flush()

    run(case())


def test_tls_and_a_small_server(start: Starting, subject: str) -> None:
    (closed,) = start(tls=True, max_payload=100_000)

    async def case() -> None:
        async with Client(closed.address, tls=closed.directory / "ca.pem") as client:
            joined = await client.join(subject, log=False)
            await client.send(subject, bytes(100_000))
            assert (await anext(joined)).payload == bytes(100_000)
            with pytest.raises(MessageTooLarge, match="100,000"):
                await client.send(subject, bytes(100_001))
        with pytest.raises(AccessDenied, match=r"is not trusted .*name the file"):
            await Client(closed.address, connect_timeout=LONG_S).start()

    run(case())
