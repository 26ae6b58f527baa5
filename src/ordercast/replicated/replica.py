"""A replica at a node: it hands its machine what the node delivers, and carries out what the machine wants.

Calls of commands wait here for their answers. What was not answered when another configuration began is sent
again, under the same number, so that it is carried out once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from typing import Any
from weakref import WeakKeyDictionary

from ordercast.core.identity import Configuration
from ordercast.errors import (
    MessageTooLarge,
    NoMajority,
    OrdercastError,
    Unanswered,
)
from ordercast.process_groups.interface import LocalProcess
from ordercast.process_groups.views import Cause, Life, Process, Received, Unheard, View
from ordercast.replicated.asking import MOST_PENDING, Asked, Asking, unanswered
from ordercast.replicated.command import Command, Form
from ordercast.replicated.disk import ReplicaDisk
from ordercast.replicated.effects import (
    Answers,
    Begun,
    Dropped,
    Effect,
    Failed,
    Fetch,
    GoOn,
    Keep,
    LookAgain,
    Offer,
    Promise,
    Reached,
    Send,
    StopFetching,
    Store,
    Told,
    Wake,
)
from ordercast.replicated.history import Tail
from ordercast.replicated.levels import Level
from ordercast.replicated.machine import Machine
from ordercast.replicated.node import Surroundings
from ordercast.replicated.notes import Report
from ordercast.replicated.posting import CALL_OVERHEAD, Posting
from ordercast.replicated.primary_machine import PrimaryMachine
from ordercast.replicated.quorum import Quorum
from ordercast.replicated.replicated import Replicated, Subject
from ordercast.replicated.session import current
from ordercast.replicated.snapshot import NOT_ENCODED, Restored, Snapshot, Unsound
from ordercast.replicated.telling import Telling
from ordercast.replicated.watching import Watch

LOG = logging.getLogger("ordercast")


class Replica:
    """One object at one node."""

    def __init__(
        self,
        name: str,
        target: Replicated,
        quorum: Quorum,
        node: Surroundings,
        timeout: float | None,
        fetch: Callable[[Replica, Fetch | StopFetching | Offer], None],
        port: int,
        level: Level,
        disk: ReplicaDisk | None,
        *,
        at_primary: bool = False,
        told_in: str | None = None,
    ) -> None:
        """`fetch` is told which state is needed, and that none is. `port`: where states are given. `disk`:
        where the object is kept; None: nowhere. `at_primary`: the primary alone carries commands out.
        `told_in`: the group in which the history is told. It is a replica from `begin` on."""
        self.name = name
        self.target = target
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved when the object has its state for the first time."""
        self._node = node
        self._timeout = timeout
        self._fetch = fetch
        subject = Subject(target)
        session, durable = node.new_seed() >> 2, disk is not None
        if at_primary:
            most = node.processes.largest - CALL_OVERHEAD
            self.machine: Machine = PrimaryMachine(
                subject, quorum, session, subject.initial, level, durable=durable, most=most
            )
        else:
            self.machine = Machine(subject, quorum, session, subject.initial, level, durable=durable)
        self._disk = disk
        self.machine.port = port
        self.machine.most_waiting = node.most_waiting
        self._asking = Asking(timeout, self._unanswered)
        self._posting = Posting(name, node, self.machine, self._asking, self._check_open)
        self._told_in = told_in
        self._telling: Telling | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._completing: WeakKeyDictionary[Snapshot, asyncio.Task[None]] = WeakKeyDictionary()
        self._watches: dict[Watch, None] = {}
        self._closed: BaseException | None = None
        self._process: LocalProcess | None = None
        self._life: Life | None = None
        subject.attach(self)

    async def begin(self) -> None:
        """Join the other replicas, with what is on disk."""
        node = self._node
        if self._disk is not None:
            await self._disk.restore(self)
        self._check_closed()
        self._process = node.processes.begin(self)
        self._life = self._me.life
        self._posting.begin(self._process)
        if node.processes.configuration is not None:
            self._do(self.machine.configuration(node.processes.configuration, self._me, rejoined=False))
        self._process.join(*self._posting.groups)
        if self._told_in is not None:
            self._telling = Telling(self._told_in, node, self.machine, self.begin_snapshot, self.completed)

    @property
    def _me(self) -> Process:
        return Process(*self._node.processes.life, self._joined.number)

    @property
    def _joined(self) -> LocalProcess:
        assert self._process is not None, "it has begun"
        return self._process

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
        return self._ask(command.shape, form, arguments)

    async def sync(self) -> None:
        """Wait until everything that was answered anywhere before is here."""
        await self._ask("", None, b"")

    def _ask(self, shape: str, form: Form | None, arguments: bytes) -> Awaitable[Any]:
        session = None if form is None else current()
        named = None if session is None else (session.number, session.number_of(shape, arguments))
        if not self._asking.has_room:
            return self._ask_later(shape, form, arguments, named)
        asked = self._asking.ask(self.machine.applied.position, shape, form, arguments)
        return self._post_asked(asked, named)

    async def _ask_later(
        self, shape: str, form: Form | None, arguments: bytes, named: tuple[int, int] | None
    ) -> Any:
        try:
            deadline = await self._asking.room()
        except TimeoutError:
            raise Unanswered(
                f"{self.name} had {MOST_PENDING:,} commands under way for {self._timeout:g} s: this one was "
                "not sent; wait for answers before you call more"
            ) from None
        asked = self._asking.ask(self.machine.applied.position, shape, form, arguments, deadline)
        return await self._post_asked(asked, named)

    def _post_asked(self, asked: Asked, named: tuple[int, int] | None) -> asyncio.Future[Any]:
        """`named`: the session within which it was called, and its number there."""
        if named is not None:
            self._asking.name(asked, named)
            self.machine.execution.awaited.add(named[0])
        self._posting.soon(asked)
        return asked.future

    def _unanswered(self, asked: Asked, how_long: str) -> OrdercastError:
        return unanswered(self.name, asked, how_long, self.machine.agreement.why_not)

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        self._node.check_open()
        self._node.gate.check_majority()

    def tell(self, event: Any) -> None:
        """The object tells those who watch it what there is now, whatever becomes of that."""
        if not self._watches:
            return
        try:
            told = deepcopy(event)
        except Exception as error:  # at a replica that nobody watches it is no error
            LOG.error("%s told what cannot be copied: nobody hears of it", self.name, exc_info=error)
            self.raised("tell", error)
        else:
            self.machine.tell(told)

    def raised(self, where: str, error: Exception) -> None:
        """A method of the object that nobody waits for has raised something, which is logged: tell whom the
        application has set to be told."""
        loop = asyncio.get_running_loop()
        if loop.get_exception_handler() is not None:
            loop.call_exception_handler({"message": f"{where} of {self.name}", "exception": error})

    def watch(self) -> Watch:
        """Watch the object from now on."""
        self._check_closed()
        watch = Watch(self.name, lambda watch: self._watches.pop(watch, None))
        self._watches[watch] = None
        return watch

    def _check_closed(self) -> None:
        if self._closed is not None:
            raise self._closed.with_traceback(None)

    # --- what the machine wants -----------------------------------------------------------------

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Answers(session, first, outcomes):
                    if session == self.machine.session:
                        self._asking.answered(first, outcomes)
                    else:
                        self._asking.answered_in(session, first, outcomes)
                        self.machine.execution.awaited = {self.machine.session, *self._asking.sessions}
                case Reached(number):
                    self._asking.reached(number)
                case Told(event):
                    for number, watch in enumerate(tuple(self._watches)):
                        watch.put(event if number == 0 else deepcopy(event))
                case Send(note):
                    self._posting.soon(effect)
                    if isinstance(note, Report):
                        self._node.at_moment("head told")
                case Wake(at_us):
                    self._set_alarm(at_us)
                case Offer(snapshot):
                    self._complete(snapshot)
                    self._fetch(self, effect)
                case Fetch() | StopFetching():
                    self._fetch(self, effect)
                case Promise() | Keep() | Store():
                    assert self._disk is not None, "the machine was told whether there is one"
                    self._disk.do(effect)
                case Failed(problem):
                    self.fail(problem)
                case GoOn():
                    asyncio.get_running_loop().call_soon(lambda: self.run(self.machine.go_on()))
                case LookAgain(after_us):
                    asyncio.get_running_loop().call_later(after_us / 1_000_000, self._on_overdue)
                case Dropped(size):
                    LOG.warning(
                        "%s: %d bytes wait for the state, which did not come yet: they are dropped, and a "
                        "later state is asked for; raise state_buffer if that happens again",
                        self.name,
                        size,
                    )
                case Begun(anew):
                    if not self.ready.done():
                        self.ready.set_result(None)
                    self._posting.again(anew=anew)
        if self._telling is not None:
            self._telling.look()

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

    def _on_overdue(self) -> None:
        if isinstance(self.machine, PrimaryMachine):
            self.run(self.machine.overdue())

    def state_came(self, state: Restored | Tail) -> None:
        """The state of another replica has come, or what leads there."""
        if self._closed is None:
            self._do(self.machine.arrive(state))

    def run(self, effects: Sequence[Effect]) -> None:
        """Carry out what the machine wants of what is not from the others."""
        if self._closed is None:
            self._do(effects)

    async def snapshot(self) -> Snapshot:
        """The state as it is now. Commands are carried out again when this returns, or before: they wait for
        references to be copied, if there are many, and for fields with mutable elements to be encoded."""
        return await self.completed(self.begin_snapshot())

    def begin_snapshot(self) -> Snapshot:
        """The state as it is now, to be awaited with `completed`."""
        return self._complete(self.machine.snapshot())

    def _complete(self, snapshot: Snapshot) -> Snapshot:
        if not snapshot.complete:
            self._completing[snapshot] = asyncio.create_task(self._go_on_completing(snapshot))
        return snapshot

    async def _go_on_completing(self, snapshot: Snapshot) -> None:
        try:
            await snapshot.completed()
        except (TypeError, ValueError, OverflowError) as error:
            LOG.error("%s: %s", self.name, NOT_ENCODED.format(error))
        finally:
            self.run(self.machine.resume())

    async def completed(self, snapshot: Snapshot) -> Snapshot:
        """A snapshot that was begun, once it is complete. Raises `Unsound` if it cannot be."""
        if snapshot in self._completing:
            await asyncio.shield(self._completing[snapshot])
        if not snapshot.complete:
            raise Unsound("the state cannot be encoded")
        return snapshot

    @property
    def somebody_lacks_state(self) -> bool:
        """Whether another replica may still need a snapshot of this one."""
        return self._closed is None and not self.machine.agreement.complete

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
        if self._telling is not None:
            self._telling.look()

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
        self._posting.primary(lost is None)
        if lost is None:
            return
        self._node.at_moment("primary lost")
        self._asking.fail(
            lambda asked: (
                self._unanswered(asked, "before this node lost the primary partition")
                if asked.may_be_carried_out
                else lost
            ),
            lost,
        )

    def hold_up(self, why: str | None) -> None:
        """Hold up who sends to the object, or let them go on."""
        self._node.hold_up(self._posting.groups[0], why)

    @property
    def closed(self) -> bool:
        """Whether it is no replica any more."""
        return self._closed is not None

    def fail(self, problem: OrdercastError) -> None:
        """The disk refuses, or there is no state: be a replica no longer."""
        if self._closed is None:
            LOG.error("%s is not replicated here any more: %s", self.name, problem)
            self.close(problem)

    def close(self, error: BaseException) -> None:
        """Be a replica no longer; who calls or waits gets the error."""
        if self._closed is not None:
            return
        self._closed = error
        self._posting.end()
        self._set_alarm(None)
        self._fetch(self, StopFetching())
        if self._telling is not None:
            self._telling.end()
        if self._process is not None:
            self._process.end()
        self._asking.fail(
            lambda asked: (
                self._unanswered(asked, "before this node ended") if asked.may_be_carried_out else error
            ),
            error,
        )
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # nobody may be waiting: that is no mistake
        for watch in tuple(self._watches):
            watch.end(None)
