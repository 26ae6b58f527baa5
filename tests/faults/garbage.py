"""Datagrams that nobody should have sent: strategies for hypothesis, and many of them at once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum
from zlib import crc32

import msgspec
from hypothesis import strategies as st

from ordercast.transport import greetings as wire
from ordercast.transport.greetings import GREETING_MAGIC, Greeting
from ordercast.transport.segments import CHECKED, HEADER, HEADER_SIZE, MAGIC

LARGEST = 1452


def flipped(data: bytes, bits: Sequence[int]) -> bytes:
    """With some bits the other way round."""
    changed = bytearray(data)
    for bit in bits:
        place = bit // 8 % max(1, len(changed))
        if changed:
            changed[place] ^= 1 << bit % 8
    return bytes(changed)


def segment(
    index: int, count: int, length: int, number: int, body: bytes, checksum: int | None = None
) -> bytes:
    """What looks like a part of a packet; its checksum is that of the body, unless another is given."""
    if checksum is None:
        checksum = crc32(body[:CHECKED])
    return HEADER.pack(MAGIC, index, count, length, number, checksum) + body


def corrected(data: bytes) -> bytes:
    """With the checksum that makes it a packet again, if it has the form of one."""
    if segment_is(data, checked=False) is not Segment.WHOLE:
        return data
    _, index, count, length, number, _ = HEADER.unpack_from(data)
    body = data[HEADER_SIZE:]
    return segment(index, count, length, number, body, crc32(body[: min(length, CHECKED)]))


class Segment(Enum):
    """What a segment is to who has seen nothing before."""

    BAD = "no correct sender makes it"
    PART = "may be kept until the other parts of its packet come"
    WHOLE = "a packet, whatever is in it"


def segment_is(data: bytes, checked: bool) -> Segment:
    """What a datagram is that is not empty; `checked` where packets are not sealed."""
    if len(data) < HEADER_SIZE:
        return Segment.BAD
    magic, index, count, length, _, checksum = HEADER.unpack_from(data)
    body = data[HEADER_SIZE:]
    if magic != MAGIC or index >= count:
        return Segment.BAD
    if count > 1:
        return Segment.BAD if len(body) * (count - 1) >= length else Segment.PART
    if length > len(body) or (checked and crc32(body[: min(length, CHECKED)]) != checksum):
        return Segment.BAD
    return Segment.WHOLE


def datagrams(corpus: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Random, cut off, bent, glued together, and made up."""
    recorded = st.sampled_from(corpus)
    byte, short, long = st.integers(0, 255), st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)
    bent = st.builds(flipped, recorded, st.lists(st.integers(0, 8 * LARGEST), min_size=1, max_size=4))
    headers = st.builds(
        wire.HEADER.pack,
        st.just(GREETING_MAGIC),
        st.integers(0, 3),
        st.binary(min_size=8, max_size=8),
        st.binary(min_size=16, max_size=16),
    )
    greetings = st.builds(
        Greeting,
        node=st.integers(-(2**31), 2**32),
        incarnation=st.integers(-1, 2**33),
        session=st.binary(max_size=20),
        challenge=st.binary(max_size=20),
        number=st.integers(-1, 2**63 - 1),
        linked=st.booleans(),
        data_port=st.integers(-1, 70_000),
        counters=st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 2**63 - 1)),
        settings=st.text(max_size=40),
        peers=st.lists(
            st.tuples(st.integers(-1, 2**33), st.text(max_size=20), st.integers(-1, 70_000)), max_size=5
        ),
        refusal=st.text(max_size=40),
    )
    return st.one_of(
        st.binary(max_size=300),
        st.builds(
            lambda size, fill: fill[:1] * size, st.integers(0, LARGEST), st.binary(min_size=1, max_size=1)
        ),
        st.builds(lambda data, size: data[:size], recorded, st.integers(0, 200)),
        bent,
        st.builds(corrected, bent),
        st.builds(lambda one, two, at: one[:at] + two[at:], recorded, recorded, st.integers(0, 100)),
        st.builds(lambda data, more: (data + more)[:LARGEST], recorded, st.binary(min_size=1, max_size=40)),
        st.builds(segment, byte, byte, short, long, st.binary(max_size=100), long),
        st.builds(lambda body: segment(0, 1, len(body), 1, body), st.binary(max_size=100)),
        st.builds(lambda body: GREETING_MAGIC + body, st.binary(max_size=100)),
        st.builds(lambda header, greeting: header + msgspec.msgpack.encode(greeting), headers, greetings),
        recorded,
    )


def some(chance: random.Random, corpus: Sequence[bytes]) -> bytes:
    """One of the same sorts, quickly."""
    data = chance.choice(corpus)
    match chance.randrange(8):
        case 0:
            return chance.randbytes(chance.randrange(400))
        case 1:
            return data[: chance.randrange(len(data))]
        case 2 | 3 as corrects:
            bent = flipped(data, [chance.randrange(8 * len(data)) for _ in range(chance.randint(1, 3))])
            return bent if corrects == 2 else corrected(bent)
        case 4:
            at = chance.randrange(60)
            return data[:at] + chance.choice(corpus)[at:]
        case 5:
            body = chance.randbytes(chance.randrange(200))
            index, count, number = chance.randrange(256), chance.randrange(256), chance.getrandbits(32)
            return segment(index, count, chance.randrange(2**16), number, body)
        case 6:
            return GREETING_MAGIC + chance.randbytes(chance.randrange(100))
    return data
