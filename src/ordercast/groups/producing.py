"""Producers as a node serves them: it takes their rows, multicasts them, and tells how far they are.

What is said, each a small header and, with rows, a body:

    task   {"op": "produce", "group", "producer", "batch", "run", "attempt", "anew", "headed"}
    node   {"outcome": "taken", "rows", "checksum", "fence"}   so many rows are delivered: go on behind them
           {"outcome": "before"}                               the whole batch was, some time ago
           {"outcome": "superseded"}                           another attempt has taken over
           {"outcome": "unknown", "batches"}                   only so many batches of the job are known here
           {"outcome": "full"}                                 too many producers are remembered
    task   {"rows": first, "fence"} and the rows               again and again
    node   {"kept": count}                                     so many are delivered, and in this node's log

    job    {"op": "commit", "job", "batch", "done"}            all tasks of the batch are done
    node   {"outcome": "taken"}                                they are released, and the log has it

When the configuration changes, rows on their way may be dropped. The node then fences again by itself, and
says once more how far the producer is, as another ``taken``; rows that were sent before that are left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ordercast.core.identity import Batch
from ordercast.core.wire import UNREADABLE
from ordercast.errors import ConfigProblem, MessageTooLarge
from ordercast.groups.lifetime import Lifetime
from ordercast.groups.local_process import check_group
from ordercast.groups.notes import (
    LONGEST_NAME,
    MOST_PRODUCERS,
    OWNER_SIZE,
    Ask,
    Commit,
    Fence,
    JobName,
    Name,
    Number,
    Run,
    written,
)
from ordercast.groups.producer_table import Answer, Outcome
from ordercast.groups.producers import (
    FRONT_SIZE,
    GUARANTEE,
    Producers,
    concern,
    row_fronts,
)
from ordercast.groups.send_gate import SendGate

LOG = logging.getLogger("ordercast")

ASK_AGAIN_S = 1.0
"""What was asked in a configuration that ended is asked again after so long at the latest."""
_CHUNK = 256
"""Rows handed over at a time: between them others may send."""
_decode_rows = msgspec.msgpack.Decoder(list[bytes]).decode


class ClientChannel(Protocol):
    """A connection to a task."""

    async def receive(self) -> tuple[dict[str, Any], bytes] | None:
        """What it says next; None when it has gone."""

    async def send(self, header: dict[str, Any]) -> None:
        """Tell it something."""


class Produce(msgspec.Struct, frozen=True):
    """Who wants to write what."""

    group: str
    producer: Name
    batch: Number
    run: Run
    attempt: Number
    anew: bool = False
    """Take the batch though those before it are not known."""
    headed: bool = False
    """Its rows begin with what is said beside them (`ordercast.process_groups.notes.head`)."""


class Done(msgspec.Struct, frozen=True):
    """A batch of a job is done."""

    job: JobName
    batch: Number
    done: bool = False
    """No batch comes after it."""


class SomeRows(msgspec.Struct, frozen=True):
    """Some rows are to be sent."""

    rows: Number
    """Number of the first."""
    fence: int


class Producing:
    """The producers of a node: what it delivers of them, and the tasks that it serves."""

    def __init__(self, gate: SendGate, lifetime: Lifetime) -> None:
        """What is multicast for producers goes through `gate`, until the end of `lifetime`."""
        self.gate = gate
        self.lifetime = lifetime
        self.producers = Producers(_now_us, self._wake, gate.slow_groups.hear)
        self.kept: Callable[[], Awaitable[None]] | None = None
        """Waits until all that was delivered so far is in the node's log; None without one."""
        self._note: Callable[[Mapping[bytes, bytes | None]], None] | None = None
        self._waiting: set[asyncio.Event] = set()

    def admit(self, batch: Batch) -> Sequence[Batch]:
        """What is to be delivered of a batch of safe messages; asked to, this node says what it knows."""
        if not concern(batch.payloads):
            return (batch,)
        producers = self.producers
        admitted = producers.admit(batch)
        if producers.table.unsaved:
            changed = producers.table.take_unsaved()
            if self._note is not None:
                self._note(changed)
        if producers.to_send and not self.lifetime.leaving:
            notes, producers.to_send = producers.to_send, []
            try:
                self.submit(notes)
            except MessageTooLarge as error:
                LOG.error("producers cannot be served: %s", error)
        return admitted

    def use_log(
        self,
        notes: Mapping[bytes, bytes],
        note: Callable[[Mapping[bytes, bytes | None]], None],
        kept: Callable[[], Awaitable[None]],
    ) -> None:
        """There is a log: what it remembers of earlier lives, should nobody else know any more; how to note
        more in it; and how to wait until it has all that was delivered."""
        self.producers.table.restore(notes)
        self._note = note
        self.kept = kept

    def submit(self, payloads: Sequence[bytes]) -> None:
        """Hand over what is about producers; few enough not to ask for room.

        What no machine takes is refused here: it would stay at the head of the queue, and everything behind.
        """
        longest, largest = max(map(len, payloads), default=0), self.gate.largest
        if longest > largest:
            raise MessageTooLarge(
                f"a note of {longest:,} bytes about producers does not fit into a message of {largest:,}: "
                "raise max_message_size at every node"
            )
        self.gate.submit(payloads, sum(map(len, payloads)), GUARANTEE)

    async def serve(self, channel: ClientChannel, request: dict[str, Any]) -> None:
        """Serve a task until it goes."""
        try:
            asked = msgspec.convert(request, Produce, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigProblem(
                f"this producer is refused ({error}): names of producers have 1 to {LONGEST_NAME} bytes, "
                f"those of runs at most {LONGEST_NAME}, and numbers are not negative"
            ) from error
        check_group(asked.group)
        await _Serving(self, channel, asked).run()

    async def commit(self, channel: ClientChannel, request: dict[str, Any]) -> None:
        """Tell all members that a batch is done, and the job when they know and the log has it."""
        try:
            done = msgspec.convert(request, Done, strict=False)
        except msgspec.ValidationError as error:
            told = f"this commit is refused ({error}): use the same version on both sides"
            raise ConfigProblem(told) from error
        ordering = _Ordering(self)
        try:
            answer = await ordering.order(
                lambda owner: Commit(done.job, done.batch, done.done, owner, _now_us())
            )
        finally:
            ordering.close()
        if self.kept is not None:
            await self.kept()
        await channel.send({"outcome": answer.outcome.value})

    def event(self) -> asyncio.Event:
        """Set whenever something may have changed."""
        event = asyncio.Event()
        self._waiting.add(event)
        return event

    def drop(self, event: asyncio.Event) -> None:
        """Nobody waits for it any more."""
        self._waiting.discard(event)

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()


class _Serving:
    """One task being served."""

    def __init__(self, producing: Producing, channel: ClientChannel, asked: Produce) -> None:
        self._producing = producing
        self._producers = producing.producers
        self._gate = producing.gate
        self._channel = channel
        self._asked = asked
        self._groups = (asked.group,)
        self._ordering = _Ordering(producing)
        self._event = self._ordering.event
        self._owner = b""
        self._epoch = -1
        self._fence = 0

    async def run(self) -> None:
        reading = asyncio.create_task(self._read(), name="ordercast-rows")
        telling = asyncio.create_task(self._tell(), name="ordercast-kept")
        try:
            await asyncio.wait((reading, telling), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._ordering.close()
            for task in (reading, telling):
                task.cancel()
            ended = await asyncio.gather(reading, telling, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    # --- rows come ------------------------------------------------------------------------------

    async def _read(self) -> None:
        while (said := await self._channel.receive()) is not None:
            header, body = said
            some = msgspec.convert(header, SomeRows)
            if some.fence == self._fence:
                await self._take(some.rows, _rows(body), self._fence)

    async def _take(self, first: int, rows: list[bytes], fence: int) -> None:
        gate = self._gate
        longest = max(map(len, rows), default=0)
        if longest + FRONT_SIZE > gate.largest:
            raise MessageTooLarge(
                f"a row of {longest:,} bytes is too large: at most {gate.largest - FRONT_SIZE:,} fit here; "
                "split it, or raise max_message_size at every node"
            )
        step = max(1, min(_CHUNK, 65_536 // (longest + FRONT_SIZE)))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            if gate.must_wait(self._groups):
                await gate.wait(self._groups, sum(map(len, some)), None)
            if fence != self._fence or self._epoch != self._producers.epoch:
                return  # they would be dropped; the task is told how to go on
            begin, headed = first + start, self._asked.headed
            fronts = row_fronts(self._owner, begin, len(some), gate.stamp(), headed=headed)
            self._producing.submit([front + row for front, row in zip(fronts, some, strict=True)])

    # --- and the task is told -------------------------------------------------------------------

    async def _tell(self) -> None:
        kept = -1
        while True:
            self._event.clear()
            progress = self._producers.owns(self._owner)
            if progress is None:
                if not await self._begin():
                    return
                kept = -1
                continue
            if progress.count > kept:
                count = progress.count
                if self._producing.kept is not None:
                    await self._producing.kept()
                await self._channel.send({"kept": count})
                kept = count
            else:
                await self._event.wait()

    async def _begin(self) -> bool:
        """Fence, and tell the task where to go on; False if it must not."""
        superseded = self._epoch == self._producers.epoch  # or else it was the configuration that changed
        answer = Answer(Outcome.SUPERSEDED) if superseded else await self._fence_off()
        said: dict[str, Any] = {"outcome": answer.outcome.value}
        if answer.outcome is Outcome.TAKEN:
            self._fence += 1
            said |= {"rows": answer.rows, "checksum": answer.checksum, "fence": self._fence}
        elif answer.outcome is Outcome.UNKNOWN:
            said["batches"] = answer.batches
        elif answer.outcome is Outcome.FULL:
            said["most"] = MOST_PRODUCERS
        await self._channel.send(said)
        return answer.outcome is Outcome.TAKEN

    async def _fence_off(self) -> Answer:
        asked = self._asked
        answer = await self._ordering.order(
            lambda owner: Fence(
                asked.producer,
                asked.batch,
                asked.run,
                asked.attempt,
                owner,
                asked.group,
                _now_us(),
                asked.anew,
            )
        )
        self._owner, self._epoch = self._ordering.owner, self._ordering.epoch
        return answer


class _Ordering:
    """Multicasts fences and commits, and waits for what becomes of them, through changes of the members."""

    def __init__(self, producing: Producing) -> None:
        self.event = producing.event()
        self.owner = b""
        """Of what was ordered last, and the epoch that it was ordered in."""
        self.epoch = -1
        self._producing = producing
        self._producers = producing.producers

    def close(self) -> None:
        """Nobody waits any more."""
        self._producing.drop(self.event)

    async def order(self, note: Callable[[bytes], Fence | Commit]) -> Answer:
        """What becomes of the note, which is made for an owner."""
        asked_for_time = False
        while True:
            await self._settled()
            epoch, owner = self._producers.epoch, os.urandom(OWNER_SIZE)
            answer = await self._sent(note(owner), epoch)
            if answer is not None and answer.outcome is Outcome.FULL and not asked_for_time:
                asked_for_time = True  # some may be too old, by a clock that nobody has told of late
                self._producing.submit((written(Ask()),))
                await asyncio.sleep(ASK_AGAIN_S)
            elif answer is not None and answer.outcome is not Outcome.UNSETTLED:
                self.owner, self.epoch = owner, epoch
                return answer

    async def _sent(self, note: Fence | Commit, epoch: int) -> Answer | None:
        """What becomes of a note; None if the configuration changes before that is known."""
        answers, owner = self._producers.answers, note.owner
        answers[owner] = None
        try:
            self._producing.submit((written(note),))
            while answers[owner] is None and self._producers.epoch == epoch:
                await self._changes()
            return answers[owner]
        finally:
            del answers[owner]

    async def _settled(self) -> None:
        """Wait until all members of the configuration have said what they know."""
        while not self._producers.settled:
            epoch = self._producers.epoch
            self._producing.submit((written(Ask()),))
            until = time.monotonic() + ASK_AGAIN_S
            while not self._producers.settled and self._producers.epoch == epoch and time.monotonic() < until:
                await self._changes()

    async def _changes(self) -> None:
        """Wait for a change, or for a while."""
        self.event.clear()
        try:
            async with asyncio.timeout(ASK_AGAIN_S):
                await self.event.wait()
        except TimeoutError:
            self._producing.lifetime.check_open()


def _now_us() -> int:
    return time.time_ns() // 1000


def _rows(body: bytes) -> list[bytes]:
    try:
        return _decode_rows(body)
    except UNREADABLE as error:
        raise msgspec.ValidationError(f"these are no rows: {error}") from error
