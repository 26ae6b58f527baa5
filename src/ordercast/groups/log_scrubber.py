"""A node looks after the files of its log: it tells of damage, and repairs it from the other replicas.

All that is written no more is read through at the start, every hour, and whenever damage was met. What is
damaged is read from the log services of other nodes (`ordercast.log.repair`). The node goes on meanwhile: it
orders, writes its log, and serves what is whole.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ordercast.core.wire import UNREADABLE
from ordercast.errors import OrdercastError
from ordercast.keys import Keyring
from ordercast.log.disk import read_head, spelled
from ordercast.log.repair import SegmentRepair, mend
from ordercast.log.store import Store

LOG = logging.getLogger("ordercast")

LOOK_S = 1.0
"""How often it is asked whether damage was met."""
CHECK_S = 3600.0
"""How often everything is read through."""
AGAIN_S, MOST_AGAIN_S = 2.0, 120.0
"""How soon a repair that failed is tried again; twice as long from one to the next, up to a bound."""
POLITE_S = 0.02
"""Between two segments that are read through."""
MARK_S = 10.0
"""How often the number of commits is noted beside the node's data."""


class Mark(msgspec.Struct):
    """What a data directory remembers of the node's log, so that an old copy of the log is noticed."""

    log: str
    commits: int


def read_mark(path: Path, log: Path) -> int:
    """How many commits the log in this directory is known to have had."""
    try:
        mark = msgspec.json.decode(path.read_bytes(), type=Mark)
    except FileNotFoundError:
        return 0
    except (OSError, *UNREADABLE) as error:
        LOG.warning("%s cannot be read (%s): an old copy of the log would not be noticed now", path, error)
        return 0
    return mark.commits if mark.log == str(log.resolve()) else 0


def write_mark(path: Path, log: Path, commits: int) -> None:
    """Note how many commits the log has had."""
    new = path.with_name(f"{path.name}.new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "wb") as file:
        file.write(msgspec.json.encode(Mark(str(log.resolve()), commits)) + b"\n")
    os.replace(new, path)


class LogScrubber:
    """Looks after the log of a running node."""

    def __init__(
        self,
        store: Store,
        mark: Path | None,
        others: Callable[[], Sequence[str]],
        keyring: Callable[[], Keyring | None],
        met: Callable[[], int],
    ) -> None:
        """`others`: where the logs of other nodes are read; `met`: how often readers have met damage."""
        self._store = store
        self._mark = mark
        self._others = others
        self._keyring = keyring
        self._met = met
        self._mark_refused = False
        self.damaged: list[str] = []
        """Ranges that could not be repaired yet, in words."""

    async def run(self) -> None:
        """Check and repair the log again and again, until cancelled."""
        clock = asyncio.get_running_loop().time
        check_at = mark_at = clock()
        again_s, met = AGAIN_S, 0
        while True:
            problems, self._store.problems = self._store.problems, []
            for problem in problems:
                LOG.error("the log is damaged: %s", problem)
            now = clock()
            if problems or self._met() != met:
                check_at = now
            met = self._met()
            if now >= check_at:
                whole = await self._check()
                check_at = clock() + (CHECK_S if whole else again_s)
                again_s = AGAIN_S if whole else min(2 * again_s, MOST_AGAIN_S)
            if now >= mark_at:
                mark_at = now + MARK_S
                self.note()
            if await asyncio.to_thread(self._head_is_damaged):
                LOG.error("the head of the log in %s was damaged, and is written anew", self._store.path)
                await asyncio.to_thread(self._store.trim)
            await asyncio.sleep(LOOK_S)

    def note(self) -> None:
        """Note how many commits there were; a disk that refuses is told of once, until it takes it again."""
        if self._mark is None:
            return
        try:
            write_mark(self._mark, self._store.path, self._store.commits)
        except OSError as error:
            if not self._mark_refused:
                LOG.warning(
                    "%s cannot be written (%s): an old copy of the log would not be noticed",
                    self._mark,
                    error,
                )
            self._mark_refused = True
        else:
            self._mark_refused = False

    def _head_is_damaged(self) -> bool:
        """Whether it still cannot be read at a second look: the first may have met a write."""
        return all(self._head_is_unreadable() for _ in range(2))

    def _head_is_unreadable(self) -> bool:
        try:
            return read_head(self._store.path)[1] is not None
        except (OSError, OrdercastError):
            return True

    async def _check(self) -> bool:
        """Read everything through, and repair what is damaged; whether all is whole then."""
        damaged = []
        for segment in self._store.finished:
            mended = await asyncio.to_thread(self._mend, segment)
            if mended is None:
                await asyncio.sleep(POLITE_S)
                continue
            if mended.source is not None:
                LOG.warning("%s", mended.sentence)
            else:
                damaged += [spelled(hole) for hole in mended.missing]
        if damaged and damaged != self.damaged:
            LOG.error("the log is damaged, and not repaired yet: %s", "; ".join(damaged))
        self.damaged = damaged
        return not damaged

    def _mend(self, segment: int) -> SegmentRepair | None:
        keyring = self._keyring()
        return mend(self._store, segment, [(where, keyring) for where in self._others()])
