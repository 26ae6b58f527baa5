"""A replica tells the history of its object in a group, as it is carried out: for who is no replica.

All replicas that are to tell it are in that group, and hear what was told. What is new is told by the first
of them, after a moment; by the next one, if nothing was heard meanwhile; and so on. So no one is chosen, and
what is told twice does no harm. First, at times, and where something between was told by nobody, the state is
told too: who begins to follow needs one, as does who misses something.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ordercast.core.identity import Configuration, Guarantee
from ordercast.errors import MessageTooLarge, NoMajority, OrdercastError
from ordercast.process_groups.interface import LocalProcess
from ordercast.process_groups.views import Cause, Received, Unheard, View
from ordercast.replicated.durable.heads import Head
from ordercast.replicated.history_notes import Piece, Slice, pieces, read, slices
from ordercast.replicated.machine import Machine
from ordercast.replicated.node import Surroundings
from ordercast.replicated.snapshot import Snapshot, Unsound

LOG = logging.getLogger("ordercast")

WAIT_S = 0.05
"""What was carried out is told so much later, with what else was by then."""
STEP_S = 0.3
"""Each replica waits so much longer than the one before it."""
LEAST_BYTES, FACTOR, MOST_S = 4 * 1024 * 1024, 4, 600.0
"""The state is told again behind so many bytes of history, or times its own size; or so much later."""
MESSAGE_BYTES = 256 * 1024
"""Bytes of history in one message, about."""
OVERHEAD_OF_ADDRESS = 512
"""Bytes that stand in front of a message, at most."""


class Telling:
    """Tells the history of one object, as one replica of it carries it out."""

    def __init__(
        self,
        group: str,
        node: Surroundings,
        machine: Machine,
        begin_snapshot: Callable[[], Snapshot],
        completed: Callable[[Snapshot], Awaitable[Snapshot]],
    ) -> None:
        """`begin_snapshot` gives the state as it is then, `completed` waits for it."""
        self._groups = (group,)
        self._node = node
        self._machine = machine
        self._begin_snapshot = begin_snapshot
        self._completed = completed
        self._told: Head | None = None
        """Up to where all was told; None: that is not known."""
        self._since_state, self._state_bytes = 0, 0
        """Bytes that were told since the last state, and of that."""
        self._state_at_s = -MOST_S
        self._place = 0
        """How many others have their turn before this one."""
        self._awaited: Head | None = None
        """Up to here it was told by this replica, and not heard yet."""
        self._heard = asyncio.Event()
        self._new = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._clock = loop.time
        self._process: LocalProcess = node.processes.begin(self)
        self._process.join(group)
        self._task = asyncio.create_task(self._tell_on(), name=f"ordercast-telling-{group}")

    def look(self) -> None:
        """Something may have been carried out."""
        if not self._new.is_set() and self._is_behind:
            self._new.set()

    def end(self) -> None:
        """Tell nothing more."""
        self._task.cancel()
        self._process.end()

    # --- telling --------------------------------------------------------------------------------

    @property
    def _is_behind(self) -> bool:
        """Whether something was carried out for good and not told."""
        told, applied = self._told, self._machine.applied
        return self._machine.is_certain and (told is None or _place(told) < _place(applied))

    async def _tell_on(self) -> None:
        while True:
            await self._new.wait()
            self._new.clear()
            try:
                await asyncio.sleep(WAIT_S + STEP_S * self._place)
                while self._is_behind:
                    await self._tell()
            except NoMajority:
                continue  # the round that begins when it is regained is told
            except (MessageTooLarge, Unsound) as error:
                LOG.error("the history of the object is not told in %s any more: %s", self._groups[0], error)
                return
            except OrdercastError as error:
                LOG.debug("nothing more is told in %s: %s", self._groups[0], error)
                return

    async def _tell(self) -> None:
        """Tell what is new, and the state where that is due; until it was heard, or another life begins."""
        machine, told = self._machine, self._told
        tail = None if told is None else machine.recent.after(told)
        most = min(MESSAGE_BYTES, self._node.processes.largest // 2)
        messages = (
            None if tail is None else pieces(tail, most, self._node.processes.largest - OVERHEAD_OF_ADDRESS)
        )
        self._awaited = machine.applied
        if messages is None or self._state_is_due:
            snapshot = self._begin_snapshot()
            await self._completed(snapshot)
            state = [data async for data in snapshot.slowly()]
            messages = [*(messages or ()), *slices(snapshot.head, self._node.new_seed() >> 2, state)]
        self._heard.clear()
        for message in messages:
            await self._process.send(self._groups, (message,), Guarantee.SAFE)
        await self._heard.wait()

    @property
    def _state_is_due(self) -> bool:
        far = self._since_state > max(LEAST_BYTES, FACTOR * self._state_bytes)
        return far or self._clock() - self._state_at_s > MOST_S

    # --- what the node tells --------------------------------------------------------------------

    def received(self, received: Received) -> None:
        """Somebody has told."""
        for payload in received.batch.payloads:
            note, told = read(payload), self._told
            if isinstance(note, Piece):
                self._since_state += len(payload)
                follows = told is None or _place(note.base) <= _place(told) < _place(note.head)
                if follows and note.head.position > note.base.position:
                    self._hear(note.head)
            elif isinstance(note, Slice):
                self._state_bytes = len(payload) + (self._state_bytes if note.number else 0)
                if note.last:
                    self._since_state, self._state_at_s = 0, self._clock()
                    if told is None or _place(told) <= _place(note.head):
                        self._hear(note.head)

    def _hear(self, head: Head) -> None:
        self._told = head
        if self._awaited is None or _place(head) >= _place(self._awaited):
            self._heard.set()

    def installed(self, view: View) -> None:
        """Others tell, too, or no longer."""
        mine = self._process.number
        life = self._node.processes.life
        before = [each.process for each in view.members if each.process < (*life, mine)]
        self._place = len(before)

    def configuration(self, change: Configuration) -> None:
        """What was sent may be lost."""
        self._heard.set()

    def unheard(self, unheard: Unheard) -> None:
        """Nothing has a head."""

    def left(self, group: str, cause: Cause) -> None:
        """This replica is in the group no longer."""


def _place(head: Head) -> tuple[int, int]:
    return head.epoch, head.position
