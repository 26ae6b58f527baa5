"""One ring's total order (000 §5): aru, requests, and what may be delivered when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from totem_parts import CONFIG, RING, data, delivered, examples, ring, token

from ordercast.core.contract import Deliver, Effect, Stable
from ordercast.core.identity import Batch, ConfigurationId, Guarantee
from ordercast.totem.config import TotemConfig
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import (
    CONTINUED,
    CONTINUES,
    NOBODY,
    PART_HEADER,
    Part,
    Token,
    decode,
    decode_data,
    decode_token,
    encode_recovered,
)

EAGER = TotemConfig(eager_requests=True)


def received(*seqs: int, config: TotemConfig | None = None) -> Ring:
    return ring(*(data(seq) for seq in seqs), config=config or TotemConfig())


def passes(made: Ring, visiting: Token) -> None:
    """The token leaves this node."""
    made.forward(visiting, visiting.seq)


# --- the ring -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("me", "successor"), [(1, 2), (2, 5), (5, 1)])
def test_the_token_goes_round(me: int, successor: int) -> None:
    """000 §6.2.2: memb_list is the order in which the token circulates, the representative first."""
    made = ring(me=me, members=(1, 2, 5))
    assert (made.successor, made.representative, made.alone) == (successor, 1, False)


def test_a_ring_of_one_passes_the_token_to_itself() -> None:
    made = ring(me=4, members=(4,))
    assert (made.successor, made.representative, made.alone) == (4, 4, True)


# --- the token (Fig. 3) -------------------------------------------------------------------------


def test_a_redundant_token_is_recognised_by_its_token_seq() -> None:
    """000 §5.2: a processor accepts the token only if token_seq is greater than my_token_seq."""
    made = ring()
    visiting = token(token_seq=7)
    assert made.accepts(visiting)
    passes(made, visiting)
    assert (visiting.token_seq, made.token_seq) == (8, 8)
    assert not made.accepts(token(token_seq=7))
    assert not made.accepts(token(token_seq=8))
    assert made.accepts(token(token_seq=9))


def test_requested_messages_are_retransmitted_and_taken_off_the_token() -> None:
    """000 §5.2: when it retransmits a message, the processor removes its number from the rtr field."""
    made = received(1, 2, 4)
    visiting = token(seq=5, rtr=[2, 3, 4, 5])
    assert made.answer(visiting) == [data(2).raw, data(4).raw]
    assert visiting.rtr == [3, 5]


def test_without_requests_nothing_is_retransmitted() -> None:
    assert received(1, 2).answer(token(seq=2)) == []


def test_who_has_less_lowers_aru_and_signs_it() -> None:
    """000 §5.2: if my_aru is smaller, the processor replaces the aru and sets aru_id to its identifier."""
    visiting = token(seq=5, aru=4, aru_id=3)
    received(1, 2, 4).update_aru(visiting)
    assert (visiting.aru, visiting.aru_id) == (2, 1)


def test_who_signed_aru_raises_it_to_what_it_has_now() -> None:
    """000 §5.2: if the aru_id equals the processor's identifier, it sets the aru to my_aru."""
    visiting = token(seq=5, aru=1, aru_id=1)
    received(1, 2, 3).update_aru(visiting)
    assert (visiting.aru, visiting.aru_id) == (3, 1)
    visiting = token(seq=3, aru=1, aru_id=1)
    received(1, 2, 3).update_aru(visiting)
    assert (visiting.aru, visiting.aru_id) == (3, NOBODY)


def test_who_has_more_leaves_anothers_aru() -> None:
    visiting = token(seq=3, aru=1, aru_id=2)
    received(1, 2, 3).update_aru(visiting)
    assert (visiting.aru, visiting.aru_id) == (1, 2)


def test_aru_moves_with_seq_while_nobody_misses_anything() -> None:
    """000 §5.2: whenever seq and aru are equal, the processor increments aru in step with seq."""
    visiting = token(seq=3, aru=1)
    received(1, 2, 3).update_aru(visiting)
    assert (visiting.aru, visiting.aru_id) == (3, NOBODY)


def test_a_gap_is_requested_on_the_next_token() -> None:
    """000 §5.2: a processor that missed messages augments the rtr field with them."""
    visiting = token(seq=5, rtr=[1, 3])
    received(1, 3, config=EAGER).request(visiting)
    assert visiting.rtr == [1, 2, 3, 4, 5]


