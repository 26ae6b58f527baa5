"""What nodes tell each other about process groups, as payloads of the ordering machine.

A payload begins with a byte that says what it is, beside those of `ordercast.groups.notes`: a message to
groups, with its address (`ordercast.core.addresses`), or a note.

Anybody may have multicast a payload. What the limits here do not allow is no message and no note, at every
member alike, since nothing but the payload is looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ordercast.core.addresses import HEADED, LONGEST_NAME, address_of, is_name, names_of
from ordercast.core.fronted import Fronted
from ordercast.core.identity import GROUPS_BETWEEN, ConfigurationId, MessageId
from ordercast.core.subjects import LONGEST_QUEUE, LONGEST_SUBJECT, MARK, read_subscription
from ordercast.core.wire import UNREADABLE
from ordercast.process_groups.views import Properties

NOTE = 5
"""What a payload begins with that is a note, beside the kinds of messages (`ordercast.core.addresses`)."""
LONGEST_SUBSCRIPTION = LONGEST_SUBJECT + LONGEST_QUEUE + 2
"""Bytes of the name of a group that is a subscription."""
MOST_PROPERTIES = 32
LONGEST_PROPERTY = 256
"""Characters of a property's name, and of its value."""
PART_SIZE = 16 * 1024
"""Bytes of a part of a `State`, at most; a single membership may be larger."""
PART_FRONT = 64
"""Bytes of a part beside its memberships, at most."""
MOST_PARTS = 1 << 20

_LENGTH = struct.Struct("<I")

Number: TypeAlias = Annotated[int, Meta(ge=1, lt=2**32)]
"""Of a process at its node."""
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=LONGEST_SUBSCRIPTION)]
Word: TypeAlias = Annotated[str, Meta(max_length=LONGEST_PROPERTY)]
Words: TypeAlias = Annotated[dict[Word, Word], Meta(max_length=MOST_PROPERTIES)]


class Join(msgspec.Struct, array_like=True, frozen=True, tag="join"):
    """A process of the sender joins a group."""

    process: Number
    group: Name
    properties: Words


class Leave(msgspec.Struct, array_like=True, frozen=True, tag="leave"):
    """A process of the sender leaves a group."""

    process: Number
    group: Name


class End(msgspec.Struct, array_like=True, frozen=True, tag="end"):
    """A process of the sender has ended: it leaves all its groups."""

    process: Number


class Membership(msgspec.Struct, array_like=True, frozen=True):
    """A process is in a group."""

    process: Number
    group: Name
    properties: Words


class State(msgspec.Struct, array_like=True, frozen=True, tag="state"):
    """The groups that processes of the sender were in when a configuration began, or a part of that."""

    configuration: ConfigurationId
    """The regular configuration that it is for; in any other it says nothing."""
    part: Annotated[int, Meta(ge=0, lt=MOST_PARTS)]
    parts: Annotated[int, Meta(ge=1, le=MOST_PARTS)]
    memberships: tuple[Membership, ...]
    counted: Annotated[int, Meta(ge=0, lt=2**62)] = 0
    """Messages that the sender knows of, from the beginning of the group on."""
    voters: Annotated[int, Meta(ge=0, lt=2**32)] = 0
    """A digest of the voters that the sender was given for the primary partition; 0: none."""


class Served(msgspec.Struct, array_like=True, frozen=True, tag="served"):
    """Processes of the sender got what queues had for them, the first so many messages of a configuration."""

    configuration: ConfigurationId
    count: Annotated[int, Meta(ge=1)]


class Again(msgspec.Struct, array_like=True, frozen=True, tag="again"):
    """A message for another member of a queue, since the one that was to get it has ended."""

    message: MessageId
    queue: Name
    payload: bytes


Note: TypeAlias = Join | Leave | End | State | Served | Again
_decoder: msgspec.msgpack.Decoder[Note] = msgspec.msgpack.Decoder(Note)
_encode = msgspec.msgpack.encode


