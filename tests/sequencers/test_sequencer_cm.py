"""CM and RBP (004 §3, Figs 9 to 16 and 25; 002 §3): one member, its fellows played by the test."""

from __future__ import annotations

import pytest
from seat import ALL, Seat, Sent, acks_to_deliver, view_of

from ordercast.core.contract import Originate
from ordercast.core.identity import ConfigurationId, Guarantee
from ordercast.sequencers.cm import Cm
from ordercast.sequencers.moving import PASS, MovingSequencer, Token
from ordercast.sequencers.packets import NULL, Ack, Copy, Msg, Placed, Req
from ordercast.viewsync.config import GroupConfig

MSG_TIMER, ACK_TIMER, REQ_TIMER = "order msg", "order ack", "order req"


def token_of(seat: Seat) -> Token:
    assert isinstance(seat.orderer.rules, MovingSequencer)
    return seat.orderer.rules.S_TOKEN


def expect_ack(sent: list[Sent], first: int, *keys: tuple[int, int], following: int) -> None:
    acks = [(to, packet) for to, packet in sent if isinstance(packet, Ack)]
    assert [(to, ack.first, ack.keys, ack.next) for to, ack in acks] == [(ALL, first, keys, following)]


def test_the_first_member_holds_the_token() -> None:
    assert token_of(Seat(Cm, 1)) is Token.HOLD
    assert token_of(Seat(Cm, 2)) is Token.EMPT


def test_the_holder_puts_a_message_into_the_next_place_and_passes_the_token() -> None:
    """004 §3.1.2, Figs 6 to 8."""
    seat = Seat(Cm, 1)
    expect_ack(seat.msg(3, 1), 1, (3, 1), following=2)
    assert token_of(seat) is Token.TRST


def test_a_holders_own_message_is_sent_and_then_acknowledged() -> None:
    seat = Seat(Cm, 1)
    sent = seat.submit(b"mine")
    assert [type(packet) for _, packet in sent] == [Msg, Ack]
    expect_ack(sent, 1, (1, 1), following=2)


def test_the_token_goes_round() -> None:
    seat = Seat(Cm, 3)
    seat.null(1, 1, following=2)
    seat.null(2, 2, following=3)
    expect_ack(seat.msg(2, 1), 3, (2, 1), following=1)


def test_a_message_is_originated_before_it_is_sent_and_its_place_is_not_known() -> None:
    seat = Seat(Cm, 2)
    seat.submit(b"a", b"b")
    kinds = [type(effect).__name__ for effect in seat.effects]
    assert kinds.index("Originate") < kinds.index("Multicast")
    (originated,) = [effect.batch for effect in seat.effects if isinstance(effect, Originate)]
    assert (originated.seq, originated.number, originated.payloads) == (0, 1, [b"a", b"b"])


def test_a_member_has_one_packet_on_the_way() -> None:
    """002 §4.2: "Each LTM is allowed to have only one outstanding message at a time.\""""
    seat = Seat(Cm, 2, config=GroupConfig(window=8))
    assert len(seat.submit(b"first")) == 1
    assert seat.submit(b"second") == []
    (sent,) = seat.ack(1, 1, (2, 1), following=2)[:1]
    assert isinstance(sent.packet, Msg)
    assert sent.packet.chunks == [b"second"]


def test_a_message_is_sent_again_until_it_has_a_place() -> None:
    """004 Fig. 16, lines 12 to 15."""
    seat = Seat(Cm, 2)
    seat.submit(b"m")
    assert MSG_TIMER in seat.timers
    (again,) = seat.expire(MSG_TIMER)
    assert again.to == ALL
    assert isinstance(again.packet, Msg)
    first_pause = seat.timers[MSG_TIMER]
    seat.expire(MSG_TIMER)
    assert seat.timers[MSG_TIMER] == 2 * first_pause
    seat.ack(1, 1, (2, 1), following=3)
    assert seat.expire(MSG_TIMER) == []