def test_by_default_a_gap_has_a_rotation_to_close_by_itself() -> None:
    """Only what the previous visit's token knew of is asked for; newer packets may be on their way."""
    made = received(1, 3)
    visiting = token(seq=4)
    made.request(visiting)
    assert visiting.rtr == []
    made.forward(visiting, arrived_seq=4)
    visiting = token(seq=6)
    made.request(visiting)
    assert visiting.rtr == [2, 4]


def test_a_sender_that_accelerates_is_never_asked_at_once() -> None:
    """Packets sent after the token are late by design, so that eager requests would ask for them all."""
    visiting = token(seq=4)
    received(1, config=TotemConfig(eager_requests=True, accelerated_window=5)).request(visiting)
    assert visiting.rtr == []


def test_who_misses_nothing_asks_for_nothing() -> None:
    visiting = token(seq=2, rtr=[1])
    received(1, 2, config=EAGER).request(visiting)
    assert visiting.rtr == [1]


def test_requests_on_a_token_are_bounded_and_the_oldest_come_first() -> None:
    made = received(1, config=TotemConfig(eager_requests=True, max_requests=3))
    visiting = token(seq=9, rtr=[2, 7])
    made.request(visiting)
    assert visiting.rtr == [2, 3, 4]


# --- failure to receive (§6.2.2) ----------------------------------------------------------------


DEAF = TotemConfig(fail_to_receive=3)


def held_up(
    made: Ring, visit: Callable[[], Token], visits: int, every_us: int = CONFIG.token_loss_us
) -> list[int | None]:
    """Whom this node would exclude, at each of so many visits of such a token."""
    found = []
    for now_us in range(0, visits * every_us, every_us):
        visiting = visit()
        found.append(made.holder_up(now_us, visiting))
        passes(made, visiting)
    return found


def test_who_holds_aru_up_for_too_long_is_named_by_the_others() -> None:
    """000 §6.2.2: when my_aru_count reaches a constant, the processor in aru_id has failed to receive."""

    def stuck() -> Token:
        return token(seq=9, aru=4, aru_id=2)

    assert held_up(received(*range(1, 10), config=DEAF), stuck, 5) == [None, None, None, None, 2]