def written(note: Note) -> bytes:
    """A note as it is sent."""
    return bytes((NOTE,)) + _encode(note)


def read(payload: bytes) -> Note | None:
    """The note that was sent so; None if it is none."""
    if not payload or payload[0] != NOTE:
        return None
    try:
        note = _decoder.decode(payload[1:])
    except UNREADABLE:
        return None
    if isinstance(note, State):
        return (
            note
            if note.part < note.parts and all(_may_be_joined(each.group) for each in note.memberships)
            else None
        )
    if isinstance(note, Again):
        found = read_subscription(note.queue)
        well_formed = found is not None and found[1] is not None and address_of(note.payload) is not None
        return note if well_formed else None
    return note if isinstance(note, End | Served) or _may_be_joined(note.group) else None


def states(
    configuration: ConfigurationId,
    memberships: Iterable[Membership],
    part_size: int = PART_SIZE,
    counted: int = 0,
    voters: int = 0,
) -> Iterator[bytes]:
    """The memberships of a node's processes as it sends them, in parts of at most `part_size` bytes; with the
    number of messages that it has `counted`, and the digest of its `voters`."""
    parts: list[list[Membership]] = [[]]
    size = PART_FRONT
    for membership in memberships:
        more = len(_encode(membership))
        if parts[-1] and size + more > part_size:
            parts.append([])
            size = PART_FRONT
        parts[-1].append(membership)
        size += more
    for part, some in enumerate(parts):
        yield written(State(configuration, part, len(parts), tuple(some), counted, voters))


# --- messages ---------------------------------------------------------------------------------------


def parts(found: bytes, payloads: Sequence[bytes]) -> tuple[list[bytes] | None, Sequence[bytes]]:
    """The heads and the messages of payloads that have this address; None if it is one without heads."""
    start = len(found)
    if type(payloads) is Fronted and payloads.front == found:
        bodies = payloads.rests()
    else:
        bodies = [payload[start:] for payload in payloads]
    if found[0] != HEADED:
        return None, bodies
    pairs = [read_head(body) for body in bodies]
    return [words for words, _ in pairs], [body for _, body in pairs]


def head(words: bytes) -> bytes:
    """What stands between address and message where the sender says something beside it."""
    return _LENGTH.pack(len(words)) + words


def read_head(body: bytes) -> tuple[bytes, bytes]:
    """The words that `head` put in front of a message, and the message; all is message if there are none."""
    if len(body) < _LENGTH.size:
        return b"", body
    end = _LENGTH.size + _LENGTH.unpack_from(body)[0]
    return (body[_LENGTH.size : end], body[end:]) if end <= len(body) else (b"", body)


def describe(payload: bytes) -> tuple[str | None, int]:
    """For traces: the groups that a payload is addressed to, and the bytes of the message in it."""
    found = address_of(payload)
    return (None, len(payload)) if found is None else (names_of(found), len(payload) - len(found))


# --- limits -----------------------------------------------------------------------------------------


def _may_be_joined(group: str) -> bool:
    return read_subscription(group) is not None if group.startswith(MARK) else is_name(group)


def check_name(group: str) -> None:
    """Raise ValueError if there can be no group of that name that a process could join."""
    try:
        fits = _may_be_joined(group)
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise ValueError(
            f"{group[:40]!r} cannot be a group's name: choose one of 1 to {LONGEST_NAME} bytes in UTF-8, "
            f"without {GROUPS_BETWEEN!r}"
        )


def check_properties(properties: Properties) -> None:
    """Raise ValueError if a process cannot say this of itself."""
    try:
        msgspec.convert(dict(properties), Words, strict=True)
        _encode(dict(properties))
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise ValueError(
            f"properties are up to {MOST_PROPERTIES} texts by name, of up to {LONGEST_PROPERTY} characters: "
            f"{error}"
        ) from error