def test_pauses_grow_to_eight_times_the_first() -> None:
    seat = Seat(Cm, 2, config=GroupConfig(retry_us=1_000))
    seat.submit(b"m")
    pauses = []
    for _ in range(7):
        seat.expire(MSG_TIMER)
        pauses.append(seat.timers[MSG_TIMER])
    assert pauses == [1_000, 2_000, 4_000, 8_000, 8_000, 8_000, 8_000]


def test_a_message_that_is_missing_is_requested_by_its_name() -> None:
    """004 Fig. 9: s has the place, but not the message."""
    seat = Seat(Cm, 3)
    seat.ack(1, 1, (2, 1), following=2)
    assert seat.delivered == []
    assert seat.expire(REQ_TIMER) == [Sent(ALL, Req(0, 1, ((2, 1),), ()))]


def test_places_that_are_missing_are_requested_by_their_numbers() -> None:
    """004 Fig. 11: s gets the second sequence number and not the first."""
    seat = Seat(Cm, 4, members=4)
    seat.msg(2, 1)
    seat.msg(2, 2)
    seat.ack(2, 2, (2, 2), following=3)
    assert seat.expire(REQ_TIMER) == [Sent(ALL, Req(0, 2, (), (1,)))]
    seat.copy(2, (1, Placed(2, 1, 1)))
    assert [batch.seq for batch in seat.delivered] == [1]
    seat.null(3, 3, following=4)
    assert [batch.seq for batch in seat.delivered] == [2]


def test_what_is_only_late_is_not_requested() -> None:
    seat = Seat(Cm, 3)
    seat.ack(1, 1, (2, 1), following=2)
    seat.msg(2, 1)
    assert seat.expire(REQ_TIMER) == []


def test_a_request_that_nobody_answers_goes_to_one_member_after_the_other() -> None:
    seat = Seat(Cm, 3)
    seat.ack(1, 1, (2, 1), following=2)
    asked = [seat.expire(REQ_TIMER)[0].to for _ in range(4)]
    assert asked[0] == ALL
    assert set(asked[1:]) == {1, 2}


def test_the_next_holder_accepts_the_token_only_when_it_has_everything() -> None:
    """004 Fig. 16, lines 33 to 44."""
    seat = Seat(Cm, 2)
    seat.msg(3, 2)
    assert seat.ack(1, 1, (3, 1), following=2) == []
    assert token_of(seat) is Token.HOLD
    assert seat.expire(PASS) == []
    expect_ack(seat.msg(3, 1), 2, (3, 2), following=3)


def test_the_last_holder_answers_its_next() -> None:
    """002 §4.2, "Receiving REQ message": who is in TRST is asked by who got the token from it."""
    next_one = Seat(Cm, 2)
    next_one.ack(1, 1, (3, 1), following=2)
    ((_, req),) = next_one.expire(REQ_TIMER)
    assert req == Req(0, 1, ((3, 1),), ())
    last = Seat(Cm, 1)
    last.msg(3, 1)
    assert token_of(last) is Token.TRST
    sent = last.req(2, keys=((3, 1),), places=(1,), asked=1)
    assert [(to, type(packet)) for to, packet in sent] == [(2, Msg), (2, Copy)]


def test_who_is_asked_by_name_answers_whether_it_holds_the_token_or_not() -> None:
    seat = Seat(Cm, 3, members=4)
    seat.msg(2, 1)
    seat.ack(1, 1, (2, 1), following=2)
    seat.null(2, 2, following=3)
    for token in (Token.HOLD, Token.TRST):
        assert token_of(seat) is token
        assert seat.req(1, keys=((2, 1),), asked=4) == []
        msg, copy = seat.req(1, keys=((2, 1),), places=(1, 2), asked=3)
        assert isinstance(msg.packet, Msg)
        assert isinstance(copy.packet, Copy)
        assert copy.packet.places == ((1, Placed(2, 1, 1)), (2, Placed(*NULL, 2)))
        seat.expire(PASS)


