"""What stands in front of a message of a process: from whom it is, and for which groups.

All that stands before the application's bytes of a message is its *address*, equal for all messages that one
process sends to the same groups within a millisecond, so that these are handled together. It begins with a
byte that says what the payload is, and ends with the *stamp*, the time at the sender. Payloads that begin
with another byte are no messages of processes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import compress, repeat
from itertools import count as count_from
from operator import not_
from typing import NamedTuple

from ordercast.core.fronted import Fronted
from ordercast.core.identity import GROUPS_BETWEEN
from ordercast.core.subjects import LONGEST_SUBJECT, MARK

MESSAGE, HEADED, WITHHELD = 4, 6, 7
"""A message; one with words of its sender beside it; one without its contents, for nodes without members of
its groups."""
LONGEST_NAME = LONGEST_SUBJECT
"""Bytes of a group's name, in UTF-8."""
MOST_GROUPS = 64
"""Groups that one message may be addressed to."""

STAMP_SIZE = 6
"""Bytes of a stamp: milliseconds since the epoch, UTC."""
NO_STAMP = bytes(STAMP_SIZE)
"""Of a message whose sender did not say when it was sent."""

_HEAD = struct.Struct("<BIB")
_WITHHELD = bytes((WITHHELD,))
_MESSAGES = (MESSAGE, HEADED, WITHHELD)
_GROUPS_AT = _HEAD.size - 1


class Address(NamedTuple):
    """From whom a message is, and to which groups."""

    sender: int
    groups: tuple[str, ...]


def stamp(time_us: int) -> bytes:
    """A time in microseconds as addresses have it."""
    return (time_us // 1000).to_bytes(STAMP_SIZE, "big")


def sent_us(found: bytes) -> int:
    """When the messages of an address were sent, in microseconds since the epoch by the clock of the sender's
    node; 0 if that is not said."""
    return int.from_bytes(found[-STAMP_SIZE:], "big") * 1000


def address(sender: int, groups: Sequence[str], *, headed: bool = False, stamped: bytes = NO_STAMP) -> bytes:
    """What stands in front of a message of a process, by number, to these groups; or of one with a `head`.

    `stamped`: when it is sent; empty for what is before the stamp.
    """
    names = [group.encode() for group in groups]
    if any(group.startswith(MARK) for group in groups):
        raise ValueError("nothing can be sent to a subscription: name the subject")
    head = _HEAD.pack(HEADED if headed else MESSAGE, sender, len(names))
    return b"".join((head, *(bytes((len(name),)) + name for name in names), stamped))


def address_of(payload: bytes) -> bytes | None:
    """The part of a payload that is a message's address; None if it is no message."""
    if len(payload) < _HEAD.size or payload[0] not in _MESSAGES:
        return None
    end = _HEAD.size
    for _ in range(payload[5]):
        if end >= len(payload):
            return None
        end += 1 + payload[end]
    whole = end + STAMP_SIZE
    return payload[:whole] if whole <= len(payload) and _read(payload[:end]) is not None else None


def read_address(found: bytes) -> Address | None:
    """What an address says, its stamp apart; None if it is none."""
    return _read(found[:-STAMP_SIZE])


@lru_cache(maxsize=4096)  # asked of each message, and there are few
def _read(found: bytes) -> Address | None:
    _, sender, count = _HEAD.unpack_from(found)
    groups: list[str] = []
    at = _HEAD.size
    for _ in range(count):
        name = found[at + 1 : at + 1 + found[at]]
        at += 1 + len(name)
        try:
            groups.append(name.decode())
        except UnicodeDecodeError:
            return None
    well_formed = 0 < count <= MOST_GROUPS and all(map(is_name, groups)) and len(set(groups)) == count
    return Address(sender, tuple(groups)) if well_formed else None


LOOK = 256
"""Messages that are looked at together."""


def runs_of(payloads: Sequence[bytes]) -> Iterator[range]:
    """The places of messages that follow each other and have one address; other payloads are by themselves.

    An address tells where it ends: what begins with one has that address, and no other.
    """
    begin = 0
    if type(payloads) is Fronted and is_address(payloads.front):
        yield range(len(payloads))
        return
    while begin < len(payloads):
        found = address_of(payloads[begin])
        end = begin + 1
        if found is not None:
            while same := payloads[end : end + LOOK]:
                others = map(bytes.startswith, same, repeat(found))
                equal = next(compress(count_from(0), map(not_, others)), LOOK)
                end = min(end + equal, len(payloads))
                if equal < LOOK:
                    break
        yield range(begin, end)
        begin = end


def groups_part(payload: bytes) -> bytes:
    """The part of a message's address that names its groups; empty if the payload is no message."""
    found = address_of(payload)
    return b"" if found is None else found[_GROUPS_AT:-STAMP_SIZE]


def withheld(payload: bytes) -> bytes:
    """What a node gets of a message, by its payload or address, that is for none of its processes."""
    found = address_of(payload)
    assert found is not None, "only messages are withheld"
    return _WITHHELD + found[1:]


def is_address(found: bytes) -> bool:
    """Whether these bytes are an address, with nothing behind it."""
    return address_of(found) == found


def is_withheld_front(payload: bytes) -> bool:
    """Whether a payload is what `withheld` makes of a message."""
    return payload[:1] == _WITHHELD and is_address(payload)


def names_of(found: bytes) -> str:
    """The groups of an address, as one text (`GROUPS_BETWEEN`)."""
    return _names(found[:-STAMP_SIZE])


@lru_cache(maxsize=4096)
def _names(found: bytes) -> str:
    where = _read(found)
    return "" if where is None else GROUPS_BETWEEN.join(where.groups)


def is_name(group: str) -> bool:
    """Whether a group that messages can be sent to may be called so."""
    return (
        0 < len(group.encode()) <= LONGEST_NAME and GROUPS_BETWEEN not in group and not group.startswith(MARK)
    )
