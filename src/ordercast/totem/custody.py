"""The token between visits: sent and perhaps lost, or held back on an idle ring.

A node that has forwarded the token sends it again until there is a sign that it went on (000 §5.2). The
representative of an idle ring holds it for a while, so that an idle group costs next to nothing; whoever
then has something to send tells it to hurry.
"""

from __future__ import annotations

from ordercast.core.contract import CancelTimer, Effect, SetTimer, Unicast
from ordercast.core.identity import NodeId
from ordercast.totem.config import TotemConfig
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import Hurry, Token

TOKEN_LOSS = "token-loss"
TOKEN_RETRANSMISSION = "token-retransmission"
HOLD = "hold"

_MOVED = CancelTimer(TOKEN_RETRANSMISSION)


class Custody:
    """Where one node last saw the token, and what it still has to do about it."""

    def __init__(self, config: TotemConfig) -> None:
        self._config = config
        self._loss_timer = SetTimer(TOKEN_LOSS, config.token_loss_us)
        self._short_us = config.token_loss_us // 4
        self._retransmission_timer = SetTimer(TOKEN_RETRANSMISSION, config.token_retransmission_us)
        self._sent: tuple[NodeId, bytes] | None = None
        self._held: Token | None = None
        self._idle_visits = 0
        self._hurried = False
        self._will_be_held = False

    # --- sent -----------------------------------------------------------------------------------

    def send(self, to: NodeId, raw: bytes, effects: list[Effect], waits_us: int = 0) -> None:
        """Forward a token of either kind, and set its two timers (000 Figs 3 and 7).

        ``waits_us`` is for how long the token waited at all members in its last rotation. A ring that is
        slow because its members are is not broken: the Token Loss timeout is at least four times that, but
        at most ten times what it is on a quick ring.
        """
        self._sent = (to, raw)
        timer = self._loss_timer
        if waits_us > self._short_us:
            timer = SetTimer(TOKEN_LOSS, min(max(4 * waits_us, timer.delay_us), 10 * timer.delay_us))
        effects += (Unicast(to, raw), timer, self._retransmission_timer)

    def pass_on(self, ring: Ring, token: Token, arrived_seq: int, timed: bool, effects: list[Effect]) -> None:
        """Forward the regular token, unless there is nobody to forward it to.

        In Gather it is not timed: there, the Token Loss timeout waits for the Commit token (Fig. 4).
        """
        if ring.me == ring.representative:
            token.idle = self._idle_visits >= self._config.idle_rotations
        self._will_be_held = token.idle
        ring.forward(token, arrived_seq)
        if ring.alone:
            return
        if timed:
            self.send(ring.successor, token.encode(), effects, sum(token.holds))
        else:
            effects.append(Unicast(ring.successor, token.encode()))

    def moved(self, effects: list[Effect]) -> None:
        """There is a sign that the token went on: no need to send it again."""
        if self._sent is not None:
            self._sent = None
            effects.append(_MOVED)

    def returned(self) -> None:
        """The token is here again. Its timer is set anew when it leaves, or stopped if it is held."""
        self._sent = None

    @property
    def awaiting_sign(self) -> bool:
        """Whether the token was forwarded and nothing has shown since that it arrived."""
        return self._sent is not None

    def resend(self, effects: list[Effect]) -> None:
        """Token Retransmission timeout expired."""
        if self._sent is not None:
            effects += (Unicast(*self._sent), self._retransmission_timer)

    def give_up(self, effects: list[Effect]) -> None:
        """The ring is given up: whatever becomes of its token does not matter any more."""
        self._sent = None
        self._held = None
        self._idle_visits = 0
        self._hurried = False
        self._will_be_held = False
        effects.extend([CancelTimer(TOKEN_LOSS), CancelTimer(TOKEN_RETRANSMISSION), CancelTimer(HOLD)])

    # --- held -----------------------------------------------------------------------------------

    def hold(self, ring: Ring, token: Token, busy: bool, effects: list[Effect]) -> bool:
        """Whether the representative keeps the token for a while, since nobody has anything to send."""
        if ring.me != ring.representative or not self._config.hold_us:
            return False
        if busy or self._hurried or not ring.quiet(token):
            self._idle_visits = 0
            self._hurried = False
            return False
        self._idle_visits += 1
        if self._idle_visits <= self._config.idle_rotations:
            return False
        self._held = token
        effects += (_MOVED, SetTimer(HOLD, self._config.hold_us))
        return True

    def release(self, effects: list[Effect]) -> Token | None:
        """The token that was held, if one was."""
        token, self._held = self._held, None
        if token is not None:
            effects.append(CancelTimer(HOLD))
        return token

    def ask_to_hurry(self, ring: Ring, effects: list[Effect]) -> None:
        """This node has something to send, and the token may be held: once is enough."""
        if self._will_be_held and ring.me != ring.representative:
            self._will_be_held = False
            effects.append(Unicast(ring.representative, Hurry(ring.id).encode()))

    def hurry(self) -> None:
        """Some node has something to send: do not hold the token at its next visit."""
        self._hurried = True
        self._idle_visits = 0
