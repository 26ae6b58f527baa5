"""A replicated map from texts to values: revisions, compare-and-set, watches, entries that expire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Any, Generic, Literal, NamedTuple, Self, TypeAlias, overload

import msgspec

from ordercast.errors import CommandFailed
from ordercast.objects.merging import survivors
from ordercast.objects.values import V, Values
from ordercast.replicated.command import CallId, command
from ordercast.replicated.replicated import Replicated, watch
from ordercast.replicated.watching import Missed

MOST_AT_ONCE = 1_000
"""Entries that expire at one place of the order; others follow at the next."""
SPARE = 1_000
"""Times of expiry that are kept beyond those of entries, before they are sorted out."""

Kind: TypeAlias = Literal["put", "delete", "expire"]


class Stored(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An entry, as the state has it."""

    value: bytes
    revision: int
    time_us: int
    expires_us: int = 0
    """0: never."""
    listed_us: int = 0
    """The earliest time at which the list of what is due has its key; 0: it has not."""
    by: CallId | None = None
    """The command that put it, if histories are merged."""


class Entry(NamedTuple, Generic[V]):
    """A key and its value."""

    key: str
    value: V
    revision: int
    """The position of the history at which it was put: it rises, so it is a fencing token."""
    time_us: int
    """When it was put, in ordered time: microseconds since the epoch."""
    expires_us: int | None
    """When it expires; None: never."""


class Change(NamedTuple, Generic[V]):
    """What happened to a key."""

    kind: Kind
    key: str
    value: V | None
    """What is there now; None if it was deleted, or has expired."""
    revision: int
    """The position of the history at which it happened. Where it was deleted or expired while this replica
    was away, the last one that it may have happened at."""
    time_us: int


class Conflict(CommandFailed):
    """A key has not the revision that was expected, so nothing was changed."""

    def __init__(self, key: str, revision: int) -> None:
        super().__init__(key, revision)
        self.key = key
        self.revision = revision
        """What it has; 0: it is not there."""

    def __str__(self) -> str:
        found = f"is at revision {self.revision}" if self.revision else "is not there"
        return f"{self.key!r} {found}, so it was not changed: read it again and decide anew"


