"""Mistakes one could make where the primary alone carries out the commands of an object."""

from __future__ import annotations

from typing import Any

import msgspec

from ordercast.mutants.mutant import Mutant, register
from ordercast.replicated import at_primary, execution
from ordercast.replicated.at_primary import TriedSessions
from ordercast.replicated.changes import Before, Change
from ordercast.replicated.durable.heads import Head
from ordercast.replicated.effects import Answers
from ordercast.replicated.execution import Execution
from ordercast.replicated.notes import Update
from ordercast.replicated.primary_machine import PrimaryMachine

AT_PRIMARY_MUTANTS: list[Mutant] = []

_mutant = register(AT_PRIMARY_MUTANTS)
PROTOCOL = "primary-backup+objects"


@_mutant(PROTOCOL, "rounds", Execution, "_carry_out", "an update counts wherever it is delivered")
def _void_update_counts(right: Any) -> Any:
    def carry_out(self: Any, head: Head, sender: Any, entry: Any) -> Any:
        if isinstance(entry, Update):
            entry = msgspec.structs.replace(entry, base=self._common.base)
        return right(self, head, sender, entry)

    return carry_out


@_mutant(PROTOCOL, "state", Before, "undo", "the primary keeps what it has only tried")
def _trial_stays(right: Any) -> Any:
    return lambda self, changes: None


@_mutant(PROTOCOL, "state", execution, "make", "what is gone at the primary stays elsewhere")
def _gone_stays(right: Any) -> Any:
    def make(changes: list[Change], *more: Any) -> None:
        right([Change(each.field, each.how, [], each.new) for each in changes], *more)

    return make


@_mutant(PROTOCOL, "calls", Execution, "_take_over", "backups do not remember what came of commands")
def _outcomes_at_the_primary_alone(right: Any) -> Any:
    def take_over(self: Any, sender: Any, update: Update) -> Any:
        done = [msgspec.structs.replace(each, new=False) for each in update.done]
        return right(self, sender, msgspec.structs.replace(update, done=done))

    return take_over


@_mutant(PROTOCOL, "calls", TriedSessions, "all_new", "a request that is repeated is tried again")
def _repeated_request_is_tried(right: Any) -> Any:
    return lambda self, session, first, count, since: True


@_mutant(PROTOCOL, "calls", PrimaryMachine, "_make_update", "the primary answers when it has tried")
def _answers_what_is_tried(right: Any) -> Any:
    def make_update(self: Any) -> None:
        before = self._outstanding
        right(self)
        update = self._outstanding
        if update is not None and update is not before:
            for done in update.done:
                if done.session in self.execution.awaited:
                    self._out.append(Answers(done.session, done.first, done.outcomes))

    return make_update


@_mutant(PROTOCOL, "state", at_primary, "Before", "an update has no more than one of the fields that changed")
def _one_field_travels(right: Any) -> Any:
    class OneChange(Before):
        def changes(self) -> list[Change]:
            return super().changes()[:1]

        def undo(self, changes: Any) -> None:
            super().undo(None)

    return OneChange


@_mutant(PROTOCOL, "calls", PrimaryMachine, "_updated", "requests that wait are forgotten with each update")
def _other_requests_are_forgotten(right: Any) -> Any:
    def updated(self: Any, sender: Any, update: Update, *, holds: bool) -> None:
        right(self, sender, update, holds=holds)
        self._requests.clear()

    return updated


@_mutant(PROTOCOL, "rounds", PrimaryMachine, "_updated", "an update that was void is not made again")
def _void_update_is_not_made_again(right: Any) -> Any:
    def updated(self: Any, sender: Any, update: Update, *, holds: bool) -> None:
        right(self, sender, update, holds=True)

    return updated
