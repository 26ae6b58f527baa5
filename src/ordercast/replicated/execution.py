"""Entries of the history are carried out: on the object, its sessions, and what is state of every object."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ordercast.errors import ConfigProblem, NotReplicated
from ordercast.process_groups.views import Process
from ordercast.replicated.changes import make
from ordercast.replicated.command import length, listed, several
from ordercast.replicated.durable.heads import Head
from ordercast.replicated.effects import Answers, Failed
from ordercast.replicated.notes import Calls, Entry, Members, Run, Tick, Update
from ordercast.replicated.outcome import forgotten, unknown
from ordercast.replicated.replicated import Replicated, Subject, Turn
from ordercast.replicated.sessions import Known, Sessions
from ordercast.replicated.snapshot import Common, Restored, Snapshot
from ordercast.replicated.state import Outdated
from ordercast.replicated.told import decoded

LOG = logging.getLogger("ordercast")
NOBODY = Process(0, 0, 0)
MOST_CALLERS = 10_000
"""Replicas of which it is remembered which of their commands a history has, where histories are merged: those
that called last."""


class OnUpdate(Protocol):
    """Is told of updates."""

    def __call__(self, sender: Process, update: Update, *, holds: bool) -> None:
        """One was delivered."""


def _ignored(sender: Process, update: Update, *, holds: bool) -> None:
    """Stands in where nobody wants to know."""


class Execution:
    """The state of one object: as far as the history was carried out at this replica."""

    def __init__(self, subject: Subject, session: int, applied: Head, *, merges: bool = False) -> None:
        """`session`: that of this replica, which wants the answers of its commands. `applied`: where the
        history begins. `merges`: it may be merged with others."""
        self.awaited = {session}
        """Sessions that wait for answers at this replica."""
        self.subject = subject
        self.sessions = Sessions()
        self.applied = applied
        """Up to where it was carried out."""
        self.on_update: OnUpdate = _ignored
        """Told of each update that is delivered, and whether it holds."""
        self._merges = subject.target._merged = merges
        self._common = Common(0, [], {}, subject.known, 0, 0, fields=subject.fields)

    def carry_out(self, head: Head, sender: Process, entry: Entry) -> Sequence[Answers] | Failed:
        """Carry out the entry behind which the history is at `head`; the answers, if it has commands that
        were called at this replica, or that its class does not know how."""
        try:
            return self._carry_out(head, sender, entry)
        except Outdated as error:
            return Failed(ConfigProblem(str(error)))

    def _carry_out(self, head: Head, sender: Process, entry: Entry) -> Sequence[Answers]:
        self.applied, base = head, self._common.base
        self._common.base = head.position, head.checksum
        match entry:
            case Calls():
                self._pass_time(sender, entry.time_us)
                answers = self._call(sender, entry)
                return () if answers is None else (answers,)
            case Update():
                if entry.base != base or sender not in self._common.there:
                    self._common.base = base
                    self.on_update(sender, entry, holds=False)
                else:
                    self.on_update(sender, entry, holds=True)
                    return self._take_over(sender, entry)
            case Tick(time_us):
                self._pass_time(sender, time_us)
            case Members(there, clocks_us, known, fields):
                common, before = self._common, self._common.there
                common.there = there
                # the middle one is right, unless it is behind what was the time before: that goes on, and
                # does not wait for it
                now_us = max(common.now_us, sorted(clocks_us)[(len(clocks_us) - 1) // 2])
                common.ahead_us = {
                    each: clock_us - now_us for each, clock_us in zip(there, clocks_us, strict=True)
                }
                common.known = frozenset(known)
                common.fields |= frozenset(fields)
                self.subject.share(common.fields)
                for gone in sorted(set(before) - set(there)):
                    self.subject.left(self._next_turn(), gone)
        return ()

    def _take_over(self, sender: Process, update: Update) -> Sequence[Answers]:
        """Make what a primary has changed."""
        target, common = self.subject.target, self._common
        common.primary = sender
        try:
            make(update.changes, target._fields, target)
            events = [decoded(event, type(target)) for event in update.told]
        except (msgspec.MsgspecError, TypeError, LookupError) as error:
            raise Outdated(f"it does not understand what another one has changed ({error})") from error
        common.now_us, common.position = max(common.now_us, update.now_us), update.position
        target._turn = Turn(common.now_us, common.position, NOBODY)
        for done in update.done:
            if done.new:
                self.sessions.keep(done.session, done.first, done.floor, self.applied.position, done.outcomes)
        for event in events:
            target.tell(event)
        return [
            Answers(done.session, done.first, done.outcomes)
            for done in update.done
            if done.session in self.awaited
        ]

    def _call(self, sender: Process, calls: Calls) -> Answers | None:
        session, number, outcomes = calls.session, calls.first, list[bytes]()
        for run in calls.runs:
            count = length(run.calls)
            if count is None:
                continue  # it says nothing
            asked = Turn(0, 0, sender, calls.sent_us, number - 1)
            if self.sessions.all_new(session, number, count, calls.since):
                found = self._run(asked, run, count)
                self.sessions.keep(session, number, calls.floor, self.applied.position, found)
            else:
                found = [
                    self._call_again(asked, calls, number + at, Run(run.shape, listed((bytes(call),))))
                    for at, call in enumerate(several(run.calls))
                ]
            outcomes += found
            number += len(found)
        if self._merges:
            self._see(sender, (calls.sent_us, number - 1))
        return Answers(session, calls.first, outcomes) if session in self.awaited else None

    def _see(self, caller: Process, last: tuple[int, int]) -> None:
        """A caller's commands, up to this one, were carried out."""
        seen = self._common.seen
        seen[caller] = max(last, seen.pop(caller, last))
        if len(seen) > MOST_CALLERS:
            del seen[next(iter(seen))]

    def _call_again(self, asked: Turn, calls: Calls, number: int, run: Run) -> bytes:
        """A command that may have been carried out already."""
        outcome = self.sessions.look(calls.session, number, calls.since)
        if outcome is Known.FORGOTTEN:
            return forgotten()
        if outcome is Known.NEW:
            asked.number = number - 1
            found = self._run(asked, run, 1)
            self.sessions.keep(calls.session, number, calls.floor, self.applied.position, found)
            return found[0]
        return outcome

    def _run(self, turn: Turn, run: Run, count: int) -> list[bytes]:
        common = self._common
        if run.shape not in common.known:
            return [unknown(run.shape)] * count
        if run.shape not in self.subject.known:
            raise Outdated(f"it lacks the command {run.shape}, which the others carry out")
        turn.now_us, turn.position = common.now_us, common.position
        outcomes = self.subject.run(turn, run)
        common.position = turn.position
        return outcomes

    def _next_turn(self) -> Turn:
        """Of what nobody called."""
        self._common.position += 1
        return Turn(self._common.now_us, self._common.position, NOBODY)

    # --- time -----------------------------------------------------------------------------------

    def _pass_time(self, sender: Process, time_us: int) -> None:
        """Ordered time is the sender's, as far ahead as its clock is, and never falls."""
        common = self._common
        common.now_us = max(common.now_us, time_us - common.ahead_us.get(sender, 0))
        due = self.subject.wake_at_us
        if due is not None and common.now_us >= due:
            self.subject.tick(self._next_turn())

    def wake_at_us(self, me: Process, step_us: int) -> int | None:
        """When this replica's clock should tell the others that the time has come for which the object waits,
        where each replica waits `step_us` longer than the one before it. None: it waits for none."""
        due, common = self.subject.wake_at_us, self._common
        if due is not None and me in common.there:
            due += common.ahead_us[me] + common.there.index(me) * step_us
        return due

    # --- the state as a whole -------------------------------------------------------------------

    @property
    def common(self) -> Common:
        """What is state of every object, beside its fields and sessions."""
        return msgspec.structs.replace(
            self._common, forgotten=self.sessions.forgotten, seen=self._common.seen.copy()
        )

    @property
    def primary(self) -> Process | None:
        """Who made the last update."""
        return self._common.primary

    @property
    def immutable(self) -> bool:
        """Whether references to what is in the fields are enough to keep the state."""
        target = self.subject.target
        fields = target._fields
        return fields.immutable and all(field.fits(getattr(target, field.name)) for field in fields)

    def snapshot(self) -> Snapshot:
        """The state as it is now."""
        return Snapshot(self.applied, self.common, self.sessions, self.subject.target)

    def take(self, state: Restored, initial: Sequence[bytes]) -> None:
        """Put another state in the place of this one; fields that it lacks have the values of `initial`."""
        state.install(initial, self.subject.target)
        self.sessions, self._common, self.applied = state.sessions, state.common, state.head
        self.subject.share(self._common.fields)
        target = self.subject.target
        target._turn = Turn(self._common.now_us, self._common.position, NOBODY)
        target._fingerprints = None

    def merge(self, head: Head, parts: Sequence[Restored | None], initial: Sequence[bytes]) -> Failed | None:
        """Put what comes of several states into the place of this one; None stands for this one. The history
        is at `head` then."""
        states: list[Replicated] = []
        for part in parts:
            state = self.subject.copy()
            if part is not None:
                part.install(initial, state)
            state._seen = (part or self).common.seen
            states.append(state)
        common = _merged([(part or self).common for part in parts])
        sessions = Sessions.merged([(part or self).sessions for part in parts])
        common.position += 1
        try:
            self.subject.merge(Turn(common.now_us, common.position, NOBODY), states)
        except (MemoryError, RecursionError):
            raise  # as in a command
        except Exception as error:
            kind = type(self.subject.target).__name__
            LOG.error("%s.merge raised %r, at every replica", kind, error, exc_info=error)
            why = f"histories could not be merged: {kind}.merge raised {error!r}"
            return Failed(NotReplicated(f"{why}; mend it, then replicate the object, which begins anew"))
        self.sessions, self._common, self.applied = sessions, common, head
        self.subject.share(common.fields)
        return None


def _merged(several: Sequence[Common]) -> Common:
    """What is state of every object, where histories come together."""
    first = several[0]
    seen: dict[Process, tuple[int, int]] = {}
    for each in several:
        for caller, last in each.seen.items():
            seen[caller] = max(last, seen.get(caller, last))
    return Common(
        now_us=max(each.now_us for each in several),
        there=sorted(set[Process]().union(*(each.there for each in several))),
        ahead_us={},
        known=first.known.intersection(*(each.known for each in several)),
        forgotten=0,
        position=max(each.position for each in several),
        fields=first.fields.union(*(each.fields for each in several)),
        seen=dict(sorted(seen.items(), key=lambda each: (each[1], each[0]))[-MOST_CALLERS:]),
    )