class Map(Replicated, Generic[V]):
    """A map from texts to values, the same at every node that replicates it.

        settings = await node.replicate(Map(int), "settings")
        await settings.put("retries", 3)

    Values are of the type that it is made for, the same at all nodes; without one, whatever MessagePack has.
    `get`, `entry` and everything that changes the map are linearisable. `local` is what this replica has, at
    once and perhaps stale: behind others' until `sync`.
    """

    __slots__ = ("_values",)

    entries: dict[str, Stored]
    due: list[tuple[int, str]]
    """A heap of times and keys that may expire then."""
    expiring: int
    """Entries that expire at all."""

    @overload
    def __init__(self, kind: type[V]) -> None: ...

    @overload
    def __init__(self, kind: Any = Any) -> None: ...

    def __init__(self, kind: Any = Any) -> None:
        self._values: Values[V] = Values("Map", kind)
        self.entries = {}
        self.due = []
        self.expiring = 0

    # --- reading --------------------------------------------------------------------------------

    async def get(self, key: str) -> V | None:
        """The value of a key; None if it is not there. It is not older than this call."""
        await self.sync()
        return self.local.get(key)

    async def entry(self, key: str) -> Entry[V] | None:
        """A key with its value, revision and times; None if it is not there. Not older than this call."""
        await self.sync()
        return self.local.entry(key)

    @property
    def local(self) -> Local[V]:
        """The map as this replica has it: read at once, and perhaps behind others' until `sync`."""
        return Local(self)

    # --- changing -------------------------------------------------------------------------------

    async def put(self, key: str, value: V, *, ttl: float | None = None, revision: int | None = None) -> int:
        """Put a value; the revision of the entry.

        ``ttl``: seconds of ordered time after which it expires, unless it is put again. ``revision``: only if
        the key has this one now, or with 0 only if it is not there; else raises `Conflict`.
        """
        return await self.store(key, self._values.encode(value), _us(ttl), revision)

    async def create(self, key: str, value: V, *, ttl: float | None = None) -> int:
        """Put a value where none is; raises `Conflict` if there is one."""
        return await self.put(key, value, ttl=ttl, revision=0)

    async def compare_and_set(self, key: str, old: V | None, new: V, *, ttl: float | None = None) -> bool:
        """Put a value where this one is, or with None where none is; whether it was put."""
        expected = None if old is None else self._values.encode(old)
        return await self.swap(key, expected, self._values.encode(new), _us(ttl))

    async def delete(self, key: str, *, revision: int | None = None) -> bool:
        """Delete a key; whether it was there. ``revision``: as with `put`."""
        return await self.remove(key, revision)

    def watch(self, key: str | None = None, *, prefix: str = "", present: bool = False) -> Changes[V]:
        """Watch one key, or those with a prefix, or all, from now on: iterate over it with ``async for``.

        ``present``: begin with the entries that are here now. Each change comes once, in the one order; one
        who watches and was away (its node was outside the primary partition, say) gets of each key only how
        it is afterwards, so that what it has been told always leads to the contents of the map.
        """
        return Changes(self, key, prefix, present=present)

    # --- commands -------------------------------------------------------------------------------

    @command
    def store(self, key: str, value: bytes, ttl_us: int, revision: int | None) -> int:
        """Put an encoded value; 0: it never expires."""
        self._expect(key, revision)
        return self._store(key, value, ttl_us)

    @command
    def swap(self, key: str, old: bytes | None, new: bytes, ttl_us: int) -> bool:
        """Put an encoded value where this one is; None: where none is, or the value None."""
        found = self.entries.get(key)
        if (_NONE if found is None else found.value) != (_NONE if old is None else old):
            return False
        self._store(key, new, ttl_us)
        return True

    @command
    def remove(self, key: str, revision: int | None) -> bool:
        """Delete a key."""
        self._expect(key, revision)
        return self._remove("delete", key)

    def tick(self) -> None:
        """Entries whose time has come expire."""
        left = MOST_AT_ONCE
        while self.due and self.due[0][0] <= self.now_us and left:
            left -= 1
            at_us, key = heappop(self.due)
            found = self.entries.get(key)
            if found is None or found.listed_us != at_us:
                continue
            if found.expires_us <= self.now_us:
                self._remove("expire", key)
            else:  # it was put again since
                self.entries[key] = msgspec.structs.replace(found, listed_us=found.expires_us)
                heappush(self.due, (found.expires_us, key))
        self.wake_at_us = max(self.due[0][0], self.now_us + 1) if self.due else None

    def _expect(self, key: str, revision: int | None) -> None:
        found = self.entries.get(key)
        has = 0 if found is None else found.revision
        if revision is not None and revision != has:
            raise Conflict(key, has)

    def _store(self, key: str, value: bytes, ttl_us: int) -> int:
        found, now_us, revision = self.entries.get(key), self.now_us, self.position
        expires_us = listed_us = 0
        if found is not None and found.expires_us:
            self.expiring -= 1
        if ttl_us:
            self.expiring += 1
            expires_us = now_us + ttl_us
            listed_us = 0 if found is None else found.listed_us
            if not listed_us or expires_us < listed_us:
                listed_us = expires_us
                heappush(self.due, (expires_us, key))
        self.entries[key] = Stored(
            value, revision, now_us, expires_us, listed_us, self.call_id if self.is_merged else None
        )
        self._look_at_due()
        self.tell(("put", key, value, revision, now_us))
        return revision

    def _remove(self, kind: Kind, key: str) -> bool:
        found = self.entries.pop(key, None)
        if found is None:
            return False
        if found.expires_us:
            self.expiring -= 1
            self._look_at_due()
        self.tell((kind, key, None, self.position, self.now_us))
        return True

    def merge(self, others: Sequence[Self]) -> None:
        """A key stays unless a partition that knew of it has deleted it; of several values that latest put
        counts, in ordered time. An entry that is not the same in all gets the revision of the merge."""
        states = [self, *others]
        puts = [{key: each.by for key, each in state.entries.items() if each.by} for state in states]
        merged: dict[str, Stored] = {}
        for key, choice in survivors(states, puts).items():
            stored = max((states[put.state].entries[key] for put in choice), key=_latest)
            there = [state.entries.get(key) for state in states]
            same = all(each and (each.by, each.revision) == (stored.by, stored.revision) for each in there)
            revision = stored.revision if same else self.position
            merged[key] = msgspec.structs.replace(stored, revision=revision, listed_us=stored.expires_us)
        self.entries = merged
        self.due = [(each.expires_us, key) for key, each in merged.items() if each.expires_us]
        heapify(self.due)
        self.expiring = len(self.due)
        self._look_at_due()

    def _look_at_due(self) -> None:
        """Have `tick` called in time; forget times of entries that were deleted."""
        if len(self.due) > 2 * self.expiring + SPARE:
            self.due = [(each.listed_us, key) for key, each in self.entries.items() if each.listed_us]
            heapify(self.due)
        if self.due:
            self.wake_at_us = self.due[0][0]


