"""What a group remembers of producers: which batches of a job are delivered whole, and how far each task is.

A *job* is a query that writes into a group; its tasks are *producers*, whose names begin with the job's.
Within a batch every producer that has sent something is remembered. When the job says that the batch is done,
they are released: that batches up to this one were delivered is all there is to know. Nobody is forgotten to
make room for another: a full table refuses who is new. What is too old goes, by the clock that members agree
on in the order; and who comes back after that is not taken for a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from ordercast.core.wire import UNREADABLE
from ordercast.groups.notes import (
    MOST_KNOWN,
    MOST_PRODUCERS,
    Commit,
    Fence,
    Job,
    Progress,
    decode_job,
    decode_progress,
    job_of,
)

SECOND_US = 1_000_000
KEPT_US = 7 * 24 * 3600 * SECOND_US
"""A job that has said nothing for so long is forgotten."""
DONE_US = 3600 * SECOND_US
"""How long it is remembered that a job is over, in microseconds: tasks of it that still run are told."""


class Outcome(Enum):
    """What became of a fence."""

    TAKEN = "taken"
    """Rows may be sent; or, of a commit: it is done."""
    BEFORE = "before"
    """The whole batch was delivered before."""
    SUPERSEDED = "superseded"
    """A later attempt of the same run was there before."""
    UNSETTLED = "unsettled"
    """The configuration has just changed: ask first, then fence again."""
    UNKNOWN = "unknown"
    """The group does not know the batches of the job before this one."""
    FULL = "full"
    """There is no room to remember another producer."""


class Answer(NamedTuple):
    """What became of a fence, and how many rows of the batch had been delivered by then."""

    outcome: Outcome
    rows: int = 0
    checksum: int = 0
    batches: int = 0
    """Batches of the job that were delivered whole."""


class ProducerTable:
    """What a member knows of jobs and producers. It changes by what is delivered alone."""

    def __init__(self, most: int = MOST_PRODUCERS) -> None:
        self.most = most
        self.jobs: dict[bytes, Job] = {}
        self.progress: dict[bytes, Progress] = {}
        self.unsaved: set[bytes] = set()
        """Keys, as in the log, of what changed since it was last taken down."""

    # --- the log --------------------------------------------------------------------------------

    def restore(self, notes: Mapping[bytes, bytes]) -> None:
        """What an earlier life took down."""
        for key, note in notes.items():
            try:
                if key[:1] == b"j":
                    self.jobs.setdefault(key[1:], decode_job(note))
                elif key[:1] == b"p":
                    self.progress.setdefault(key[1:], decode_progress(note))
                elif key[:1] != b"c":  # those are of clients
                    self.unsaved.add(key)
            except UNREADABLE:
                self.unsaved.add(key)  # of another version: nobody is going to read it

    def take_unsaved(self) -> dict[bytes, bytes | None]:
        """What is to be taken down for a later life, by key; None: it is forgotten."""
        unsaved, self.unsaved = self.unsaved, set()
        known = {
            key: self.jobs.get(key[1:]) if key[:1] == b"j" else self.progress.get(key[1:]) for key in unsaved
        }
        return {key: None if it is None else msgspec.msgpack.encode(it) for key, it in known.items()}

    def changed(self, producer: bytes) -> None:
        """The progress of a producer has changed."""
        self.unsaved.add(b"p" + producer)

    # --- agreeing -------------------------------------------------------------------------------

    def merge(
        self, jobs: Iterable[Mapping[bytes, Job]], progress: Iterable[Mapping[bytes, Progress]]
    ) -> None:
        """What all members know, instead of what this one knew: of each job and producer, the furthest."""
        self.unsaved.update(b"j" + job for job in self.jobs)
        self.unsaved.update(b"p" + producer for producer in self.progress)
        self.jobs, self.progress = {}, {}
        for some_jobs in jobs:
            for name, job in some_jobs.items():
                known = self.jobs.setdefault(name, Job(0, 0))
                known.batches = max(known.batches, job.batches)
                known.time_us = max(known.time_us, job.time_us)
                known.done = known.done or job.done
        for some in progress:
            for producer, it in some.items():
                best = self.progress.get(producer)
                if best is None or _how_far(it) > _how_far(best):
                    self.progress[producer] = it
        for producer, it in list(self.progress.items()):
            owner = self.jobs.setdefault(job_of(producer), Job(it.batch, it.time_us))
            if it.batch < owner.batches:
                del self.progress[producer]
        while len(self) > MOST_KNOWN:  # more than can be told: of many tables that were full, the oldest
            self._forget(min(self.jobs, key=lambda name: (self.jobs[name].time_us, name)))
        self.unsaved.update(b"j" + job for job in self.jobs)
        self.unsaved.update(b"p" + producer for producer in self.progress)

    def expire(self, clock_us: int) -> None:
        """Forget what is too old by the members' clock."""
        for name, job in list(self.jobs.items()):
            if clock_us - job.time_us > (DONE_US if job.done else KEPT_US):
                self._forget(name)

    def _forget(self, name: bytes) -> None:
        del self.jobs[name]
        self.unsaved.add(b"j" + name)
        self._release(name, None)

    def _release(self, name: bytes, batches: int | None) -> None:
        """Forget the job's producers; only those of batches before this one, where one is given."""
        for producer in [producer for producer in self.progress if job_of(producer) == name]:
            if batches is None or self.progress[producer].batch < batches:
                del self.progress[producer]
                self.changed(producer)

    def __len__(self) -> int:
        return len(self.jobs) + len(self.progress)

    # --- fences and commits ---------------------------------------------------------------------

    def fence(self, fence: Fence, clock_us: int) -> Answer:
        """An attempt begins."""
        name = job_of(fence.producer)
        job, before = self.jobs.get(name), self.progress.get(fence.producer)
        batches = 0 if job is None else job.batches
        if fence.batch < batches or (before is not None and fence.batch < before.batch):
            return Answer(Outcome.BEFORE)
        if before is not None and fence.run == before.run and fence.attempt < before.attempt:
            return Answer(Outcome.SUPERSEDED)
        if fence.batch > batches and not fence.anew:
            return Answer(Outcome.UNKNOWN, batches=batches)
        if (before is None or job is None) and not self._has_room(clock_us):
            return Answer(Outcome.FULL)
        if job is not None and name not in self.jobs:
            return self.fence(fence, clock_us)  # it was too old itself
        if job is None:
            job = self.jobs[name] = Job(fence.batch, fence.time_us)
        if fence.batch > batches:
            job.batches = fence.batch
            self._release(name, fence.batch)
        job.time_us = max(job.time_us, fence.time_us)
        now = self.progress.setdefault(fence.producer, Progress(fence.batch, 0, 0, b"", 0, 0))
        now.run, now.attempt, now.time_us = fence.run, fence.attempt, fence.time_us
        self.unsaved.add(b"j" + name)
        self.changed(fence.producer)
        return Answer(Outcome.TAKEN, now.count, now.checksum, job.batches)

    def commit(self, commit: Commit, clock_us: int) -> Answer:
        """A batch of a job is done: its producers are released."""
        job = self.jobs.get(commit.job)
        if job is None:
            if not self._has_room(clock_us):
                return Answer(Outcome.FULL)
            job = self.jobs[commit.job] = Job(0, 0)
        job.batches = max(job.batches, commit.batch + 1)
        job.time_us = max(job.time_us, commit.time_us)
        job.done = job.done or commit.done
        self._release(commit.job, job.batches)
        self.unsaved.add(b"j" + commit.job)
        return Answer(Outcome.TAKEN, batches=job.batches)

    def _has_room(self, clock_us: int) -> bool:
        if len(self) >= self.most:
            self.expire(clock_us)
        return len(self) < self.most


def _how_far(progress: Progress) -> tuple[int, int, int, int, bytes, int]:
    return (
        progress.batch,
        progress.count,
        progress.time_us,
        progress.attempt,
        progress.run,
        progress.checksum,
    )
