"""DTP (002 §4) and Pinwheel (002 §3, §5): one member, its fellows played by the test."""

from __future__ import annotations

from seat import ALL, Seat, Sent

from ordercast.core.identity import Guarantee
from ordercast.sequencers.dtp import Acknowledged, Dtp
from ordercast.sequencers.member import Member
from ordercast.sequencers.moving import PASS, Token
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import NOBODY, Ack, Copy, Msg, Req
from ordercast.sequencers.pinwheel import Pinwheel
from ordercast.viewsync.config import GroupConfig


def ltm_of(seat: Seat) -> Dtp:
    assert isinstance(seat.orderer.rules, Dtp)
    return seat.orderer.rules


def order_of(seat: Seat) -> Order:
    assert seat.orderer.order is not None
    return seat.orderer.order


def test_initially() -> None:
    """002 §4.1: S.Token_1 is HOLD, S.ACK is DONE, N[k] = 1 and R[k] = 0 for all k."""
    first, other = Seat(Dtp, 1), Seat(Dtp, 2)
    assert ltm_of(first).S_TOKEN is Token.HOLD
    assert ltm_of(other).S_TOKEN is Token.EMPT
    assert ltm_of(other).S_ACK(order_of(other)) is Acknowledged.DONE
    assert set(order_of(other).N.values()) == {1}
    assert set(order_of(other).R.values()) == {0}
    assert not order_of(other).BUF


def test_before_there_is_a_view_nothing_waits_for_an_acknowledgement() -> None:
    ltm = Member(Dtp, 1, GroupConfig())
    assert ltm.idle
    assert ltm.next_holder == NOBODY


def test_an_update_is_deferred_until_the_last_one_is_acknowledged() -> None:
    """002 §4.2, "Update arrival"."""
    seat = Seat(Dtp, 2)
    (msg,) = seat.submit(b"U")
    assert isinstance(msg.packet, Msg)
    assert (msg.packet.key, msg.packet.hgsn) == ((2, 1), 0)
    assert ltm_of(seat).S_ACK(order_of(seat)) is Acknowledged.WAIT
    assert order_of(seat).N[2] == 2
    assert (2, 1) in order_of(seat).BUF
    assert seat.submit(b"later") == []
    (msg,) = seat.ack(1, 1, (2, 1), following=3)
    assert isinstance(msg.packet, Msg)
    assert (msg.packet.key, msg.packet.hgsn) == ((2, 2), 1)


def test_a_holder_acknowledges_its_own_update() -> None:
    """002 §4.2: gsn is R_i[i] after it was incremented; S.Token becomes TRST and S.ACK DONE."""
    seat = Seat(Dtp, 1)
    _, ack = seat.submit(b"U")
    assert ack == Sent(ALL, Ack(0, 1, 1, 2, ((1, 1),)))
    assert order_of(seat).R[1] == 1
    assert ltm_of(seat).S_TOKEN is Token.TRST
    assert ltm_of(seat).S_ACK(order_of(seat)) is Acknowledged.DONE


def test_an_acknowledgement_places_one_message() -> None:
    seat = Seat(Dtp, 2, config=GroupConfig(batch=64))
    seat.msg(1, 1)
    seat.msg(3, 1)
    (ack,) = seat.ack(1, 1, hop=1, following=2)
    assert isinstance(ack.packet, Ack)
    assert ack.packet.keys == ((1, 1),)


def test_delivery_status_comes_with_every_message() -> None:
    """002 §4.2, "Receiving MSG message": R_i[j] becomes h."""
    seat = Seat(Dtp, 1, members=4)
    seat.msg(2, 1)
    seat.msg(3, 1, hgsn=1)
    assert order_of(seat).R == {1: 1, 2: 0, 3: 1, 4: 0}
    assert order_of(seat).N[3] == 2
    seat.req(4, hgsn=1, asked=2)
    assert order_of(seat).R[4] == 1


def test_a_gap_in_lsns_is_requested() -> None:
    """002 §4.2: "If l > N_i[j], it recognizes that it lost messages from LTM_j"."""
    seat = Seat(Dtp, 3)
    seat.msg(2, 3)
    assert seat.expire("order req") == [Sent(ALL, Req(0, 1, ((2, 1), (2, 2)), ()))]
    seat.msg(2, 1)
    assert order_of(seat).gaps == {2: 2}
    seat.msg(2, 2)
    assert order_of(seat).gaps == {}
    assert order_of(seat).N[2] == 4
    assert seat.expire("order req") == []


def test_the_origin_answers_for_a_message_that_has_no_place() -> None:
    seat = Seat(Dtp, 2)
    seat.submit(b"U")
    (sent,) = seat.req(3, keys=((2, 1), (1, 1)), asked=1)
    assert sent.to == 3
    assert isinstance(sent.packet, Msg)


