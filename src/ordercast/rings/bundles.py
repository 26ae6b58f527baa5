"""Bundles: messages of one application, in order, as they are broadcast; or which groups a node needs.

All that a bundle's messages have in common is said once: their guarantee, the number of the first, and, where
they are of one process to the same groups, their address. So a gateway and a node without members of these
groups do work for the bundle, not for each message.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, repeat
from typing import Annotated, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from ordercast.core.addresses import address_of, groups_part, is_address, is_withheld_front, withheld
from ordercast.core.contract import MOST_ATTENDED
from ordercast.core.fronted import FEWEST, Fronted, whole
from ordercast.core.identity import Guarantee
from ordercast.core.packing import check_chunks, join_chunks, split_chunks
from ordercast.core.wire import MAX_COUNT, UNREADABLE, Malformed

BUNDLE_SIZE = 32 * 1024
"""Bytes of messages that are put into one bundle; a larger message has one of its own."""
SLOT_BITS = 12
MOST_MESSAGES = 2**SLOT_BITS
"""Messages of one bundle, at most: each has a place of its own behind that of the bundle in its packet."""

BUNDLE = 1
_BUNDLE = struct.Struct("<BBqH")
"""Kind, guarantee, number of the first message, how many; 0: one message, to the end of the payload."""
_GUARANTEES = (Guarantee.AGREED, Guarantee.SAFE)
_SAFE = 1
"""A bundle's second byte says that its messages ask for safe delivery, and the form that it has."""


class Form:
    """The forms of bundles."""

    PLAIN: ClassVar = 0
    ADDRESSED: ClassVar = 2
    """All messages are for the same groups."""
    WITHHELD: ClassVar = 6
    """So they were, but the contents are withheld: there is the address of the first."""
    INTEREST: ClassVar = 8
    """There are no messages: it tells what its sender needs."""
    FRONTED: ClassVar = 18
    """All messages have the same address, which stands once in front of them."""


_FRONT = struct.Struct("<HH")
"""Bytes of that address; bytes of what is behind it in each message, or `_DIFFERENT`: chunks."""
_DIFFERENT = 65_535
HASH_SIZE = 8
"""Bytes that stand for a group's name there."""


class Interest(msgspec.Struct, array_like=True, frozen=True):
    """Of which messages to groups a node needs the contents."""

    everything: bool
    shared: bool
    """All nodes need everything."""
    hashes: Annotated[bytes, Meta(max_length=MOST_ATTENDED * HASH_SIZE)] = b""
    """Of the groups that it needs, one after the other in ascending order."""


class Bundle(NamedTuple):
    """Messages of one application, with consecutive numbers."""

    guarantee: Guarantee
    number: int
    payloads: Sequence[bytes]
    raw: bytes
    """The bundle, as its sender wrote it."""
    interest: Interest | None = None
    """What its sender needs from here on; then there are no messages in it."""


_encode = msgspec.msgpack.Encoder().encode
_interest_decoder = msgspec.msgpack.Decoder(Interest)


def write_bundles(
    payloads: Sequence[bytes],
    number: int,
    guarantee: Guarantee,
    addressed: bool = False,
    size: int = BUNDLE_SIZE,
) -> list[bytes]:
    """Messages with consecutive numbers, as few payloads of about `size` bytes; if they are `addressed`, all
    to the same groups."""
    code = _GUARANTEES.index(guarantee) | (Form.ADDRESSED if addressed else Form.PLAIN)
    if type(payloads) is Fronted and payloads.size <= size and len(payloads) <= MOST_MESSAGES:
        return [_write(payloads, number, code)]
    totals = list(accumulate(map(len, payloads), initial=0))
    bundles: list[bytes] = []
    first = 0
    while first < len(payloads):
        end = bisect_right(totals, totals[first] + size) - 1
        end = min(end, first + MOST_MESSAGES)
        if end == first:
            bundles.append(_BUNDLE.pack(BUNDLE, code, number + first, 0) + payloads[first])
            first += 1
        else:
            bundles.append(_write(payloads[first:end], number + first, code))
            first = end
    return bundles


