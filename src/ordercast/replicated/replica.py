"""A replica at a node: it hands its machine what the node delivers, and carries out what the machine wants.

Calls of commands wait here for their answers. What was not answered when another configuration began is sent
again, under the same number, so that it is carried out once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from ordercast.core.identity import Configuration, ConfigurationId, Guarantee
from ordercast.errors import MessageTooLarge, NodeClosed, NoMajority, OrdercastError, Unanswered
from ordercast.process_groups.views import Cause, Process, Received, Unheard, View
from ordercast.replicated.command import Command, Form
from ordercast.replicated.effects import (
    Answer,
    Begun,
    Effect,
    Fetch,
    Reached,
    Send,
    StopFetching,
    Told,
    Wake,
)
from ordercast.replicated.machine import Machine
from ordercast.replicated.node import Surroundings
from ordercast.replicated.notes import GROUP, Call, Mark, Report, written
from ordercast.replicated.outcome import result_of
from ordercast.replicated.quorum import Quorum
from ordercast.replicated.replicated import Replicated, Subject
from ordercast.replicated.snapshot import Restored, Snapshot
from ordercast.replicated.watching import Missed, Watch

LOG = logging.getLogger("ordercast")

MOST_PENDING = 4_096
"""Commands of a replica that wait for their answers; further calls wait for these."""
CALL_OVERHEAD = 512
"""Bytes that a message with a command has beside its arguments and the names of these, at most."""


class Asked:
    """A command, or a mark, that waits for its answer."""

    __slots__ = ("arguments", "future", "number", "sent_in", "shape", "since")

    def __init__(self, number: int, since: int, shape: str | None, arguments: bytes) -> None:
        self.number = number
        self.since = since
        self.shape = shape
        """The command; None: it is a mark."""
        self.arguments = arguments
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.sent_in: ConfigurationId | None = None
        """The configuration in which it was sent last; None: not yet."""


class Replica:
    """One object at one node."""

    def __init__(
        self,
        name: str,
        target: Replicated,
        quorum: Quorum,
        node: Surroundings,
        timeout: float | None,
        fetch: Callable[[Replica, Fetch | StopFetching], None],
        port: int,
    ) -> None:
        """`fetch` is told which state is needed, and that none is. `port`: where states are given."""
        self.name = name
        self.target = target
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved when the object has its state for the first time."""
        self._node = node
        self._timeout = timeout
        self._fetch = fetch
        subject = Subject(target)
        initial = list(target._fields.pieces(target))
        self.machine = Machine(subject, quorum, node.new_seed() >> 2, initial)
        self.machine.port = port
        self._groups = (GROUP + name,)
        self._numbers = 0
        self._asked: dict[int, Asked] = {}
        """In the order of their numbers."""
        self._places = asyncio.Semaphore(MOST_PENDING)
        self._outbox: deque[Asked | Send] = deque()
        """What could not be sent at once."""
        self._more = asyncio.Event()
        self._majority = asyncio.Event()
        self._majority.set()
        self._alarm: asyncio.TimerHandle | None = None
        self._watches: dict[Watch, None] = {}
        self._closed: BaseException | None = None
        subject.attach(self)
        self._process = node.processes.begin(self)
        self._life = self._me.life
        self._sending = asyncio.create_task(self._send_on(), name=f"ordercast-replica-{name}")
        if node.processes.configuration is not None:
            self._do(self.machine.configuration(node.processes.configuration, self._me, rejoined=False))
        self._process.join(self._groups[0])

    @property
    def _me(self) -> Process:
        return Process(*self._node.processes.life, self._process.number)

    # --- what the application wants -------------------------------------------------------------

    def call(
        self, command: Command[Any, Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Awaitable[Any]:
        """Have a command carried out at all replicas; its result."""
        form = command.form(type(self.target))
        arguments = form.arguments(args, kwargs)
        size, most = len(arguments) + len(command.shape) + CALL_OVERHEAD, self._node.processes.largest
        if size > most:
            raise MessageTooLarge(
                f"the arguments of {command.name} take {len(arguments):,} bytes, and a message of at most "
                f"{most:,} "
                "fits here: give it less at a time, or raise max_message_size at every node"
            )
        return self._answered(command.shape, arguments, form)

    async def _answered(self, shape: str, arguments: bytes, form: Form) -> Any:
        return result_of(await self._ask(shape, arguments), form)

    async def sync(self) -> None:
        """Wait until everything that was answered anywhere before is here."""
        await self._ask(None, b"")

    async def _ask(self, shape: str | None, arguments: bytes) -> bytes:
        self._check_open()
        async with asyncio.timeout(self._timeout) as deadline, self._places:
            self._check_open()
            self._numbers += 1
            asked = Asked(self._numbers, self.machine.applied.position, shape, arguments)
            self._asked[asked.number] = asked
            try:
                self._send(asked)
                return await asked.future
            except asyncio.CancelledError:
                if deadline.expired():
                    raise self._unanswered(asked, f"for {self._timeout:g} s") from None
                raise
            finally:
                del self._asked[asked.number]

    def _unanswered(self, asked: Asked, how_long: str) -> OrdercastError:
        why = self.machine.agreement.why_not
        if asked.shape is None:
            return Unanswered(
                f"{self.name} was not up to date {how_long}{f': {why}' if why else ''}; try again"
            )
        name = asked.shape.partition("(")[0]
        return Unanswered(
            f"{name} of {self.name} was not answered {how_long}{f': {why}' if why else ''}. It may have "
            "been carried "
            "out, or may yet be: look at the state before it is called again"
        )

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        self._node.check_open()
        self._node.gate.check_majority()

    def tell(self, event: Any) -> None:
        """The object tells those who watch it."""
        self.machine.tell(event)

    def watch(self) -> Watch:
        """Watch the object from now on."""
        self._check_closed()
        watch = Watch(self.name, lambda watch: self._watches.pop(watch, None))
        self._watches[watch] = None
        return watch

    def _check_closed(self) -> None:
        if self._closed is not None:
            raise self._closed.with_traceback(None)

    # --- sending --------------------------------------------------------------------------------

    def _send(self, what: Asked | Send) -> None:
        """Send it at once if there is room, or as soon as there is."""
        if not self._outbox and self._majority.is_set():
            payload = self._payload(what)
            try:
                sent = self._process.try_send(self._groups, (payload,), Guarantee.SAFE)
            except NoMajority:
                if isinstance(what, Asked):
                    raise
                sent = None
            except NodeClosed as error:
                if isinstance(what, Asked):
                    raise
                LOG.debug("not sent: %s", error)
                return
            if sent is not None:
                self._note_sent(what)
                return
        self._outbox.append(what)
        self._more.set()

    def _payload(self, what: Asked | Send) -> bytes:
        """As it is sent now."""
        now_us = self._node.now_us()
        if isinstance(what, Send):
            note = what.note
            return written(
                msgspec.structs.replace(note, time_us=now_us) if isinstance(note, Report) else note
            )
        if what.shape is None:
            return written(Mark(what.number))
        floor = next(iter(self._asked), what.number)
        return written(
            Call(self.machine.session, what.number, floor, what.since, now_us, what.shape, what.arguments)
        )

    def _note_sent(self, what: Asked | Send) -> None:
        if isinstance(what, Asked):
            configuration = self._node.processes.configuration
            what.sent_in = None if configuration is None else configuration.id

    def _is_due(self, what: Asked | Send) -> bool:
        """Whether it still makes sense to send it."""
        if isinstance(what, Send):
            return not isinstance(what.note, Report) or what.note.round == self.machine.agreement.round
        return what.number in self._asked and not what.future.done()

    async def _send_on(self) -> None:
        """Send what could not be sent at once."""
        gate, groups = self._node.gate, self._groups
        while True:
            outbox = self._outbox
            while outbox and not self._is_due(outbox[0]):
                outbox.popleft()
            if not (outbox and self._majority.is_set()):
                self._more.clear()
                await self._more.wait()
                continue
            try:
                await gate.wait(groups, 0, None)
                if self._outbox:
                    what = self._outbox.popleft()
                    message = self._process.front(groups) + self._payload(what)
                    gate.submit((message,), len(message), Guarantee.SAFE)
                    self._note_sent(what)
            except NoMajority:
                await asyncio.sleep(0)  # it is told of that at once (`primary`)
            except OrdercastError as error:
                LOG.debug("%s sends nothing more: %s", self.name, error)
                return

    def _ask_again(self, *, anew: bool) -> None:
        configuration = self._node.processes.configuration
        for asked in tuple(self._asked.values()):
            earlier = configuration is not None and asked.sent_in not in (None, configuration.id)
            if not asked.future.done() and (earlier or (anew and asked.sent_in is not None)):
                try:
                    self._send(asked)
                except OrdercastError as error:
                    asked.future.set_exception(error)

    # --- what the machine wants -----------------------------------------------------------------

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Answer(number, outcome):
                    asked = self._asked.get(number)
                    if asked is not None and not asked.future.done():
                        asked.future.set_result(outcome)
                case Reached(number):
                    asked = self._asked.get(number)
                    if asked is not None and not asked.future.done():
                        asked.future.set_result(b"")
                case Told(event):
                    for watch in tuple(self._watches):
                        watch.put(event)
                case Send(note):
                    self._send(effect)
                    if isinstance(note, Report):
                        self._node.at_moment("head told")
                case Wake(at_us):
                    self._set_alarm(at_us)
                case Fetch() | StopFetching():
                    self._fetch(self, effect)
                case Begun(anew):
                    if not self.ready.done():
                        self.ready.set_result(None)
                    for watch in tuple(self._watches) if anew else ():
                        watch.put(Missed())
                    self._ask_again(anew=anew)

    def _set_alarm(self, at_us: int | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if at_us is not None and self._closed is None:
            delay_s = max(0, at_us - self._node.now_us()) / 1_000_000
            self._alarm = asyncio.get_running_loop().call_later(delay_s, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        self._do(self.machine.alarm(self._node.now_us()))

    def state_came(self, state: Restored) -> None:
        """The state of another replica has come."""
        if self._closed is None:
            self._do(self.machine.arrive(state))

    async def snapshot(self) -> Snapshot:
        """The state as it is now. Commands are carried out again when this returns, or before: they wait for
        references to be copied, if there are many, and for fields with mutable elements to be encoded."""
        snapshot = self.machine.snapshot()
        if not snapshot.complete:
            try:
                await snapshot.completed()
            finally:
                effects = self.machine.resume()
                if self._closed is None:
                    self._do(effects)
        return snapshot

    # --- what the node tells --------------------------------------------------------------------

    def received(self, received: Received) -> None:
        """Messages in the object's group."""
        batch = received.batch
        sender = Process(batch.origin, batch.incarnation, received.sender)
        deliver = self.machine.deliver
        for payload in batch.payloads:
            effects = deliver(sender, payload)
            if effects:
                self._do(effects)

    def unheard(self, unheard: Unheard) -> None:
        """Replicas send no heads."""

    def installed(self, view: View) -> None:
        """The object's group has a new view."""
        self._do(self.machine.view(view, self._me))

    def left(self, group: str, cause: Cause) -> None:
        """This replica is in the group no longer."""
        self._do(self.machine.left())

    def configuration(self, change: Configuration) -> None:
        """A configuration begins; perhaps of another life of the node."""
        life, self._life = self._life, self._me.life
        self._do(self.machine.configuration(change, self._me, rejoined=life != self._life))

    def primary(self, lost: NoMajority | None) -> None:
        """The primary partition is lost, and why; or it is regained."""
        if lost is None:
            self._majority.set()
            self._more.set()
            return
        self._majority.clear()
        self._node.at_moment("primary lost")
        self._outbox = deque(each for each in self._outbox if isinstance(each, Send))
        for asked in tuple(self._asked.values()):
            if not asked.future.done():
                sent = asked.sent_in is not None and asked.shape is not None
                asked.future.set_exception(
                    self._unanswered(asked, "before this node lost the primary partition") if sent else lost
                )

    def close(self, error: BaseException) -> None:
        """Be a replica no longer; who calls or waits gets the error."""
        if self._closed is not None:
            return
        self._closed = error
        self._sending.cancel()
        self._set_alarm(None)
        self._fetch(self, StopFetching())
        self._process.end()
        for asked in tuple(self._asked.values()):
            if not asked.future.done():
                sent = asked.sent_in is not None and asked.shape is not None
                asked.future.set_exception(
                    self._unanswered(asked, "before this node ended") if sent else error
                )
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # nobody may be waiting: that is no mistake
        for watch in tuple(self._watches):
            watch.end(None)
