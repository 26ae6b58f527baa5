"""Mistakes one could make in TRMP."""

from __future__ import annotations

from typing import Any

from ordercast.core.contract import Effect
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.levels.feed import Beginning, Feed, Piece, read_entry
from ordercast.levels.feeding import Feeding
from ordercast.levels.follower import FollowerMachine
from ordercast.levels.inserting import Inserting
from ordercast.levels.packets import Insert, Pieces, Status
from ordercast.levels.source import Source
from ordercast.mutants.mutant import Mutant, register
from ordercast.sequencers.moving import Token
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import Req
from ordercast.sequencers.trmp import Due, Trmp

TRMP_MUTANTS: list[Mutant] = []

_mutant = register(TRMP_MUTANTS)

# --- the schedule ----------------------------------------------------------------------------------


@_mutant("trmp", "schedule", Trmp, "_on_late", "whose turn is next takes the token when an ACK is late")
def _token_taken_by_the_clock(right: Any) -> Any:
    def on_late(self: Trmp, order: Order, effects: list[Effect]) -> None:
        if self.S_TOKEN is Token.EMPT and self._distance(order) == 1 and self.me in order.core:
            self._token_moved(self.hop + 1, self.me, self.holder)
            self.go_on(order, effects)
        else:
            right(self, order, effects)

    return on_late


@_mutant("trmp", "schedule", Trmp, "_on_late", "nobody minds that an acknowledgement is late")
def _lateness_ignored(right: Any) -> Any:
    return lambda self, order, effects: None


@_mutant("trmp", "schedule", Trmp, "_on_silence", "without work the holder keeps the token for good")
def _token_kept_for_good(right: Any) -> Any:
    def on_silence(self: Trmp, order: Order, effects: list[Effect]) -> None:
        if self._due is Due.EARLY:
            right(self, order, effects)

    return on_silence


@_mutant("trmp", "schedule", Trmp, "_on_req", "who asks for a late ACK is believed to have what is in it")
def _asking_counts_as_having(right: Any) -> Any:
    def on_req(self: Trmp, order: Order, sender: NodeId, req: Req, effects: list[Effect]) -> None:
        if req.asked == self.me:
            order.learn(sender, order.hgsn)
        right(self, order, sender, req, effects)

    return on_req


# --- lower levels ----------------------------------------------------------------------------------


@_mutant("trmp", "levels", Source, "begin_view", "a source goes on in a new view as in the last one")
def _base_of_the_last_view(right: Any) -> Any:
    def begin_view(self: Source) -> None:
        base = self._base
        right(self)
        self._base = base

    return begin_view


@_mutant("trmp", "levels", FollowerMachine, "_begin", "a follower goes on to the next view too soon")
def _view_left_early(right: Any) -> Any:
    def begin(self: FollowerMachine, view: ConfigurationId, piece: Piece, effects: list[Effect]) -> bool:
        entry = read_entry(piece[1])
        if isinstance(entry, Beginning) and entry.before == self._view:
            self._at = entry.upto
            self._partial.clear()
        begun: bool = right(self, view, piece, effects)
        return begun

    return begin


@_mutant("trmp", "levels", FollowerMachine, "_on_pieces", "a follower takes what comes, gap or not")
def _pieces_with_gaps(right: Any) -> Any:
    def on_pieces(
        self: FollowerMachine, now_us: int, view: ConfigurationId, packet: Pieces, effects: list[Effect]
    ) -> None:
        if view == self._view and packet.first > self._at + 1 and not self._partial:
            self._at = packet.first - 1
        right(self, now_us, view, packet, effects)

    return on_pieces


@_mutant("trmp", "levels", Feeding, "status", "what a follower lacks is not sent again")
def _never_fed_again(right: Any) -> Any:
    def status(self: Feeding, now_us: int, node: NodeId, view: Any, status: Status, *rest: Any) -> bool:
        status = Status(status.at, lacking=False, leaving=status.leaving)
        fed: bool = right(self, now_us, node, view, status, *rest)
        return fed

    return status


@_mutant("trmp", "levels", Feed, "has", "who no longer has what a follower lacks does not say so")
def _gone_pieces_promised(right: Any) -> Any:
    return lambda self, position: True


@_mutant("trmp", "levels", FollowerMachine, "_on_lost", "who refused a follower is asked again at once")
def _refusal_ignored(right: Any) -> Any:
    return lambda self, now_us, effects: self._ask(now_us, effects)


@_mutant("trmp", "levels", Inserting, "insert", "what a source sends again is inserted again out of turn")
def _inserted_with_gaps(right: Any) -> Any:
    def insert(self: Inserting, packet: Insert, view: ConfigurationId, delivered: int) -> int:
        self._next.pop((packet.origin, packet.incarnation), None)
        new: int = right(self, packet, view, max(delivered, packet.number))
        return new

    return insert
