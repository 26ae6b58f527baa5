"""Puts side by side what the nodes delivered, configuration by configuration."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from ordercast.core.identity import NodeId
from ordercast.demo.order import Block, End, Ring

How = Literal["to its end", "killed", "parted", "came later"]


class Life(NamedTuple):
    """One life of a node."""

    node: NodeId
    incarnation: int


class Entry(msgspec.Struct, frozen=True):
    """What one member delivered in a configuration, beside what the others did."""

    node: NodeId
    how: How
    """Whether it was there to the end, with most of the others; and else, why its part is shorter."""
    messages: int
    """Messages of it that were compared."""
    digest: str
    same: bool


class Page(msgspec.Struct, frozen=True):
    """A configuration, and what its members delivered in it."""

    ring: Ring
    members: tuple[NodeId, ...]
    messages: int
    """Messages delivered by those that were there to its end."""
    entries: tuple[Entry, ...]

    @property
    def same(self) -> bool:
        """All delivered the same in the same order, for as long as each was there."""
        return all(entry.same for entry in self.entries)


class _Chapter:
    """What is known of one life in one configuration."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.blocks: dict[int, Block] = {}
        self.end: End | None = None

    @property
    def whole(self) -> bool:
        return self.end is not None and self.end.whole

    def told(self, first: int = 0, last: float = float("inf"), regular: bool = False) -> list[Block]:
        """Blocks in order, within bounds."""
        return [
            block
            for number, block in sorted(self.blocks.items())
            if first <= number <= last and (block.regular or not regular)
        ]


class Standing(NamedTuple):
    """How far some nodes can be compared now, and what each has to show for it."""

    messages: int
    digests: dict[NodeId, str]

    @property
    def same(self) -> bool:
        """Whether all have the same."""
        return len(set(self.digests.values())) <= 1


class Book:
    """All that the nodes told of their deliveries."""

    def __init__(self) -> None:
        self._chapters: dict[Ring, dict[Life, _Chapter]] = {}

    def read(self, life: Life, blocks: Iterable[Block], ends: Iterable[End]) -> None:
        """What a node tells."""
        for block in blocks:
            self._chapter(block.ring, life).blocks[block.number] = block
        for end in ends:
            self._chapter(end.ring, life).end = end

    def _chapter(self, ring: Ring, life: Life) -> _Chapter:
        chapters = self._chapters.setdefault(ring, {})
        return chapters.setdefault(life, _Chapter(life))

    def standing(self, ring: Ring, lives: Iterable[Life]) -> Standing | None:
        """A digest each over the messages that all of these have delivered in a configuration."""
        there = self._chapters.get(ring, {})
        told = {life.node: there[life].told(regular=True) if life in there else [] for life in lives}
        if not told or not all(told.values()):
            return None
        first = max(blocks[0].number for blocks in told.values())
        last = min(blocks[-1].number for blocks in told.values())
        common = {
            node: [block for block in blocks if first <= block.number <= last]
            for node, blocks in told.items()
        }
        messages = max(_messages(blocks) for blocks in common.values())
        return Standing(messages, {node: _digest(blocks) for node, blocks in common.items()})

    def pages(self) -> list[Page]:
        """The configurations in which anything was delivered, in their order."""
        pages = (_page(ring, chapters) for ring, chapters in sorted(self._chapters.items()))
        return [page for page in pages if page is not None and page.messages]


def _page(ring: Ring, chapters: Mapping[Life, _Chapter]) -> Page | None:
    leavers: dict[object, list[_Chapter]] = {}
    for chapter in chapters.values():
        if chapter.end is not None:
            leavers.setdefault((chapter.end.together, chapter.end.into), []).append(chapter)
    if not leavers:
        return None  # all its members were killed: nobody is left to compare them with
    groups = sorted(leavers.values(), key=lambda group: (-len(group), group[0].life))
    references = [max(group, key=lambda chapter: (chapter.whole, len(chapter.blocks))) for group in groups]
    main = references[0]
    assert main.end is not None
    entries = []
    for life, chapter in sorted(chapters.items()):
        own = next((place for place, group in enumerate(groups) if chapter in group), None)
        same = own is None or _same_to_the_end(chapter, references[own])
        blocks = chapter.told()
        how: How = "to its end" if chapter.whole else "came later"
        if own != 0:
            how = "killed" if own is None else "parted"
            same = same and _same_within(chapter, main)
            blocks = chapter.told(regular=True)
        entries.append(Entry(life.node, how, _messages(blocks), _digest(blocks), same))
    return Page(ring, main.end.members, main.end.messages, tuple(entries))


def _same_to_the_end(one: _Chapter, other: _Chapter) -> bool:
    """Of two that left together: everything, from where both were there."""
    first = max(min(one.blocks, default=0), min(other.blocks, default=0))
    return one.told(first) == other.told(first)


def _same_within(one: _Chapter, other: _Chapter) -> bool:
    """Of two that did not: what both delivered before either was told that the others are gone."""
    mine, theirs = one.told(regular=True), other.told(regular=True)
    if not mine or not theirs:
        return True
    first = max(mine[0].number, theirs[0].number)
    last = min(mine[-1].number, theirs[-1].number)
    return one.told(first, last, regular=True) == other.told(first, last, regular=True)


def _messages(blocks: Iterable[Block]) -> int:
    return sum(block.messages for block in blocks)


def _digest(blocks: Iterable[Block]) -> str:
    """One over many."""
    whole = hashlib.blake2b(digest_size=8)
    for block in blocks:
        whole.update(f"{block.number} {block.digest} ".encode())
    return whole.hexdigest()
