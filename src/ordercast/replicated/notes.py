"""What the replicas of one object tell each other in the order. Anybody may have sent it: what these limits
do not allow says nothing, at every replica alike."""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from ordercast.core.wire import UNREADABLE
from ordercast.process_groups.views import Process
from ordercast.replicated.changes import Change
from ordercast.replicated.durable.heads import Head
from ordercast.replicated.sessions import Number

GROUP = "$ORDERCAST.REPLICATED."
"""Replicas of an object are members of the group of this name, with the object's behind it."""
MOST_COMMANDS = 10_000
LONGEST_SHAPE = 4_096
MOST_PASSED = 256
"""Epochs that a history is known to have passed through: the last ones."""


class RoundId(NamedTuple):
    """Identifies a round, in which replicas tell what they have: the same at all who take part."""

    seq: int
    rep: int
    """The configuration, and"""
    number: int
    """the number of the view of the object's group in it."""


class Run(msgspec.Struct, array_like=True, frozen=True):
    """Calls of one command."""

    shape: Annotated[str, Meta(max_length=LONGEST_SHAPE)]
    """The command, and the names of its arguments."""
    calls: msgspec.Raw
    """A list with the arguments of each."""


class Calls(msgspec.Struct, array_like=True, frozen=True, tag="c"):
    """Commands are to be carried out, one after the other."""

    session: Number
    first: Number
    """The number of the first command in its session; the others' follow it."""
    floor: Number
    """Results of the session below this number have reached it."""
    since: Number
    """A position that the history had reached when the first command was asked for."""
    time_us: Number
    """What time it is at the caller's node."""
    runs: list[Run]
    sent_us: Number = 0
    """When the commands were sent first: each message of new commands of a caller has a time of its own."""
    round: RoundId | None = None
    """The round in which they were sent, if histories are merged."""


class Tick(msgspec.Struct, array_like=True, frozen=True, tag="t"):
    """Time has passed."""

    time_us: Number


class Mark(msgspec.Struct, array_like=True, frozen=True, tag="m"):
    """Somebody wants to know when everything before this was carried out at its own replica."""

    number: Number


class Report(msgspec.Struct, array_like=True, frozen=True, tag="r"):
    """What a replica has when a round begins."""

    round: RoundId
    head: Head | None
    """Up to where it has the history of the object; None: it has no state."""
    known: Annotated[list[str], Meta(max_length=MOST_COMMANDS)]
    """The commands that it knows, with the names of their arguments."""
    port: Number
    """Where it gives its state to others."""
    promised: Number = 0
    """The latest epoch that it said it takes part in: on its disk, if it has one."""
    durable: bool = False
    """Whether it keeps the object on disk."""
    remembers: bool = False
    """Its disk has all that it ever told the others, though that may be no state yet."""
    time_us: Number = 0
    """What time it is there; filled in when it is sent."""
    passed: Annotated[list[Number], Meta(max_length=MOST_PASSED)] = []
    """The epochs that the history has passed through, if histories are merged."""
    fields: Annotated[list[str], Meta(max_length=MOST_COMMANDS)] = []
    """The fields of its class."""
    at_primary: bool = False
    """Whether it has commands carried out by the primary alone."""


class Have(msgspec.Struct, array_like=True, frozen=True, tag="h"):
    """A replica has the state, and takes part in the round's epoch: its disk says so, if it has one."""

    round: RoundId


class Synced(msgspec.Struct, array_like=True, frozen=True, tag="y"):
    """A replica has the history on disk."""

    round: RoundId
    position: Number
    """Up to here, of the round's epoch."""


class Members(msgspec.Struct, array_like=True, frozen=True, tag="n"):
    """What a round has settled, as an entry of the history: nobody sends it, all replicas make it alike."""

    there: list[Process]
    """The replicas."""
    clocks_us: list[int]
    """What time it was at each when the round began."""
    known: list[str]
    """The commands that all of them know,"""
    fields: list[str] = []
    """and the fields that the classes of all have."""


class Done(msgspec.Struct, array_like=True, frozen=True):
    """Commands of one session that the primary carried out, or had carried out before."""

    session: Number
    first: Number
    """The number of the first one; the others' follow it."""
    floor: Number
    outcomes: list[bytes]
    new: bool = True
    """Whether the commands were carried out now, and not before."""


class Update(msgspec.Struct, array_like=True, frozen=True, tag="u"):
    """What commands have changed that the primary carried out (004 §4.3.1): all replicas take it over."""

    round: RoundId
    """The round in which they were carried out."""
    base: tuple[Number, Number]
    """Position and checksum of the history behind the last entry that the primary had carried out then, void
    updates apart. If the history went on otherwise, this one is void, the same at all, and the commands are
    carried out again."""
    now_us: Number
    """What time it was for the commands, and"""
    position: Number
    """the number of the last of them (`Replicated.position`)."""
    done: list[Done]
    changes: list[Change]
    told: list[msgspec.Raw] = []
    """What the commands told those who watch (`told.py`)."""


Entry: TypeAlias = Calls | Tick | Members | Update
"""What the history of an object consists of."""
Note: TypeAlias = Calls | Tick | Mark | Report | Have | Synced | Update
_decoder: msgspec.msgpack.Decoder[Note] = msgspec.msgpack.Decoder(Note)
_encode = msgspec.msgpack.Encoder().encode


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """An entry of the history as it is on disk."""

    sender: Process
    payload: bytes


_kept_decoder = msgspec.msgpack.Decoder(Kept)
_entry_decoder: msgspec.msgpack.Decoder[Entry] = msgspec.msgpack.Decoder(Entry)


def kept(sender: Process, payload: bytes) -> bytes:
    """An entry for the disk."""
    return _encode(Kept(sender, payload))


def read_kept(data: bytes) -> tuple[Process, Entry, bytes]:
    """An entry from the disk: who sent it, and what. Raises `msgspec.MsgspecError`."""
    found = _kept_decoder.decode(data)
    return found.sender, read_entry(found.payload), found.payload


def read_entry(payload: bytes) -> Entry:
    """An entry of the history, as it was sent, or made. Raises `msgspec.MsgspecError`."""
    return _entry_decoder.decode(payload)


def written(note: Note | Members) -> bytes:
    """A note as it travels."""
    return _encode(note)


def read(payload: bytes) -> Note | None:
    """What was sent; None if it says nothing."""
    try:
        return _decoder.decode(payload)
    except UNREADABLE:
        return None
