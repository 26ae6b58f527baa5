"""The total ordering protocol (000 §5, Fig. 3), one event at a time."""

from __future__ import annotations

import pytest
from totem_node import FIRST, Node, one, operational, order, receivers, sent, started
from totem_parts import data, delivered

from effects import drops, shifts, timers
from ordercast.core.contract import (
    Accept,
    CancelTimer,
    Deliver,
    Multicast,
    Originate,
    SetTimer,
    Stable,
    Unicast,
)
from ordercast.core.identity import ConfigurationId, Guarantee
from ordercast.totem.packets import NOBODY, Announce, Data, Hurry, Token
from ordercast.totem.states import State

OTHER = ConfigurationId(16, 9)


# --- Fig. 3: regular token received ------------------------------------------------------------------


def test_a_token_of_another_ring_is_discarded() -> None:
    """Fig. 3: if token.ring_id ≠ my_ring_id … discard token."""
    token = Token(OTHER)
    token.token_seq = 99
    assert drops(operational().hears(token)) == ["token of another ring"]


def test_a_redundant_token_is_discarded() -> None:
    """Fig. 3: … or token.token_seq ≤ my_token_seq then discard token."""
    node = operational()
    token = node.next_token()
    assert sent(node.hears(token), Token)
    again = node.hears(token)
    assert drops(again) == ["redundant token"]
    assert not sent(again, Token)


def test_the_token_goes_to_the_next_processor_with_the_next_token_seq() -> None:
    """§5.2: "If the token is accepted, the processor increments token_seq"."""
    node = operational(me=3)
    token = node.next_token()
    effects = node.hears(token)
    assert receivers(effects) == [1]
    assert one(effects, Token).token_seq == token.token_seq + 1


def test_forwarding_the_token_resets_both_timeouts() -> None:
    """Fig. 3: forward token; reset Token Loss and Token Retransmission timeouts."""
    node = operational(token_loss_us=50_000, token_retransmission_us=7_000)
    assert timers(node.visited()) == {"token-loss": 50_000, "token-retransmission": 7_000}


def test_each_new_message_takes_the_next_sequence_number() -> None:
    """§5.2: "For each new message that it broadcasts, the processor increments the seq field of the token
    and sets the sequence number of the message to this value."
    """
    node = operational(packet_size=256)
    for letter in (b"a", b"b", b"c"):
        node.submits(letter * 150)
    effects = node.visited(seq=5, aru=5)
    assert [packet.seq for packet in sent(effects, Data)] == [6, 7, 8]
    assert {(packet.ring_seq, packet.ring_rep) for packet in sent(effects, Data)} == {FIRST}
    assert one(effects, Token).seq == 8


def test_many_small_messages_share_a_packet_and_a_sequence_number() -> None:
    node = operational()
    effects = [*node.submits(b"a", b"b"), *node.submits(b"c"), *node.visited()]
    assert one(effects, Data).chunks == [b"a", b"b", b"c"]
    assert [effect.number for effect in effects if isinstance(effect, Accept)] == [1, 3]


def test_a_large_message_takes_several_and_is_originated_by_the_last() -> None:
    node = operational(packet_size=256)
    effects = [*node.submits(b"x" * 400), *node.visited()]
    kinds = order(effects, Originate, Multicast, Unicast)
    assert kinds == [Multicast, Multicast, Originate, Multicast, Unicast]
    assert delivered(effects) == [b"x" * 400]


def test_messages_leave_before_the_token() -> None:
    """§5.2: "It then broadcasts requested retransmissions and new messages, updates the token, and
    transmits the token to the next processor on the ring."
    """
    node = operational()
    node.hears(data(1, b"theirs", ring=FIRST))
    node.submits(b"mine")
    effects = node.visited(seq=1, aru=1, rtr=[1])
    assert order(effects, Multicast, Unicast) == [Multicast, Multicast, Unicast]
    assert [packet.seq for packet in sent(effects, Data)] == [1, 2], "retransmissions first"


def test_requested_messages_are_retransmitted_and_taken_off_the_token() -> None:
    """§5.2: "When it retransmits a message, the processor removes the sequence number … from the rtr
    field."
    """
    node = operational()
    node.hears(data(1, ring=FIRST), data(3, ring=FIRST))
    effects = node.visited(seq=3, aru=0, aru_id=3, rtr=[1, 2, 3])
    assert [packet.seq for packet in sent(effects, Data)] == [1, 3]
    assert one(effects, Token).rtr == [2]
    assert node.machine.stats["retransmissions"] == 2