def test_a_token_brings_a_new_request_for_what_its_holder_lacks() -> None:
    """All wait for it: it does not wait out the pause of earlier requests."""
    seat = Seat(Cm, 3, config=GroupConfig(retry_us=8_000))
    seat.ack(1, 1, (2, 1), following=2)
    for _ in range(8):
        seat.expire(REQ_TIMER)
    assert seat.timers[REQ_TIMER] == 64_000
    seat.null(2, 2, following=3)
    assert seat.timers[REQ_TIMER] == 1_000
    assert seat.expire(REQ_TIMER) == [Sent(ALL, Req(0, 2, ((2, 1),), ()))]


def test_an_old_message_brings_its_source_the_place_again() -> None:
    """004 Fig. 14: the source did not get the ACK and repeats m; the holder sends it a copy."""
    seat = Seat(Cm, 2)
    seat.msg(3, 1)
    seat.ack(1, 1, (3, 1), following=2)
    assert token_of(seat) is Token.HOLD
    (copy,) = seat.msg(3, 1)
    assert copy == Sent(3, Copy(0, 1, ((1, Placed(3, 1, 1)),)))
    assert seat.drops == ["duplicate"]


def test_an_old_message_is_no_business_of_who_does_not_hold_the_token() -> None:
    seat = Seat(Cm, 3)
    seat.msg(2, 1)
    seat.ack(1, 1, (2, 1), following=2)
    assert seat.msg(2, 1) == []


def test_an_old_token_brings_its_sender_what_it_missed() -> None:
    """004 Fig. 15: q keeps sending the token to r; s, who holds it by now, sends q what r had sent."""
    seat = Seat(Cm, 3)
    seat.msg(2, 1)
    seat.msg(2, 2)
    seat.ack(1, 1, (2, 1), following=2)
    seat.ack(2, 2, (2, 2), following=3)
    sent = seat.ack(1, 1, (2, 1), following=2)
    assert sent == [Sent(1, Copy(0, 2, ((2, Placed(2, 2, 2)),)))]


def test_a_token_that_arrived_and_waits_is_confirmed_when_it_is_sent_again() -> None:
    seat = Seat(Cm, 2)
    seat.null(1, 1, following=2)
    assert seat.null(1, 1, following=2) == [Sent(1, Copy(0, 1, ()))]


def test_an_ack_is_sent_again_until_the_next_holder_acts() -> None:
    """004 Fig. 16, lines 47 to 49."""
    seat = Seat(Cm, 1)
    seat.msg(3, 1)
    assert ACK_TIMER in seat.timers
    again = seat.expire(ACK_TIMER)
    assert [to for to, _ in again] == [2, ALL]
    assert all(isinstance(packet, Ack) for _, packet in again)
    seat.null(2, 2, following=3)
    assert token_of(seat) is Token.EMPT
    assert seat.expire(ACK_TIMER) == []


def test_a_copy_that_tells_how_far_the_token_came_ends_the_repetition() -> None:
    seat = Seat(Cm, 1)
    seat.msg(3, 1)
    seat.copy(2, hop=1)
    assert token_of(seat) is Token.EMPT
    assert seat.expire(ACK_TIMER) == []


def test_that_another_one_heard_of_the_pass_does_not_mean_that_the_token_arrived() -> None:
    seat = Seat(Cm, 1)
    seat.msg(3, 1)
    seat.copy(3, hop=1)
    assert token_of(seat) is Token.TRST
    seat.copy(3, hop=2)
    assert token_of(seat) is Token.EMPT


def test_a_token_is_not_accepted_twice() -> None:
    seat = Seat(Cm, 2)
    seat.null(1, 1, following=2)
    seat.msg(3, 1)
    assert token_of(seat) is Token.TRST
    seat.null(1, 1, following=2)
    assert token_of(seat) is Token.TRST
    assert seat.drops == ["duplicate"]


