"""TRMP, the time-driven RMP (004 §3.3.2): the token moves by a schedule that every member knows.

As in CM an ACK gives places, and says that its sender has all before them; who sends the next one is known
from the token list. When is known, too: `hurry_us` after the last ACK, the period; or `silence_us` after it,
once the token has gone round without a message. So an ACK that is late is noticed by whoever waits for it,
without any traffic and without knowing that there is anything to be had: the member behind the holder asks
first, then the one behind that. Only who passed the token on repeats its ACK unasked, once it is late.

Clocks need not agree on the time: each member counts from the last ACK that it heard. What they err by in
the time of one period, `clock_error_ppm`, and what the network and a busy processor add, `lateness_us`, is
allowed for (docs/decisions/trmp.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, ClassVar

from ordercast.core.contract import CancelTimer, Effect, SetTimer, Unicast
from ordercast.core.declared import Statistic
from ordercast.core.identity import NodeId
from ordercast.sequencers.config import TrmpConfig
from ordercast.sequencers.declared import MOVING_STATISTICS
from ordercast.sequencers.moving import PASS, MovingSequencer, Token
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import NULL, REQ, MessageKey, Req, encode_req
from ordercast.sequencers.retry_timer import DOUBLINGS
from ordercast.sequencers.sending import Sending
from ordercast.viewsync.contract import ORDER_TIMER

LATE = ORDER_TIMER + "late"


class Due(IntEnum):
    """How much of its time the holder of the token has had."""

    EARLY = 0
    """Less than a period: it waits."""
    RIPE = 1
    """A period: it passes the token as soon as there is work for it."""
    OVER = 2
    """All there is: it passes the token."""


class Trmp(MovingSequencer):
    """A member of a ring whose token moves by schedule."""

    NAME: ClassVar = "trmp"
    SUMMARY: ClassVar = (
        "RMP by the clock: the token moves on schedule, and who is late is noticed without traffic."
    )
    STATISTICS: ClassVar[tuple[Statistic, ...]] = (
        *MOVING_STATISTICS,
        Statistic("late", "Acknowledgements that did not come by schedule and were asked for."),
    )

    def __init__(self, sending: Sending) -> None:
        super().__init__(sending)
        config: Any = sending.config
        self._clock: TrmpConfig = config
        self.window = config.window
        self._watched = (-1, -1)
        """The turn and hop that the schedule was last begun for."""
        self._told = range(0)
        """Places in my last ACK."""
        self._due = Due.EARLY
        self._late = False
        """The next ACK should have been here."""
        self._asked_for = 0
        """How often it was asked for."""
        self._attempts = 0
        """How many of these times count as attempts to reach the holder that had no answer."""
        self._uncounted_us = 0
        """How long it has been asked for since the last one that counts, or since the first."""
        self._behind_us = 0
        """How much of the holder's time had gone before it heard that it holds the token."""

    def _start_token(self, order: Order, effects: list[Effect]) -> None:
        super()._start_token(order, effects)
        self._watched = (-1, -1)
        self._begin_turn()  # no schedule does so where this member is alone
        self._told = range(0)
        effects += (CancelTimer(PASS), CancelTimer(LATE))

    # --- the schedule ---------------------------------------------------------------------------

    def _at_rest(self, order: Order) -> bool:
        """Whether the token has gone round without a message: all have everything, and know it.

        It follows from the order alone: all who have the same of it agree on when the next ACK is due.
        """
        return order.hgsn - order.latest >= len(order.core)

    def _busy(self, order: Order) -> bool:
        """Whether the token should move as soon as it may."""
        return bool(order.pending) or not self._at_rest(order)

    def _held_us(self, order: Order) -> int:
        """How long the holder may keep the token."""
        return self._clock.silence_us if self._at_rest(order) else self._clock.hurry_us

    def _late_us(self, order: Order) -> int:
        """How long after the last ACK the next one is late here, by a clock that errs as others do.

        The giver of the token and the next in the list miss it first, the others one after the other, so that
        they need not all ask.
        """
        held_us = self._held_us(order)
        error_us = 2 * held_us * self._clock.clock_error_ppm // 1_000_000
        return held_us + error_us + self._clock.lateness_us * self._distance(order)

    def _distance(self, order: Order) -> int:
        """How far behind the holder this member is in the token list; 1 for who passed it the token."""
        core = order.core
        if self.S_TOKEN is Token.TRST or self.me not in core or self.holder not in core:
            return 1
        return (core.index(self.me) - core.index(self.holder)) % len(core) or 1

    def _follow_schedule(self, order: Order, effects: list[Effect]) -> None:
        """The token has moved: the holder has its time now, and the others miss its ACK after that."""
        watched = (order.view.turn, self.hop)
        if watched == self._watched or len(order.core) < 2:
            return
        self._watched = watched
        self._behind_us = self._clock.lateness_us * self._asked_for
        self._begin_turn()
        if self.S_TOKEN is Token.HOLD:
            effects += (CancelTimer(LATE), SetTimer(PASS, self._clock.hurry_us))
        else:
            effects += (CancelTimer(PASS), SetTimer(LATE, self._late_us(order)))

    def _begin_turn(self) -> None:
        """Somebody holds the token from now on: nothing is late, and nothing was asked for."""
        self._due, self._late = Due.EARLY, False
        self._asked_for = self._attempts = self._uncounted_us = 0

    def go_on(self, order: Order, effects: list[Effect]) -> None:
        """Something has changed: do everything that can be done now."""
        order.advance()
        self._follow_schedule(order, effects)
        super().go_on(order, effects)
        self._follow_schedule(order, effects)

    def _acknowledge(self, order: Order, effects: list[Effect]) -> bool:
        """Pass the token if it is time to, with places for what has none. Whether it was passed."""
        if order.known > order.hgsn:
            return False
        alone = len(order.core) < 2
        if not alone and (self._due is Due.EARLY or (self._due is Due.RIPE and not self._busy(order))):
            return False
        keys: Sequence[MessageKey] = order.choose(min(self.batch, order.room)) if order.pending else []
        if alone and not keys:
            return False
        if not keys:
            self._stats["null_acks"] += 1
        self._pass_token(order, list(keys) or [NULL], effects)
        self._follow_schedule(order, effects)
        return True

    def _on_silence(self, order: Order, effects: list[Effect]) -> None:
        """The holder has had a period, or all of its time."""
        if self.S_TOKEN is not Token.HOLD:
            return
        if self._due is Due.EARLY:
            self._due = Due.RIPE
            rest_us = self._clock.silence_us - self._clock.hurry_us - self._behind_us
            effects.append(SetTimer(PASS, max(1, rest_us)))
        else:
            self._due = Due.OVER
        self.go_on(order, effects)

    # --- a late acknowledgement -----------------------------------------------------------------

    def awaited(self, order: Order) -> NodeId | None:
        """Whoever keeps this member from going on; and the holder, once its ACK is late."""
        return super().awaited(order) or (self.holder if self._late else None)

    def expired(self, order: Order, name: str, effects: list[Effect]) -> None:
        """A timer ran out."""
        if name == LATE:
            self._on_late(order, effects)
        else:
            super().expired(order, name, effects)

    def _on_late(self, order: Order, effects: list[Effect]) -> None:
        """The ACK that is due is not here. Who passed the token repeats that; the others ask for the ACK."""
        if self.S_TOKEN is Token.HOLD:
            return
        self._count_attempt()
        if self.S_TOKEN is Token.EMPT:
            self._late = True
            self._stats["late"] += 1
            self._stats["requests"] += 1
            req = Req(order.hgsn, self.holder, (), (order.hgsn + 1,))
            effects.append(Unicast(self.holder, encode_req(self._sending.head(order, REQ), req)))
        else:
            self._late = True
            self._stats["retransmissions"] += 1
            effects.append(Unicast(self.holder, self._last_ack))
        again_us = (self._clock.lateness_us + self._clock.hurry_us) << min(self._asked_for, DOUBLINGS)
        effects.append(SetTimer(LATE, again_us))
        self._asked_for += 1
        self._uncounted_us += again_us

    def _count_attempt(self) -> None:
        """Count what was sent before as an attempt without an answer, if it has had its time.

        By the schedule it is asked for sooner than an answer can be here: the holder keeps the token first.
        """
        if self._uncounted_us >= self.config.retry_us << min(self._attempts, DOUBLINGS):
            self._sending.left_unanswered(self.holder, LATE)
            self._attempts += 1
            self._uncounted_us = 0

    def _pass_token(self, order: Order, keys: list[MessageKey], effects: list[Effect]) -> None:
        """Send ACK, and remember which places are in it."""
        first = order.hgsn + 1
        super()._pass_token(order, keys, effects)
        self._told = range(first, first + len(keys))

    def _on_req(self, order: Order, sender: NodeId, req: Req, effects: list[Effect]) -> None:
        """Answer; to who has not heard my last ACK with that, which says where the token is, too."""
        if req.asked == self.me and self.S_TOKEN is not Token.HOLD:
            others = tuple(place for place in req.places if place not in self._told)
            if others != req.places:
                self._stats["retransmissions"] += 1
                effects.append(Unicast(sender, self._last_ack))
                req = req._replace(places=others)
        super()._on_req(order, sender, req, effects)

    def _watch_token(self, effects: list[Effect]) -> None:
        """The schedule says when to repeat an ACK."""
