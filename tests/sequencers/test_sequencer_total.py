"""TOTAL (003): one member, its fellows played by the test."""

from __future__ import annotations

import pytest
from seat import ALL, Seat, Sent, view_of

from ordercast.core.contract import Originate, Unicast
from ordercast.core.identity import Guarantee
from ordercast.sequencers import packets
from ordercast.sequencers.packets import (
    Bcast,
    CumSeqAck,
    Msg,
    NewView,
    NewViewAck,
    Request,
    Resend,
    encode_bcast,
    encode_msg,
    encode_numbers,
    encode_resend,
)
from ordercast.sequencers.total import ACK_TIMER, IDLE, Total
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.contract import Settled

REQUEST_TIMER, RESEND_TIMER, STATUS_TIMER, VIEW_TIMER = (
    f"order {name}" for name in ("request", "resend", "status", "new-view")
)


def some_msg(
    origin: int, lsn: int, hgsn: int = 0, guarantee: Guarantee = Guarantee.AGREED, payload: bytes = b"m"
) -> Msg:
    return encode_msg(b"", (origin, lsn), lsn, hgsn, guarantee, 0, [payload])


def request(seat: Seat, origin: int, lsn: int, hgsn: int = 0, payload: bytes = b"m") -> list[Sent]:
    return seat.hear(origin, packets.TOTAL_REQUEST, some_msg(origin, lsn, hgsn, payload=payload).raw)


def bcast(
    seat: Seat,
    seq: int,
    origin: int,
    lsn: int,
    *,
    stable: int = 0,
    hgsn: int = 0,
    guarantee: Guarantee = Guarantee.AGREED,
) -> list[Sent]:
    body = encode_bcast(b"", seq, stable, some_msg(origin, lsn, hgsn, guarantee))
    return seat.hear(1, packets.TOTAL_BCAST, body)


def cum_ack(seat: Seat, sender: int, seq: int, stable: int = 0) -> list[Sent]:
    return seat.hear(sender, packets.TOTAL_CUM_SEQ_ACK, encode_numbers(b"", seq, stable))


def seqs_of(sent: list[Sent]) -> list[tuple[int, int, tuple[int, int]]]:
    return [(to, packet.seq, packet.msg.key) for to, packet in sent if isinstance(packet, Bcast)]


def test_the_first_listed_member_is_the_sequencer() -> None:
    """003, "Sequencer"."""
    assert Seat(Total, 1).orderer.holder == 1
    assert Seat(Total, 2).orderer.holder == 1
    assert Seat(Total, 2).orderer.next_holder == 2


def test_a_new_view_begins_with_its_first_sequence_id_until_all_have_it() -> None:
    """003, "View Changes": TOTAL_NEW_VIEW, and TOTAL_NEW_VIEW_ACK in answer."""
    seat = Seat(Total, 1)
    assert seat.sent() == [Sent(ALL, NewView(1))]
    seat.hear(2, packets.TOTAL_NEW_VIEW_ACK, b"")
    assert seat.expire(VIEW_TIMER) == [Sent(ALL, NewView(1))]
    seat.hear(3, packets.TOTAL_NEW_VIEW_ACK, b"")
    assert seat.expire(VIEW_TIMER) == []
    member = Seat(Total, 2)
    assert member.hear(1, packets.TOTAL_NEW_VIEW, encode_numbers(b"", 1)) == [Sent(1, NewViewAck())]
    assert member.hear(3, packets.TOTAL_NEW_VIEW, encode_numbers(b"", 1)) == []
    assert member.drops == ["other sequencer"]


def test_a_member_sends_only_to_the_sequencer() -> None:
    """003, "Members": "it sends it only to the sequencer instead of the entire group"."""
    seat = Seat(Total, 2)
    (sent,) = seat.submit(b"a", b"b")
    assert sent.to == 1
    assert isinstance(sent.packet, Request)
    assert sent.packet.msg.chunks == [b"a", b"b"]
    kinds = [type(effect) for effect in seat.effects]
    assert kinds.index(Originate) < kinds.index(Unicast)


def test_a_member_has_a_window_of_requests() -> None:
    seat = Seat(Total, 2, config=GroupConfig(window=3))
    sent = [one for n in range(6) for one in seat.submit(b"%d" % n)]
    assert len(sent) == 3
    (more,) = bcast(seat, 1, 2, 1)
    assert isinstance(more.packet, Request)
    assert more.packet.msg.chunks == [b"3", b"4", b"5"]


def test_the_sequencer_gives_ids_without_skipping_or_repeating_one() -> None:
    """003, "Sequencer"."""
    seat = Seat(Total, 1)
    assert seqs_of(request(seat, 2, 1)) == [(ALL, 1, (2, 1))]
    assert seqs_of(request(seat, 3, 1)) == [(ALL, 2, (3, 1))]
    assert seqs_of(seat.submit(b"own")) == [(ALL, 3, (1, 1))]
    assert seqs_of(request(seat, 2, 3)) == []  # not before the second
    assert seqs_of(request(seat, 2, 2)) == [(ALL, 4, (2, 2)), (ALL, 5, (2, 3))]
    assert seqs_of(request(seat, 2, 1)) == []


