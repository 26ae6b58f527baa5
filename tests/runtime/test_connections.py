"""Connections: who has to go when there are too many, who stays, and what memory all of them share."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from ordercast.errors import ConfigProblem
from ordercast.runtime import connections as module
from ordercast.runtime.connections import (
    LEAST,
    RESERVE,
    SPARED_S,
    STALLED_S,
    Connection,
    Connections,
    Listener,
    allowance,
    bound,
)
from ordercast.transport.address import source_of


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def admitted(connections: Connections, source: str) -> Connection:
    found = connections.admit(source)
    assert found is not None
    return found


def going(connections: Connections) -> list[Connection]:
    return [one for one in connections._open if one.ended]


def test_the_oldest_unproven_goes_first_and_the_proven_stay() -> None:
    connections = Connections(4, clock=Clock())
    proven = admitted(connections, "a")
    assert connections.prove(proven)
    old, young = admitted(connections, "b"), admitted(connections, "c")
    admitted(connections, "d")
    assert connections.full
    assert connections.make_room()
    assert going(connections) == [old]
    connections.closed(old)
    assert not connections.full
    assert not young.ended
    assert connections.drops == {"too many connections": 1}


def test_a_source_with_too_many_loses_its_own() -> None:
    connections = Connections(8, clock=Clock())
    other = admitted(connections, "other")
    crowd = [admitted(connections, "crowd") for _ in range(connections.most_of_one)]
    admitted(connections, "crowd")
    assert going(connections) == crowd[:1]
    assert not other.ended


def test_of_proven_ones_the_longest_idle_goes_and_none_that_is_at_work() -> None:
    clock = Clock()
    connections = Connections(4, clock=clock)
    first, second, third = (admitted(connections, "a") for _ in range(3))
    for one in (first, second, third):
        assert connections.prove(one)
    fourth = admitted(connections, "b")
    assert connections.busy
    assert not connections.prove(fourth)
    assert not connections.make_room("a")
    clock.now += SPARED_S
    connections.touch(first)
    assert not connections.busy
    assert connections.prove(fourth)
    assert going(connections) == [second]


def test_those_opened_with_a_key_end_with_it() -> None:
    connections = Connections(4)
    old, new, none = (admitted(connections, "a") for _ in range(3))
    old.key_id, new.key_id = 1, 2
    connections.end_of_other_keys([2, 3])
    assert going(connections) == [old]
    assert not none.ended


def test_the_books_are_empty_when_all_have_gone() -> None:
    connections = Connections(4)
    for one in [admitted(connections, source) for source in "abca"]:
        connections.prove(one)
        connections.closed(one)
        connections.closed(one)
    assert (len(connections), connections._proven, dict(connections._by_source)) == (0, 0, {})


def test_memory_is_shared_in_turn_and_who_stalls_goes_for_others() -> None:
    clock = Clock()

    async def main() -> None:
        connections = Connections(4, most_bytes=100, clock=clock)
        one, two, three = (admitted(connections, "a") for _ in range(3))
        order = []

        async def use(who: Connection, size: int, name: str, until: asyncio.Event) -> None:
            await connections.take(who, size)
            try:
                order.append(name)
                await until.wait()
            finally:
                connections.give(who, size)

        done = [asyncio.Event() for _ in range(3)]
        first = asyncio.create_task(use(one, 80, "first", done[0]))
        await asyncio.sleep(0)
        second = asyncio.create_task(use(two, 80, "second", done[1]))
        await asyncio.sleep(0)
        assert order == ["first"]
        assert not one.ended
        done[0].set()
        await first
        while order != ["first", "second"]:
            await asyncio.sleep(0)
        clock.now += STALLED_S
        third = asyncio.create_task(use(three, 80, "third", done[2]))
        await asyncio.sleep(0)
        assert two.ended == "stalled"
        second.cancel()  # as its listener does
        done[2].set()
        await third
        assert connections._held == 0

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_frame_larger_than_all_memory_is_alone_with_it() -> None:
    async def main() -> None:
        connections = Connections(4, most_bytes=100)
        one = admitted(connections, "a")
        await connections.take(one, 500)
        assert not connections.try_take(one, 1)
        connections.give(one, 500)
        assert connections.try_take(one, 50)
        assert not connections.try_take(one, 1), "half is left to those who have nothing"

    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize(
    ("address", "source"),
    [
        (("10.0.0.1", 5), "10.0.0.1"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "2001:db8:1:2::/64"),
        (("::ffff:10.0.0.1", 5, 0, 0), "10.0.0.1"),
        (("fe80::1%lo", 5, 0, 1), "fe80::/64"),
        ("", "local"),
    ],
)
def test_who_is_counted_together(address: object, source: str) -> None:
    assert source_of(address) == source


# --- listening ----------------------------------------------------------------------------------


def listening(most: int, body: Callable[[Listener, Connections], Awaitable[None]]) -> None:
    """A service that proves whoever says something, and says it back."""

    async def main() -> None:
        connections = Connections(most)

        async def echo(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection
        ) -> None:
            while line := await reader.readline():
                assert connections.prove(connection)
                writer.write(line)

        listener = Listener(await bound("127.0.0.1", 0, "an echo", "choose another"), connections, echo)
        async with asyncio.timeout(30):
            await body(listener, connections)
            await listener.close()
        while len(connections):
            await asyncio.sleep(0)

    asyncio.run(main())


async def echoed(address: tuple[str, int]) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    return writer


def test_a_crowd_of_silent_ones_pushes_out_itself() -> None:
    async def body(listener: Listener, connections: Connections) -> None:
        first = await echoed(listener.address)
        silent = []
        for _ in range(200):
            _, writer = await asyncio.open_connection(*listener.address)
            silent.append(writer)
            assert len(connections) <= 8
        last = await echoed(listener.address)
        assert connections.status()["proven"] == 2
        assert connections.drops["too many connections"] >= 190
        for writer in (first, last, *silent):
            writer.close()

    listening(8, body)


def test_without_a_descriptor_a_listener_waits_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.001)

    async def body(listener: Listener, connections: Connections) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket() as line, ExitStack() as taken:
            line.setblocking(False)
            used = max(map(int, os.listdir("/proc/self/fd")))
            resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
            taken.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
            with suppress(OSError):  # numbers below the highest may be free
                while True:
                    taken.callback(os.close, os.dup(line.fileno()))
            line.connect_ex(listener.address)
            while not connections.drops["no descriptor"]:
                await asyncio.sleep(0.001)
            taken.close()
            (await echoed(listener.address)).close()

    listening(8, body)


def test_a_limit_of_descriptors_leaves_a_reserve_or_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    used = len(os.listdir("/proc/self/fd"))
    limits = [used + RESERVE + LEAST + 5] * 2
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    changed: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, to: changed.append(to))
    assert LEAST <= allowance() <= LEAST + 10
    assert not changed
    limits[:] = [used + 3] * 2
    with pytest.raises(ConfigProblem, match=r"may have \d+ files and sockets open .* `ulimit -n 1024`"):
        allowance()
    limits[:] = [used + 3, 1_000_000]
    assert allowance() > 100
    assert changed == [(1024, 1_000_000)]


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    before = set(Path("/proc/self/fd").iterdir())
    yield
    assert len(set(Path("/proc/self/fd").iterdir())) <= len(before) + 1
