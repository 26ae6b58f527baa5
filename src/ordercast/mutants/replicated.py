"""Mistakes one could make in replicated objects, and in ready-made ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ordercast.core.identity import Configuration
from ordercast.mutants.mutant import Mutant, register
from ordercast.objects.holding import Held, Lost
from ordercast.objects.leases import Leases
from ordercast.objects.queue import Queue
from ordercast.process_groups.views import Process
from ordercast.replicated import history
from ordercast.replicated.agreement import Agreement
from ordercast.replicated.command import encode
from ordercast.replicated.durable.files import ObjectFiles
from ordercast.replicated.durable.heads import Entry, Head
from ordercast.replicated.durable.reading import LOG
from ordercast.replicated.effects import Answers, Effect, Failed, Reached
from ordercast.replicated.execution import NOBODY, Execution
from ordercast.replicated.history import History, Recent, Tail
from ordercast.replicated.machine import Machine
from ordercast.replicated.notes import Calls, Mark, Members, Report, Run, read
from ordercast.replicated.notes import Entry as Noted
from ordercast.replicated.on_disk import OnDisk
from ordercast.replicated.quorum import Majority
from ordercast.replicated.replica import Replica
from ordercast.replicated.replicated import Turn
from ordercast.replicated.sessions import Session, Sessions
from ordercast.replicated.snapshot import Opening, Snapshot
from ordercast.replicated.state import Captured, Field, Piece

OBJECT_MUTANTS: list[Mutant] = []

_mutant = register(OBJECT_MUTANTS)

# --- the state, on its way to others ----------------------------------------------------------------


@_mutant("totem+objects", "state", Captured, "pieces", "a snapshot holds what the object goes on changing")
def _aliased_snapshot(right: Any) -> Any:
    return lambda self: self._field.pieces(self._value)


@_mutant("totem+objects", "state", Machine, "snapshot", "a snapshot says that it is of one place earlier")
def _state_one_behind(right: Any) -> Any:
    def snapshot(self: Machine) -> Snapshot:
        taken: Snapshot = right(self)
        entries = self.recent._entries
        if len(entries) > 1:
            taken.head = entries[-2][0]
            taken._opening = encode(Opening(taken.head, self.execution.common))
        return taken

    return snapshot


@_mutant("total+objects", "state", History, "begin_at", "behind a state one entry too many is left out")
def _state_one_ahead(right: Any) -> Any:
    def begin_at(self: History, head: Head) -> None:
        right(self, head)
        if self.log and not isinstance(self.log[0][2], Mark):
            self.log.popleft()

    return begin_at


@_mutant("totem+objects", "state", Sessions, "add", "the table of sessions does not go with the state")
def _sessions_not_transferred(right: Any) -> Any:
    return lambda self, piece: None


@_mutant("cm+objects", "state", Sessions, "add", "results are forgotten where a state is taken")
def _results_not_transferred(right: Any) -> Any:
    def add(self: Sessions, piece: bytes) -> None:
        right(self, piece)
        for number, each in self._sessions.items():
            self._sessions[number] = Session(each.floor, each.used, {})

    return add


@_mutant("total+objects", "state", Field, "begin", "a dict that is taken has its keys in another order")
def _dicts_in_another_order(right: Any) -> Any:
    def begin(self: Field, piece: Piece) -> Any:
        value = right(self, piece)
        return dict(sorted(value.items())) if self.made is dict else value

    return begin


@_mutant("totem+objects", "state", Recent, "after", "what follows a place of another history is given, too")
def _tail_of_another_history(right: Any) -> Any:
    def after(self: Recent, head: Head) -> Tail | None:
        count = head.position - self._base.position
        if not 0 <= count <= len(self._entries):
            return None
        return Tail(head, list(self._entries)[count:])

    return after


@_mutant("totem+objects", "state", Machine, "snapshot", "commands go on while references are copied")
def _snapshot_not_waited_for(right: Any) -> Any:
    def snapshot(self: Machine) -> Snapshot:
        taken: Snapshot = right(self)
        if not taken.complete:
            self._pauses -= 1
        return taken

    return snapshot


# --- rounds -----------------------------------------------------------------------------------------


@_mutant("total+objects", "rounds", Agreement, "report", "a round is settled before all have told")
def _settled_too_early(right: Any) -> Any:
    def report(self: Agreement, sender: Process, report: Report) -> bool:
        if report.round == self.round and not self.settled:
            nothing = Report(report.round, None, report.known, 0, time_us=report.time_us)
            for each in self.members:
                self._told.setdefault(each, nothing)
        return bool(right(self, sender, report))

    return report


@_mutant("total+objects", "rounds", Execution, "carry_out", "nobody is told who has left")
def _left_untold(right: Any) -> Any:
    def carry_out(self: Execution, head: Head, sender: Process, entry: Noted) -> Sequence[Answers] | Failed:
        if isinstance(entry, Members):
            self._common.there = entry.there
        found: Sequence[Answers] | Failed = right(self, head, sender, entry)
        return found

    return carry_out


@_mutant("totem+objects", "rounds", Machine, "configuration", "who has left has left where that is noticed")
def _left_where_noticed(right: Any) -> Any:
    def configuration(self: Machine, configuration: Configuration, me: Process, *, rejoined: bool) -> Any:
        before = self._presence.group
        out: list[Effect] = right(self, configuration, me, rejoined=rejoined)
        for gone in before:
            if gone not in self._presence.group:
                self.execution.subject.left(self.execution._next_turn(), gone)
        return out

    return configuration


# --- calls ------------------------------------------------------------------------------------------


@_mutant("totem+objects", "calls", Execution, "_call_again", "a repeated command is carried out again")
def _carried_out_again(right: Any) -> Any:
    def call_again(self: Execution, asked: Turn, calls: Calls, number: int, run: Run) -> bytes:
        found: bytes = self._run(asked, run, 1)[0]
        return found

    return call_again


@_mutant("totem+objects", "calls", Replica, "sync", "sync waits for nothing")
def _sync_waits_for_nothing(right: Any) -> Any:
    async def sync(self: Replica) -> None:
        self._check_open()

    return sync


@_mutant("totem+objects", "calls", Replica, "tell", "who watches is told what has become of an event")
def _told_later(right: Any) -> Any:
    def tell(self: Replica, event: Any) -> None:
        if self._watches:
            self.machine.tell(event)

    return tell


@_mutant("totem+objects", "calls", Machine, "deliver", "a mark is reached when it is delivered")
def _marks_at_once(right: Any) -> Any:
    def deliver(self: Machine, sender: Process, payload: bytes) -> list[Effect]:
        note = read(payload)
        if isinstance(note, Mark) and sender == self.me:
            return [Reached(note.number)]
        out: list[Effect] = right(self, sender, payload)
        return out

    return deliver


@_mutant("cm+objects", "calls", Execution, "_pass_time", "ordered time is that of each node's own clock")
def _time_of_ones_own(right: Any) -> Any:
    def pass_time(self: Execution, sender: Process, time_us: int) -> None:
        right(self, sender, round(asyncio.get_running_loop().time() * 1_000_000))

    return pass_time


@_mutant("totem+objects", "calls", Machine, "alarm", "nobody says that time has passed")
def _nobody_ticks(right: Any) -> Any:
    return lambda self, now_us: []


# --- disks ------------------------------------------------------------------------------------------


@_mutant("totem+objects", "disks", OnDisk, "reached", "commands are carried out before they are on any disk")
def _before_it_is_on_disks(right: Any) -> Any:
    def reached(self: OnDisk, agreement: Agreement) -> int | None:
        found: int | None = right(self, agreement)
        return None if agreement.active else found

    return reached


@_mutant("totem+objects", "disks", Majority, "kept", "one disk is enough")
def _one_disk_suffices(right: Any) -> Any:
    return lambda self, positions: max(positions.values(), default=0)


class _Unsynced:
    """A directory in which files of some names are not synced."""

    def __init__(self, directory: Any, ends: str) -> None:
        self._directory = directory
        self._ends = ends

    def __getattr__(self, name: str) -> Any:
        return getattr(self._directory, name)

    def sync(self, name: str) -> None:
        if not name.endswith(self._ends):
            self._directory.sync(name)


def _without_sync(right: Any, ends: str) -> Any:
    def commit(self: ObjectFiles, entries: Iterable[Entry]) -> None:
        directory: Any = self._directory
        self._directory = _Unsynced(directory, ends)
        try:
            right(self, entries)
        finally:
            self._directory = directory

    return commit


@_mutant("totem+objects", "disks", ObjectFiles, "commit", "the head tells of a log that is not on disk yet")
def _log_not_synced(right: Any) -> Any:
    return _without_sync(right, LOG)


@_mutant("totem+objects", "disks", history, "kept", "the log on disk does not say who called")
def _callers_not_kept(right: Any) -> Any:
    return lambda sender, payload: right(NOBODY, payload)


# --- locks, and queues ------------------------------------------------------------------------------


@_mutant("totem+objects", "leases", Leases, "_give", "a token is as large as the one before it")
def _tokens_stay(right: Any) -> Any:
    def give(self: Leases, name: str, to: Any) -> int:
        self._set(name, msgspec.structs.replace(to, token=1))
        return 1

    return give


@_mutant("totem+objects", "leases", Held, "_extend", "a lease is lost for its holder when others may have it")
def _lost_too_late(right: Any) -> Any:
    def extend(self: Held, asked: float) -> Any:
        return right(self, asked + 0.6 * self._ttl)

    return extend


@_mutant(
    "totem+objects", "leases", Lost, "is_set", "a lease is lost when a timer says so, and not by the clock"
)
def _lost_by_timer(right: Any) -> Any:
    return asyncio.Event.is_set


@_mutant("totem+objects", "leases", Leases, "left", "a lease ends when its holder is not there")
def _lease_ends_with_its_process(right: Any) -> Any:
    def left(self: Leases, process: Process) -> None:
        right(self, process)
        for name, lease in list(self.held.items()):
            if lease.process == process:
                self._pass_on(name)

    return left


@_mutant("totem+objects", "queues", Queue, "left", "what somebody had in hand who left does not come back")
def _in_hand_stays_away(right: Any) -> Any:
    return lambda self, process: None


@_mutant("totem+objects", "queues", Queue.give_back, "function", "what is given back is gone")
def _given_back_is_gone(right: Any) -> Any:
    def give_back(self: Queue[Any], ticket: str) -> None:
        self.waiting.pop(ticket, None)
        self.taken.pop(ticket, None)

    return give_back
