"""Commands that the primary carries out alone: it tries them, and all replicas take over what comes of them.

004 §4.3.1: "Once the primary has processed the request, it makes sure that each backup server is up-to-date
with respect to the new state. For that, the primary sends to the backup server an *update* message,
representing the state change induced by the processing of the request." The primary undoes what it has tried:
like everybody it changes its state where the update is delivered. So what is read at any replica is of an
update that all have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ordercast.errors import CommandFailed, NotReplicated
from ordercast.process_groups.views import Process
from ordercast.replicated import told
from ordercast.replicated.changes import Before, Change, check
from ordercast.replicated.execution import Execution
from ordercast.replicated.notes import Calls, Done, RoundId, Update
from ordercast.replicated.outcome import failed
from ordercast.replicated.sessions import Known, Sessions
from ordercast.replicated.state import CANNOT_TRAVEL


class TriedSessions(Sessions):
    """Sessions as they are, and beside them what was tried."""

    def __init__(self, sessions: Sessions) -> None:
        super().__init__()
        self._known = sessions
        self._outcomes: dict[tuple[int, int], bytes] = {}
        self.done: list[Done] = []

    def look(self, session: int, number: int, since: int) -> bytes | Known:
        """The result of a command that was tried, or carried out before; else, what is known of it."""
        tried = self._outcomes.get((session, number))
        return self._known.look(session, number, since) if tried is None else tried

    def all_new(self, session: int, first: int, count: int, since: int) -> bool:
        """Whether none of so many commands was tried, or carried out before."""
        numbers = range(first, first + count)
        tried = any((session, number) in self._outcomes for number in numbers)
        return not tried and self._known.all_new(session, first, count, since)

    def keep(self, session: int, first: int, floor: int, position: int, results: Sequence[bytes]) -> None:
        """Commands were tried, from this number on."""
        self._outcomes.update(((session, number), each) for number, each in enumerate(results, first))
        self.done.append(Done(session, first, floor, list(results)))


class Trial(Execution):
    """Carries commands out on the object of an execution, to see what comes of them."""

    def __init__(self, execution: Execution) -> None:
        self.subject, self.applied, self._merges = execution.subject, execution.applied, False
        self.tried = TriedSessions(execution.sessions)
        self.sessions = self.tried
        self._common = execution.common

    def request(self, sender: Process, calls: Calls) -> list[Done]:
        """Carry these out; what is to be told of them."""
        self.awaited = {calls.session}
        before = len(self.tried.done)
        self._pass_time(sender, calls.time_us)
        answers = self._call(sender, calls)
        done = self.tried.done[before:]
        carried_out = sum(len(each.outcomes) for each in done)
        outcomes = [] if answers is None else list(answers.outcomes)
        if not done or carried_out < len(outcomes):
            done.append(Done(calls.session, calls.first, calls.floor, outcomes, new=False))
        return done

    def _pass_time(self, sender: Process, time_us: int) -> None:
        """Time goes on until the object waits for it: that it has come all replicas are told (`Tick`)."""
        common, due = self._common, self.subject.wake_at_us
        now_us = time_us - common.ahead_us.get(sender, 0)
        common.now_us = max(common.now_us, now_us if due is None else min(now_us, due - 1))


class Recorder:
    """Stands in for the object's replica: takes what commands tell, as it is then."""

    def __init__(self, owner: type) -> None:
        self.events: list[msgspec.Raw] = []
        self.problem = ""
        """Why something cannot travel that was told."""
        self._owner = owner

    def tell(self, event: Any) -> None:
        """A command tells this event."""
        try:
            data = told.encoded(event)
            told.decoded(data, self._owner)  # or nobody could read it
        except CANNOT_TRAVEL as error:
            self.problem = self.problem or str(error)
        else:
            self.events.append(data)


def tried(
    execution: Execution, round: RoundId, requests: Sequence[tuple[Process, Calls]], most: int
) -> Update:
    """What comes of these requests, of at most so many bytes; the object is as before.

    If that cannot travel, of the first request alone; and if that cannot either, its commands fail. Raises
    `NotReplicated` if the object is spoilt.
    """
    update, problem = _tried(execution, round, requests)
    size = 0 if problem else len(msgspec.msgpack.encode(update))
    if size > most:
        problem = f"it takes {size:,} bytes, and {most:,} fit into a message"
    if not problem:
        return update
    if len(requests) > 1:
        return tried(execution, round, requests[:1], most)
    failure = failed(CommandFailed(f"what it changes cannot be sent to the other nodes: {problem}"))
    done = [
        msgspec.structs.replace(each, outcomes=[failure] * len(each.outcomes)) if each.new else each
        for each in update.done
    ]
    return msgspec.structs.replace(update, done=done, changes=[], told=[])


def _tried(
    execution: Execution, round: RoundId, requests: Sequence[tuple[Process, Calls]]
) -> tuple[Update, str]:
    """The update, and why it cannot travel, if it cannot."""
    target, trial = execution.subject.target, Trial(execution)
    try:
        before = Before(target._fields.only(execution.common.fields), target)
    except CANNOT_TRAVEL as error:
        raise NotReplicated(
            f"`left` or `tick` of {type(target).__name__} has put in what is not of its fields' types, so "
            f"that no primary can carry out commands: {error}"
        ) from None
    turn, replica, recorder = target._turn, target._replica, Recorder(type(target))
    target._replica = recorder  # type: ignore[assignment]
    changes: list[Change] | None = None
    problem = ""
    try:
        done = [each for sender, calls in requests for each in trial.request(sender, calls)]
        try:
            changes = before.changes()
            check(changes, target._fields)
        except CANNOT_TRAVEL as error:
            problem = str(error)
    finally:
        before.undo(changes)
        target._turn, target._replica = turn, replica
    common = trial.common
    update = Update(round, common.base, common.now_us, common.position, done, changes or [], recorder.events)
    return update, problem or recorder.problem
