"""From a node's event loop to its log: what is delivered waits until it is final, then it is written.

Nothing happens here per message but its bytes being counted. A few times a second what has become final is
handed to a thread, which writes it as one transaction; what comes meanwhile waits for the next one. If it
waits in heaps, because the disk is slow, the node brakes: the group is slowed down, memory is not filled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from ordercast.core.addresses import address_of
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Kind
from ordercast.errors import StorageProblem
from ordercast.log.position import Position
from ordercast.log.store import Delivered, Installed, Store

LOG = logging.getLogger("ordercast")

TICK_S = 0.02
"""How often the log is written, while there is something to write or to wait for."""
PAUSE_S, LARGE_BYTES = 0.06, 1024 * 1024
"""Between two writes so much time passes, or so much comes: large blocks need not be merged."""
WAITING_BYTES = 16 * 1024 * 1024
"""What may wait for the disk before the node brakes."""
STALL_S = 30.0
"""A disk that takes nothing for so long while everybody waits for it ends the node, and the others go on."""
TRIM_S = 5.0
"""How often a log that is not written is looked through for entries that are too old."""
MET_S = 10.0
"""How long a node that was away may take to meet the others, before its log is written on without what it
missed."""
_OVERHEAD = 64
"""What an entry counts for beside its bytes."""

Final = tuple[ConfigurationId, int] | None
CatchUp = Callable[[Position, Callable[[], bool]], bool]
"""Appends what is missing before a position, unless it is told to stop; whether that was all of it."""


class Feed:
    """What a node has delivered and not written yet."""

    def __init__(
        self,
        store: Store,
        final: Callable[[], Final],
        brake: Callable[[], None],
        failed: Callable[[StorageProblem], None],
        now_us: Callable[[], int],
        catch_up: CatchUp | None = None,
    ) -> None:
        """`final` is the machine's; `brake` is called when `braking` changes; `failed` ends the node;
        `now_us` is its clock. `catch_up` appends what the log missed; None: nobody has it."""
        self._store = store
        self._final = final
        self._brake = brake
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "ordercast-log")
        self._now_us = now_us
        self._waiting: deque[tuple[Delivered | Installed, int]] = deque()
        """Entries that are not final yet, each with its size in bytes."""
        self._configuration: ConfigurationId | None = None
        """The configuration in which the first waiting entry was delivered."""
        self._ready: list[Delivered | Installed] = []
        self._ready_bytes = 0
        self._writing: asyncio.Future[None] | None = None
        self._wrote = 0.0
        """When the last write began."""
        self._ticking: asyncio.TimerHandle | None = None
        self._trimming: asyncio.TimerHandle | None = None
        self._first_of_life = True
        self._catch_up = catch_up
        self._returns_until: float | None = None
        """The node was away: until then it may meet others who have what it missed."""
        self._ended = False
        self._told = self._settled = 0
        """How many entries came, and how many of them are written, or given up."""
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._notes: dict[bytes, bytes | None] = {}
        self.braking = False
        self._seen = 0
        """How many entries were written when it was last looked at; and for how many seconds no more."""
        self._stood_s = 0.0

    def start(self) -> None:
        """Look after the log even when nothing is delivered."""
        if self._store.ages:
            self._trimming = self._loop.call_later(TRIM_S, self._trim)

    # --- what the node tells --------------------------------------------------------------------

    def deliver(self, batch: Batch) -> None:
        """Messages, in order."""
        payloads = batch.payloads
        size = sum(map(len, payloads)) + _OVERHEAD * len(payloads)
        notes, self._notes = self._notes or None, {}
        self._waiting.append((Delivered(self._now_us(), batch, notes), size))
        self._told += 1
        if self._ticking is None:
            self._tick_soon()

    def note(self, notes: Mapping[bytes, bytes | None]) -> None:
        """What is to be remembered with the messages that are delivered next."""
        self._notes.update(notes)

    def keep_notes(self, batch: Batch) -> None:
        """No more of the batch is delivered: what is to be remembered of it does not wait for the next."""
        if self._notes:
            self.deliver(batch._replace(payloads=[]))

    def install(self, configuration: Configuration) -> None:
        """A configuration, in its place among the messages."""
        if self._first_of_life and self._catch_up is not None and self._store.may_lack:
            self._returns_until = self._loop.time() + MET_S
        self._waiting.append((Installed(self._now_us(), configuration, self._first_of_life), _OVERHEAD))
        self._first_of_life = False
        self._told += 1
        self._store.join_others(configuration.members != (self._store.node,))
        if self._ticking is None:
            self._tick_soon()

    def life_over(self) -> None:
        """The machine has ended this life, and another one follows: what did not become final never will."""
        self._take_final()
        self._settled += len(self._waiting)
        self._waiting.clear()
        self._first_of_life = True

    # --- writing --------------------------------------------------------------------------------

    def _tick_soon(self) -> None:
        if not self._ended:
            self._ticking = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticking = None
        self._take_final()
        if self._writing is None and self._ready and self._is_time() and not self._is_returning():
            self._write()
        if not self.braking and self._ready_bytes > WAITING_BYTES:
            self._set_braking(True)
        if self._waiting or self._ready or self._writing is not None:
            self._tick_soon()

    def _is_time(self) -> bool:
        return self._ready_bytes >= LARGE_BYTES or self._loop.time() - self._wrote >= PAUSE_S

    def _take_final(self) -> None:
        """What has become final is ready to be written."""
        final = self._final()
        waiting = self._waiting
        if final is None or not waiting:
            return
        configuration = self._configuration
        while waiting:
            entry, size = waiting[0]
            if isinstance(entry, Installed):
                here = (entry.configuration.id, 0)
            else:
                assert configuration is not None, "messages are delivered in a configuration"
                here = (configuration, entry.batch.seq)
            if here > final:
                break
            configuration = here[0]
            waiting.popleft()
            self._ready.append(entry)
            self._ready_bytes += size
        self._configuration = configuration

    def _is_returning(self) -> bool:
        """Whether the node may still meet others who have what it missed: until it is among them, or delivers
        something without them."""
        if self._returns_until is None:
            return False
        return all(map(_is_nothing, self._ready)) and self._loop.time() < self._returns_until

    def _write(self) -> None:
        entries, self._ready, self._ready_bytes = self._ready, [], 0
        self._wrote = self._loop.time()
        returns, self._returns_until = self._returns_until is not None, None
        append = self._append_behind_missed if returns else self._store.append
        self._writing = self._loop.run_in_executor(self._thread, append, entries)
        self._writing.add_done_callback(lambda writing: self._written(writing, len(entries)))

    def _append_behind_missed(self, entries: list[Delivered | Installed]) -> None:
        """Append what the log missed, and these entries, of a node that was away. In the thread."""
        at = next((at for at, entry in enumerate(entries) if not _is_nothing(entry)), len(entries))
        if self._catch_up is not None and at < len(entries):
            met = entries[at]
            if isinstance(met, Installed):
                first = Position.beginning(met.configuration.id)
                whole = self._catch_up(first, lambda: self._ready_bytes > WAITING_BYTES // 2)
                notes = [each for each in entries[:at] if isinstance(each, Delivered) and each.notes]
                entries = [met._replace(first=not whole), *notes, *entries[at + 1 :]]
        self._store.append(entries)

    def _written(self, writing: asyncio.Future[None], count: int) -> None:
        self._writing = None
        error = writing.exception()
        if error is not None:
            self._ended = True
            problem = error if isinstance(error, StorageProblem) else _defect(error)
            self._loop.call_soon(self._failed, problem)
            return
        self._settled += count
        while self._waiters and self._waiters[0][0] <= self._settled:
            _, waiter = self._waiters.pop(0)
            if not waiter.done():
                waiter.set_result(None)
        if self.braking and self._ready_bytes * 2 < WAITING_BYTES:
            self._set_braking(False)

    def _set_braking(self, on: bool) -> None:
        if on:
            LOG.warning(
                "the log is not written as fast as messages come: %d bytes wait, and all are slowed down",
                self._ready_bytes,
            )
        self.braking = on
        self._brake()

    def look(self, seconds: float) -> None:
        """So much time has passed: end the node if its disk takes nothing, and everybody waits for that."""
        if not self.braking or self._settled != self._seen:
            self._seen, self._stood_s = self._settled, 0.0
            return
        self._stood_s += seconds
        if self._stood_s >= STALL_S and not self._ended:
            self._ended = True
            self._failed(
                StorageProblem(
                    f"the disk of the log has taken nothing for {STALL_S:g} s while {self._ready_bytes:,} "
                    "bytes wait, and the group with them, so this node leaves: see to the disk, and start "
                    "the node again"
                )
            )

    def _trim(self) -> None:
        if not self._ended:
            if self._writing is None and not self._ready:
                self._write()
            self._trimming = self._loop.call_later(TRIM_S, self._trim)

    async def kept(self) -> None:
        """Wait until everything that was delivered so far is written, without waiting for more to come."""
        if self._settled < self._told:
            self._wrote = 0.0
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append((self._told, waiter))
            await waiter

    # --- the end --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write what is final, and let go of the log."""
        for timer in (self._ticking, self._trimming):
            if timer is not None:
                timer.cancel()
        try:
            while self._writing is not None:
                await asyncio.wait((self._writing,))
                await asyncio.sleep(0)  # until `_written` has been called
            if not self._ended:
                self._ended = True
                self._take_final()
                await self._loop.run_in_executor(self._thread, self._store.append, self._ready)
        finally:
            self._ended = True
            for _, waiter in self._waiters:
                waiter.cancel()
            await self._loop.run_in_executor(None, self._thread.shutdown)
            self._store.close()

    @property
    def position(self) -> Position | None:
        """The last entry that was written."""
        return self._store.head


def _is_nothing(entry: Delivered | Installed) -> bool:
    """Whether it is of the time until a node has met others, and need not be kept: a configuration of it
    alone, or what leads to the next, or a packet without messages of applications."""
    if isinstance(entry, Installed):
        return len(entry.configuration.members) == 1 or entry.configuration.kind is Kind.TRANSITIONAL
    return not any(address_of(payload) is not None for payload in entry.batch.payloads)


def _defect(error: BaseException) -> StorageProblem:
    LOG.critical("the log stops: a defect in ordercast", exc_info=error)
    return StorageProblem(
        f"the log cannot be written ({error!r}), and the node stops, because its log would have a hole: this "
        "is a defect in ordercast, please report it"
    )
