"""What members of a group tell each other in the order itself, beside the application's messages.

A note is a safe message that begins with `NOTE`: a packet has one guarantee, so that a look at that
tells that there is none in it. Notes are taken out before groups and log see them.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ordercast.core.identity import ConfigurationId

ROW, NOTE, HEADED_ROW = 2, 3, 8
"""What a payload is, by its first byte, beside the kinds of `ordercast.process_groups.notes`: a row of a
producer (`producers.py`), a note, or a row that begins with what is said beside it."""
MOST_PRODUCERS = 10_000
"""How many jobs and producers are remembered; who is new is refused when there are so many."""
MOST_KNOWN = 10 * MOST_PRODUCERS
"""How many members that come together, each with its own, remember."""
JOB_SIZE = 16
"""Bytes at the begin of a producer's name that are its job's."""
OWNER_SIZE = 8
AT_A_TIME = 100
"""Jobs and producers in one message of what a member knows."""
LONGEST_NAME = 128
"""Bytes of a producer's name, which is a key in the log, and of the name of a run."""
Name: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=LONGEST_NAME)]
JobName: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=JOB_SIZE)]
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
    """The checksum of these rows: tells whether what is sent again is the same."""
    run: Run
    """Which run of the query fenced last; within one run, attempts are numbered."""
    attempt: Number
    time_us: Number
    """When it began the batch, by the clock of the node that it spoke to."""


class Job(msgspec.Struct, array_like=True):
    """A query that writes into a group."""

    batches: Number
    """Batches before this one were delivered whole."""
    time_us: Number
    """When it last said something, by the clock of the node that it spoke to."""
    done: bool = False
    """No batch comes after them."""


class Ask(msgspec.Struct, array_like=True, frozen=True, tag="ask"):
    """Everybody is to say what it knows; or, if that is known, what time it is."""


class Clock(msgspec.Struct, array_like=True, frozen=True, tag="clock"):
    """What time it is at a member."""

    time_us: Number


class Known(msgspec.Struct, array_like=True, frozen=True, tag="known"):
    """What a member knew when a configuration began, or a part of that."""

    configuration: ConfigurationId
    part: Number
    parts: Annotated[int, Meta(ge=1, le=MOST_KNOWN // AT_A_TIME + 1)]
    time_us: Number
    """What time it is there."""
    jobs: Annotated[dict[JobName, Job], Meta(max_length=AT_A_TIME)]
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
    anew: bool = False
    """Take it though the batches before are not known."""


class Commit(msgspec.Struct, array_like=True, frozen=True, tag="commit"):
    """All tasks of a batch are done."""

    job: JobName
    batch: Number
    done: bool
    """Whether it was the job's last batch."""
    owner: Annotated[bytes, Meta(min_length=OWNER_SIZE, max_length=OWNER_SIZE)]
    """Made for this commit: whoever waits for it knows it by that."""
    time_us: Number


class Slow(msgspec.Struct, array_like=True, frozen=True, tag="slow"):
    """Readers at the member that sends this do not keep up with these groups, and with no others."""

    groups: Annotated[tuple[str, ...], Meta(max_length=MOST_GROUPS)]


Note: TypeAlias = Ask | Clock | Known | Fence | Commit | Slow
_decoder: msgspec.msgpack.Decoder[Note] = msgspec.msgpack.Decoder(Note)
decode_progress = msgspec.msgpack.Decoder(Progress).decode
decode_job = msgspec.msgpack.Decoder(Job).decode


def job_of(producer: bytes) -> bytes:
    """The job that a producer belongs to."""
    return producer[:JOB_SIZE]


def written(note: Note) -> bytes:
    """A note as it is sent."""
    return bytes((NOTE,)) + msgspec.msgpack.encode(note)


def decode(payload: bytes) -> Note:
    """The note that was sent so."""
    return _decoder.decode(payload[1:])
