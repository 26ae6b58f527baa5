"""What members of a group tell each other in the order itself, beside the application's messages.

A note is a safe message that begins with `envelope.NOTE`: a packet has one guarantee, so that a look at that
tells that there is none in it. Notes are taken out before groups and log see them.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ordercast.core.identity import ConfigurationId
from ordercast.groups.envelope import NOTE

MOST_PRODUCERS = 1_000
"""How many are remembered; the one that has not begun anything for longest is forgotten."""
OWNER_SIZE = 8
AT_A_TIME = 100
"""Producers in one message of what a member knows."""
LONGEST_NAME = 128
"""Bytes of a producer's name, which is a key in the log, and of the name of a run."""
Name: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=LONGEST_NAME)]
Run: TypeAlias = Annotated[bytes, Meta(max_length=LONGEST_NAME)]
Number: TypeAlias = Annotated[int, Meta(ge=0, lt=2**62)]
"""Anybody may have multicast a note: what these limits do not allow is no note, at every member alike."""
MOST_GROUPS = 1_000
"""Groups that one member slows down at most; those beyond it are not slowed down."""


class Progress(msgspec.Struct, array_like=True):
    """How far a producer has come."""

    batch: Number
    count: Number
    """Rows of the batch that were delivered."""
    checksum: Number
    """Of these rows: tells whether what is sent again is the same."""
    run: Run
    """Which run of the query fenced last; within one run, attempts are numbered."""
    attempt: Number
    time_us: Number
    """When it began the batch, by the clock of the node that it spoke to."""


class Ask(msgspec.Struct, array_like=True, frozen=True, tag="ask"):
    """Everybody is to say what it knows."""


class Known(msgspec.Struct, array_like=True, frozen=True, tag="known"):
    """What a member knew when a configuration began, or a part of that."""

    configuration: ConfigurationId
    part: Number
    parts: Annotated[int, Meta(ge=1, le=-(-MOST_PRODUCERS // AT_A_TIME))]
    progress: Annotated[dict[Name, Progress], Meta(max_length=AT_A_TIME)]


class Fence(msgspec.Struct, array_like=True, frozen=True, tag="fence"):
    """An attempt begins, or goes on from another node."""

    producer: Name
    batch: Number
    run: Run
    attempt: Number
    owner: Annotated[bytes, Meta(min_length=OWNER_SIZE, max_length=OWNER_SIZE)]
    """Made for this fence: rows carry it."""
    group: str
    time_us: Number


class Slow(msgspec.Struct, array_like=True, frozen=True, tag="slow"):
    """Readers at the member that sends this do not keep up with these groups, and with no others."""

    groups: Annotated[tuple[str, ...], Meta(max_length=MOST_GROUPS)]


Note: TypeAlias = Ask | Known | Fence | Slow
_decoder: msgspec.msgpack.Decoder[Note] = msgspec.msgpack.Decoder(Note)
decode_progress = msgspec.msgpack.Decoder(Progress).decode


def written(note: Note) -> bytes:
    """A note as it is sent."""
    return bytes((NOTE,)) + msgspec.msgpack.encode(note)


def decode(payload: bytes) -> Note:
    """The note that was sent so."""
    return _decoder.decode(payload[1:])
