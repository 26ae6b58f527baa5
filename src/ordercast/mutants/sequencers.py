"""Mistakes one could make in the orderers of the sequencer family."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ordercast.core.contract import Effect, Install, Unicast
from ordercast.core.identity import Ended, Guarantee, NodeId
from ordercast.core.packing import SendQueue
from ordercast.mutants.mutant import Mutant, register
from ordercast.sequencers import moving, sending, settling
from ordercast.sequencers.member import Member
from ordercast.sequencers.moving import MovingSequencer, Token
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import NULL, Ack, MessageKey, Msg
from ordercast.sequencers.total import Total
from ordercast.viewsync.contract import Settled, View
from ordercast.viewsync.parts import Part, Parts

SEQUENCER_MUTANTS: list[Mutant] = []

_mutant = register(SEQUENCER_MUTANTS)

# --- packets in parts ------------------------------------------------------------------------------


@_mutant("total", "ordering", Parts, "join", "parts of a packet are joined in the order in which they come")
def _parts_of_packets_as_they_come(right: Any) -> Any:
    def join(self: Parts, sender: NodeId, part: Part) -> bytes | None:
        kept = self._of.get(sender, {}).get((part.check, part.size, part.part_size), {})
        return None if right(self, sender, part) is None else b"".join(kept.values())

    return join


@_mutant(
    "cm", "ordering", sending, "send_in_parts", "of a packet that is sent again the last part is left out"
)
def _last_part_left_out(right: Any) -> Any:
    def send(packet: bytes, datagram: int, effects: list[Effect], to: NodeId | None = None) -> None:
        before = len(effects)
        right(packet, datagram, effects, to)
        if len(effects) > before + 1:
            effects.pop()

    return send


# --- levels of resilience --------------------------------------------------------------------------


def _levels(change: Any) -> Any:
    """A replacement for the beginning of a turn, after which levels are counted otherwise."""

    def wrong(right: Any) -> Any:
        def turn_to(self: Order, view: View) -> None:
            right(self, view)
            self._needed = {level: change(level, needed, self) for level, needed in self._needed.items()}

        return turn_to

    return wrong


@_mutant("total", "levels", Order, "turn_to", "safe messages are delivered as soon as they have a place")
def _safe_at_once(right: Any) -> Any:
    return _levels(lambda level, needed, order: 1 if level is Guarantee.SAFE else needed)(right)


@_mutant("total", "levels", Order, "turn_to", "no message waits for anybody to have it")
def _delivered_at_once(right: Any) -> Any:
    return _levels(lambda level, needed, order: 1)(right)


# --- the order of a view ---------------------------------------------------------------------------


@_mutant("pinwheel", "ordering", Order, "rank", "the slowest member does not count for what is stable")
def _stable_one_short(right: Any) -> Any:
    def rank(self: Order) -> list[int]:
        ranks: list[int] = right(self)
        self.stable = ranks[-2] if len(ranks) > 1 else ranks[-1]
        return ranks

    return rank


@_mutant("cm", "ordering", Order, "discard", "messages are discarded when they are delivered")
def _discarded_when_delivered_here(right: Any) -> Any:
    def discard(self: Order, effects: list[Effect]) -> None:
        self.rank()
        known, self.stable = self.stable, self.delivered
        right(self, effects)
        self.stable = known

    return discard


@_mutant("pinwheel", "ordering", Order, "choose", "a message is given two places")
def _placed_twice(right: Any) -> Any:
    def choose(self: Order, limit: int) -> list[MessageKey]:
        chosen: list[MessageKey] = right(self, limit)
        return [*chosen[:1], *chosen] if len(chosen) < limit else chosen

    return choose


@_mutant(
    "pinwheel",
    "ordering",
    Order,
    "choose",
    "a message is placed although one before it is missing",
)
def _placed_past_a_gap(right: Any) -> Any:
    return lambda self, limit: list(self.pending)[: max(0, limit)]


@_mutant("total", "packing", SendQueue, "rewind", "a half-sent message is not begun again in the new view")
def _fragments_left_behind(right: Any) -> Any:
    return lambda self: None


# --- the end of a view -----------------------------------------------------------------------------


@_mutant(
    "pinwheel",
    "settling",
    settling,
    "_delivered",
    "what was delivered is delivered again when the view ends",
)
def _delivered_again(right: Any) -> Any:
    return lambda order: dict(order.floors)


@_mutant(
    "total", "settling", settling, "_messages", "requests that the sequencer had not answered die with it"
)
def _requests_die_with_the_sequencer(right: Any) -> Any:
    def messages(order: Order, items: Any) -> Any:
        placed = {(place.node, place.lsn) for place in settling._places(items).values()}
        return {key: msg for key, msg in right(order, items).items() if key in placed}

    return messages


# --- the moving sequencer --------------------------------------------------------------------------


@_mutant(
    "cm", "sequencer", MovingSequencer, "_acknowledge", "the token's holder places what it has, gap or not"
)
def _holder_with_a_gap(right: Any) -> Any:
    def acknowledge(self: Any, order: Order, effects: list[Effect]) -> bool:
        order.known = order.hgsn
        placed: bool = right(self, order, effects)
        return placed

    return acknowledge


@_mutant("cm", "sequencer", MovingSequencer, "_pass_token", "who passes the token on keeps it, too")
def _two_tokens_at_a_time(right: Any) -> Any:
    def pass_token(self: Any, order: Order, keys: list[MessageKey], effects: list[Effect]) -> None:
        right(self, order, keys, effects)
        if self.S_TOKEN is Token.TRST and keys != [NULL]:
            self.S_TOKEN = Token.HOLD

    return pass_token


@_mutant("pinwheel", "sequencer", MovingSequencer, "_on_ack", "an old acknowledgement takes the token back")
def _token_taken_back(right: Any) -> Any:
    def on_ack(self: Any, order: Order, sender: NodeId, ack: Ack, effects: list[Effect]) -> bool:
        self.hop = 0
        news: bool = right(self, order, sender, ack, effects)
        return news

    return on_ack


@_mutant(
    "cm", "sequencer", moving, "encode_ack", "a null acknowledgement says it is in the place before its own"
)
def _null_reuses_a_place(right: Any) -> Any:
    def encode_ack(head: bytes, ack: Ack) -> bytes:
        if ack.keys == (NULL,) and ack.first > 1:
            ack = ack._replace(first=ack.first - 1)
        told: bytes = right(head, ack)
        return told

    return encode_ack


@_mutant(
    "cm",
    "sequencer",
    MovingSequencer,
    "_answer",
    "who asks for a message is sent the one behind it",
)
def _request_answered_wrongly(right: Any) -> Any:
    def answer(self: Any, order: Order, to: NodeId, keys: Iterable[MessageKey], *rest: Any) -> None:
        right(self, order, to, [(node, lsn + 1) for node, lsn in keys], *rest)

    return answer


@_mutant(
    "pinwheel",
    "sequencer",
    MovingSequencer,
    "_on_msg",
    "who sends is believed to have all that is here",
)
def _sender_has_everything(right: Any) -> Any:
    def on_msg(self: Any, order: Order, sender: NodeId, msg: Msg, effects: list[Effect]) -> bool:
        if msg.origin in order.R:
            order.learn(msg.origin, order.hgsn)
        news: bool = right(self, order, sender, msg, effects)
        return news

    return on_msg


@_mutant(
    "dtp",
    "sequencer",
    MovingSequencer,
    "_pass_token",
    "the next holder is believed to have everything",
)
def _next_holder_has_everything(right: Any) -> Any:
    def pass_token(self: Any, order: Order, keys: list[MessageKey], effects: list[Effect]) -> None:
        right(self, order, keys, effects)
        order.learn(self.holder, order.hgsn)

    return pass_token


@_mutant(
    "dtp",
    "sequencer",
    MovingSequencer,
    "_on_silence",
    "the token stays where there is nothing to place",
)
def _token_rests(right: Any) -> Any:
    return lambda self, order, effects: None


# --- TOTAL -----------------------------------------------------------------------------------------


@_mutant(
    "total", "sequencer", Total, "_on_request", "a request that comes when all have it is broadcast again"
)
def request_broadcast_twice(right: Any) -> Any:
    """A request that was placed and given up counts as one that never came."""

    def on_request(self: Any, order: Order, sender: NodeId, msg: Msg, effects: list[Effect]) -> str:
        if self.sequencing and msg.key not in order.BUF:
            order.sequenced[msg.origin] = min(order.sequenced[msg.origin], msg.lsn - 1)
        unused: str = right(self, order, sender, msg, effects)
        return unused

    return on_request


@_mutant("total", "sequencer", Total, "_tell", "a member acknowledges what it has only heard of")
def _acknowledged_unseen(right: Any) -> Any:
    def tell(self: Any, order: Order, effects: list[Effect], *to: NodeId) -> None:
        known, order.hgsn = order.hgsn, order.known
        right(self, order, effects, *to)
        order.hgsn = self._acknowledged = known

    return tell


@_mutant(
    "total", "sequencer", Total, "_on_resend", "a lost broadcast is sent again with the next one's message"
)
def _resent_with_another_message(right: Any) -> Any:
    def on_resend(
        self: Any, order: Order, sender: NodeId, seqs: tuple[int, ...], effects: list[Effect]
    ) -> None:
        for seq in seqs:
            placed = order.places.get(seq + 1) or order.places.get(seq)
            if placed is not None:
                data = self._bcast(order, 0, seq, order.BUF[placed.node, placed.lsn])
                effects.append(Unicast(sender, data))

    return on_resend


@_mutant("total", "sequencer", Total, "_ask", "a lost broadcast is never asked for")
def _never_asked_for(right: Any) -> Any:
    return lambda self, order, effects: None


# --- changes of view -------------------------------------------------------------------------------


@_mutant("dtp", "view change", Member, "install", "a change names the last place here, null ones included")
def _place_of_the_last_null(right: Any) -> Any:
    def install(self: Member, now_us: int, view: View, settled: Settled, effects: list[Effect]) -> None:
        old, begun = self.order, len(effects)
        right(self, now_us, view, settled, effects)
        for at in range(begun, len(effects)):
            effect = effects[at]
            if isinstance(effect, Install) and effect.ended is not None and old is not None:
                effects[at] = effect._replace(ended=Ended(old.view.id, max(old.hgsn, old.last_message)))

    return install
