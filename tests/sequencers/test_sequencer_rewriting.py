"""Packets with something in them changed: all else is as it was, to the byte where nothing was changed."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.core.identity import ConfigurationId, Guarantee
from ordercast.core.wire import Malformed
from ordercast.sequencers import packets
from ordercast.sequencers.declared import KINDS
from ordercast.sequencers.packets import NULL, Ack, Acked, Answered, Bcast, Copy, Msg, Placed, Req
from ordercast.sequencers.rewriting import Carried, rewrite
from ordercast.viewsync.header import HEADER_SIZE, header, read_header
from ordercast.viewsync.packets import (
    NO_ROUND,
    Decide,
    Decision,
    Estimate,
    Group,
    Heartbeat,
    Member,
    MembershipPacket,
    Round,
    encode,
    encode_decision,
)
from ordercast.viewsync.parts import in_parts

VIEW = ConfigurationId(3, 1)
GROUP = Group(1_000, 1)
MEMBERS = (Member(1, 0, True), Member(2, 1, True))
DECISION = encode_decision(Decision(False, GROUP, VIEW, 2, MEMBERS, 1, 4, ()))


def head(kind: int) -> bytes:
    return header(kind, VIEW, 2, 0)


def message(kind: int = packets.MSG) -> Msg:
    return packets.encode_msg(head(kind), (2, 5), 7, 3, Guarantee.SAFE, 0, [b"one", b"", b"three"])


def told(packet: MembershipPacket) -> bytes:
    kind, body = encode(packet)
    return head(kind) + body


ORDERED = {
    "msg": message().raw,
    "request": head(packets.TOTAL_REQUEST) + message().body,
    "bcast": packets.encode_bcast(head(packets.TOTAL_BCAST), 4, 3, message(packets.TOTAL_REQUEST)),
    "ack": packets.encode_ack(head(packets.ACK), Ack(1, 2, 3, 1, ((2, 5), NULL))),
    "req": packets.encode_req(head(packets.REQ), Req(3, 1, ((2, 5),), (4,))),
    "copy": packets.encode_copy(head(packets.COPY), Copy(1, 2, ((4, Placed(2, 5, 1)),))),
    "resend": packets.encode_resend(head(packets.TOTAL_RESEND), [3, 4]),
    "gone": packets.encode_numbers(head(packets.GONE), 9),
    "new view": packets.encode_numbers(head(packets.TOTAL_NEW_VIEW), 9),
    "new view ack": head(packets.TOTAL_NEW_VIEW_ACK),
    "cum seq ack": packets.encode_numbers(head(packets.TOTAL_CUM_SEQ_ACK), 9, 8),
    "seq ack": packets.encode_numbers(head(packets.TOTAL_SEQ_ACK), 9),
    "unicast": head(packets.TOTAL_UNICAST) + b"payload",
    "request of a backup": head(packets.PB_REQUEST) + message().body,
    "update": packets.encode_update(head(packets.PB_UPDATE), 2, 4, 3, message(packets.PB_REQUEST)),
    "acknowledged": packets.encode_reached(head(packets.PB_ACK), Acked(2, 9)),
    "answered": packets.encode_reached(head(packets.PB_ANSWERED), Answered(2, 9, 8)),
    "resend of a backup": packets.encode_resend(head(packets.PB_RESEND), [3, 4]),
    "gone at a backup": packets.encode_numbers(head(packets.PB_GONE), 9),
}
MEMBERSHIP = {
    "heartbeat": told(Heartbeat(GROUP, 0, False)),
    "decide": told(Decide(1, DECISION)),
    "estimate of nothing": told(Estimate(1, Round(2, 1), NO_ROUND, b"")),
}
ALL = {
    **ORDERED,
    **MEMBERSHIP,
    **{f"part {place}": part for place, part in enumerate(in_parts(message().raw + bytes(4_000), 1_452))},
}


def test_there_is_one_of_every_kind_of_the_orderers() -> None:
    assert {read_header(data).kind for data in ORDERED.values()} == KINDS.keys()


@pytest.mark.parametrize("data", ALL.values(), ids=ALL)
def test_what_nobody_changes_stays_the_same_to_the_byte(data: bytes) -> None:
    assert rewrite(data, lambda carried: carried) == data


@pytest.mark.parametrize("data", ALL.values(), ids=ALL)
def test_another_sender_changes_the_header_alone(data: bytes) -> None:
    def by_another(carried: Carried) -> Carried:
        return carried._replace(header=carried.header._replace(sender=77))

    forged = rewrite(data, by_another)
    assert read_header(forged) == read_header(data)._replace(sender=77)
    assert forged[HEADER_SIZE:] == data[HEADER_SIZE:]


def test_a_field_of_the_packet_is_changed_and_no_other() -> None:
    def later(carried: Carried) -> Carried:
        return carried._replace(packet=carried.packet._replace(seq=40))

    found: Any = packets.decode(rewrite(ORDERED["bcast"], later))
    before: Any = packets.decode(ORDERED["bcast"])
    assert isinstance(found, Bcast)
    assert (found.seq, found.stable, found.msg.body) == (40, before.stable, before.msg.body)


def test_what_a_decision_says_can_be_changed_within_the_packet_that_carries_it() -> None:
    seen: list[Decision | None] = []

    def of_one(carried: Carried) -> Carried:
        seen.append(carried.decision)
        assert carried.decision is not None
        return carried._replace(decision=carried.decision._replace(turn=9))

    def as_it_is(carried: Carried) -> Carried:
        seen.append(carried.decision)
        return carried

    rewritten = rewrite(MEMBERSHIP["decide"], of_one)
    rewrite(rewritten, as_it_is)
    assert [decision and decision.turn for decision in seen] == [2, 9]
    rewrite(MEMBERSHIP["estimate of nothing"], as_it_is)
    assert seen[-1] is None, "who has adopted nothing carries no decision"


@pytest.mark.parametrize("data", [b"", b"garbage", head(packets.ACK)], ids=["empty", "garbage", "truncated"])
def test_what_is_no_packet_is_not_rewritten(data: bytes) -> None:
    with pytest.raises(Malformed):
        rewrite(data, lambda carried: carried)
