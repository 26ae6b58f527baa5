"""The token between visits: sent and perhaps lost, or held back on an idle ring.

A node that has forwarded the token sends it again until there is a sign that it went on (000 §5.2). The
representative of an idle ring holds it for a while, so that an idle group costs next to nothing, and for
longer once it has been idle for some rotations; whoever then has something to send tells it to hurry.
"""

from __future__ import annotations

from ordercast.core.contract import CancelTimer, Effect, Lane, SetTimer, Unicast
from ordercast.core.identity import NodeId
from ordercast.totem.config import TotemConfig
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import Hurry, Token
from ordercast.totem.states import State

TOKEN_LOSS = "token-loss"
TOKEN_RETRANSMISSION = "token-retransmission"
HOLD = "hold"

_MOVED = CancelTimer(TOKEN_RETRANSMISSION)

MOST_TRIES = 8
"""Without a sign, a token is sent again at least so often within the Token Loss timeout."""
LOSSY_VISITS = 100
"""For so many visits after a loss the network counts as lossy."""
LOSSY_FACTOR = 4
"""While packets are lost the token-loss timeout is so many times as long."""
IDLE_FOR_LONG = 8
"""After so many idle rotations in a row the token is held for longer."""
MOST_FACTOR = 10
"""However slow the ring, it is given up after so many times the Token Loss timeout."""


