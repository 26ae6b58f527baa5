"""What replicas tell of the history of their object, in a group that is named for it: for who follows it and
is no replica (`follower.py`). What these limits do not allow says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ordercast.core.wire import UNREADABLE
from ordercast.process_groups.views import Process
from ordercast.replicated.durable.heads import Head
from ordercast.replicated.history import Tail
from ordercast.replicated.sessions import Number

OVERHEAD = 64
"""Bytes that a piece has, and each entry in it, beside payloads, at most."""


class Piece(msgspec.Struct, array_like=True, frozen=True, tag="p"):
    """What was carried out, from one place of the history to another."""

    base: Head
    head: Head
    entries: list[tuple[Process, bytes]]
    """Who sent each, and what (`notes.Entry`)."""


class Slice(msgspec.Struct, array_like=True, frozen=True, tag="s"):
    """A part of the state at a place of the history (`snapshot.py`)."""

    head: Head
    teller: Number
    """Identifies who tells it."""
    number: Number
    """Which part it is, from 0."""
    last: bool
    data: Annotated[bytes, Meta(max_length=2**20)]


HistoryNote: TypeAlias = Piece | Slice
_decoder: msgspec.msgpack.Decoder[HistoryNote] = msgspec.msgpack.Decoder(HistoryNote)
_encode = msgspec.msgpack.Encoder().encode


def pieces(tail: Tail, about: int, most: int) -> list[bytes] | None:
    """What follows a place, in messages of about so many bytes; None if one would have more than the most."""
    found: list[bytes] = []
    base, begin, size = tail.base, 0, OVERHEAD
    entries = tail.entries
    for at, (_, _, payload) in enumerate(entries):
        if at > begin and size + len(payload) + OVERHEAD > about:
            found.append(_piece(base, entries[begin:at]))
            base, begin, size = entries[at - 1][0], at, OVERHEAD
        size += len(payload) + OVERHEAD
        if size > most:
            return None
    return [*found, _piece(base, entries[begin:])]


def _piece(base: Head, entries: Sequence[tuple[Head, Process, bytes]]) -> bytes:
    told = [(sender, payload) for _, sender, payload in entries]
    return _encode(Piece(base, entries[-1][0] if entries else base, told))


def slices(head: Head, teller: int, parts: Sequence[bytes]) -> list[bytes]:
    """A state in messages."""
    last = len(parts) - 1
    return [_encode(Slice(head, teller, at, at == last, part)) for at, part in enumerate(parts)]


def read(payload: bytes) -> HistoryNote | None:
    """What was told; None if it says nothing."""
    try:
        return _decoder.decode(payload)
    except UNREADABLE:
        return None
