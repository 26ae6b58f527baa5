"""Datagrams that nobody should have sent: strategies for hypothesis, and many of them at once."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from ordercast.runtime.links import GREETING_MAGIC, Greeting
from ordercast.runtime.segments import HEADER, HEADER_SIZE, MAGIC

LARGEST = 1452


def flipped(data: bytes, bits: Sequence[int]) -> bytes:
    """With some bits the other way round."""
    changed = bytearray(data)
    for bit in bits:
        place = bit // 8 % max(1, len(changed))
        if changed:
            changed[place] ^= 1 << bit % 8
    return bytes(changed)


def segment(index: int, count: int, length: int, number: int, body: bytes) -> bytes:
    """What looks like a part of a packet."""
    return HEADER.pack(MAGIC, index, count, length, number) + body


def waits(data: bytes) -> bool:
    """Whether it may be kept until the other parts of its packet come."""
    if len(data) < HEADER_SIZE:
        return False
    magic, index, count, _, _ = HEADER.unpack_from(data)
    return bool(magic == MAGIC and index < count and count > 1)


def datagrams(corpus: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Random, cut off, bent, glued together, and made up."""
    recorded = st.sampled_from(corpus)
    byte, short, long = st.integers(0, 255), st.integers(0, 2**16 - 1), st.integers(0, 2**64 - 1)
    greetings = st.builds(
        Greeting,
        node=st.integers(-(2**31), 2**32),
        incarnation=st.integers(-1, 2**33),
        session=st.binary(max_size=20),
        challenge=st.binary(max_size=10),
        echo=st.binary(max_size=10),
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
        st.builds(flipped, recorded, st.lists(st.integers(0, 8 * LARGEST), min_size=1, max_size=4)),
        st.builds(lambda one, two, at: one[:at] + two[at:], recorded, recorded, st.integers(0, 100)),
        st.builds(lambda data, more: (data + more)[:LARGEST], recorded, st.binary(min_size=1, max_size=40)),
        st.builds(segment, byte, byte, short, long, st.binary(max_size=100)),
        st.builds(lambda body: segment(0, 1, len(body), 1, body), st.binary(max_size=100)),
        st.builds(lambda body: GREETING_MAGIC + body, st.binary(max_size=100)),
        st.builds(lambda greeting: GREETING_MAGIC + msgspec.msgpack.encode(greeting), greetings),
        recorded,
    )


def some(chance: random.Random, corpus: Sequence[bytes]) -> bytes:
    """One of the same sorts, quickly."""
    data = chance.choice(corpus)
    match chance.randrange(7):
        case 0:
            return chance.randbytes(chance.randrange(400))
        case 1:
            return data[: chance.randrange(len(data))]
        case 2:
            return flipped(data, [chance.randrange(8 * len(data)) for _ in range(chance.randint(1, 3))])
        case 3:
            at = chance.randrange(60)
            return data[:at] + chance.choice(corpus)[at:]
        case 4:
            body = chance.randbytes(chance.randrange(200))
            return segment(
                chance.randrange(256), chance.randrange(256), len(body), chance.getrandbits(64), body
            )
        case 5:
            return GREETING_MAGIC + chance.randbytes(chance.randrange(100))
    return data
