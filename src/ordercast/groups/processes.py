"""Where what the driver delivers goes: to the local processes of the node that are in the groups it is for.

The driver hands it to `Deliveries`. Every life of a node has a `ProcessGroups`, a pure machine that knows who
is in which group. `Processes` hands it what was delivered, and hands on what comes of that: to readers of the
application (`reader.py`), and to clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ordercast.core.identity import Batch, Configuration, Ended, Kind, NodeId
from ordercast.errors import ConfigProblem, MessageTooLarge
from ordercast.groups.events import ConfigurationChange, Rejoined
from ordercast.groups.local_process import LocalProcess
from ordercast.groups.primary import Primary, only_notes
from ordercast.groups.producers import GUARANTEE
from ordercast.groups.receipts import Receipts
from ordercast.process_groups.interface import Listener
from ordercast.process_groups.machine import ProcessGroups
from ordercast.process_groups.notes import PART_FRONT, PART_SIZE, Join, check_name, check_properties, written
from ordercast.process_groups.rows import of_output, of_process
from ordercast.process_groups.views import (
    Declared,
    Installed,
    Life,
    Member,
    Numbered,
    Output,
    Process,
    Properties,
    Received,
    Recounted,
    Unheard,
    View,
)

if TYPE_CHECKING:
    from ordercast.groups.node_log import NodeLog
    from ordercast.groups.send_gate import SendGate
    from ordercast.trace.recorder import Recorder

MOST_STATE = 32 * 1024 * 1024
"""Bytes that the memberships of a node's processes may have, with names and properties: each configuration
begins with all of them being told to everybody."""
_ALL = 1 << 62


class Watcher(Protocol):
    """What is told of configurations and lives, which concern no single process."""

    def delivered_own(self, number: int) -> None:
        """Messages of this node's life, up to that number, were delivered here."""

    def changed(self, view: View) -> None:
        """A group has a new view: one that a local process is in, or any, where they are watched."""

    def numbered(self, numbered: Numbered) -> None:
        """Messages of the order, whoever gets them, by number; only where `numbers` was asked for."""

    def recounted(self, recounted: Recounted) -> None:
        """Messages are counted from another number on; only where `numbers` was asked for."""

    def reached(self, number: int) -> None:
        """The number of the last message that was delivered, be it held or handed on; likewise."""

    def life_over(self) -> None:
        """The node's life is over, and another follows."""


class Deliveries:
    """The sink of a node's driver: everybody who has to see a delivery sees it, in the one order."""

    def __init__(
        self,
        processes: Processes,
        receipts: Receipts,
        log: NodeLog,
        admit: Callable[[Batch], Sequence[Batch]],
        originated: Callable[[Sequence[bytes]], None],
        installed: Callable[[Configuration], None],
        primary: Primary,
    ) -> None:
        """`admit` answers what is to be delivered of a batch of safe messages, which may be producers'.

        `originated` is told of own messages that were broadcast, `installed` of configurations.
        """
        self._processes = processes
        self._receipts = receipts
        self._log = log
        self._admit = admit
        self._originated = originated
        self._installed = installed
        self._primary = primary

    def deliver(self, batch: Batch) -> None:
        """Hand messages to groups and log, in order."""
        if self._primary.minority:
            for notes in only_notes(batch):
                self._deliver(notes)
        else:
            self._deliver(batch)

    def _deliver(self, batch: Batch) -> None:
        feed = self._log.feed
        for admitted in (batch,) if batch.guarantee is not GUARANTEE else self._admit(batch):
            self._processes.deliver(admitted)
            if self._receipts.awaited and (admitted.origin, admitted.incarnation) == self._processes.life:
                self._receipts.resolve(admitted)
            if feed is not None:
                feed.deliver(admitted)
        if feed is not None and batch.guarantee is GUARANTEE:
            feed.keep_notes(batch)

    def install(self, configuration: Configuration, ended: Ended | None) -> None:
        """A configuration, in its place among the messages, and what it ends."""
        self._processes.install(configuration, ended)
        self._primary.install(configuration)
        if self._log.feed is not None:
            self._log.feed.install(configuration)
        self._installed(configuration)

    def originated(self, batch: Batch) -> None:
        """Own messages left the queue: there is room for others."""
        self._originated(batch.payloads)


