"""Mistakes one could make in Totem."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ordercast.core.contract import Deliver, Effect, Install, Persist
from ordercast.core.identity import Ended, Kind, NodeId
from ordercast.core.packing import SendQueue
from ordercast.mutants.mutant import Mutant, register
from ordercast.totem import formation, machine, numbers
from ordercast.totem.flow import FlowControl
from ordercast.totem.membership import Gathering
from ordercast.totem.merge_detection import MergeDetection
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import NOBODY, Commit, Data, Part, Token
from ordercast.totem.recovery import Exchange, Obligations

TOTEM_MUTANTS: list[Mutant] = []

_mutant = partial(register(TOTEM_MUTANTS), "totem")


# --- ordering ------------------------------------------------------------------------------------


@_mutant("ordering", Ring, "forward", "a message is taken for safe after one rotation instead of two")
def _safe_after_one_rotation(right: Any) -> Any:
    def forward(self: Ring, token: Token, arrived_seq: int) -> None:
        right(self, token, arrived_seq)
        self.safe = max(self.safe, token.aru)

    return forward


@_mutant("ordering", Ring, "deliver", "messages are delivered although one before them is missing")
def _deliver_past_a_gap(right: Any) -> Any:
    def deliver(self: Ring, effects: list[Effect]) -> None:
        right(self, effects)
        self.deliver_rest(frozenset(self.members), effects)

    return deliver


@_mutant("ordering", Ring, "deliver", "safe messages are delivered like agreed ones")
def _safe_as_agreed(right: Any) -> Any:
    def deliver(self: Ring, effects: list[Effect]) -> None:
        known, self.safe = self.safe, self.window.aru
        right(self, effects)
        self.safe = known

    return deliver


@_mutant("ordering", Ring, "update_aru", "a node that lacks messages does not lower the token's aru")
def _aru_not_lowered(right: Any) -> Any:
    def update_aru(self: Ring, token: Token) -> None:
        if token.aru_id in (self.me, NOBODY):
            token.aru = token.seq
            token.aru_id = NOBODY

    return update_aru


@_mutant("ordering", Ring, "update_aru", "every node sets the token's aru to its own, raising it too")
def _aru_raised_by_anyone(right: Any) -> Any:
    def update_aru(self: Ring, token: Token) -> None:
        token.aru_id = NOBODY
        right(self, token)

    return update_aru


@_mutant("ordering", Ring, "accepts", "a redundant copy of the token is taken for the token")
def _redundant_token_accepted(right: Any) -> Any:
    return lambda self, token: True


@_mutant("ordering", Ring, "discard", "messages are discarded when delivered, not when all have them")
def _discarded_when_delivered(right: Any) -> Any:
    def discard(self: Ring, effects: list[Effect]) -> None:
        known, self.safe = self.safe, self.delivered
        right(self, effects)
        self.safe = known

    return discard


@_mutant("ordering", Ring, "request", "missing messages are never asked for")
def _gaps_not_requested(right: Any) -> Any:
    return lambda self, token: None


@_mutant("ordering", Ring, "answer", "requests are taken off the token and not answered")
def _requests_not_answered(right: Any) -> Any:
    def answer(self: Ring, token: Token) -> list[bytes]:
        right(self, token)
        return []

    return answer


@_mutant("ordering", machine, "work", "a node delivers its own messages as soon as it sends them")
def _own_messages_first(right: Any) -> Any:
    def work(now_us: int, ring: Ring, token: Token, source: Any, effects: Any) -> Any:
        before = ring.last_own
        visit = right(now_us, ring, token, source, effects)
        for seq in range(before + 1, ring.last_own + 1):
            packet = ring.window.get(seq)
            if type(packet) is Data and packet.origin == ring.me and seq > ring.window.aru:
                batch = ring._batch(packet)
                effects.extend([Deliver(batch)] if batch is not None else [])
        return visit

    return work


# --- packing and flow control ----------------------------------------------------------------------


@_mutant("packing", SendQueue, "rewind", "a half-sent message is not begun again on the new ring")
def _fragments_not_sent_again(right: Any) -> Any:
    return lambda self: None


@_mutant(
    "flow control",
    FlowControl,
    "settle",
    "what this node sent last time stays in the token's fcc",
)
def _window_never_freed(right: Any) -> Any:
    def settle(self: FlowControl, token: Token, broadcast: int, tbl: int) -> None:
        self._trc = 0
        right(self, token, broadcast, tbl)

    return settle


@_mutant("flow control", FlowControl, "_share", "the fair share is rounded down to nothing")
def _share_of_nothing(right: Any) -> Any:
    def share(self: FlowControl, token: Token, tbl: int) -> int:
        return (self.window - self._members) * tbl // max(tbl, 1, token.backlog + tbl - self._pbl)

    return share


@_mutant("packing", Ring, "join", "parts of a packet are joined in the order in which they come")
def _parts_as_they_come(right: Any) -> Any:
    def join(self: Ring, part: Part) -> bytes | None:
        kept = self._partial.get(part.seq, {})
        return None if right(self, part) is None else b"".join(kept.values())

    return join


# --- braking ---------------------------------------------------------------------------------------


@_mutant("flow control", machine.TotemMachine, "_heed_brake", "a brake is never taken off the token")
def _brake_never_let_go(right: Any) -> Any:
    def heed_brake(self: Any, token: Token) -> None:
        self._braking.mine = self._braking.mine or token.brake == self.me
        right(self, token)

    return heed_brake


@_mutant(
    "flow control",
    formation.Formation,
    "_install",
    "a brake outlasts its ring in who has seen it",
)
def _brake_outlasts_its_ring(right: Any) -> Any:
    def install(self: Any, now_us: int, exchange: Exchange, effects: list[Effect]) -> None:
        closed = self._outbox.closed
        right(self, now_us, exchange, effects)
        self._outbox.closed = closed

    return install


# --- persistence -----------------------------------------------------------------------------------


def _without(right: Any, unwanted: type) -> Any:
    """A method whose last argument is a list of effects, without effects of a kind."""

    def method(self: Any, *arguments: Any) -> Any:
        effects: list[Effect] = arguments[-1]
        before = len(effects)
        answer = right(self, *arguments)
        effects[before:] = [effect for effect in effects[before:] if type(effect) is not unwanted]
        return answer

    return method


@_mutant("persistence", formation.Formation, "_commit", "the number of a new ring is not persisted")
def _ring_number_not_persisted(right: Any) -> Any:
    return _without(right, Persist)


@_mutant("persistence", machine.TotemMachine, "_on_start", "the number of the first ring is not persisted")
def _first_ring_not_persisted(right: Any) -> Any:
    return _without(right, Persist)


@_mutant("persistence", formation, "recall", "what was persisted is not read")
def _stored_state_ignored(right: Any) -> Any:
    return lambda me, stored: None


@_mutant("persistence", numbers.RingNumbers, "after", "no part of a ring's number is drawn")
def _ring_numbers_not_drawn(right: Any) -> Any:
    return lambda self, known: (known // numbers.STRIDE + 1) * numbers.STRIDE


@_mutant(
    "persistence", numbers.RingNumbers, "first", "a node that lost its disk counts its rings by the clock"
)
def _lost_disk_counts_by_the_clock(right: Any) -> Any:
    return lambda self, stored: self.after(stored or 0) // numbers.STRIDE * numbers.STRIDE


# --- membership --------------------------------------------------------------------------------------


@_mutant("membership", Gathering, "begin_round", "who is regarded as failed is forgotten in every round")
def _failures_forgotten(right: Any) -> Any:
    def begin_round(self: Gathering) -> None:
        self.fail_set = set()
        right(self)

    return begin_round


@_mutant("membership", MergeDetection, "mergeable", "rings that find each other do not merge")
def _never_merge(right: Any) -> Any:
    return lambda self, verified: set()


@_mutant("membership", MergeDetection, "announce", "an idle ring does not show itself")
def _never_announce(right: Any) -> Any:
    return lambda self, now_us, ring, life: None


@_mutant("membership", Gathering, "fail_silent", "who does not answer is never regarded as failed")
def _silence_is_consent(right: Any) -> Any:
    return lambda self: None


@_mutant("membership", formation.Formation, "on_token_loss", "the loss of the token goes unnoticed")
def _token_loss_unnoticed(right: Any) -> Any:
    return lambda self, now_us, effects: None


@_mutant("membership", formation.Formation, "part_with", "who was believed gone once is not heard again")
def _gone_for_good(right: Any) -> Any:
    def part_with(self: Any, now_us: int, node: NodeId, because: str, effects: list[Effect]) -> Any:
        if because == "member gone":
            heard = self.merge_detection.outdated
            self.merge_detection.outdated = lambda now_us, sender, life, ring_seq: (
                sender == node or heard(now_us, sender, life, ring_seq)
            )
        return right(self, now_us, node, because, effects)

    return part_with


# --- recovery ----------------------------------------------------------------------------------------


def _after_exchange(change: Callable[[Exchange, Obligations, Commit, Ring], None]) -> Any:
    """A replacement for the beginning of an exchange."""

    def wrong(right: Any) -> Any:
        def begin(self: Exchange, ring: Ring, old: Ring, commit: Commit, obligations: Obligations) -> None:
            right(self, ring, old, commit, obligations)
            change(self, obligations, commit, old)

        return begin

    return wrong


@_mutant("recovery", Exchange, "__init__", "old messages are not exchanged on the new ring")
def _nothing_exchanged(right: Any) -> Any:
    return _after_exchange(lambda exchange, obligations, commit, old: exchange._queue.clear())(right)


@_mutant("recovery", Exchange, "__init__", "only messages that the best-off member lacks are exchanged")
def _exchange_from_highest_aru(right: Any) -> Any:
    def change(exchange: Exchange, obligations: Obligations, commit: Commit, old: Ring) -> None:
        highest = max(entry.aru for entry in commit.entries if entry.old_ring == old.id)
        for seq in [seq for seq in exchange._queue if seq <= highest]:
            del exchange._queue[seq]

    return _after_exchange(change)(right)


@_mutant("recovery", Exchange, "__init__", "what others delivered on the old ring is not taken account of")
def _high_ring_delivered_forgotten(right: Any) -> Any:
    def change(exchange: Exchange, obligations: Obligations, commit: Commit, old: Ring) -> None:
        obligations.high_ring_delivered = 0

    return _after_exchange(change)(right)


@_mutant("recovery", Exchange, "__init__", "all members of the new ring count as coming from the old one")
def _everyone_transitional(right: Any) -> Any:
    def change(exchange: Exchange, obligations: Obligations, commit: Commit, old: Ring) -> None:
        exchange.trans_memb = commit.members

    return _after_exchange(change)(right)


@_mutant(
    "recovery",
    Exchange,
    "__init__",
    "deliver_memb shrinks with the members after a failed recovery",
)
def _deliver_memb_shrinks(right: Any) -> Any:
    def change(exchange: Exchange, obligations: Obligations, commit: Commit, old: Ring) -> None:
        obligations.deliver_memb = frozenset(exchange.trans_memb)

    return _after_exchange(change)(right)


@_mutant("recovery", Exchange, "update", "received_flg is never set")
def _received_flg_forgotten(right: Any) -> Any:
    def update(self: Exchange, token: Token) -> None:
        right(self, token)
        self._duty.received_flg = False

    return update


@_mutant("recovery", Exchange, "complete", "the new ring is installed before all are known to have all")
def _installed_too_early(right: Any) -> Any:
    return property(lambda self: self._quiet_visits >= 1)


@_mutant("recovery", Exchange, "update", "retrans_flg is never set, however much remains to be exchanged")
def _retrans_flg_never_set(right: Any) -> Any:
    def update(self: Exchange, token: Token) -> None:
        queue, self._queue = self._queue, {}
        right(self, token)
        self._queue = queue

    return update


@_mutant("recovery", Ring, "deliver_rest", "behind a gap everyone's messages are delivered")
def _everything_behind_a_gap(right: Any) -> Any:
    return lambda self, deliver_memb, effects: right(self, frozenset(self.members), effects)


@_mutant(
    "recovery", Ring, "deliver_rest", "others' messages before a gap are left out (000 §7.2, taken literally)"
)
def _acknowledged_but_left_out(right: Any) -> Any:
    def deliver_rest(self: Ring, deliver_memb: frozenset[NodeId], effects: list[Effect]) -> None:
        received, self.window.aru = self.window.aru, self.delivered
        right(self, deliver_memb, effects)
        self.window.aru = received

    return deliver_rest


@_mutant("recovery", Ring, "deliver_rest", "a node leaves out its own messages behind a gap")
def _own_messages_left_out(right: Any) -> Any:
    return lambda self, deliver_memb, effects: right(self, deliver_memb - {self.me}, effects)


@_mutant("recovery", formation, "settle", "the transitional configuration is not shown")
def _no_transitional_configuration(right: Any) -> Any:
    def settle(exchange: Exchange, old: Ring, obligations: Obligations, effects: list[Effect]) -> None:
        right(exchange, old, obligations, effects)
        effects[:] = [
            effect
            for effect in effects
            if not (isinstance(effect, Install) and effect.configuration.kind is Kind.TRANSITIONAL)
        ]

    return settle


def _changes(effects: list[Effect], change: Callable[[Install, Ended], Ended]) -> None:
    """Have the changes among some effects name something else as ended."""
    for at, effect in enumerate(effects):
        if isinstance(effect, Install) and effect.ended is not None:
            effects[at] = effect._replace(ended=change(effect, effect.ended))


@_mutant("recovery", formation, "settle", "a change names the last packet here, and not the last delivered")
def _place_of_the_last_packet(right: Any) -> Any:
    def settle(exchange: Exchange, old: Ring, obligations: Obligations, effects: list[Effect]) -> None:
        highest = max(old.window.aru, *(seq for seq, _ in old.window.after(old.window.aru)), 0)
        right(exchange, old, obligations, effects)
        _changes(effects, lambda _, ended: ended._replace(place=highest))

    return settle


@_mutant("recovery", formation, "settle", "a change names the last regular configuration instead")
def _transitional_not_named(right: Any) -> Any:
    def settle(exchange: Exchange, old: Ring, obligations: Obligations, effects: list[Effect]) -> None:
        right(exchange, old, obligations, effects)
        _changes(effects, lambda _, ended: ended._replace(configuration=old.id))

    return settle


@_mutant(
    "recovery",
    formation,
    "settle",
    "a change names how far its own node had delivered when the recovery began",
)
def _place_before_the_recovery(right: Any) -> Any:
    def settle(exchange: Exchange, old: Ring, obligations: Obligations, effects: list[Effect]) -> None:
        before = old.last_message
        right(exchange, old, obligations, effects)
        _changes(effects, lambda _, ended: ended._replace(place=before))

    return settle


@_mutant(
    "recovery",
    Exchange,
    "complete",
    "all but the representative install a ring some rotations late, and acknowledge its messages before",
)
def _installed_late(right: Any) -> Any:
    def complete(self: Exchange) -> bool:
        late = not self.ring.represented_by_me and self._quiet_visits < 9
        return not late and bool(right.fget(self))

    return property(complete)


@_mutant(
    "recovery", formation.Formation, "on_commit", "a redundant Commit token begins a second regular token"
)
def _two_tokens(right: Any) -> Any:
    def on_commit(self: Any, now_us: int, commit: Commit, sender: NodeId, effects: list[Effect]) -> None:
        if self.exchange is not None:
            self.exchange.ring.token_seq = 0
        right(self, now_us, commit, sender, effects)

    return on_commit


@_mutant(
    "recovery",
    formation.Formation,
    "part_with",
    "with who is believed gone goes what was promised",
)
def _promises_gone_with_a_member(right: Any) -> Any:
    def part_with(self: Any, now_us: int, node: NodeId, because: str, effects: list[Effect]) -> Any:
        if because == "member gone":
            self.obligations = Obligations()
        return right(self, now_us, node, because, effects)

    return part_with
