"""Packets as segments: whatever the network does to datagrams, what comes out is what went in, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.transport.segments import (
    HEADER,
    HEADER_SIZE,
    LARGEST_BUFFER,
    MAGIC,
    MOST_PARTIAL,
    MOST_SEGMENTS,
    Reassembler,
    Segmenter,
    Train,
)

LARGEST_PACKET = 65_535
MOST_PARTS = 255
"""Indexes and counts are a byte each."""

sizes = st.one_of(st.integers(100, 65_507), st.sampled_from([100, 528, 1452, 8952, 65_507]))


class Cut(NamedTuple):
    """A datagram size, and the lengths of packets that can be cut to it."""

    datagram: int
    lengths: list[int]
    seed: int

    @property
    def packets(self) -> list[bytes]:
        return [filled(length, self.seed + place) for place, length in enumerate(self.lengths)]


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    """Packets of all lengths, often right at an edge."""
    datagram = draw(sizes)
    space = datagram - HEADER_SIZE
    most = min(LARGEST_PACKET, MOST_PARTS * space)
    edges = sorted({n for k in (1, 2, 24) for n in (k * space - 1, k * space, k * space + 1) if n <= most})
    lengths = st.one_of(
        st.integers(0, 40),
        st.integers(0, min(most, 4 * datagram)),
        st.sampled_from(edges),
        st.sampled_from([most - 1, most]),
    )
    return Cut(datagram, draw(st.lists(lengths, min_size=1, max_size=6)), draw(st.integers(0, 255)))


def filled(length: int, seed: int) -> bytes:
    """Bytes that differ from place to place, so that parts in the wrong order show."""
    pattern = bytes((seed * 7 + at * 13 + at // 251) % 256 for at in range(min(length, 4099)))
    return (pattern * (length // len(pattern) + 1))[:length] if pattern else b""


def datagrams(trains: Sequence[Train]) -> list[bytes]:
    """What the kernel makes of them."""
    return [
        train.data[at : at + (train.segment or len(train.data))]
        for train in trains
        for at in range(0, len(train.data), train.segment or len(train.data))
    ]


def coalesced(arriving: Sequence[bytes], together: Sequence[int]) -> list[tuple[bytearray, int]]:
    """Buffers as the kernel hands them over: datagrams of one size, the last may be shorter.

    ``together`` says how many it puts into a buffer at most, buffer by buffer.
    """
    buffers: list[tuple[bytearray, int]] = []
    at = 0
    while at < len(arriving):
        most = together[len(buffers) % len(together)]
        size = len(arriving[at])
        buffer = bytearray(arriving[at])
        count, at = 1, at + 1
        while count < most and at < len(arriving) and len(arriving[at]) <= size:
            if len(buffer) + len(arriving[at]) > 65_535:
                break
            buffer += arriving[at]
            count, at = count + 1, at + 1
            if len(buffer) % size:
                break
        buffers.append((buffer, size if count > 1 else 0))
    return buffers


def joined(joiner: Reassembler, buffers: Sequence[tuple[bytearray, int]]) -> list[bytes]:
    packets: list[bytes] = []
    for buffer, segment in buffers:
        size = len(buffer)
        packets += joiner.join(buffer + b"oc what the last read left there" * 9, size, segment)
    return packets


@given(cuts(), st.lists(st.integers(1, 64), min_size=1, max_size=5))
@settings(max_examples=80, deadline=None)
def test_what_is_cut_is_joined(cut: Cut, together: list[int]) -> None:
    datagram, packets = cut.datagram, cut.packets
    trains = Segmenter(datagram).cut(packets)
    for train in trains:
        assert len(train.data) <= LARGEST_BUFFER
        assert train.segment in (0, datagram)
        assert len(train.data) <= (train.segment or datagram) * MOST_SEGMENTS
        assert train.segment or len(train.data) <= datagram
    joiner = Reassembler()
    assert joined(joiner, coalesced(datagrams(trains), together)) == packets
    assert joiner.bad == joiner.given_up == 0


@given(cuts(), st.data())
@settings(max_examples=80, deadline=None)
def test_lost_doubled_and_out_of_order(cut: Cut, data: st.DataObject) -> None:
    datagram, packets = cut.datagram, cut.packets
    sent = datagrams(Segmenter(datagram).cut(packets))
    arriving = data.draw(st.lists(st.sampled_from(range(len(sent))), max_size=2 * len(sent)))
    if data.draw(st.booleans()):
        arriving = data.draw(st.permutations(range(len(sent)))) + arriving
    together = data.draw(st.lists(st.integers(1, 64), min_size=1, max_size=5))
    joiner = Reassembler()
    got = joined(joiner, coalesced([sent[place] for place in arriving], together))
    assert set(got) <= set(packets), "no packet is made up of parts that do not belong together"
    arrived = Counter(HEADER.unpack_from(sent[place])[4] for place in set(arriving))
    whole = [packets[number - 1] for number, parts in arrived.items() if parts == count_of(sent, number)]
    assert not Counter(whole) - Counter(got), "who has all parts has the packet"


def count_of(sent: Sequence[bytes], number: int) -> int:
    return sum(HEADER.unpack_from(datagram)[4] == number for datagram in sent)


def test_all_but_one_part_is_nothing() -> None:
    packet = filled(10_000, 1)
    sent = datagrams(Segmenter(1452).cut([packet]))
    for missing in range(len(sent)):
        joiner = Reassembler()
        rest = [part for place, part in enumerate(sent) if place != missing]
        assert joined(joiner, coalesced(rest, [64])) == []
        assert joined(joiner, [(bytearray(sent[missing]), 0)]) == [packet]


def test_parts_of_two_packets_are_not_mixed() -> None:
    first, second = filled(3000, 1), filled(3000, 99)
    cutter = Segmenter(1452)
    one, two = (datagrams(cutter.cut([packet])) for packet in (first, second))
    joiner = Reassembler()
    crossed = [one[0], two[1], one[2], two[0], one[1], two[2]]
    assert joined(joiner, coalesced(crossed, [64])) == [first, second]


def test_small_packets_share_a_datagrams_train() -> None:
    packets = [filled(1438, n) for n in range(30)]
    trains = Segmenter(1452).cut(packets)
    assert len(trains) == 1
    assert trains[0].segment == 1452


def test_a_short_packet_is_not_padded_at_any_price() -> None:
    trains = Segmenter(1452).cut([bytes(10), bytes(10), bytes(10)])
    assert [len(train.data) for train in trains] == [10 + HEADER_SIZE] * 3


def test_nothing_is_cut_of_nothing() -> None:
    assert Segmenter(1452).cut([]) == []
    cutter = Segmenter(1452)
    assert joined(Reassembler(), coalesced(datagrams(cutter.cut([b""])), [1])) == [b""]


def test_numbers_start_over() -> None:
    cutter = Segmenter(528)
    cutter._number = 2**64 - 2
    packets = [filled(1200, n) for n in range(4)]
    assert joined(Reassembler(), coalesced(datagrams(cutter.cut(packets)), [64])) == packets


# --- strangers ----------------------------------------------------------------------------------

headers = st.builds(
    HEADER.pack,
    st.sampled_from([MAGIC, MAGIC, MAGIC, b"xx"]),
    st.integers(0, 4) | st.integers(0, 255),
    st.integers(0, 4) | st.integers(0, 255),
    st.integers(0, 300) | st.integers(0, 65_535),
    st.integers(0, 3) | st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
)
segment_like = st.builds(lambda header, rest: header + rest, headers, st.binary(max_size=120))
garbage = st.lists(segment_like | st.binary(max_size=60), max_size=4).map(b"".join)


@given(st.lists(st.tuples(garbage, st.integers(0, 200)), max_size=6))
@settings(max_examples=100, deadline=None)
def test_whatever_comes_is_read(buffers: list[tuple[bytes, int]]) -> None:
    joiner = Reassembler()
    for buffer, segment in buffers:
        for packet in joiner.join(bytearray(buffer), len(buffer), segment):
            assert len(packet) <= LARGEST_PACKET
    assert len(joiner._partial) <= MOST_PARTIAL


@given(cuts(), garbage)
@settings(max_examples=50, deadline=None)
def test_what_comes_after_strangers_is_joined_all_the_same(cut: Cut, buffer: bytes) -> None:
    datagram, packets = cut.datagram, cut.packets
    joiner = Reassembler()
    joiner.join(bytearray(buffer), len(buffer), 0)
    cutter = Segmenter(datagram)
    cutter._number = 100
    assert joined(joiner, coalesced(datagrams(cutter.cut(packets)), [64])) == packets


@pytest.mark.parametrize(
    "segment",
    [
        b"",
        b"o",
        b"oc" + bytes(HEADER_SIZE - 3),
        HEADER.pack(b"no", 0, 1, 0, 1, 0),
        HEADER.pack(MAGIC, 0, 0, 0, 1, 0),
        HEADER.pack(MAGIC, 1, 1, 0, 1, 0),
        HEADER.pack(MAGIC, 0, 1, 5, 1, 0) + b"four",
        HEADER.pack(MAGIC, 0, 1, 4, 1, crc32(b"four") ^ 1) + b"four",
    ],
    ids=[
        "empty",
        "a byte",
        "a short header",
        "a wrong magic",
        "none of none",
        "past the last",
        "cut off",
        "damaged",
    ],
)
def test_malformed_segments_are_counted(segment: bytes) -> None:
    joiner = Reassembler()
    assert joiner.join(bytearray(segment), len(segment), 0) == []
    assert joiner.bad == (1 if segment else 0)


def test_parts_that_disagree_are_no_packet() -> None:
    joiner = Reassembler()
    for header in ((0, 2, 3, 7), (1, 3, 3, 7), (1, 2, 4, 7), (0, 2, 3, 7)):
        data = HEADER.pack(MAGIC, *header, 0) + b"ab"
        assert joiner.join(bytearray(data), len(data), 0) == []
    assert joiner.bad == 3


def test_memory_is_bounded() -> None:
    """A stranger who sends beginnings of packets, as large as they get, costs a few megabytes at most."""
    joiner = Reassembler()
    for number in range(MOST_PARTIAL + 10):
        for index in range(3):
            data = HEADER.pack(MAGIC, index, 255, 65_535, number, 0) + bytes(60_000)
            joiner.join(bytearray(data), len(data), 0)
    assert len(joiner._partial) <= MOST_PARTIAL
    kept = sum(len(part) for partial in joiner._partial.values() for part in partial.parts.values())
    assert kept <= MOST_PARTIAL * 2 * 65_536


def test_the_oldest_incomplete_packet_is_given_up() -> None:
    cutter = Segmenter(528)
    joiner = Reassembler()
    parts = [datagrams(cutter.cut([filled(1000, number)])) for number in range(MOST_PARTIAL + 1)]
    for first, _ in parts:
        joined(joiner, [(bytearray(first), 0)])
    assert joiner.given_up == 1
    assert joined(joiner, [(bytearray(parts[-1][1]), 0)]) == [filled(1000, MOST_PARTIAL)]
    assert joined(joiner, [(bytearray(parts[0][1]), 0)]) == []