def test_a_request_that_comes_again_tells_its_sender_how_far_things_are() -> None:
    seat = Seat(Total, 1)
    request(seat, 2, 1)
    assert request(seat, 2, 1) == [Sent(2, CumSeqAck(1, 0))]
    assert seat.drops == ["duplicate"]


def test_a_request_is_repeated_until_it_comes_back() -> None:
    seat = Seat(Total, 2)
    seat.submit(b"m")
    (again,) = seat.expire(REQUEST_TIMER)
    assert again.to == 1
    bcast(seat, 1, 2, 1)
    assert seat.expire(REQUEST_TIMER) == []


def test_messages_are_delivered_in_the_order_of_their_ids() -> None:
    """003, "Members": kept in a queue until the next expected one is there."""
    seat = Seat(Total, 2)
    bcast(seat, 2, 3, 1)
    assert seat.delivered == []
    bcast(seat, 1, 1, 1)
    assert [batch.seq for batch in seat.delivered] == [1, 2]
    bcast(seat, 1, 1, 1)
    assert seat.drops == ["duplicate"]
    assert seat.delivered == []


def test_a_gap_is_requested_in_a_window_and_with_back_off() -> None:
    """003, "Retransmission" and "Future Improvements"."""
    seat = Seat(Total, 2, config=GroupConfig(max_requests=3))
    bcast(seat, 6, 3, 1)
    assert seat.expire(RESEND_TIMER) == [Sent(1, Resend((1, 2, 3)))]
    pause = seat.timers[RESEND_TIMER]
    assert seat.expire(RESEND_TIMER) == [Sent(1, Resend((1, 2, 3)))]
    assert seat.timers[RESEND_TIMER] == 2 * pause


def test_the_sequencer_sends_again_what_was_asked_for_to_who_asked() -> None:
    seat = Seat(Total, 1)
    request(seat, 2, 1)
    request(seat, 2, 2)
    sent = seat.hear(3, packets.TOTAL_RESEND, encode_resend(b"", [1, 2, 7]))
    assert seqs_of(sent) == [(3, 1, (2, 1)), (3, 2, (2, 2))]
    member = Seat(Total, 2)
    assert member.hear(3, packets.TOTAL_RESEND, encode_resend(b"", [1])) == []
    assert member.drops == ["other sequencer"]


def test_what_is_sent_again_at_a_time_is_bounded() -> None:
    seat = Seat(Total, 1, config=GroupConfig(packet_size=60_000, datagram_size=60_000))
    for lsn in range(1, 11):
        request(seat, 2, lsn, payload=bytes(50_000))
    sent = seat.hear(3, packets.TOTAL_RESEND, encode_resend(b"", list(range(1, 11))))
    assert len(sent) == 6


def test_a_lost_suffix_is_noticed() -> None:
    """003, "Future Improvements": "each server knew the sequence id of the last broadcast message"."""
    sequencer = Seat(Total, 1)
    request(sequencer, 2, 1)
    assert sequencer.expire(STATUS_TIMER) == [Sent(ALL, CumSeqAck(1, 0))]
    member = Seat(Total, 3)
    cum_ack(member, 1, 1)
    assert member.expire(RESEND_TIMER) == [Sent(1, Resend((1,)))]


def test_an_idle_sequencer_tells_its_last_id_from_time_to_time() -> None:
    seat = Seat(Total, 1)
    assert seat.expire(IDLE) == [Sent(ALL, CumSeqAck(0, 0))]
    assert IDLE in seat.timers
    assert IDLE not in Seat(Total, 1, members=1).timers


def test_members_acknowledge_every_few_packets_or_after_a_moment() -> None:
    seat = Seat(Total, 2, config=GroupConfig(window=8))
    sent = [one for seq in range(1, 5) for one in bcast(seat, seq, 1, seq)]
    assert sent == [Sent(ALL, CumSeqAck(4, 0))]
    bcast(seat, 5, 1, 5)
    assert seat.expire(ACK_TIMER) == [Sent(ALL, CumSeqAck(5, 0))]
    assert seat.expire(ACK_TIMER) == []


def test_acknowledgements_shrink_the_buffers() -> None:
    """003: "a cumulative acknowledgement of all messages up to the specified sequence id"."""
    seat = Seat(Total, 1)
    for lsn in range(1, 4):
        request(seat, 2, lsn)
    order = seat.orderer.order
    assert order is not None
    assert len(order.BUF) == 3
    cum_ack(seat, 3, 3)
    cum_ack(seat, 2, 2)
    assert seat.stable == [1, 2]
    assert len(order.BUF) == 1
    request(seat, 2, 4, hgsn=3)  # a request says as much
    assert order.floor == 3