def test_retransmissions_are_subtracted_from_what_may_be_broadcast() -> None:
    """Fig. 3: subtract retransmissions from allowed to broadcast."""
    node = operational(packet_size=256, max_messages=3)
    node.hears(data(1, ring=FIRST), data(2, ring=FIRST))
    node.submits(b"x" * 1000)
    effects = node.visited(seq=2, aru=2, rtr=[1, 2])
    assert [packet.seq for packet in sent(effects, Data)] == [1, 2, 3]


def test_a_processor_with_less_lowers_aru_and_signs_it() -> None:
    """§5.2: "If my_aru is smaller, the processor replaces the aru with my_aru and sets the aru_id field"."""
    token = one(operational(me=2).visited(seq=4, aru=4), Token)
    assert (token.aru, token.aru_id) == (0, 2)


def test_a_processor_that_had_signed_aru_raises_it() -> None:
    """§5.2: "If the aru_id equals the processor's identifier, it sets the aru to my_aru.\""""
    node = operational(me=2)
    node.visited(seq=2, aru=2)
    node.hears(data(1, ring=FIRST))
    token = one(node.visited(), Token)
    assert (token.aru, token.aru_id) == (1, 2)
    node.hears(data(2, ring=FIRST))
    token = one(node.visited(), Token)
    assert (token.aru, token.aru_id) == (2, NOBODY)


def test_anothers_lower_aru_stays() -> None:
    node = operational(me=2)
    node.hears(data(1, ring=FIRST), data(2, ring=FIRST))
    token = one(node.visited(seq=2, aru=1, aru_id=3), Token)
    assert (token.aru, token.aru_id) == (1, 3)


def test_aru_goes_in_step_with_seq_while_they_are_equal() -> None:
    """§5.2: "Whenever the seq and the aru are equal, the processor increments aru and my_aru in step with
    seq".
    """
    node = operational()
    node.submits(b"a")
    token = one(node.visited(), Token)
    assert (token.seq, token.aru, token.aru_id) == (1, 1, NOBODY)


def test_a_gap_is_requested_on_the_next_token() -> None:
    """§5.2: a processor that has not received all messages "augments the rtr field of the token"."""
    node = operational(eager_requests=True)
    node.hears(data(1, ring=FIRST), data(3, ring=FIRST))
    assert one(node.visited(seq=4, aru=4), Token).rtr == [2, 4]


def test_unless_eager_a_gap_is_requested_when_it_is_a_rotation_old() -> None:
    """PEERS.md, retransmission storms: "request a gap only up to the previous round's seq"."""
    node = operational()
    node.hears(data(1, ring=FIRST), data(3, ring=FIRST))
    assert one(node.visited(seq=4, aru=4), Token).rtr == []
    node.hears(data(4, ring=FIRST))
    assert one(node.visited(seq=6), Token).rtr == [2]
    assert one(node.visited(), Token).rtr == [2, 5, 6]


def test_a_request_of_another_stays_on_the_token() -> None:
    node = operational()
    assert one(node.visited(seq=2, aru=0, aru_id=3, rtr=[1]), Token).rtr == [1]


# --- accelerated ring --------------------------------------------------------------------------------


def test_the_last_messages_of_an_accelerated_visit_follow_the_token() -> None:
    """PEERS.md: "give all n their numbers and update seq …; multicast all but the last A before the token,
    send the token, then multicast the last A."
    """
    node = operational(packet_size=256, accelerated_window=2)
    node.submits(*[b"%d" % i * 150 for i in range(4)])
    effects = node.visited()
    assert order(effects, Multicast, Unicast) == [Multicast, Multicast, Unicast, Multicast, Multicast]
    assert [packet.seq for packet in sent(effects, Data)] == [1, 2, 3, 4]
    assert one(effects, Token).seq == 4


def test_with_less_to_send_than_the_accelerated_window_the_token_leaves_first() -> None:
    node = operational(accelerated_window=3)
    node.submits(b"a")
    assert order(node.visited(), Multicast, Unicast) == [Unicast, Multicast]


def test_with_very_little_to_send_the_token_leaves_last_all_the_same() -> None:
    """What comes behind the token is known to be everywhere one rotation later."""
    node = operational(accelerated_window=4)
    node.submits(b"a")
    assert order(node.visited(), Multicast, Unicast) == [Multicast, Unicast]


def test_what_follows_the_token_is_originated_and_delivered_behind_it_too() -> None:
    node = operational(accelerated_window=1)
    node.submits(b"a")
    effects = node.visited()
    kinds = order(effects, Originate, Multicast, Unicast, Deliver)
    assert kinds == [Unicast, Originate, Multicast, Deliver]


# --- delivery ------------------------------------------------------------------------------------------


