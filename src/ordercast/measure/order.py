"""Whether all nodes delivered the same messages in the same order, found out while they deliver.

Every node keeps a running digest over what it delivers in a configuration, and notes it now and then with
the number of messages so far. Two nodes that noted the same digest at the same number delivered the same
until there; and two that go from one configuration to the next together delivered the same in all of it
(000 §3, virtual synchrony). Nodes that were apart are compared while they were together.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import msgspec

from ordercast.core.identity import Configuration
from ordercast.groups.events import Delivery, Rejoined

Mark = tuple[int, int]
"""A number of messages, and the digest over them."""
EVERY = 5_000
"""Messages from one mark to the next, roughly: marks are made between packets."""
MOST_MARKS = 4_000
"""Of one configuration; then every other one is forgotten, and from there on half as many are made."""

APART = "apart"
"""Stands between two configurations where the group went on without a node: nobody went with it."""

_HEAD = struct.Struct("<IIQI")


class Chapter(msgspec.Struct):
    """What one node delivered in one configuration, as far as a few numbers can tell."""

    configuration: str
    """Kind and identifier, as ``regular 8.1``."""
    members: list[int]
    marks: list[Mark] = []
    """In order; the last one is made at the end."""

    @property
    def count(self) -> int:
        """Messages up to the last mark."""
        return self.marks[-1][0] if self.marks else 0


class Ledger:
    """What one node delivered.

    Who sent each message, in which life, and its how-manyth it was, always count; the bytes of the
    messages count in one packet of `sample`, the same ones at every node.
    """

    def __init__(self, every: int = EVERY, sample: int = 1) -> None:
        self.chapters: list[Chapter] = []
        self.count = 0
        """Messages delivered, in all configurations."""
        self.by_sender: dict[int, int] = {}
        """The same, by who sent them."""
        self._every = self._step = every
        self._sample = sample
        self._here = 0
        self._digest = 0
        self._next = every

    def install(self, configuration: Configuration) -> None:
        """A new configuration begins a new chapter."""
        self.mark()
        if isinstance(configuration, Rejoined):
            self.chapters.append(Chapter(APART, []))
        name = f"{configuration.kind} {configuration.id}"
        self.chapters.append(Chapter(name, list(configuration.members)))
        self._here = self._digest = 0
        self._step = self._next = self._every

    def add(self, delivery: Delivery) -> None:
        """The next messages."""
        payloads, sender, _, _, incarnation, numbers, _, seq, _ = delivery
        count = len(payloads)
        digest = zlib.crc32(_HEAD.pack(sender, incarnation, numbers[0], count), self._digest)
        if seq % self._sample == 0:
            for payload in payloads:
                digest = zlib.crc32(payload, digest)
        self._digest = digest
        self.count += count
        self._here += count
        self.by_sender[sender] = self.by_sender.get(sender, 0) + count
        if self._here >= self._next:
            self.mark()
            if len(self.chapters[-1].marks) >= MOST_MARKS:
                del self.chapters[-1].marks[::2]
                self._step *= 2
            self._next += self._step

    def mark(self) -> None:
        """Note how things stand."""
        if self.chapters and self.chapters[-1].count != self._here:
            self.chapters[-1].marks.append((self._here, self._digest))


class Agreement(NamedTuple):
    """How far the nodes were compared, and the first difference that showed."""

    equal: bool
    marks: int
    """Places at which nodes could be compared."""
    messages: int
    """Messages that were compared: those before these places."""
    difference: str | None = None


def compare(ledgers: Mapping[int, Sequence[Chapter]]) -> Agreement:
    """Put the chapters of all nodes side by side, configuration by configuration."""
    difference = next(_differences(ledgers), None)
    places: dict[str, set[int]] = {}
    for one, other in combinations(sorted(ledgers), 2):
        for mine, _, theirs, _ in _shared(ledgers[one], ledgers[other]):
            common = dict(mine.marks).keys() & dict(theirs.marks).keys()
            places.setdefault(mine.configuration, set()).update(common)
    marks = sum(map(len, places.values()))
    return Agreement(difference is None, marks, sum(max(at, default=0) for at in places.values()), difference)


def _differences(ledgers: Mapping[int, Sequence[Chapter]]) -> Iterator[str]:
    """Every pair of nodes that differs, and where it does first, in a sentence."""
    for one, other in combinations(sorted(ledgers), 2):
        for mine, my_next, theirs, their_next in _shared(ledgers[one], ledgers[other]):
            told = _difference(mine, theirs)
            if told is None and APART != my_next == their_next and mine.count != theirs.count:
                told = f"delivered {mine.count:,} and {theirs.count:,} messages"
            if told is not None:
                yield f"nodes {one} and {other} {told} in the {mine.configuration} configuration"
                break


def _difference(mine: Chapter, theirs: Chapter) -> str | None:
    """Where two nodes differ first in a configuration; marks that only one of them made tell nothing."""
    other = dict(theirs.marks)
    before = 0
    for count, digest in mine.marks:
        if count in other:
            if other[count] != digest:
                return f"first differ between message {before + 1:,} and message {count:,}"
            before = count
    return None


def _shared(
    mine: Sequence[Chapter], theirs: Sequence[Chapter]
) -> Iterator[tuple[Chapter, str | None, Chapter, str | None]]:
    """The chapters that two nodes have in common, each with the name of the chapter that follows it.

    None for the last one: there, too, both have delivered everything, or one of them is missing some.
    """
    followed = dict(_followed(theirs))
    for name, (chapter, following) in _followed(mine):
        if name != APART and name in followed:
            yield chapter, following, *followed[name]


def _followed(chapters: Sequence[Chapter]) -> Iterator[tuple[str, tuple[Chapter, str | None]]]:
    following = [*(chapter.configuration for chapter in chapters[1:]), None]
    for chapter, after in zip(chapters, following, strict=True):
        yield chapter.configuration, (chapter, after)
