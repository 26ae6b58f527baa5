"""Packets larger than a datagram travel in parts, which add up in whatever order they come."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from viewsync_node import FIRST, OURS, member, packet_from

from effects import drops
from ordercast.core.contract import Multicast, Packet
from ordercast.core.wire import FORGED_SENDER, MAX_PACKET, Malformed
from ordercast.viewsync.header import HEADER_SIZE, header
from ordercast.viewsync.packets import HEARTBEAT, ITEM, Heartbeat
from ordercast.viewsync.parts import (
    KEPT_BYTES,
    LEAST_DATAGRAM,
    PART,
    Part,
    Parts,
    decode_part,
    in_parts,
    send_in_parts,
)


def packet(size: int, sender: int = 2, fill: int = 0) -> bytes:
    return header(ITEM, FIRST, sender, 1) + random.Random(fill).randbytes(size - HEADER_SIZE)


def join(parts: Parts, datagrams: list[bytes], sender: int = 2) -> list[bytes]:
    joined = [parts.join(sender, decode_part(datagram)) for datagram in datagrams]
    return [whole for whole in joined if whole is not None]


@given(
    st.integers(HEADER_SIZE, MAX_PACKET),
    st.integers(LEAST_DATAGRAM, 9_000),
    st.randoms(use_true_random=False),
)
def test_parts_fit_a_datagram_and_make_the_packet_again(
    size: int, datagram: int, mixer: random.Random
) -> None:
    whole = packet(size)
    datagrams = list(in_parts(whole, datagram))
    assert all(len(part) <= datagram for part in datagrams)
    if size <= datagram:
        assert datagrams == [whole]
        return
    mixer.shuffle(datagrams)
    assert join(Parts(1), datagrams) == [whole]


def test_parts_of_two_transmissions_add_up() -> None:
    whole = packet(20_000)
    datagrams = list(in_parts(whole, 1_400))
    parts = Parts(1)
    assert join(parts, datagrams[::2]) == []
    assert join(parts, datagrams[1::2]) == [whole]


def test_parts_of_several_packets_and_senders_are_kept_apart() -> None:
    packets = {(sender, fill): packet(5_000, sender, fill) for sender in (2, 3) for fill in (1, 2)}
    parts = Parts(2)
    cut = {name: list(in_parts(whole, 1_400)) for name, whole in packets.items()}
    for name, whole in packets.items():
        assert join(parts, cut[name][:-1], name[0]) == []
        assert whole not in join(parts, cut[name][:1], name[0])
    for name, whole in packets.items():
        assert join(parts, cut[name][-1:], name[0]) == [whole]


def test_what_is_kept_is_bounded_for_each_sender_and_the_oldest_goes_first() -> None:
    parts = Parts(2)
    many = [packet(60_000, 2, fill) for fill in range(KEPT_BYTES // 60_000 + 1)]
    cut = [list(in_parts(whole, 1_400)) for whole in many]
    for datagrams in cut:
        join(parts, datagrams[:-1])
    assert join(parts, cut[-1][-1:]) == [many[-1]]
    assert join(parts, cut[0][-1:]) == [], "it made room for the last"
    other = list(in_parts(packet(5_000, 3), 1_400))
    join(parts, other[:-1], 3)
    join(parts, list(in_parts(packet(5_000, 4), 1_400))[:-1], 4)  # node 2 is heard no longer
    assert join(parts, cut[1][-1:]) == []


def test_parts_that_do_not_fit_are_refused_and_the_right_ones_still_add_up() -> None:
    whole = packet(5_000)
    datagrams = list(in_parts(whole, 1_400))
    parts = Parts(1)
    join(parts, datagrams[:-1])
    last = decode_part(datagrams[-1])
    with pytest.raises(Malformed, match="parts do not fit"):
        parts.join(2, last._replace(data=bytes(len(last.data))))
    assert join(parts, datagrams) == [whole]


@pytest.mark.parametrize(
    "wrong",
    [
        {"part_size": 0},
        {"part_size": 5_000},
        {"place": 4},
        {"size": 65_535},
        {"data": b"short"},
    ],
    ids=str,
)
def test_a_part_out_of_bounds_is_malformed(wrong: dict[str, object]) -> None:
    datagrams = list(in_parts(packet(5_000), 1_400))
    part = decode_part(datagrams[0])
    head = datagrams[0][:HEADER_SIZE]
    assert decode_part(part.encode(head)) == part
    with pytest.raises(Malformed, match="bad part"):
        decode_part(part._replace(**wrong).encode(head))  # type: ignore[arg-type]
    with pytest.raises(Malformed, match="truncated"):
        decode_part(head)


# --- at a machine ------------------------------------------------------------------------------------------


def test_a_machine_takes_a_packet_that_comes_in_parts_as_one_that_comes_whole() -> None:
    node = member(1)
    heard = header(HEARTBEAT, FIRST, 2, 1)
    long = heard + bytes(3_000)
    *others, last = in_parts(long, 1_400)
    for part in others:
        assert list(node.does(Packet(part, 2))) == []
    assert drops(node.does(Packet(last, 2))) == drops(node.does(Packet(long, 2))) != []


def test_a_packet_in_parts_is_its_senders() -> None:
    node = member(1)
    *others, last = in_parts(packet(5_000, sender=2), 1_400)
    forged = [header(PART, FIRST, 3, 1) + part[HEADER_SIZE:] for part in (*others, last)]
    for part in forged[:-1]:
        node.does(Packet(part, 3))
    assert drops(node.does(Packet(forged[-1], 3))) == [FORGED_SENDER]
    assert drops(node.does(Packet(last, 3))) == [FORGED_SENDER]


def test_parts_of_parts_are_refused() -> None:
    node = member(1)
    inner = Part(0, 2_000, 1_000, 0, bytes(1_000)).encode(header(PART, FIRST, 2, 1))
    *others, last = in_parts(inner, 600)
    for part in others:
        node.does(Packet(part, 2))
    assert drops(node.does(Packet(last, 2))) == ["unknown kind"]


def test_what_fits_a_datagram_is_sent_as_it_is() -> None:
    sent: list[object] = []
    beat = packet_from(2, Heartbeat(OURS, 0, False))
    send_in_parts(beat, 1_400, sent)  # type: ignore[arg-type]
    assert sent == [Multicast(beat)]