def test_an_acknowledgement_that_was_lost_is_repeated_when_the_sequencer_shows_that_it_lacks_it() -> None:
    seat = Seat(Total, 2)
    for seq in range(1, 5):
        bcast(seat, seq, 1, seq)
    assert cum_ack(seat, 1, 4, stable=0) == [Sent(ALL, CumSeqAck(4, 0))]
    assert cum_ack(seat, 1, 4, stable=4) == []
    assert seat.stable == [1, 2, 3, 4]


def test_levels() -> None:
    """The paper delivers at once; here that is level 1. What the sequencer broadcast, it has."""
    for guarantee, acks in ((Guarantee.K1, 0), (Guarantee.K2, 0), (Guarantee.AGREED, 1), (Guarantee.SAFE, 3)):
        seat = Seat(Total, 2, members=5)
        bcast(seat, 1, 1, 1, guarantee=guarantee)
        count = 0
        while not seat.delivered:
            count += 1
            cum_ack(seat, 2 + count, 1)
        assert count == acks


def test_what_is_stable_comes_with_every_broadcast() -> None:
    seat = Seat(Total, 2, members=5)
    bcast(seat, 1, 1, 1, guarantee=Guarantee.SAFE)
    assert seat.delivered == []
    bcast(seat, 2, 1, 2, stable=1)
    assert [batch.seq for batch in seat.delivered] == [1]


def test_a_single_acknowledgement_is_understood() -> None:
    seat = Seat(Total, 1)
    request(seat, 2, 1)
    request(seat, 2, 2)
    order = seat.orderer.order
    assert order is not None
    seat.hear(3, packets.TOTAL_SEQ_ACK, encode_numbers(b"", 2))
    assert order.R[3] == 0
    seat.hear(3, packets.TOTAL_SEQ_ACK, encode_numbers(b"", 1))
    assert order.R[3] == 1


def test_a_unicast_passes_by() -> None:
    """003, appendix: "A unicast message not to be processed by the TOTAL layer"."""
    seat = Seat(Total, 2)
    assert seat.hear(3, packets.TOTAL_UNICAST, b"hello") == []
    assert seat.delivered == []
    assert seat.orderer.stats["unicasts"] == 1


def test_the_sequencer_places_nothing_while_too_much_is_not_with_all() -> None:
    seat = Seat(Total, 1, config=GroupConfig(max_unstable=6))
    placed = [seqs_of(request(seat, 2, lsn)) for lsn in range(1, 9)]
    assert [len(one) for one in placed] == [1, 1, 1, 1, 1, 1, 0, 0]
    assert seat.orderer.waiting_for == 2
    cum_ack(seat, 2, 6)
    sent = cum_ack(seat, 3, 1)
    assert seqs_of(sent) == [(ALL, 7, (2, 7))]
    assert seat.orderer.waiting_for == 3


def test_the_sequencers_own_messages_wait_for_the_others_to_have_them() -> None:
    seat = Seat(Total, 1, config=GroupConfig(window=8))
    sent = [one for n in range(12) for one in seqs_of(seat.submit(b"%d" % n))]
    assert [seq for _, seq, _ in sent] == list(range(1, 9))
    cum_ack(seat, 2, 4)
    assert seqs_of(cum_ack(seat, 3, 4)) == [(ALL, 9, (1, 9))]


def test_whom_a_member_waits_for() -> None:
    seat = Seat(Total, 2)
    assert seat.orderer.waiting_for is None
    seat.submit(b"m")
    assert seat.orderer.waiting_for == 1


def test_packets_of_others_than_the_sequencer_are_not_broadcasts() -> None:
    seat = Seat(Total, 2)
    seat.hear(3, packets.TOTAL_BCAST, encode_bcast(b"", 1, 0, some_msg(3, 1)))
    assert seat.drops == ["other sequencer"]
    request(seat, 3, 1)
    assert seat.drops == ["other sequencer"]
    bcast(seat, 1, 9, 1)
    assert seat.drops == ["not a member's"]
    sequencer = Seat(Total, 1)
    sequencer.hear(3, packets.TOTAL_REQUEST, some_msg(2, 1).raw)
    assert sequencer.drops == ["not its sender's"]
    sequencer.msg(2, 1)
    assert sequencer.drops == ["unknown kind"]


def test_there_is_no_token_list() -> None:
    seat = Seat(Total, 2)
    with pytest.raises(AssertionError, match="total has no token list"):
        seat.install(view_of(3, core=(1, 2), turn=1), Settled(0, {}))


def test_a_sequencer_alone_orders_at_once() -> None:
    seat = Seat(Total, 1, members=1, config=GroupConfig(window=1, packet_size=256))
    assert seat.submit(*[b"x" * 150] * 20) == []
    assert sum(len(batch.payloads) for batch in seat.delivered) == 20
    assert seat.orderer.idle