def _latest(stored: Stored) -> tuple[int, CallId | None, bytes]:
    return stored.time_us, stored.by, stored.value


_NONE = msgspec.msgpack.encode(None)


def _us(ttl: float | None) -> int:
    if ttl is None:
        return 0
    if not ttl > 0:
        raise ValueError(f"ttl is {ttl}: give the seconds after which the entry expires, or None for never")
    return max(1, round(ttl * 1_000_000))


class Local(Mapping[str, V]):
    """A map as one replica has it: a mapping that changes as commands are carried out.

    Whoever iterates over it and awaits meanwhile takes a copy first.
    """

    def __init__(self, of: Map[V]) -> None:
        self._of = of  # whose entries are others when it gets the state of another replica

    def __getitem__(self, key: str) -> V:
        return self._of._values.decode(self._of.entries[key].value)

    def __contains__(self, key: object) -> bool:
        return key in self._of.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._of.entries)

    def __len__(self) -> int:
        return len(self._of.entries)

    def entry(self, key: str) -> Entry[V] | None:
        """A key with its value, revision and times; None if it is not there."""
        found = self._of.entries.get(key)
        if found is None:
            return None
        value = self._of._values.decode(found.value)
        return Entry(key, value, found.revision, found.time_us, found.expires_us or None)


class Changes(Generic[V]):
    """Changes of a map, or of a part of it: iterate over them; `close` it, or use it as a context manager."""

    def __init__(self, target: Map[V], key: str | None, prefix: str, *, present: bool) -> None:
        self._target = target
        self._key = key
        self._prefix = prefix
        self._watch = watch(target)
        self._told: dict[str, int] = {}
        """Of what was told: keys that are there, and their revisions."""
        self._looked_at = target.position
        """Up to here it follows from the contents of the map, which were looked at."""
        self._waiting: Iterator[Change[V]] = iter(())
        if present:
            self._waiting = self._difference()
        else:
            self._told = {key: each.revision for key, each in self._entries()}

    def _wants(self, key: str) -> bool:
        return key.startswith(self._prefix) if self._key is None else key == self._key

    def _entries(self) -> list[tuple[str, Stored]]:
        entries, key = self._target.entries, self._key
        if key is not None:
            return [(key, entries[key])] if key in entries else []
        return [each for each in entries.items() if self._wants(each[0])]

    def _difference(self) -> Iterator[Change[V]]:
        """What leads from that which was told to what is there now."""
        told, now = self._told, self._entries()
        self._looked_at = position = self._target.position
        now_us = self._target.now_us
        self._told = {key: each.revision for key, each in now}
        decode = self._target._values.decode
        gone = [key for key in told if key not in self._told]
        return chain(
            (Change[V]("delete", key, None, position, now_us) for key in gone),
            (
                Change("put", key, decode(each.value), each.revision, each.time_us)
                for key, each in now
                if told.get(key) != each.revision
            ),
        )

    def __aiter__(self) -> AsyncIterator[Change[V]]:
        return self

    async def __anext__(self) -> Change[V]:
        while True:
            for change in self._waiting:
                return change
            event = await anext(self._watch)
            if isinstance(event, Missed):
                self._waiting = self._difference()
                continue
            kind, key, value, revision, time_us = event
            if revision <= self._looked_at or not self._wants(key):
                continue
            if value is None:
                self._told.pop(key, None)
                return Change(kind, key, None, revision, time_us)
            self._told[key] = revision
            return Change(kind, key, self._target._values.decode(value), revision, time_us)

    def close(self) -> None:
        """Watch no longer."""
        self._watch.end(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