def test_agreed_messages_are_delivered_when_all_before_them_are() -> None:
    """§5.2: delivered in agreed order "if a processor has received a message m and has delivered every
    message with sequence number less than that of m".
    """
    node = operational()
    assert delivered(node.hears(data(2, b"b", ring=FIRST))) == []
    assert delivered(node.hears(data(1, b"a", ring=FIRST))) == [b"a", b"b"]


def test_own_messages_are_delivered_as_any_other() -> None:
    node = operational()
    node.submits(b"mine")
    assert delivered(node.visited(seq=1, aru=1)) == [], "message 1 is still missing"
    assert delivered(node.hears(data(1, b"theirs", ring=FIRST))) == [b"theirs", b"mine"]


def test_a_safe_message_is_delivered_after_the_token_was_forwarded_twice_with_its_aru() -> None:
    """§5.2: "If, in addition, the processor forwards the token with the aru field greater than or equal to
    the sequence number of m on two successive rotations …, then m is safe".
    """
    node = operational()
    assert delivered(node.hears(data(1, b"s", safe=True, ring=FIRST))) == []
    assert delivered(node.visited(seq=1, aru=1)) == []
    assert delivered(node.visited()) == [b"s"]


def test_an_aru_that_fell_back_in_between_does_not_count() -> None:
    node = operational()
    node.hears(data(1, b"s", safe=True, ring=FIRST))
    node.visited(seq=1, aru=1)
    node.hears(data(2, ring=FIRST))
    assert delivered(node.visited(seq=2, aru=0, aru_id=3)) == []
    assert delivered(node.visited(aru=2, aru_id=NOBODY)) == []
    assert delivered(node.visited()) == [b"s", b"2"]


def test_what_is_safe_is_stable_and_no_longer_kept() -> None:
    """§5.1: "When it determines that a message has become safe, the processor … can discard the message"."""
    node = operational()
    node.hears(data(1, b"a", ring=FIRST))
    node.visited(seq=1, aru=1)
    stable = [effect for effect in node.visited() if isinstance(effect, Stable)]
    assert [batch.payloads for effect in stable for batch in effect.batches] == [[b"a"]]
    assert sent(node.visited(rtr=[1]), Data) == [], "nobody can need it"


def test_a_message_received_twice_is_delivered_once() -> None:
    node = operational()
    assert delivered(node.hears(data(1, b"a", ring=FIRST))) == [b"a"]
    again = node.hears(data(1, b"a", ring=FIRST))
    assert delivered(again) == []
    assert drops(again) == ["duplicate"]


def test_what_is_delivered_has_the_guarantee_its_originator_asked_for() -> None:
    node = operational()
    node.submits(b"s", safe=True)
    node.submits(b"a")
    effects = [*node.visited(), *node.visited()]
    batches = [effect.batch for effect in effects if isinstance(effect, Deliver)]
    assert [(batch.guarantee, batch.payloads) for batch in batches] == [
        (Guarantee.SAFE, [b"s"]),
        (Guarantee.AGREED, [b"a"]),
    ]


# --- token retransmission ----------------------------------------------------------------------------


def test_without_a_sign_the_token_is_sent_again() -> None:
    """Fig. 3: Token Retransmission timeout expired: retransmit token; reset Token Retransmission timeout."""
    node = operational()
    token = one(node.visited(), Token)
    effects = node.timeout("token-retransmission")
    assert one(effects, Token).token_seq == token.token_seq
    assert receivers(effects) == [3]
    assert timers(effects) == {"token-retransmission": node.machine.config.token_retransmission_us}
    assert node.machine.stats["token_retransmissions"] == 1


def test_a_regular_message_of_the_next_holder_is_a_sign_that_the_token_arrived() -> None:
    """§5.2: "If a processor receives a regular message or the token, it cancels the … timeout.\""""
    node = operational()
    node.visited()
    assert CancelTimer("token-retransmission") in node.hears(data(1, origin=3, ring=FIRST))
    assert sent(node.timeout("token-retransmission"), Token) == []


def test_a_message_that_was_on_its_way_already_is_no_such_sign() -> None:
    """A number that the token had when it left tells nothing about what became of the token since."""
    node = operational()
    node.visited(seq=2, aru=2)
    assert timers(node.hears(data(1, origin=1, ring=FIRST))) == {}
    assert sent(node.timeout("token-retransmission"), Token)


def test_the_token_itself_is_the_best_sign() -> None:
    """§5.2: the timeout of the last visit is over; this one's is set when the token leaves."""
    node = operational()
    node.visited()
    effects = node.visited()
    timers = [
        e for e in effects if isinstance(e, SetTimer | CancelTimer) and e.name == "token-retransmission"
    ]
    assert timers == [SetTimer("token-retransmission", node.machine.config.token_retransmission_us)]


