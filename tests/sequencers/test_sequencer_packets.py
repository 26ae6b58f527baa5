"""The packets of the orderers: what is written is read, and nothing else is accepted."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from ordercast.core.identity import ConfigurationId, Guarantee
from ordercast.core.wire import MAX_PACKET, Malformed
from ordercast.sequencers import packets
from ordercast.sequencers.declared import KINDS
from ordercast.sequencers.fields import MAX_ENTRIES
from ordercast.sequencers.packets import (
    NULL,
    Ack,
    Acked,
    Answered,
    Bcast,
    Copy,
    CumSeqAck,
    Gone,
    Msg,
    NewView,
    NewViewAck,
    Placed,
    Req,
    Request,
    Resend,
    SeqAck,
    TotalUnicast,
    Update,
    decode,
    decode_body,
    encode_ack,
    encode_bcast,
    encode_copy,
    encode_msg,
    encode_numbers,
    encode_reached,
    encode_req,
    encode_resend,
    encode_update,
    passed_on,
    peek_bcast,
    peek_update,
)
from ordercast.viewsync.header import FIRST_ORDER_KIND, HEADER_SIZE, header, read_header

VIEW = ConfigurationId(3, 1)

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
nodes = some.integers(1, 2**31 - 1)
counts = some.integers(1, 2**62 - 1)
statuses = some.integers(0, 2**62 - 1)
turns = some.integers(0, 2**32 - 1)
keys = some.tuples(nodes, counts)
keys_or_null = keys | some.just(NULL)


def head(kind: int, sender: int = 2) -> bytes:
    return header(kind, VIEW, sender, 0)


def msg(
    kind: int = packets.MSG,
    key: tuple[int, int] = (2, 1),
    guarantee: Guarantee = Guarantee.AGREED,
    flags: int = 0,
    *chunks: bytes,
) -> Msg:
    return encode_msg(head(kind), key, 7, 3, guarantee, flags, list(chunks) or [b"one", b"", b"three"])


def test_every_kind_has_a_name_and_is_the_orderers() -> None:
    assert len(set(KINDS.values())) == len(KINDS) == 19
    assert min(KINDS) == FIRST_ORDER_KIND
    assert max(KINDS) < 256


@quick
@given(
    keys,
    counts,
    statuses,
    some.sampled_from(Guarantee),
    some.integers(0, 3),
    some.lists(some.binary(min_size=1, max_size=300), min_size=1, max_size=40),
)
def test_a_packet_of_messages_is_read_as_it_was_written(
    key: tuple[int, int], number: int, hgsn: int, guarantee: Guarantee, flags: int, chunks: list[bytes]
) -> None:
    sent = encode_msg(head(packets.MSG), key, number, hgsn, guarantee, flags, chunks)
    assert decode(sent.raw) == sent
    request = decode(head(packets.TOTAL_REQUEST) + sent.body)
    assert isinstance(request, Request)
    assert request.msg[:7] == sent[:7]
    assert decode_body(sent.body, 0)[:7] == sent[:7]


@quick
@given(counts, statuses)
def test_the_bytes_of_a_request_are_broadcast_as_they_are(seq: int, stable: int) -> None:
    """003, "Sequencer": it forwards messages on behalf of a member."""
    asked = msg(packets.TOTAL_REQUEST)
    data = encode_bcast(head(packets.TOTAL_BCAST, 1), seq, stable, asked)
    bcast = decode(data)
    assert isinstance(bcast, Bcast)
    assert (bcast.seq, bcast.stable, bcast.msg.body) == (seq, stable, asked.body)
    assert bcast.msg[:7] == asked[:7]
    assert peek_bcast(data) == (seq, stable, *asked.key)


@quick
@given(turns, counts, some.integers(0, 10_000))
def test_an_update_is_as_long_as_a_broadcast_of_total(turn: int, place: int, behind: int) -> None:
    asked, stable = msg(packets.PB_REQUEST), max(0, place - behind)
    data = encode_update(head(packets.PB_UPDATE, 1), turn, place, stable, asked)
    update = decode(data)
    assert isinstance(update, Update)
    assert update[:3] == (turn, place, stable)
    assert update.msg.body == asked.body
    assert peek_update(data) == (turn, place, stable, *asked.key)
    assert len(data) == len(encode_bcast(head(packets.TOTAL_BCAST, 1), place, stable, asked))


@pytest.mark.parametrize("stable", [0, 5, 2**40 - 2**32, 2**40 - 2**32 + 1])
def test_an_update_never_says_that_more_is_stable_than_is(stable: int) -> None:
    update = decode(encode_update(head(packets.PB_UPDATE, 1), 0, 2**40, stable, msg(packets.PB_REQUEST)))
    assert isinstance(update, Update)
    assert update.stable == 0


def test_what_is_passed_on_names_its_origin_but_comes_from_who_sends_it() -> None:
    sent = msg(key=(2, 9))
    data = passed_on(head(packets.MSG, 5), sent)
    assert read_header(data).sender == 5
    again = decode(data)
    assert isinstance(again, Msg)
    assert again.key == (2, 9)
    assert again.chunks == sent.chunks


@quick
@given(turns, counts, counts, nodes, some.lists(keys_or_null, max_size=70))
def test_an_ack_is_read_as_it_was_written(
    turn: int, hop: int, first: int, following: int, placed: list[tuple[int, int]]
) -> None:
    ack = Ack(turn, hop, first, following, tuple(placed))
    assert decode(encode_ack(head(packets.ACK), ack)) == ack
    assert ack.last == first - 1 + len(placed)


@quick
@given(statuses, nodes, some.lists(keys, max_size=40), some.lists(counts, max_size=40))
def test_a_req_is_read_as_it_was_written(
    hgsn: int, asked: int, wanted: list[tuple[int, int]], places: list[int]
) -> None:
    req = Req(hgsn, asked, tuple(wanted), tuple(places))
    assert decode(encode_req(head(packets.REQ), req)) == req


@quick
@given(turns, statuses, some.lists(some.tuples(counts, keys_or_null, nodes), max_size=40))
def test_a_copy_is_read_as_it_was_written(
    turn: int, hop: int, rows: list[tuple[int, tuple[int, int], int]]
) -> None:
    copy = Copy(turn, hop, tuple((place, Placed(*key, by)) for place, key, by in rows))
    assert decode(encode_copy(head(packets.COPY), copy)) == copy


@quick
@given(counts, statuses, some.lists(counts, max_size=60), some.binary(max_size=50))
def test_the_small_ones_are_read_as_they_were_written(
    number: int, stable: int, seqs: list[int], payload: bytes
) -> None:
    assert decode(encode_numbers(head(packets.GONE), number)) == Gone(number)
    assert decode(encode_numbers(head(packets.TOTAL_NEW_VIEW), number)) == NewView(number)
    assert decode(head(packets.TOTAL_NEW_VIEW_ACK)) == NewViewAck()
    assert decode(encode_numbers(head(packets.TOTAL_CUM_SEQ_ACK), number, stable)) == CumSeqAck(
        number, stable
    )
    assert decode(encode_numbers(head(packets.TOTAL_SEQ_ACK), number)) == SeqAck(number)
    assert decode(encode_resend(head(packets.TOTAL_RESEND), seqs)) == Resend(tuple(seqs))
    for reached in (Acked(7, number), Answered(7, number, stable)):
        kind = packets.PB_ACK if isinstance(reached, Acked) else packets.PB_ANSWERED
        assert decode(encode_reached(head(kind), reached)) == reached
    assert decode(head(packets.TOTAL_UNICAST) + payload) == TotalUnicast(payload)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(some.sampled_from(sorted(KINDS)), some.binary(max_size=120))
def test_garbage_is_read_within_bounds_or_refused(kind: int, rest: bytes) -> None:
    try:
        packet = decode(head(kind) + rest)
    except Malformed:
        return
    assert isinstance(packet, tuple)
    assert kind in KINDS


WHOLE = [
    msg().raw,
    encode_ack(head(packets.ACK), Ack(0, 1, 1, 3, ((2, 1), NULL))),
    encode_req(head(packets.REQ), Req(4, 1, ((2, 1),), (5,))),
    encode_copy(head(packets.COPY), Copy(0, 3, ((1, Placed(2, 1, 1)),))),
    encode_numbers(head(packets.GONE), 4),
    encode_bcast(head(packets.TOTAL_BCAST), 1, 0, msg()),
    msg(packets.TOTAL_REQUEST).raw,
    encode_numbers(head(packets.TOTAL_NEW_VIEW), 1),
    head(packets.TOTAL_NEW_VIEW_ACK),
    encode_numbers(head(packets.TOTAL_CUM_SEQ_ACK), 4, 2),
    encode_numbers(head(packets.TOTAL_SEQ_ACK), 4),
    encode_resend(head(packets.TOTAL_RESEND), [4, 5]),
    encode_update(head(packets.PB_UPDATE), 2, 5, 3, msg()),
    encode_reached(head(packets.PB_ACK), Acked(2, 4)),
    encode_reached(head(packets.PB_ANSWERED), Answered(2, 4, 2)),
]


@pytest.mark.parametrize("data", WHOLE, ids=lambda data: KINDS[data[3]].name)
def test_a_packet_that_is_cut_short_or_too_long_is_refused(data: bytes) -> None:
    decode(data)
    for length in range(len(data)):
        with pytest.raises(Malformed):
            decode(data[:length])
    with pytest.raises(Malformed):
        decode(data + b"\0")
    with pytest.raises(Malformed):
        decode(data + bytes(MAX_PACKET))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (head(63), "unknown kind"),
        (head(255), "unknown kind"),
        (msg(packets.MSG, (0, 1)).raw, "bad number"),
        (msg(packets.MSG, (2, 0)).raw, "bad number"),
        (msg(packets.MSG, (2, 2**62)).raw, "bad number"),
        (msg(packets.MSG, (2, 1), Guarantee.AGREED, 4).raw, "unknown flags"),
        (msg(packets.MSG, (2, 1), Guarantee.AGREED, 1, b"", b"x").raw, "empty fragment"),
        (msg(packets.MSG, (2, 1), Guarantee.AGREED, 2, b"x", b"").raw, "empty fragment"),
        (encode_ack(head(packets.ACK), Ack(0, 0, 1, 2, ())), "bad number"),
        (encode_ack(head(packets.ACK), Ack(0, 1, 0, 2, ())), "bad number"),
        (encode_ack(head(packets.ACK), Ack(0, 1, 1, 0, ())), "bad node id"),
        (encode_ack(head(packets.ACK), Ack(0, 1, 1, 2, ((0, 7),))), "bad node id"),
        (encode_ack(head(packets.ACK), Ack(0, 1, 1, 2, (NULL,) * (MAX_ENTRIES + 1))), "too many entries"),
        (encode_req(head(packets.REQ), Req(0, 0, (), ())), "bad node id"),
        (encode_req(head(packets.REQ), Req(0, 1, (NULL,), ())), "bad node id"),
        (encode_req(head(packets.REQ), Req(0, 1, (), (0,))), "bad number"),
        (encode_copy(head(packets.COPY), Copy(0, 0, ((0, Placed(2, 1, 1)),))), "bad number"),
        (encode_numbers(head(packets.GONE), 0), "bad number"),
        (encode_numbers(head(packets.TOTAL_CUM_SEQ_ACK), -1, 0), "bad number"),
        (encode_bcast(head(packets.TOTAL_BCAST), 0, 0, msg()), "bad number"),
    ],
)
def test_what_no_member_sends_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=f"^{reason}$"):
        decode(data)


def test_an_unknown_guarantee_is_refused() -> None:
    raw = bytearray(msg().raw)
    raw[HEADER_SIZE + 28] = len(Guarantee)
    with pytest.raises(Malformed, match="unknown guarantee"):
        decode(bytes(raw))
