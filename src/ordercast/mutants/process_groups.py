"""Mistakes one could make in process groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ordercast.core.addresses import read_address
from ordercast.core.identity import Batch
from ordercast.core.subjects import read_subscription
from ordercast.mutants.mutant import Mutant, register
from ordercast.process_groups.gathering import Gathering
from ordercast.process_groups.machine import ProcessGroups
from ordercast.process_groups.notes import Membership, State
from ordercast.process_groups.patterns import Patterns
from ordercast.process_groups.queues import Share
from ordercast.process_groups.routing import Routing
from ordercast.process_groups.table import Table
from ordercast.process_groups.views import Cause, Life, Output, Process, Received

PROCESS_GROUP_MUTANTS: list[Mutant] = []

_mutant = register(PROCESS_GROUP_MUTANTS)

# --- the beginning of a configuration ---------------------------------------------------------------


@_mutant("totem+groups", "states", Routing, "_take", "nothing waits for the members' states")
def _nothing_is_held(right: Any) -> Any:
    def take(self: Routing, what: Any, batch: Batch, out: list[Output]) -> None:
        self._handle(what, batch, out)

    return take


@_mutant("totem+groups", "states", ProcessGroups, "on_state", "a state counts in any configuration")
def _states_of_any_configuration(right: Any) -> Any:
    def on_state(self: ProcessGroups, life: Life, state: State, size: int, out: list[Output]) -> None:
        here = self._gathering.configuration if self._gathering is not None else state.configuration
        right(self, life, State(here, state.part, state.parts, state.memberships), size, out)

    return on_state


@_mutant("totem+groups", "states", Gathering, "take", "the last member's state is not waited for")
def _last_state_not_awaited(right: Any) -> Any:
    def take(self: Gathering, life: Life, state: State) -> bool:
        whole: bool = right(self, life, state)
        if len(self.missing) == 1:
            self.missing.clear()
        return whole

    return take


@_mutant("totem+groups", "states", Table, "of_life", "a state tells of the node's first process alone")
def _state_of_one_process(right: Any) -> Any:
    def of_life(self: Table, life: Life) -> Iterator[Membership]:
        memberships = list(right(self, life))
        return iter([each for each in memberships if each.process == memberships[0].process])

    return of_life


@_mutant("totem+groups", "states", Routing, "handle_held", "what was held is handled in reverse")
def _held_in_reverse(right: Any) -> Any:
    def handle_held(self: Routing, out: list[Output]) -> None:
        if self._held is not None:
            self._held.reverse()
        right(self, out)

    return handle_held


@_mutant(
    "totem+groups", "states", ProcessGroups, "_give_up", "what is held is lost when the configuration ends"
)
def _held_is_lost(right: Any) -> Any:
    def give_up(self: ProcessGroups, out: list[Output]) -> None:
        self.routing._held = None

    return give_up


@_mutant(
    "totem+groups", "states", ProcessGroups, "_give_up", "an unsettled configuration leaves regular views"
)
def _regular_though_unsettled(right: Any) -> Any:
    return lambda self, out: self.routing.handle_held(out)


# --- views --------------------------------------------------------------------------------------------


@_mutant("total+groups", "views", ProcessGroups, "_announce", "views are counted only where members are told")
def _views_counted_where_told(right: Any) -> Any:
    def announce(
        self: ProcessGroups, groups: Sequence[str], cause: Cause, out: list[Output], merged: Any = frozenset()
    ) -> None:
        before, told = self._changes, len(out)
        right(self, groups, cause, out, merged)
        if len(out) == told:
            self._changes = before

    return announce


@_mutant("totem+groups", "views", ProcessGroups, "_announce", "a lost node is no reason for a new view")
def _lost_without_a_view(right: Any) -> Any:
    def announce(
        self: ProcessGroups, groups: Sequence[str], cause: Cause, out: list[Output], merged: Any = frozenset()
    ) -> None:
        if cause is not Cause.LOST or merged:
            right(self, groups, cause, out, merged)

    return announce


@_mutant("totem+groups", "views", ProcessGroups, "_announce", "a transitional view is the last of its group")
def _transitional_for_good(right: Any) -> Any:
    def announce(
        self: ProcessGroups, groups: Sequence[str], cause: Cause, out: list[Output], merged: Any = frozenset()
    ) -> None:
        right(self, groups, cause, out, merged)
        self._transitional.clear()

    return announce


@_mutant("cm+groups", "views", ProcessGroups, "leave", "a process leaves at once at its own node")
def _left_at_once(right: Any) -> Any:
    def leave(self: ProcessGroups, process: int, group: str) -> None:
        right(self, process, group)
        self._table.remove(Process(*self.me, process), group)
        self.routing.forget()

    return leave


# --- messages -----------------------------------------------------------------------------------------


@_mutant("dtp+groups", "messages", Routing, "on_message", "a message comes once for each group")
def _once_for_each_group(right: Any) -> Any:
    def on_message(self: Routing, found: bytes, batch: Batch, out: list[Output]) -> None:
        where = read_address(found)
        assert where is not None
        bodies = [payload[len(found) :] for payload in batch.payloads]
        for group in where.groups:
            to = self.local([group])
            if to:
                out.append(Received(batch._replace(payloads=bodies), where.sender, where.groups, to))

    return on_message


@_mutant("pinwheel+groups", "messages", Routing, "local", "all processes of a node get everything")
def _everything_to_everybody(right: Any) -> Any:
    def local(self: Routing, groups: Sequence[str]) -> tuple[int, ...]:
        if len(groups) == 1 and not right(self, groups):
            return ()
        everybody: tuple[int, ...] = right(self, list(self.table.groups))
        return everybody

    return local


@_mutant("totem+groups", "messages", Routing, "local", "a dead process gets messages until all know")
def _messages_to_the_dead(right: Any) -> Any:
    def local(self: Routing, groups: Sequence[str]) -> tuple[int, ...]:
        ended, self._ended = self._ended, set()
        found: tuple[int, ...] = right(self, groups)
        self._ended = ended
        return found

    return local


# --- patterns and queues --------------------------------------------------------------------------------


@_mutant("totem+groups", "queues", Patterns, "of", "a pattern that ends in > describes nothing")
def _rest_describes_nothing(right: Any) -> Any:
    def of(self: Patterns, subject: str) -> list[str]:
        return [group for group in right(self, subject) if not group.endswith(">")]

    return of


@_mutant("total+groups", "queues", Routing, "_give", "a node gives a queue's messages to its own members")
def _own_members_first(right: Any) -> Any:
    def give(self: Routing, process: Process, share: Share, message: Received, out: list[Output]) -> None:
        own = self.local([share.queue])
        right(self, Process(*self._me, own[0]) if own else process, share, message, out)

    return give


@_mutant("totem+groups", "queues", Routing, "_give", "what a queue has for a dead process is lost")
def _lost_with_the_process(right: Any) -> Any:
    def give(self: Routing, process: Process, share: Share, message: Received, out: list[Output]) -> None:
        if process.life != self._me or process.number not in self._ended:
            right(self, process, share, message, out)

    return give


@_mutant("cm+groups", "queues", Table, "of_life", "a state tells of no queue")
def _no_queues_in_states(right: Any) -> Any:
    def of_life(self: Table, life: Life) -> Iterator[Membership]:
        for each in right(self, life):
            found = read_subscription(each.group)
            if found is None or found[1] is None:
                yield each

    return of_life
