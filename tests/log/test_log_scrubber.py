"""A node looks after the files of its log: in virtual time, with logs on a real disk."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from log_parts import delivered, installed, rows, store

from ordercast.groups import log_scrubber
from ordercast.groups.log_scrubber import AGAIN_S, CHECK_S, LOOK_S, MOST_AGAIN_S, LogScrubber, read_mark
from ordercast.keys import Keyring, generate
from ordercast.log import Replica
from ordercast.log.disk import read_head
from ordercast.log.store import Store
from ordercast.testing import run


class Committed:
    """A log that has had so many commits."""

    path = Path("log")
    commits = 7


def scrubber(mark: Path) -> LogScrubber:
    return LogScrubber(cast("Store", Committed()), mark, list, lambda: None, lambda: 0)


def test_how_many_commits_there_were_is_noted(tmp_path: Path) -> None:
    scrubber(tmp_path / "mark").note()
    assert read_mark(tmp_path / "mark", Committed.path) == 7
    assert read_mark(tmp_path / "mark", Path("another")) == 0


def test_a_disk_that_refuses_the_note_is_told_of_once(
    tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", str(tmp_path))

    one = scrubber(tmp_path / "mark")
    with monkeypatch.context() as refusing:
        refusing.setattr(os, "replace", full)
        one.note()
        one.note()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left on device" in caplog.text
    assert "old copy of the log would not be noticed" in caplog.text
    one.note()
    assert read_mark(tmp_path / "mark", Committed.path) == 7


# --- a log with damage ------------------------------------------------------------------------------

LAST = "8.1/99/0"


def fill(path: Path, node: int) -> Store:
    """A log with several segments; open, as a running node has it."""
    log = store(path, node, most_bytes=600_000)
    log.append([installed("8.1", 1, 2, first=True)])
    for seq in range(1, 100, 3):
        log.append([delivered(number, f"{number} " + "x" * 3000) for number in range(seq, seq + 3)])
    return log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Store]:
    opened = fill(tmp_path / "1", 1)
    yield opened
    opened.close()


@pytest.fixture
def other(tmp_path: Path) -> str:
    """The directory of another replica."""
    fill(tmp_path / "2", 2).close()
    return str(tmp_path / "2")


def spoil(log: Store) -> None:
    """Change a byte in the middle of a segment that is written no more."""
    _, segment, *_ = sorted(log.path.glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)


class Scrubbed:
    """A scrubber at work, and what it is told."""

    def __init__(self, log: Store) -> None:
        self.others: list[str] = []
        self.asked: list[float] = []
        """When it wanted to know of other replicas, in seconds."""
        self.met = 0
        self.scrubber = LogScrubber(log, None, self._tell_others, lambda: None, lambda: self.met)

    def _tell_others(self) -> list[str]:
        self.asked.append(asyncio.get_running_loop().time())
        return self.others

    def during(self, test: Coroutine[Any, Any, None]) -> None:
        async def main() -> None:
            scrubbing = asyncio.create_task(self.scrubber.run())
            await test
            scrubbing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await scrubbing

        run(main())


@contextmanager
def said(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What the node's log says meanwhile."""
    caplog.clear()
    told: list[str] = []
    with caplog.at_level(logging.WARNING, "ordercast"):
        yield told
        told += caplog.messages


def test_damage_is_found_at_the_start_and_repaired_from_another_replica(
    log: Store, other: str, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(log)
    one = Scrubbed(log)
    one.others = [other]
    with said(caplog) as told:
        one.during(asyncio.sleep(30))
    (sentence,) = told
    assert "was damaged" in sentence
    assert f"repaired from {other}" in sentence
    assert one.scrubber.damaged == []
    with Replica(other) as whole, Replica(str(log.path)) as repaired:
        assert rows(repaired, None, LAST) == rows(whole, None, LAST)


def test_damage_that_nobody_can_repair_is_told_once_and_tried_again_less_and_less_often(
    log: Store, other: str, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(log)
    one = Scrubbed(log)

    async def test() -> None:
        await asyncio.sleep(5 * MOST_AGAIN_S)
        assert len(one.scrubber.damaged) == 1
        one.others = [other]
        await asyncio.sleep(MOST_AGAIN_S + 2 * LOOK_S)
        assert one.scrubber.damaged == []

    with said(caplog) as told:
        one.during(test())
    unrepaired, repaired = told
    assert "damaged, and not repaired yet: after 8.1/" in unrepaired
    assert "repaired from" in repaired
    pauses = [later - at for at, later in pairwise(one.asked)]
    waits = [pause for pause in pauses if pause > LOOK_S]  # segments of one check follow each other closely
    expected = [AGAIN_S, 4, 8, 16, 32, 64, MOST_AGAIN_S, MOST_AGAIN_S]
    assert waits[: len(expected)] == pytest.approx(expected, abs=2 * LOOK_S)


def test_what_a_reader_meets_and_what_the_log_finds_is_looked_after_at_once(
    log: Store, other: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = Scrubbed(log)
    one.others = [other]

    async def test() -> None:
        for who in ("a reader", "the log"):
            await asyncio.sleep(60)
            spoil(log)
            before = len(one.asked)
            if who == "a reader":
                one.met += 1
            else:
                log.problems.append("a file was cut")
            await asyncio.sleep(2 * LOOK_S)
            assert len(one.asked) > before
            assert not any(log.check(segment) for segment in log.finished)

    with said(caplog) as told:
        one.during(test())
    assert sum("repaired from" in sentence for sentence in told) == 2
    assert "the log is damaged: a file was cut" in told


def test_everything_is_read_through_every_hour(log: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_scrubber, "LOOK_S", 60.0)
    one = Scrubbed(log)
    one.during(asyncio.sleep(2.5 * CHECK_S))
    checks = {int(at // CHECK_S) for at in one.asked}
    assert checks == {0, 1, 2}
    assert len(one.asked) == 3 * len(log.finished)


def test_a_head_that_cannot_be_read_is_written_anew(log: Store, caplog: pytest.LogCaptureFixture) -> None:
    one = Scrubbed(log)

    async def test() -> None:
        await asyncio.sleep(60)
        (log.path / "head").write_bytes(b"no head")
        await asyncio.sleep(2 * LOOK_S)

    with said(caplog) as told:
        one.during(test())
    assert told == [f"the head of the log in {log.path} was damaged, and is written anew"]
    assert read_head(log.path)[1] is None


def test_other_replicas_are_read_with_the_keys_of_the_group(
    log: Store, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("ordercast.groups.log_scrubber.mend", lambda *given: asked.append(given[2]))
    ring = Keyring((generate(), generate()))
    one = LogScrubber(log, None, lambda: [other], lambda: ring, lambda: 0)

    async def test() -> None:
        scrubbing = asyncio.create_task(one.run())
        await asyncio.sleep(60)
        scrubbing.cancel()

    run(test())
    assert asked == [[(other, ring)]] * len(log.finished)