class Processes:
    """All local processes of a node, over all its lives."""

    def __init__(
        self,
        node: NodeId,
        incarnation: int,
        gate: Callable[[], SendGate],
        leaving: Callable[[], bool],
        recorder: Recorder | None = None,
        now_us: Callable[[], int] = lambda: 0,
        *,
        counted: int = 0,
        numbers: bool = False,
        voters: int = 0,
        needs_all: bool = False,
        declared: Callable[[Mapping[NodeId, int]], None] = lambda voters: None,
    ) -> None:
        """What processes want goes through `gate`, until the node is `leaving`; what they are told goes into
        the trace through `recorder`. `counted`, `numbers`, `voters` and `needs_all` are those of
        `ProcessGroups`; `declared` is called with what members declare as voters."""
        self._numbers, self._voters, self._declared = numbers, voters, declared
        self._needs_all = needs_all
        self.watcher: Watcher | None = None
        """Who is told what concerns no single process."""
        self.gate = gate
        self.configuration: ConfigurationChange | None = None
        """The one installed last; that of the life before, until the new one has its first."""
        self.placed = False
        """Whether this life of the node has installed a configuration."""
        self.settled = False
        """The members of this configuration have told each other of their processes: messages are taken."""
        self.outside = LocalProcess(self, 0)
        """Sends from outside all groups."""
        self._node = node
        self._leaving = leaving
        self._recorder = recorder
        self._now_us = now_us
        self._machine = self._new_machine(incarnation, counted)
        self._over = False
        """The life has ended, and the next one has not begun."""
        self._local: dict[int, LocalProcess] = {}
        self._listeners: dict[int, Listener[ConfigurationChange]] = {}
        """Both by number, in this life."""
        self._state_bytes = 0
        self._watched = False

    def _new_machine(self, incarnation: int, counted: int) -> ProcessGroups:
        return ProcessGroups(
            self._node,
            incarnation,
            queue=4 * MOST_STATE,
            counted=counted,
            numbers=self._numbers,
            voters=self._voters,
            needs_all=self._needs_all,
        )

    # --- processes ------------------------------------------------------------------------------

    def begin(self, listener: Listener[ConfigurationChange]) -> LocalProcess:
        """A process begins, and is in no group yet."""
        process = LocalProcess(self, self._machine.begin())
        self._local[process.number] = process
        self._listeners[process.number] = listener
        return process

    def process(self, local: LocalProcess) -> Process:
        """A local process as others know it, in this life of the node."""
        return Process(*self._machine.me, local.number)

    @property
    def life(self) -> Life:
        """The life of the node that they are in."""
        return self._machine.me

    @property
    def largest(self) -> int:
        """Bytes of the largest message, with its address and what is said beside it."""
        return self.gate().largest

    @property
    def alone(self) -> bool:
        """Whether no other node has what is delivered here."""
        return self.configuration is not None and len(self.configuration.members) == 1

    def members(self, group: str) -> tuple[Member, ...]:
        """The members of any group, as this node knows them now."""
        return self._machine.members(group)

    def watch(self, on: bool) -> None:
        """Tell the watcher of all groups' views from now on, or not."""
        self._watched = self._machine.watched = on

    def hand_over(self, received: Received) -> None:
        """A process that was to get messages of a queue could not take them, and has left the queue, or has
        ended: another member gets them."""
        if not self._over:
            self._machine.hand_over(received)
            self._submit()

    @property
    def malformed(self) -> int:
        """Payloads that were delivered in this life and say nothing: no correct member sends them."""
        return int(self._machine.stats["malformed"])

    def join(self, process: LocalProcess, group: str, properties: Properties) -> None:
        """A process asks to be in a group."""
        try:
            check_name(group)
            check_properties(properties)
        except ValueError as error:
            raise ConfigProblem(str(error)) from None
        size, most = _size(group, properties), self.gate().largest - PART_FRONT
        if size > most:
            raise MessageTooLarge(
                f"name of the group and properties take {size:,} bytes, and at most {most:,} fit into a "
                "message here: say less, or raise max_message_size at every node"
            )
        if group in process.wanted:
            raise ConfigProblem(f"the process is in {group!r} already: leave it first")
        if self._state_bytes + size > MOST_STATE:
            raise ConfigProblem(
                f"the memberships of this node's processes take {self._state_bytes:,} bytes, and "
                f"{MOST_STATE:,} is the most: join fewer groups, with fewer properties"
            )
        self._state_bytes += size
        process.wanted[group] = properties
        if not self._over:
            self._machine.join(process.number, group, properties)
            self._record_asked("group_join", process.number, group)
            self._submit()

    def leave(self, process: LocalProcess, group: str) -> None:
        """A process asks to be in a group no longer."""
        properties = process.wanted.pop(group, None)
        if properties is None:
            raise ConfigProblem(f"the process has not joined {group!r}: join it first")
        self._state_bytes -= _size(group, properties)
        if not self._over:
            self._machine.leave(process.number, group)
            self._record_asked("group_leave", process.number, group)
            self._submit()

    def end_process(self, process: LocalProcess) -> None:
        """A process ends. Ending it again does nothing."""
        if self._local.get(process.number) is not process:
            return
        del self._local[process.number], self._listeners[process.number]
        self._state_bytes -= sum(_size(*each) for each in process.wanted.items())
        process.wanted.clear()
        if not self._over:
            self._machine.end(process.number)
            self._record_asked("process_end", process.number, None)
            self._submit()
        process.begin_anew(0)

    # --- what the driver tells ------------------------------------------------------------------

    def deliver(self, batch: Batch) -> None:
        """Messages and notes, in order."""
        told = self._machine.routing.deliver(batch)
        if told:
            self._tell(told)
        if not self.settled and self._machine.settled:
            self.settled = True
            self._submit()
            self.gate().release()
        elif self._machine.has_more:
            self._submit()
        if self._numbers and self.watcher is not None:
            self.watcher.reached(self._machine.reached)
        if self.watcher is not None and (batch.origin, batch.incarnation) == self._machine.me:
            self.watcher.delivered_own(batch.number + len(batch.payloads) - 1)

    def install(self, configuration: Configuration, ended: Ended | None) -> None:
        """A configuration, in its place among the messages, and what it ends."""
        self._tell(self._machine.conclude())
        rejoined = not self.placed and self.configuration is not None
        change = (Rejoined if rejoined else ConfigurationChange)(*configuration, ended)
        self.configuration, self.placed, self.settled = change, True, False
        gate = self.gate()
        gate.hold()
        for listener in tuple(self._listeners.values()):
            listener.configuration(change)
        self._machine.part_size = min(PART_SIZE, gate.largest or PART_SIZE)
        self._tell(self._machine.install(configuration))
        if configuration.kind is Kind.REGULAR:
            self._submit()

    def _tell(self, outputs: Sequence[Output]) -> None:
        listeners = self._listeners
        for output in outputs:
            if self._recorder is not None:
                for columns in of_output(output):
                    self._recorder.group_event(self._now_us(), *columns)
            if isinstance(output, Received):
                for number in output.to:
                    if number in listeners:  # else it has ended meanwhile
                        listeners[number].received(output)
            elif isinstance(output, Installed):
                for number in output.to:
                    if number in listeners:
                        listeners[number].installed(output.view)
                if self.watcher is not None:
                    self.watcher.changed(output.view)
            elif isinstance(output, Unheard):
                if output.sender in listeners:
                    listeners[output.sender].unheard(output)
            elif isinstance(output, Numbered):
                if self.watcher is not None:
                    self.watcher.numbered(output)
            elif isinstance(output, Declared):
                self._declared(output.voters)
            elif isinstance(output, Recounted):
                if self.watcher is not None:
                    self.watcher.recounted(output)
            elif output.process in listeners:
                listeners[output.process].left(output.group, output.cause)

    def _submit(self) -> None:
        """Hand over what is to be told to the others, as far as it may be now."""
        if self._leaving() or not self.placed:
            return
        gate = self.gate()
        if (attend := self._machine.attend()) is not None:
            gate.attend(attend)
        while (submit := self._machine.take(_ALL)) is not None:
            gate.submit(submit.payloads, sum(map(len, submit.payloads)), submit.guarantee)

    def _record_asked(self, event: str, process: int, group: str | None) -> None:
        if self._recorder is not None:
            self._recorder.group_event(self._now_us(), *of_process(event, process, group))

    # --- lives ----------------------------------------------------------------------------------

    def life_over(self) -> None:
        """A life has ended: nothing can be asked of it any more. Perhaps another one follows."""
        self._over = True
        self.placed = self.settled = False
        self.gate().hold()
        if self.watcher is not None:
            self.watcher.life_over()

    def begin_life(self, incarnation: int) -> None:
        """The next life begins, before its machine does: processes begin anew, and join again."""
        self._machine = self._new_machine(incarnation, self._machine.counted)
        self._machine.watched = self._watched
        self._over = False
        before, self._local = self._local, {}
        listeners, self._listeners = self._listeners, {}
        for number, process in before.items():
            process.begin_anew(self._machine.begin())
            self._local[process.number] = process
            self._listeners[process.number] = listeners[number]
            for group, properties in process.wanted.items():
                self._machine.join(process.number, group, properties)

    def life_begun(self) -> None:
        """Its machine has begun, and the trace can tell so."""
        for process in self._local.values():
            for group in process.wanted:
                self._record_asked("group_join", process.number, group)


def _size(group: str, properties: Properties) -> int:
    """Bytes that a membership counts for."""
    return len(written(Join(2**32 - 1, group, dict(properties))))
