"""From the event loop to the disk: only what is final is written, and memory is bounded."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from log_parts import at, configuration, delivered, rows, store, told

from ordercast.core.identity import ConfigurationId, Kind
from ordercast.errors import StorageProblem
from ordercast.log import Replica
from ordercast.log import feed as feeding
from ordercast.log.feed import Feed, Final
from ordercast.log.store import Store

SAFETY_NET_S = 30


class Fed:
    """A feed, and what it is told and tells."""

    def __init__(self, log: Store) -> None:
        self.final: Final = None
        self.asked = 0
        """How often it was asked what is final: once a tick."""
        self.brakes: list[bool] = []
        self.failures: list[StorageProblem] = []
        self.feed = Feed(
            log, self._tell_final, self._brake, self.failures.append, lambda: time.time_ns() // 1000
        )

    def _tell_final(self) -> Final:
        self.asked += 1
        return self.final

    async def ticks(self, count: int) -> None:
        """Until so many ticks more have passed."""
        asked = self.asked
        await until(lambda: self.asked >= asked + count)

    def _brake(self) -> None:
        self.brakes.append(self.feed.braking)


def fed(test: Callable[[Fed], Coroutine[Any, Any, None]], log: Store) -> None:
    async def guarded() -> None:
        async with asyncio.timeout(SAFETY_NET_S):
            one = Fed(log)
            try:
                await test(one)
            finally:
                await one.feed.close()

    asyncio.run(guarded())


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.005)


def head(path: Path) -> str:
    with Replica(str(path)) as replica:
        return str(replica.bounds().head)


def test_what_is_delivered_is_written_once_it_is_final(tmp_path: Path) -> None:
    log = store(tmp_path)

    async def test(one: Fed) -> None:
        feed, ring = one.feed, configuration("8.1", 1, 2)
        feed.install(ring)
        feed.deliver(delivered(1, "a", "b").batch)
        feed.deliver(delivered(2, "c").batch)
        await one.ticks(3)
        assert head(tmp_path) == "None"
        one.final = (ring.id, 0)
        await until(lambda: head(tmp_path) == "8.1/0/0")
        one.final = (ring.id, 1)
        await until(lambda: head(tmp_path) == "8.1/1/1")
        await one.ticks(3)
        assert head(tmp_path) == "8.1/1/1"
        one.final = (ring.id, 7)
        await feed.kept()
        assert head(tmp_path) == "8.1/2/0"

    fed(test, log)


def test_a_later_configuration_makes_everything_before_it_final(tmp_path: Path) -> None:
    log = store(tmp_path)

    async def test(one: Fed) -> None:
        feed = one.feed
        feed.install(configuration("8.1", 1, 2))
        feed.deliver(delivered(5, "old ring").batch)
        feed.install(configuration("10.1", 1, kind=Kind.TRANSITIONAL))
        feed.deliver(delivered(6, "left over").batch)
        feed.install(configuration("12.1", 1))
        feed.deliver(delivered(1, "new ring").batch)
        one.final = (ConfigurationId(12, 1), 0)
        await until(lambda: head(tmp_path) == "12.1/0/0")
        with Replica(str(tmp_path)) as replica:
            assert told(rows(replica, "8.1/0/0", "12.1/0/0")) == [
                "8.1/5/0 old ring",
                "10.1/0/0 transitional",
                "10.1/6/0 left over",
                "12.1/0/0 regular",
            ]

    fed(test, log)
    assert head(tmp_path) == "12.1/0/0"


def test_what_was_not_final_when_a_life_ended_is_not_in_the_log(tmp_path: Path) -> None:
    log = store(tmp_path)

    async def test(one: Fed) -> None:
        feed = one.feed
        feed.install(configuration("3.1", 1, 2))
        feed.deliver(delivered(1, "final").batch)
        feed.deliver(delivered(2, "not final").batch)
        one.final = (ConfigurationId(3, 1), 1)
        feed.life_over()
        one.final = None
        feed.install(configuration("5.2", 1, 2))
        feed.deliver(delivered(1, "next life").batch)
        one.final = (ConfigurationId(5, 2), 1)
        await feed.kept()
        with Replica(str(tmp_path)) as replica:
            assert replica.bounds().since == at("5.2/0/0")
            assert told(rows(replica, None, "3.1/1/0")) == ["3.1/0/0 regular", "3.1/1/0 final"]
            assert told(rows(replica, "5.2/0/0", "5.2/1/0")) == ["5.2/1/0 next life"]

    fed(test, log)


def test_what_is_final_at_the_end_is_written(tmp_path: Path) -> None:
    log = store(tmp_path)

    async def test(one: Fed) -> None:
        one.feed.install(configuration("3.1", 1))
        one.feed.deliver(delivered(1, "last words").batch)
        one.final = (ConfigurationId(3, 1), 1)

    fed(test, log)
    assert head(tmp_path) == "3.1/1/0"


def slow_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, threading.Event]:
    """A log that is written only once the event is set."""
    log, go = store(tmp_path), threading.Event()
    append = log.append

    def slow(entries: Any) -> None:
        go.wait(SAFETY_NET_S)
        append(entries)

    monkeypatch.setattr(log, "append", slow)
    monkeypatch.setattr(feeding, "WAITING_BYTES", 10_000)
    return log, go


async def deliver_until_it_brakes(one: Fed) -> None:
    one.feed.install(configuration("3.1", 1))
    one.final = (ConfigurationId(3, 1), 10_000)
    for seq in range(1, 40):
        one.feed.deliver(delivered(seq, "x" * 1000).batch)
        await asyncio.sleep(feeding.TICK_S / 10)
    await until(lambda: one.brakes == [True])


def test_a_slow_disk_brakes_the_node_until_it_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, go = slow_store(tmp_path, monkeypatch)

    async def test(one: Fed) -> None:
        await deliver_until_it_brakes(one)
        go.set()
        await one.feed.kept()
        await until(lambda: one.brakes == [True, False])
        assert head(tmp_path) == "3.1/39/0"

    fed(test, log)


def test_a_disk_that_takes_nothing_ends_the_node_so_that_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, go = slow_store(tmp_path, monkeypatch)

    async def test(one: Fed) -> None:
        await deliver_until_it_brakes(one)
        for _ in range(2):
            one.feed.look(feeding.STALL_S - 1)
            assert one.failures == [] or "has taken nothing for 30 s" in str(one.failures[0])
        one.feed.look(feeding.STALL_S)
        assert len(one.failures) == 1
        go.set()

    fed(test, log)


def test_a_disk_that_fails_ends_the_node_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = store(tmp_path)

    def fails(entries: Any) -> None:
        raise StorageProblem("the disk is full: make room")

    monkeypatch.setattr(log, "append", fails)

    async def test(one: Fed) -> None:
        one.feed.install(configuration("3.1", 1))
        one.final = (ConfigurationId(3, 1), 0)
        await until(lambda: bool(one.failures))
        assert str(one.failures[0]) == "the disk is full: make room"

    fed(test, log)


def test_old_entries_go_though_nothing_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "TRIM_S", 0.05)
    log = store(tmp_path, most_age_s=0.2)

    async def test(one: Fed) -> None:
        one.feed.start()
        one.feed.install(configuration("3.1", 1))
        one.final = (ConfigurationId(3, 1), 0)
        await one.feed.kept()
        await until(lambda: log.oldest is None)
        assert head(tmp_path) == "3.1/0/0"

    fed(test, log)