def test_many_visits_in_a_moment_are_no_failure_to_receive() -> None:
    """On a quick ring fifty visits pass in as many milliseconds: packets may just be lost now."""

    def stuck() -> Token:
        return token(seq=9, aru=4, aru_id=2)

    found = held_up(received(*range(1, 10), config=DEAF), stuck, 50, CONFIG.token_loss_us // 20)
    assert found.index(2) == 21, "as many as fill the Token Loss timeout"


def test_who_holds_aru_up_itself_does_not_exclude_itself() -> None:
    """000 §6.2.2: ... determines that some *other* processor has failed to receive."""

    def stuck() -> Token:
        return token(seq=9, aru=4, aru_id=1)

    assert held_up(received(*range(1, 5), config=DEAF), stuck, 10) == [None] * 10


def test_an_aru_that_moves_is_no_failure() -> None:
    """000 §5.1: my_aru_count counts visits with an unchanged aru that is not equal to seq."""
    made = received(*range(1, 10), config=DEAF)
    arus = iter([1, 1, 1, 1, 2, 2, 2, 2])
    assert held_up(made, lambda: token(seq=9, aru=next(arus), aru_id=2), 8) == [None] * 8


def test_an_idle_ring_holds_nobody_up() -> None:
    assert held_up(received(1, config=DEAF), lambda: token(seq=1), 10) == [None] * 10


# --- safe, quiet --------------------------------------------------------------------------------


def test_what_aru_covers_on_two_successive_rotations_is_safe() -> None:
    """000 §5.2: ... forwards the token with aru ≥ seq of m on two successive rotations."""
    made = received(1, 2, 3)
    safe = []
    for aru in (1, 2, 2, 3, 1, 3, 3):
        passes(made, token(seq=3, aru=aru))
        safe.append(made.safe)
    assert safe == [0, 1, 2, 2, 2, 2, 3]


def test_a_ring_is_quiet_when_nothing_was_sent_and_everything_is_safe() -> None:
    made = received(1)
    assert not made.quiet(token(seq=1))
    passes(made, token(seq=1))
    assert not made.quiet(token(seq=1)), "it is known to be everywhere only at the second rotation"
    passes(made, token(seq=1))
    assert made.quiet(token(seq=1))


@pytest.mark.parametrize(
    "visiting",
    [token(seq=2), token(seq=1, aru=0, aru_id=2), token(seq=1, rtr=[1]), token(seq=1, backlog=1)],
    ids=["news", "something missing", "something asked for", "something waiting"],
)
def test_a_ring_is_not_quiet_while_anything_is_to_be_done(visiting: Token) -> None:
    made = received(1)
    for _ in range(2):
        passes(made, token(seq=1))
    assert not made.quiet(visiting)


# --- delivery -----------------------------------------------------------------------------------


def test_agreed_messages_are_delivered_in_order_up_to_the_first_gap() -> None:
    """000 §5.2: ... has delivered every message with a sequence number less than that of m."""
    made = received(1, 2, 4)
    effects: list[Effect] = []
    made.deliver(effects)
    assert delivered(effects) == [b"1", b"2"]
    made.window.add(3, data(3))
    made.deliver(effects)
    assert delivered(effects) == [b"1", b"2", b"3", b"4"]
    assert made.delivered == 4


def test_nothing_is_delivered_twice() -> None:
    made = received(1, 2)
    made.deliver([])
    effects: list[Effect] = []
    made.deliver(effects)
    assert effects == []


def test_a_safe_message_waits_and_everything_behind_it_too() -> None:
    """000 §5.2: m is delivered in safe order when also aru ≥ m on two successive rotations."""
    made = ring(data(1), data(2, safe=True), data(3))
    effects: list[Effect] = []
    made.deliver(effects)
    assert delivered(effects) == [b"1"]
    passes(made, token(seq=3, aru=1))
    passes(made, token(seq=3, aru=2))
    made.deliver(effects)
    assert delivered(effects) == [b"1"]
    passes(made, token(seq=3, aru=2))
    made.deliver(effects)
    assert delivered(effects) == [b"1", b"2", b"3"]


def test_what_is_delivered_says_who_sent_it_and_where_it_stands() -> None:
    made = ring(data(1, b"a", b"b", origin=3, number=7, safe=True))
    made.safe = 1
    effects: list[Effect] = []
    made.deliver(effects)
    assert effects == [Deliver(Batch(RING, 1, 0, 3, 0, 7, Guarantee.SAFE, [b"a", b"b"]))]


def test_a_fragmented_message_is_delivered_where_its_last_fragment_stands() -> None:
    made = ring(
        data(1, b"x", b"abc", flags=CONTINUED, number=4),
        data(2, b"other", origin=1),
        data(3, b"def", flags=CONTINUES | CONTINUED, number=5),
        data(4, b"ghi", b"y", flags=CONTINUES, number=5),
    )
    effects: list[Effect] = []
    made.deliver(effects)
    told = [(e.batch.seq, e.batch.number, e.batch.payloads) for e in effects if isinstance(e, Deliver)]
    assert told == [(1, 4, [b"x"]), (2, 1, [b"other"]), (4, 5, [b"abcdefghi", b"y"])]
    assert made.delivered == 4


def test_a_message_that_its_sender_gave_up_is_not_joined_with_later_fragments() -> None:
    made = ring(
        data(1, b"abc", flags=CONTINUED, number=4),
        data(2, b"other", origin=1),
        data(3, b"whole", number=4),
        data(4, b"def", flags=CONTINUES, number=4),
    )
    effects: list[Effect] = []
    made.deliver(effects)
    assert delivered(effects) == [b"other", b"whole"]


def test_a_message_without_its_beginning_is_left_out_and_the_slots_stay_right() -> None:
    made = ring(data(1, b"end", b"whole", flags=CONTINUES, number=5))
    effects: list[Effect] = []
    made.deliver(effects)
    assert effects == [Deliver(Batch(RING, 1, 1, 3, 0, 6, Guarantee.AGREED, [b"whole"]))]


def test_a_recovered_message_takes_a_place_in_the_order_but_is_not_delivered_on_this_ring() -> None:
    """000 §7.2: messages from an old ring are ordered as messages of the old ring."""
    made = ring()
    old = data(9, ring=ConfigurationId(4, 2))
    made.window.add(1, encode_recovered(RING, 1, 2, old))
    made.window.add(2, data(2))
    effects: list[Effect] = []
    made.deliver(effects)
    assert delivered(effects) == [b"2"]
    made.window.add(3, encode_recovered(RING, 3, 2, old))
    made.deliver_rest(frozenset({2}), effects)
    assert (delivered(effects), made.delivered) == ([b"2"], 3)


def test_the_rest_is_delivered_whole_up_to_a_gap_and_behind_it_from_certain_nodes_only() -> None:
    """000 §7.2: ... all remaining messages that were originated by processors in my_deliver_memb.

    Before the gap there may be messages that others delivered as safe, since this node has
    acknowledged them; so those of all nodes are delivered (§4.2).
    """
    made = ring(
        data(1),
        data(2, safe=True),
        data(3, origin=3),
        data(5, origin=3),
        data(6, origin=2),
        data(7, b"end", origin=2, flags=CONTINUES),
    )
    made.deliver([])
    effects: list[Effect] = []
    made.deliver_rest(frozenset({1, 2}), effects)
    assert delivered(effects) == [b"2", b"3", b"6"]
    assert made.delivered == 7


# --- discarding ---------------------------------------------------------------------------------


def test_what_is_safe_and_delivered_is_stable_and_no_longer_kept() -> None:
    """000 §5.1: when a message has become safe, it need not be retained for retransmission."""
    made = received(1, 2, 3)
    effects: list[Effect] = []
    made.deliver(effects)
    batches = [effect.batch for effect in effects if isinstance(effect, Deliver)]
    effects.clear()
    made.safe = 2
    made.discard(effects)
    assert effects == [Stable(batches[:2])]
    assert [seq for seq, _ in made.window.after(0)] == [3]
    effects.clear()
    made.discard(effects)
    assert effects == []


def test_what_is_safe_but_not_delivered_is_kept() -> None:
    made = received(1, 2)
    made.safe = 2
    effects: list[Effect] = []
    made.discard(effects)
    assert effects == []
    assert len(made.window) == 2


def test_a_packet_in_which_no_message_ends_is_discarded_silently() -> None:
    made = ring(data(1, b"abc", flags=CONTINUED))
    made.deliver([])
    made.safe = 1
    effects: list[Effect] = []
    made.discard(effects)
    assert effects == []
    assert len(made.window) == 0


# --- a whole ring -------------------------------------------------------------------------------


class Group:
    """Rings that pass one token over a medium that loses packets (000 §5, without membership)."""

    def __init__(self, size: int, config: TotemConfig) -> None:
        self.rings = [
            ring(me=me, members=tuple(range(1, size + 1)), config=config) for me in range(1, size + 1)
        ]
        self.effects: list[list[Effect]] = [[] for _ in self.rings]
        self.token = token()
        self.everywhere: dict[int, set[int]] = {}

    def broadcast(self, sender: int, raw: bytes, lost: set[int]) -> None:
        for place, made in enumerate(self.rings):
            if place == sender or place not in lost:
                packet = decode_data(raw)
                made.window.add(packet.seq, packet)
                self.everywhere.setdefault(packet.seq, set()).add(place)
                self.settle(place)

    def settle(self, place: int) -> None:
        """Deliver, and check that what is delivered as safe has reached everyone."""
        made, effects = self.rings[place], self.effects[place]
        told = len(effects)
        made.deliver(effects)
        for effect in effects[told:]:
            assert isinstance(effect, Deliver)
            if effect.batch.guarantee is Guarantee.SAFE:
                assert len(self.everywhere[effect.batch.seq]) == len(self.rings)

    def visit(self, place: int, fresh: list[bool], losses: Callable[[], set[int]]) -> None:
        """One visit of the token (Fig. 3), at which so many messages are broadcast, safe or agreed."""
        made, visiting = self.rings[place], self.token
        arrived_seq = visiting.seq
        for raw in made.answer(visiting):
            self.broadcast(place, raw, losses())
        for safe in fresh:
            visiting.seq += 1
            self.broadcast(place, data(visiting.seq, origin=made.me, safe=safe).raw, losses())
        made.update_aru(visiting)
        made.request(visiting)
        made.forward(visiting, arrived_seq)
        self.settle(place)
        assert made.safe <= min(other.window.aru for other in self.rings)
        stable: list[Effect] = []
        made.discard(stable)
        for effect in stable:
            assert isinstance(effect, Stable)
            for batch in effect.batches:
                assert len(self.everywhere[batch.seq]) == len(self.rings)


@examples(80)
@given(data_=st.data(), size=st.integers(1, 4), eager=st.booleans(), max_requests=st.integers(1, 5))
def test_every_member_delivers_the_same_messages_in_the_same_order(
    data_: st.DataObject, size: int, eager: bool, max_requests: int
) -> None:
    """000 §4.2: agreed delivery is in one total order; safe delivery only of what everyone has."""
    group = Group(size, TotemConfig(eager_requests=eager, max_requests=max_requests))
    everyone = st.sets(st.integers(0, size - 1))

    def losses() -> set[int]:
        return data_.draw(everyone)

    for _ in range(3):
        for place in range(size):
            group.visit(place, data_.draw(st.lists(st.booleans(), max_size=2)), losses)
    sent = group.token.seq
    for _ in range(2 * sent + 6):  # nothing is lost any more: everything arrives
        for place in range(size):
            group.visit(place, [], set)
    assert group.token.aru == sent
    assert group.token.rtr == []
    for made, effects in zip(group.rings, group.effects, strict=True):
        assert delivered(effects) == [b"%d" % seq for seq in range(1, sent + 1)]
        assert (made.delivered, made.safe, len(made.window)) == (sent, sent, 0)
        assert made.quiet(group.token)


# --- requests for what was sent again already ---------------------------------------------------


def test_a_request_is_answered_at_each_visit_however_often_it_is_repeated() -> None:
    """000 §5.2: who has received messages that appear in the rtr field retransmits them, at each visit."""
    member = ring(data(1))
    for rotation in range(40):
        visiting = token(token_seq=1 + 3 * rotation, seq=3, aru=0, rtr=[1])
        assert member.answer(visiting) == [data(1).raw]
        assert visiting.rtr == []


# --- packets larger than a datagram -------------------------------------------------------------

PIECE = CONFIG.datagram_size - PART_HEADER
LARGE = data(1, bytes(range(256)) * 40)
"""A packet of eight datagrams."""


def parts(raws: list[bytes]) -> list[Part]:
    found = [decode(raw) for raw in raws]
    assert all(isinstance(part, Part) for part in found)
    return [part for part in found if isinstance(part, Part)]


def test_what_is_larger_than_a_datagram_is_sent_again_in_parts_of_one_datagram() -> None:
    answers = ring(LARGE).answer(token(seq=1, aru=0, rtr=[1]))
    assert len(answers) == 8
    assert max(map(len, answers)) <= CONFIG.datagram_size
    other = ring(me=2)
    joined = [other.join(part) for part in parts(answers)]
    assert joined == [None] * 7 + [LARGE.raw]


def test_only_the_parts_that_are_missing_are_asked_for_and_sent_again() -> None:
    holder, other = ring(LARGE), ring(me=2)
    other.arrived_seq = 1
    for lost in ({0, 3, 7}, {3}, set[int]()):
        visiting = token(seq=1, aru=0)
        other.request(visiting)
        assert visiting.rtr == [1]
        visiting = decode_token(visiting.encode())
        sent = parts(holder.answer(visiting))
        assert (visiting.rtr, visiting.parts) == ([], {})
        whole = [other.join(part) for part in sent if part.place not in lost]
    assert len(sent) == 1
    assert whole == [LARGE.raw]


def test_what_two_members_lack_is_sent_once_for_both() -> None:
    holder, two, three = ring(LARGE), ring(me=2), ring(me=3)
    every = parts(ring(LARGE).answer(token(seq=1, aru=0, rtr=[1])))
    for member, has in ((two, (0, 1, 2, 3, 4, 5)), (three, (0, 1, 6, 7))):
        member.arrived_seq = 1
        for place in has:
            assert member.join(every[place]) is None
    visiting = token(seq=1, aru=0)
    two.request(visiting)
    three.request(visiting)
    assert [part.place for part in parts(holder.answer(visiting))] == [2, 3, 4, 5, 6, 7]


def test_parts_that_flow_control_has_no_room_for_stay_on_the_token() -> None:
    holder = ring(LARGE, config=TotemConfig(max_messages=3))
    visiting = token(seq=1, aru=0, rtr=[1])
    assert [part.place for part in parts(holder.answer(visiting))] == [0, 1, 2]
    assert (visiting.rtr, visiting.parts) == ([1], {1: (2**64 - 1) & 0b11111000 & 0xFF})
    assert [part.place for part in parts(holder.answer(visiting))] == [3, 4, 5]
    assert [part.place for part in parts(holder.answer(visiting))] == [6, 7]
    assert visiting.rtr == []


def test_parts_are_kept_of_as_many_packets_as_may_be_asked_for() -> None:
    made = ring(config=TotemConfig(max_requests=2))
    pieces = {seq: Part(*RING, seq, 2_000, PIECE, 0, bytes(PIECE)) for seq in range(1, 5)}
    for seq in (4, 2, 3, 1):
        assert made.join(pieces[seq]) is None
    assert sorted(made._partial) == [1, 2], "the oldest are what everything waits for"


def test_parts_of_what_is_here_or_fits_no_packet_are_not_kept() -> None:
    made = ring(data(1))
    for part in (
        Part(*RING, 1, 2_000, PIECE, 0, bytes(PIECE)),
        Part(*RING, 2, 2_000, 1_100, 0, bytes(1_100)),
        Part(*RING, 2 + made.window.span, 2_000, PIECE, 0, bytes(PIECE)),
    ):
        assert made.join(part) is None
    assert made._partial == {}