def test_a_null_ack_has_no_gsn() -> None:
    """002 §4.2, "Timeout": ACK(i, NULL, R_i[i], m)."""
    seat = Seat(Dtp, 1, members=4)
    seat.msg(2, 1)
    seat.ack(2, 2, hop=2, following=1)
    assert order_of(seat).R[2] == 1
    sent = seat.expire(PASS)
    assert sent == [Sent(ALL, Ack(0, 3, 2, 3, ()))]
    assert order_of(seat).hgsn == 1


def test_a_null_ack_that_tells_of_more_shows_what_was_lost() -> None:
    """002 §4.2: "If g > R_i[i], LTM_i recognizes that it lost ACKs"."""
    seat = Seat(Dtp, 3)
    seat.ack(2, 2, hop=2, following=1)
    assert seat.expire("order req") == [Sent(ALL, Req(0, 2, (), (1,)))]


def test_tokens_that_place_nothing_are_told_apart() -> None:
    """A null ACK leaves the gsn as it was; a copy of an old one must not look like the token."""
    seat = Seat(Dtp, 2, members=2)
    seat.ack(1, 1, hop=1, following=2)
    seat.expire(PASS)
    assert ltm_of(seat).S_TOKEN is Token.TRST
    seat.ack(1, 1, hop=1, following=2)
    assert ltm_of(seat).S_TOKEN is Token.TRST
    seat.ack(1, 1, hop=3, following=2)
    assert ltm_of(seat).S_TOKEN is Token.HOLD


def test_an_idle_token_visits_everybody() -> None:
    holders = [1]
    seats = {ltm: Seat(Dtp, ltm, members=5) for ltm in range(1, 6)}
    for _ in range(9):
        (sent,) = seats[holders[-1]].expire(PASS)
        assert isinstance(sent.packet, Ack)
        for ltm, seat in seats.items():
            if ltm != holders[-1]:
                seat.ack(holders[-1], 1, hop=sent.packet.hop, following=sent.packet.next)
        holders.append(sent.packet.next)
    assert holders == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]


def test_f_resilience() -> None:
    """002 §4.2: delivery is deferred "until |{R_i[k] | R_i[k] >= g}| >= F + 1"."""
    seat = Seat(Dtp, 5, members=5)
    seat.msg(1, 1, guarantee=Guarantee.of(4))
    seat.ack(1, 1, (1, 1), following=2)
    assert seat.delivered == []
    seat.msg(3, 1, hgsn=1)
    assert seat.delivered == []
    seat.msg(4, 1, hgsn=1)
    assert [batch.seq for batch in seat.delivered] == [1]


def test_pinwheel_has_several_messages_on_the_way() -> None:
    """002 §5: "up to m multicast messages without being acknowledged"."""
    seat = Seat(Pinwheel, 2, config=GroupConfig(window=3))
    sent = [packet for n in range(5) for _, packet in seat.submit(b"%d" % n)]
    assert [packet.chunks for packet in sent if isinstance(packet, Msg)] == [[b"0"], [b"1"], [b"2"]]
    (more,) = seat.ack(1, 1, (2, 1), (2, 2), following=3)
    assert isinstance(more.packet, Msg)
    assert more.packet.chunks == [b"3", b"4"]


def test_pinwheel_acknowledges_several_at_once_each_sender_in_its_order() -> None:
    """002 §5: "the token holder to acknowledge one or more multicast messages"."""
    seat = Seat(Pinwheel, 2)
    seat.msg(3, 2)
    seat.msg(1, 1)
    seat.msg(3, 1)
    (ack,) = seat.null(1, 1, following=2)
    assert isinstance(ack.packet, Ack)
    assert ack.packet.keys == ((1, 1), (3, 1))
    assert ack.packet.next == 3


def test_pinwheel_repeats_a_few_of_its_messages_at_a_time() -> None:
    seat = Seat(Pinwheel, 2, config=GroupConfig(window=8))
    for n in range(8):
        seat.submit(b"%d" % n)
    assert len(seat.expire("order msg")) == 4
    large = Seat(Pinwheel, 2, config=GroupConfig(window=8, packet_size=60_000))
    for _ in range(8):
        large.submit(bytes(50_000))
    assert len(large.expire("order msg")) == 1


def test_pinwheel_is_stable_by_the_minimum() -> None:
    """002 §3: "when g <= min({R_i[k]})"."""
    seat = Seat(Pinwheel, 3, members=4)
    seat.msg(1, 1)
    seat.ack(1, 1, (1, 1), following=2)
    seat.msg(4, 1, hgsn=1)
    assert seat.stable == []
    seat.msg(2, 1, hgsn=1)
    assert seat.stable == [1]


def test_a_copy_for_who_asks_for_many_is_bounded() -> None:
    seat = Seat(Pinwheel, 3, config=GroupConfig(max_requests=2))
    for lsn in range(1, 6):
        seat.msg(2, lsn)
    seat.ack(1, 1, *[(2, lsn) for lsn in range(1, 6)], following=2)
    (copy,) = seat.req(2, places=(1, 2, 3, 4, 5), asked=3)
    assert isinstance(copy.packet, Copy)
    assert [place for place, _ in copy.packet.places] == [1, 2]