def test_the_token_is_passed_after_a_silence_and_that_takes_a_place() -> None:
    """004 §3.2.1 c: "a sequence number is assigned to a NULL message"."""
    seat = Seat(Cm, 1)
    sent = seat.expire(PASS)
    expect_ack(sent, 1, NULL, following=2)
    assert seat.delivered == []
    seat.msg(3, 1)
    seat.ack(2, 2, (3, 1), following=3)
    assert [batch.seq for batch in seat.delivered] == [2]


def test_a_silence_is_short_while_somebody_may_lack_something() -> None:
    config = GroupConfig(hurry_us=300, silence_us=90_000)
    seat = Seat(Cm, 2, config=config)
    seat.null(1, 1, following=2)
    assert seat.timers[PASS] == 90_000
    seat = Seat(Cm, 2, config=config)
    seat.msg(3, 1)
    seat.ack(1, 1, (3, 1), following=2)
    assert seat.timers[PASS] == 300


def test_the_silence_is_not_begun_anew_by_what_arrives_meanwhile() -> None:
    seat = Seat(Cm, 2)
    seat.null(1, 1, following=2)
    assert PASS in seat.timers
    seat.req(3, places=(1,), asked=2)
    assert PASS not in seat.timers


@pytest.mark.parametrize(
    ("guarantee", "acks"),
    [
        (Guarantee.K1, 1),
        (Guarantee.K2, 1),
        (Guarantee.K3, 2),
        (Guarantee.AGREED, 2),
        (Guarantee.K4, 3),
        (Guarantee.SAFE, 4),
        (Guarantee.K7, 4),
    ],
)
def test_a_message_is_delivered_when_enough_are_known_to_have_it(guarantee: Guarantee, acks: int) -> None:
    """004 §3.2.2: "when the sequence number k is sent by sequencer r, receiver r has all up to k".

    Member 5 has the message itself; each ACK says it of one more.
    """
    assert acks_to_deliver(Cm, guarantee) == acks


def test_nothing_overtakes_a_message_that_waits_for_its_level() -> None:
    seat = Seat(Cm, 3, members=5)
    seat.msg(1, 1, guarantee=Guarantee.SAFE)
    seat.msg(2, 1, guarantee=Guarantee.K1)
    seat.ack(1, 1, (1, 1), (2, 1), following=2)
    assert seat.delivered == []


def test_what_all_have_is_stable_and_is_given_up() -> None:
    """004 §3.2.2: "if all processes have a message m, then m will not be requested anymore"."""
    seat = Seat(Cm, 3)
    seat.msg(1, 1)
    seat.ack(1, 1, (1, 1), following=2)
    assert seat.stable == []
    seat.null(2, 2, following=3)
    assert seat.stable == [1]
    order = seat.orderer.order
    assert order is not None
    assert not order.BUF
    assert order.floor == 1


def test_delivery_status_on_a_message_means_nothing_to_cm() -> None:
    """002 §3: that is what Pinwheel adds."""
    seat = Seat(Cm, 1)
    seat.msg(2, 1)
    seat.msg(3, 1, hgsn=1)
    order = seat.orderer.order
    assert order is not None
    assert order.R[3] == 0


def test_several_messages_an_acknowledgement() -> None:
    """004 §3.3.1, RMP: "acknowledgement of multiple messages in a single ack"."""
    for batch, expected in ((64, ((1, 1), (3, 1), (4, 1))), (2, ((1, 1), (3, 1))), (1, ((1, 1),))):
        seat = Seat(Cm, 2, members=4, config=GroupConfig(batch=batch))
        for origin in (1, 3, 4):
            seat.msg(origin, 1)
        expect_ack(seat.null(1, 1, following=2), 2, *expected, following=3)


