"""Mistakes one could make where the token visits some members of a ring more often than others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ordercast.mutants.mutant import Mutant, register
from ordercast.totem import machine, visits
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import NOBODY, Token
from ordercast.totem.visits import Turn, Visits

VISITS_MUTANTS: list[Mutant] = []

_mutant = partial(register(VISITS_MUTANTS), "totem", "visits")


@_mutant(Ring, "forward", "what a member saw at two visits is safe, though others had none in between")
def _safe_after_two_visits(right: Any) -> Any:
    def forward(self: Ring, token: Token, arrived_seq: int) -> None:
        known, self.turn = self.turn, self.turn._replace(counts=True)
        right(self, token, arrived_seq)
        self.turn = known

    return forward


@_mutant(
    machine, "work", "at an extra visit a member raises the token's aru to its own, past those who have less"
)
def _aru_raised_at_extra_visits(right: Any) -> Any:
    def work(now_us: int, ring: Ring, token: Token, *rest: Any) -> Any:
        visit = right(now_us, ring, token, *rest)
        if not ring.turn.counts:
            token.aru_id = NOBODY
            ring.update_aru(token)
        return visit

    return work


@_mutant(Ring, "forward", "from an extra visit the token goes on as on the plain ring")
def _plain_after_extra_visits(right: Any) -> Any:
    def forward(self: Ring, token: Token, arrived_seq: int) -> None:
        right(self, token, arrived_seq)
        if not self.turn.counts:
            self.turn = self._plain._replace(counts=False)

    return forward


@_mutant(Ring, "turn_of", "the token is taken for the member's first visit, whichever it is on")
def _place_in_the_cycle_lost(right: Any) -> Any:
    def turn_of(self: Ring, token: Token) -> Turn | None:
        turn: Turn | None = right(self, token)
        if turn is not None and token.visits:
            token.visit = min(self._read.turns)
        return turn

    return turn_of


@_mutant(visits, "spread", "who sends nothing is not visited")
def _silent_members_left_out(right: Any) -> Any:
    def spread(times: Sequence[int]) -> Visits:
        found: Visits = right(times)
        return tuple(visit for visit in found if times[visits.place_of(visit)] > 1)

    return spread