# --- rotation times ------------------------------------------------------------------------------------


def test_rotations_are_timed_from_visit_to_visit_unless_the_token_was_held() -> None:
    node = operational()
    stats = dict(node.machine.stats)
    node.waits(1_000)
    node.visited()
    node.waits(3_000)
    node.visited()
    node.waits(50_000)
    node.hears(node.next_token(idle=True))
    after = node.machine.stats
    assert after["rotations"] - stats["rotations"] == 2
    assert after["rotation_us_total"] - stats["rotation_us_total"] == 4_000
    assert after["rotation_us_max"] == 3_000


# --- a ring of one -------------------------------------------------------------------------------------


def alone() -> Node:
    node = started(me=1)
    node.timeout("consensus")
    assert node.state is State.OPERATIONAL
    return node


def test_alone_a_message_is_ordered_at_once_and_needs_no_network() -> None:
    """§6.2.2, the base case: "the membership … consists of a single processor identifier"."""
    effects = alone().submits(b"a", b"b", safe=True)
    assert order(effects, Accept, Originate, Deliver, Stable) == [Accept, Originate, Deliver, Stable]
    assert delivered(effects) == [b"a", b"b"]
    assert order(effects, Multicast, Unicast) == []


def test_alone_a_message_larger_than_the_window_is_ordered_at_once() -> None:
    effects = alone().submits(b"x" * 1_000_000)
    assert delivered(effects) == [b"x" * 1_000_000]


# --- an idle ring (PEERS.md) ---------------------------------------------------------------------------


def idle_representative() -> Node:
    node = operational(me=1, hold_us=10_000, idle_rotations=1)
    node.visited()
    effects = node.visited()
    assert timers(effects)["hold"] == 10_000
    assert sent(effects, Token) == []
    return node


def test_the_representative_of_an_idle_ring_holds_the_token_for_a_while() -> None:
    node = idle_representative()
    assert node.machine.stats["tokens_held"] == 1
    released = node.timeout("hold")
    assert one(released, Token).idle
    assert receivers(released) == [2]


def test_who_has_something_to_send_tells_it_to_hurry() -> None:
    node = operational(me=3)
    node.hears(node.next_token(idle=True))
    effects = node.submits(b"a")
    assert one(effects, Hurry) == Hurry(FIRST)
    assert receivers(effects) == [1]
    assert sent(node.submits(b"b"), Hurry) == [], "once is enough"


def test_told_to_hurry_it_lets_the_token_go() -> None:
    node = idle_representative()
    effects = node.hears(Hurry(FIRST))
    assert one(effects, Token)
    assert timers(effects)["hold"] is None


def test_with_something_to_send_itself_it_lets_the_token_go_behind_its_message() -> None:
    node = idle_representative()
    effects = node.submits(b"a")
    assert order(effects, Accept, Multicast, Unicast)[:3] == [Accept, Multicast, Unicast]
    assert sent(effects, Data)[0].chunks == [b"a"]


def test_a_wake_up_for_another_ring_is_not_for_this_one() -> None:
    node = idle_representative()
    assert drops(node.hears(Hurry(OTHER))) == ["other ring"]
    gathering = started()
    assert drops(gathering.hears(Hurry(ConfigurationId(4, 1)))) == ["other ring"]


def test_a_token_that_was_not_held_needs_no_release() -> None:
    assert operational(me=1).timeout("hold") == []


# --- messages of other rings ---------------------------------------------------------------------------


def test_a_foreign_message_makes_an_operational_ring_show_itself() -> None:
    """Fig. 3 would gather at once. PEERS.md, one-way links: first see whether it hears us."""
    node = operational()
    node.waits(1_000_000)
    effects = node.hears(data(1, origin=9, ring=OTHER))
    assert drops(effects) == ["foreign ring"]
    assert one(effects, Announce).ring == FIRST
    assert shifts(effects) == []


@pytest.mark.parametrize("origin", [1, 3])
def test_a_message_that_a_member_sent_on_an_earlier_ring_is_only_late(origin: int) -> None:
    node = operational()
    effects = node.hears(data(1, origin=origin, ring=ConfigurationId(4, 1)))
    assert drops(effects) == ["other ring"]
    assert not sent(effects, Announce)


def test_a_foreign_message_does_not_disturb_a_gathering() -> None:
    """Figs 5 and 6: Foreign message received: discard message. In Gather its sender's Join will tell."""
    effects = started().hears(data(1, origin=9, ring=OTHER))
    assert drops(effects) == ["other ring"]
    assert order(effects, Multicast) == []