def _write(payloads: Sequence[bytes], number: int, code: int) -> bytes:
    count = len(payloads)
    if code & Form.ADDRESSED and count >= FEWEST:
        fronted = _fronted(payloads)
        if fronted is not None:
            front = fronted.front
            head = _BUNDLE.pack(BUNDLE, code & _SAFE | Form.FRONTED, number, count)
            rests = fronted.rests()
            lengths = set(map(len, rests))
            if len(lengths) == 1:
                return b"".join((head, _FRONT.pack(len(front), lengths.pop()), front, *rests))
            return b"".join((head, _FRONT.pack(len(front), _DIFFERENT), front, join_chunks(rests)))
    return _BUNDLE.pack(BUNDLE, code, number, count) + join_chunks(whole(payloads))


def _fronted(payloads: Sequence[bytes]) -> Fronted | None:
    """Messages without the address that all have; None if they have not one."""
    if type(payloads) is Fronted:
        return payloads
    front = address_of(payloads[0])
    if front is None or not all(map(bytes.startswith, payloads, repeat(front))):
        return None
    start = len(front)
    return Fronted(front, [payload[start:] for payload in payloads])


def read_bundle(raw: bytes) -> Bundle | None:
    """The messages of a bundle; None if it is none."""
    if len(raw) < _BUNDLE.size:
        return None
    kind, code, number, count = _BUNDLE.unpack_from(raw)
    if kind != BUNDLE or not 0 < number < MAX_COUNT or count > MOST_MESSAGES:
        return None
    guarantee = _GUARANTEES[code & _SAFE]
    try:
        match code & ~_SAFE:
            case Form.FRONTED:
                return Bundle(guarantee, number, _read_fronted(raw, count), raw)
            case Form.PLAIN | Form.ADDRESSED:
                if not count:
                    return Bundle(guarantee, number, [raw[_BUNDLE.size :]], raw)
                return Bundle(guarantee, number, split_chunks(raw, _BUNDLE.size, count), raw)
            case Form.WITHHELD:
                front = raw[_BUNDLE.size :]
                known = count and is_withheld_front(front)
                return Bundle(guarantee, number, Fronted.alone(front, count), raw) if known else None
            case Form.INTEREST:
                return Bundle(guarantee, number, (), raw, _interest_decoder.decode(raw[_BUNDLE.size :]))
    except (Malformed, *UNREADABLE):
        pass
    return None


def _read_fronted(raw: bytes, count: int) -> Fronted:
    at = _BUNDLE.size + _FRONT.size
    if not count or len(raw) < at:
        raise Malformed("truncated")
    size, length = _FRONT.unpack_from(raw, _BUNDLE.size)
    begin = at + size
    front = raw[at:begin]
    if not is_address(front):
        raise Malformed("no address")
    if length == _DIFFERENT:
        check_chunks(raw, begin, count)
        return Fronted.read(front, raw, begin, count)
    if len(raw) != begin + count * length:
        raise Malformed("chunk lengths do not fit")
    return Fronted.read(front, raw, begin, count, length)


def is_safe(raw: bytes) -> bool:
    """Whether the messages of a bundle ask for safe delivery."""
    return bool(raw[1] & _SAFE)


def is_interest(raw: bytes) -> bool:
    """Whether a bundle tells what its sender needs, and has no messages."""
    return bool(raw[1] & ~_SAFE == Form.INTEREST)


def is_withheld(raw: bytes) -> bool:
    """Whether a bundle is without the contents of its messages."""
    return bool(raw[1] & ~_SAFE == Form.WITHHELD)


def audience(bundle: Bundle) -> bytes:
    """For which groups all messages of a bundle are (`groups_part`); empty: for different ones, or all."""
    if bundle.raw[1] & ~_SAFE not in (Form.ADDRESSED, Form.FRONTED):
        return b""
    return groups_part(_front(bundle))


def _front(bundle: Bundle) -> bytes:
    """What begins with the address of the first message."""
    payloads = bundle.payloads
    return payloads.front if type(payloads) is Fronted else payloads[0]


def withhold(bundle: Bundle) -> Bundle:
    """A bundle that has an `audience`, without the contents of its messages."""
    guarantee, number, payloads, raw, _ = bundle
    count, front = len(payloads), withheld(_front(bundle))
    code = raw[1] & _SAFE | Form.WITHHELD
    return Bundle(
        guarantee, number, Fronted.alone(front, count), _BUNDLE.pack(BUNDLE, code, number, count) + front
    )


def write_interest(interest: Interest) -> bytes:
    """A bundle that tells what its sender needs."""
    return _BUNDLE.pack(BUNDLE, Form.INTEREST, 1, 0) + _encode(interest)
