"""What a replica sends to the others: what is asked of the object, and what its machine tells them.

What is asked in one turn of the event loop travels together (`asking.packed`). What finds no room waits for
it, in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

import msgspec

from ordercast.core.identity import Guarantee
from ordercast.errors import NodeClosed, NoMajority, OrdercastError
from ordercast.process_groups.interface import LocalProcess
from ordercast.replicated.asking import MOST_BYTES, Asked, Asking, packed, together
from ordercast.replicated.effects import Send
from ordercast.replicated.machine import Machine
from ordercast.replicated.node import Surroundings
from ordercast.replicated.notes import GROUP, Mark, Report, Synced, Tick, written

LOG = logging.getLogger("ordercast")

CALL_OVERHEAD = 512
"""Bytes that a message with a command has beside its arguments and the names of these, at most."""


class Posting:
    """The outbox of one replica."""

    def __init__(
        self,
        name: str,
        node: Surroundings,
        machine: Machine,
        asking: Asking,
        check_open: Callable[[], None],
    ) -> None:
        """`check_open` raises why nothing can be sent."""
        self.groups = (GROUP + name,)
        self._name = name
        self._node = node
        self._machine = machine
        self._asking = asking
        self._check_open = check_open
        self._loop = asyncio.get_running_loop()
        self._sent_us = 0
        """When new commands were sent last, by this node's clock: each message has a time of its own."""
        self._outbox: deque[Asked | Send] = deque()
        self._due = False
        """Whether the outbox is sent at the end of this turn of the event loop."""
        self._more = asyncio.Event()
        self._majority = True
        self._process: LocalProcess | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, process: LocalProcess) -> None:
        """What is sent comes from this process."""
        self._process = process
        try:
            self._node.gate.check_majority()
        except NoMajority:  # it was told to those who were here then
            self._majority = False
        self._task = asyncio.create_task(self._send_on(), name=f"ordercast-replica-{self._name}")

    def end(self) -> None:
        """Nothing is sent any more."""
        if self._task is not None:
            self._task.cancel()
        self._process = None
        self._outbox.clear()

    def primary(self, majority: bool) -> None:
        """The primary partition is regained, or lost: what was asked is not sent any more."""
        self._majority = majority
        if majority:
            self._more.set()
        else:
            self._outbox = deque(each for each in self._outbox if isinstance(each, Send))

    # --- sending --------------------------------------------------------------------------------

    def soon(self, what: Asked | Send) -> None:
        """Send it at the end of this turn of the event loop, with what else is to be sent by then; at once
        if nothing else is under way, since then nothing else may come."""
        self._outbox.append(what)
        if self._due:
            return
        if self._asking.alone:
            self._send()
        else:
            self._due = True
            self._loop.call_soon(self._send)

    def again(self, *, anew: bool) -> None:
        """Send what was asked in an earlier configuration again, or all that was, in front of the rest."""
        configuration = self._node.processes.configuration
        now = None if configuration is None else configuration.id
        again = [
            asked for asked in self._asking.unanswered if not asked.queued and (anew or asked.sent_in != now)
        ]
        for asked in reversed(again):
            asked.queued = True
            self._outbox.appendleft(asked)
        if again:
            self._more.set()

    def _send(self) -> None:
        """Send what there is room for; the rest goes as soon as there is. Where nothing can be sent, who
        asked is told."""
        self._due = False
        try:
            self._check_open()
        except OrdercastError as error:
            self._refuse(error)
        while (found := self._next()) is not None:
            process, payload, guarantee, count = found
            try:
                if process.try_send(self.groups, (payload,), guarantee) is None:
                    break
            except NoMajority:
                break  # it is told of that at once (`primary`)
            except NodeClosed as error:
                LOG.debug("%s sends nothing more: %s", self._name, error)
                return  # it is told of that, too (`end`)
            self._take_out(count)
        if self._outbox:
            self._more.set()

    def _refuse(self, error: OrdercastError) -> None:
        """What was asked and has never been sent will not be."""
        outbox, self._outbox = self._outbox, deque()
        for what in outbox:
            if isinstance(what, Send) or what.sent_in is not None:
                self._outbox.append(what)
            else:
                self._asking.forget(what)
                if not what.future.done():
                    what.future.set_exception(error)

    async def _send_on(self) -> None:
        """Send what could not be sent at once."""
        gate = self._node.gate
        while True:
            if self._next() is None:
                self._more.clear()
                await self._more.wait()
                continue
            try:
                await gate.wait(self.groups, 0, None)
                found = self._next()
                if found is not None:
                    process, payload, guarantee, count = found
                    message = process.front(self.groups) + payload
                    gate.submit((message,), len(message), guarantee)
                    self._take_out(count)
            except NoMajority:
                await asyncio.sleep(0)  # it is told of that at once (`primary`)
            except OrdercastError as error:
                LOG.debug("%s sends nothing more: %s", self._name, error)
                return

    # --- the outbox -----------------------------------------------------------------------------

    def _next(self) -> tuple[LocalProcess, bytes, Guarantee, int] | None:
        """From whom, what and how to send next, and how many of the outbox that is; None if nothing is."""
        outbox = self._outbox
        while outbox and not self._makes_sense(outbox[0]):
            outbox.popleft()
        if not outbox or not self._majority or self._process is None:
            return None
        first, now_us = outbox[0], self._node.now_us()
        if isinstance(first, Send):
            note = first.note
            if isinstance(note, Report):
                note = msgspec.structs.replace(note, time_us=now_us)
            # what is on a disk need not have reached everybody before it is told
            guarantee = Guarantee.AGREED if isinstance(note, Synced) else Guarantee.SAFE
            return self._process, written(note), guarantee, 1
        if first.form is None:
            return self._process, written(Mark(first.number)), Guarantee.SAFE, 1
        some = together(outbox, min(MOST_BYTES, self._node.processes.largest - CALL_OVERHEAD))
        self._sent_us = max(now_us, self._sent_us + 1)
        machine, floor = self._machine, self._asking.floor
        round = machine.agreement.round if machine.agreement.merges else None
        calls = packed(some, machine.session, floor, now_us, self._sent_us, round)
        return self._process, written(calls), Guarantee.SAFE, len(some)

    def _makes_sense(self, what: Asked | Send) -> bool:
        """Whether somebody still wants to know, and now."""
        if isinstance(what, Send):
            return isinstance(what.note, Tick) or what.note.round == self._machine.agreement.round
        if what.future.done():
            self._asking.forget(what)
            return False
        if self._machine.holds_commands:
            what.queued = False  # `again` sends it
            return False
        return True

    def _take_out(self, count: int) -> None:
        """Take the first `count` out of the outbox: they were sent."""
        configuration = self._node.processes.configuration
        for _ in range(count):
            what = self._outbox.popleft()
            if isinstance(what, Asked):
                what.queued = False
                what.sent_us = what.sent_us or self._sent_us
                what.sent_in = None if configuration is None else configuration.id