class TokenPassing:
    """Where one node last saw the token, and what it still has to do about it."""

    def __init__(self, config: TotemConfig) -> None:
        self._retime(config)
        self._sign = _SignTime(config)
        self._delay_us = 0
        """How long the token waited, or will wait, for a sign before it is sent again."""
        self._lossy_visits = 0
        self._resent = False
        """The token that was forwarded last was sent again."""
        self._sent: tuple[NodeId, bytes] | None = None
        self._held: Token | None = None
        self._idle_visits = 0
        self._hurried = False
        self._will_be_held = False
        self._idle_tokens = 0
        """Tokens of an idle ring that were passed on one after the other."""

    def _retime(self, config: TotemConfig) -> None:
        self._config = config
        self._loss_timer = SetTimer(TOKEN_LOSS, config.token_loss_us)
        self._forming_timer = SetTimer(TOKEN_LOSS, config.forming_us)

    def retime(self, config: TotemConfig) -> None:
        """From the next token on, other timeouts."""
        self._retime(config)
        self._sign = _SignTime(config)

    def wait_anew(self, state: State, waits_us: int, effects: list[Effect]) -> None:
        """Timeouts are shorter now: wait for the token for as long as if it had just been passed on."""
        if state in (State.COMMIT, State.RECOVERY):
            effects.append(self._forming_timer)
        elif state is State.OPERATIONAL and self._held is None:
            effects.append(self._loss_timeout(waits_us))

    # --- sent -----------------------------------------------------------------------------------

    def send(self, now_us: int, to: NodeId, raw: bytes, effects: list[Effect]) -> None:
        """Forward a Commit token, and set its two timers (000 Fig. 7)."""
        self._send(now_us, to, raw, self._forming_timer, 0, effects)

    def _send(
        self, now_us: int, to: NodeId, raw: bytes, loss: SetTimer, hold_us: int, effects: list[Effect]
    ) -> None:
        self._sent = (to, raw)
        self._resent = False
        self._sign.begin(now_us, held=hold_us > 0)
        self._delay_us = self._sign.timeout_us
        timer = SetTimer(TOKEN_RETRANSMISSION, hold_us + self._delay_us)
        effects += (Unicast(to, raw, Lane.TOKEN), loss, timer)

    def pass_on(
        self,
        now_us: int,
        ring: Ring,
        token: Token,
        arrived_seq: int,
        timed: bool,
        waits_us: int,
        effects: list[Effect],
    ) -> None:
        """Forward the regular token, unless there is nobody to forward it to.

        In Gather it is not timed: there, the Token Loss timeout waits for the Commit token (Fig. 4).
        ``waits_us`` is for how long the token has lately waited at all members.
        """
        ring.forward(token, arrived_seq)
        if ring.turn.counts:
            if ring.me == ring.representative:
                token.idle = self._idle_visits >= self._idle_rotations(ring) and ring.quiet(token)
            self._lossy_visits = LOSSY_VISITS if token.rtr else max(0, self._lossy_visits - 1)
            self._idle_tokens = self._idle_tokens + 1 if token.idle and not token.merge else 0
        self._will_be_held = token.idle
        if ring.alone:
            return
        if timed:
            hold_us = self._hold_us if token.idle else 0
            loss = self._loss_timeout(waits_us, ring.cycle.length / len(ring.members))
            self._send(now_us, ring.successor, token.encode(), loss, hold_us, effects)
        else:
            effects.append(Unicast(ring.successor, token.encode(), Lane.TOKEN))

    @property
    def _hold_us(self) -> int:
        """For how long the token is held next. All members know that, since all count the same tokens. While
        the ring may be about to merge, it is not for longer: that takes two rotations."""
        config = self._config
        for_long = config.hold_us and self._idle_tokens >= IDLE_FOR_LONG
        return max(config.hold_us, config.long_hold_us) if for_long else config.hold_us

    def _loss_timeout(self, waits_us: int, rotations: float = 1.0) -> SetTimer:
        """The Token Loss timeout of a ring whose token lately waited for so long, and whose cycle is so many
        rotations.

        A ring that is slow because its members are is not broken: it is at least four times what the token
        waited. Nor is one that loses packets: there the token may have to be sent many times. And one that
        has been idle for long holds it for longer.
        """
        timer = self._loss_timer
        usual_us = round(timer.delay_us * rotations)
        slow_us = max(usual_us, 4 * waits_us, LOSSY_FACTOR * usual_us if self._lossy_visits else 0)
        longer_us = min(slow_us, MOST_FACTOR * usual_us) + self._hold_us - self._config.hold_us
        return timer if longer_us == timer.delay_us else SetTimer(TOKEN_LOSS, longer_us)

    def moved(self, now_us: int, effects: list[Effect]) -> None:
        """There is a sign that the token went on: no need to send it again."""
        if self._sent is not None:
            self._signed(now_us)
            effects.append(_MOVED)

    def returned(self, now_us: int) -> None:
        """The token is here again. Its timer is set anew when it leaves, or stopped if it is held."""
        if self._sent is not None:
            self._signed(now_us)

    def _signed(self, now_us: int) -> None:
        """The token went on. If only when it was sent again, the network loses packets.

        A token that never goes on does not tell that: its receiver may have failed, and the next failure
        is to be found as soon as this one.
        """
        self._sent = None
        self._sign.came(now_us)
        if self._resent:
            self._lossy_visits = LOSSY_VISITS

    @property
    def awaiting_sign(self) -> bool:
        """Whether the token was forwarded and nothing has shown since that it arrived."""
        return self._sent is not None

    def resend(self, effects: list[Effect]) -> None:
        """Token Retransmission timeout expired: the next time it takes twice as long, up to a bound."""
        if self._sent is not None:
            self._sign.ambiguous()
            self._resent = True
            slowest_us = max(self._sign.timeout_us, self._loss_timer.delay_us // MOST_TRIES)
            self._delay_us = min(2 * self._delay_us, slowest_us)
            effects += (Unicast(*self._sent, Lane.TOKEN), SetTimer(TOKEN_RETRANSMISSION, self._delay_us))

    def give_up(self, effects: list[Effect]) -> None:
        """The ring is given up: whatever becomes of its token does not matter any more."""
        self._sent = None
        self._held = None
        self._idle_visits = 0
        self._hurried = False
        self._will_be_held = False
        self._idle_tokens = 0
        effects.extend([CancelTimer(TOKEN_LOSS), CancelTimer(TOKEN_RETRANSMISSION), CancelTimer(HOLD)])

    # --- held -----------------------------------------------------------------------------------

    def hold(self, ring: Ring, token: Token, busy: bool, effects: list[Effect]) -> bool:
        """Whether the representative keeps the token for a while, since nobody has anything to send."""
        if ring.me != ring.representative or not self._config.hold_us or not ring.turn.counts:
            return False
        if busy or self._hurried or not ring.quiet(token):
            self._idle_visits = 0
            self._hurried = False
            return False
        self._idle_visits += 1
        told = self._will_be_held  # the others know whom to tell to hurry
        if self._idle_visits <= (self._idle_rotations(ring) if told else self._config.idle_rotations):
            return False
        self._held = token
        effects += (_MOVED, SetTimer(HOLD, self._hold_us))
        return True

    def _idle_rotations(self, ring: Ring) -> int:
        """Rotations with nothing new before the token is held: none if this node, the representative, is the
        only one that sends. Its next message then finds the token here."""
        return 0 if ring.sole_sender else self._config.idle_rotations

    def release(self, effects: list[Effect]) -> Token | None:
        """The token that was held, if one was."""
        token, self._held = self._held, None
        if token is not None:
            effects.append(CancelTimer(HOLD))
        return token

    def ask_to_hurry(self, ring: Ring, effects: list[Effect]) -> None:
        """Ask the representative, once, not to hold the token: this node has something to send."""
        if self._will_be_held and ring.me != ring.representative:
            self._will_be_held = False
            effects.append(Unicast(ring.representative, Hurry(ring.id).encode()))

    def hurry(self) -> None:
        """Some node has something to send: do not hold the token at its next visit."""
        self._hurried = True
        self._idle_visits = 0


class _SignTime:
    """How long it takes until there is a sign that a token went on, and so how long to wait for one.

    As TCP does it (RFC 6298): a smoothed mean and deviation; a token that was sent twice tells nothing, since
    one cannot know of which copy the sign is. Nor does one that was to be held.
    """

    def __init__(self, config: TotemConfig) -> None:
        self._most_us = config.token_retransmission_us
        self._least_us = min(config.least_retransmission_us, self._most_us)
        self.timeout_us = min(self._most_us, max(self._least_us, config.token_loss_us // MOST_TRIES))
        self._mean_us = -1
        self._deviation_us = 0
        self._since_us: int | None = None

    def begin(self, now_us: int, held: bool) -> None:
        """A token is sent now. If it is to be `held` on its way, the time until a sign is not measured."""
        self._since_us = None if held else now_us

    def ambiguous(self) -> None:
        """The token was sent again: the next sign may be of either copy, and tells no time."""
        self._since_us = None

    def came(self, now_us: int) -> None:
        """There is a sign that the token went on: adapt the timeout to the time that it took."""
        if self._since_us is None:
            return
        took_us, self._since_us = now_us - self._since_us, None
        if self._mean_us < 0:
            self._mean_us, self._deviation_us = took_us, took_us // 2
        else:
            self._deviation_us += (abs(took_us - self._mean_us) - self._deviation_us) // 4
            self._mean_us += (took_us - self._mean_us) // 8
        expected_us = self._mean_us + 4 * self._deviation_us
        self.timeout_us = min(self._most_us, max(self._least_us, expected_us))