def test_nothing_is_placed_while_too_much_is_not_known_to_be_with_all() -> None:
    config = GroupConfig(max_unstable=6, batch=64)
    seat = Seat(Cm, 1, config=config)
    seat.ack(2, 1, *[(2, lsn) for lsn in range(1, 7)], following=1)
    for lsn in range(1, 7):
        seat.msg(2, lsn)
    assert seat.msg(3, 1) == []
    sent = seat.expire(PASS)  # but the token goes on
    expect_ack(sent, 7, NULL, following=2)
    seat.null(2, 8, following=3)
    expect_ack(seat.null(3, 9, following=1), 10, (3, 1), following=2)


def test_a_brake_stops_what_is_new_and_nothing_else() -> None:
    seat = Seat(Cm, 1)
    seat.orderer.closed = True
    assert seat.submit(b"waits") == []
    expect_ack(seat.msg(3, 1), 1, (3, 1), following=2)
    seat.orderer.closed = False
    seat.effects = []
    seat.orderer.proceed(0, seat.effects)
    assert [type(packet) for _, packet in seat.sent()] == [Msg]


def test_whom_a_member_waits_for() -> None:
    """004 §3.2.1: the sequencer watches the next one (b); who lacks something, who should have it (c)."""
    seat = Seat(Cm, 1)
    assert seat.orderer.waiting_for is None
    seat.msg(3, 1)
    assert seat.orderer.waiting_for == 2
    seat = Seat(Cm, 2)
    seat.ack(1, 1, (3, 1), following=2)
    assert seat.orderer.waiting_for == 1
    seat = Seat(Cm, 3)
    assert seat.orderer.waiting_for is None
    seat.submit(b"m")
    assert seat.orderer.waiting_for == 1


def test_a_member_is_idle_when_all_have_what_it_sent() -> None:
    seat = Seat(Cm, 3)
    assert seat.orderer.idle
    seat.submit(b"m")
    seat.ack(1, 1, (3, 1), following=2)
    assert not seat.orderer.idle
    seat.null(2, 2, following=3)
    assert seat.orderer.idle


def test_a_member_alone_orders_at_once_and_sends_nothing() -> None:
    seat = Seat(Cm, 1, members=1)
    assert seat.submit(b"a", b"b") == []
    assert [batch.payloads for batch in seat.delivered] == [[b"a", b"b"]]
    assert seat.orderer.idle
    assert PASS not in seat.timers


def test_a_level_chosen_for_the_group_replaces_agreed() -> None:
    seat = Seat(Cm, 2, config=GroupConfig(resilience=2))
    (sent,) = seat.submit(b"m")
    assert isinstance(sent.packet, Msg)
    assert sent.packet.guarantee is Guarantee.K2
    seat = Seat(Cm, 2, config=GroupConfig(resilience=2))
    (sent,) = seat.submit(b"m", guarantee=Guarantee.SAFE)
    assert isinstance(sent.packet, Msg)
    assert sent.packet.guarantee is Guarantee.SAFE


def test_a_message_that_is_too_large_is_refused_with_what_to_do() -> None:
    seat = Seat(Cm, 1, config=GroupConfig(max_message_size=10))
    with pytest.raises(ValueError, match="larger than max_message_size"):
        seat.submit(b"x" * 11)


def test_a_bad_packet_is_dropped_with_its_reason() -> None:
    seat = Seat(Cm, 1)
    seat.hear(2, 64, b"")
    assert seat.drops == ["truncated"]
    seat.hear(2, 80, b"unicast")
    assert seat.drops == ["unknown kind"]
    seat.msg(9, 1, sender=2)
    assert seat.drops == ["not a member's"]


def test_a_frozen_member_hears_nothing_and_what_is_submitted_waits() -> None:
    seat = Seat(Cm, 1)
    told = seat.orderer.unsettled()
    assert seat.submit(b"m") == []
    assert seat.msg(3, 1) == []
    assert seat.expire(PASS) == []
    assert seat.orderer.unsettled() is told
    assert seat.orderer.waiting_for is None
    sent = seat.install(view_of(3)._replace(id=ConfigurationId(2, 1)))
    assert [type(packet) for _, packet in sent] == [Msg, Ack]
