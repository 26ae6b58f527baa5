"""Whether all nodes delivered the same messages in the same order, by the digests that they tell.

What is compared is what extended virtual synchrony promises, and view synchrony:

- blocks that were delivered whole within the regular configuration are the same at all its members;
- members that leave a configuration together, into the same next one, deliver the same to its very end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.measure.order import Block, End

How = Literal["to its end", "killed", "parted", "came later"]


class Life(NamedTuple):
    """One life of a node."""

    node: NodeId
    incarnation: int


class MemberOrder(msgspec.Struct, frozen=True):
    """What one member delivered in a configuration, beside what the others did."""

    node: NodeId
    how: How
    """Whether it was there to the end, with most of the others; and else, why its part is shorter."""
    messages: int
    """Messages of it that were compared."""
    digest: str
    same: bool


class ConfigurationOrder(msgspec.Struct, frozen=True):
    """A configuration, and what its members delivered in it."""

    configuration: ConfigurationId
    members: tuple[NodeId, ...]
    messages: int
    """Messages delivered by those that were there to its end."""
    entries: tuple[MemberOrder, ...]
    blocks: int
    """Blocks that two lives or more told of."""
    compared: int
    """Messages in these blocks."""
    difference: str | None
    """A sentence on the first two nodes that differ, if any do."""

    @property
    def same(self) -> bool:
        """All delivered the same in the same order, for as long as each was there."""
        return all(entry.same for entry in self.entries)


class CommonDigests(NamedTuple):
    """What some nodes have all delivered of a configuration: how many messages, and a digest a node."""

    messages: int
    digests: dict[NodeId, str]

    @property
    def same(self) -> bool:
        """Whether all have the same."""
        return len(set(self.digests.values())) <= 1


class Agreement(NamedTuple):
    """How far nodes were compared, and the first difference that showed."""

    equal: bool
    blocks: int
    """Blocks that could be compared."""
    messages: int
    """Messages that were compared: those in these blocks."""
    difference: str | None = None


class _Delivered:
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


class OrderComparison:
    """Gathers what nodes tell of their deliveries, and compares it."""

    def __init__(self) -> None:
        self._delivered: dict[ConfigurationId, dict[Life, _Delivered]] = {}

    def add(self, life: Life, blocks: Iterable[Block], ends: Iterable[End]) -> None:
        """More of what a node delivered in one of its lives."""
        for block in blocks:
            self._of(block.configuration, life).blocks[block.number] = block
        for end in ends:
            self._of(end.configuration, life).end = end

    def _of(self, configuration: ConfigurationId, life: Life) -> _Delivered:
        lives = self._delivered.setdefault(configuration, {})
        return lives.setdefault(life, _Delivered(life))

    def common(self, configuration: ConfigurationId, lives: Iterable[Life]) -> CommonDigests | None:
        """A digest each over the messages that all of these have delivered in a configuration so far."""
        there = self._delivered.get(configuration, {})
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
        return CommonDigests(messages, {node: _digest(blocks) for node, blocks in common.items()})

    def configurations(self) -> list[ConfigurationOrder]:
        """The configurations in which anything was delivered, in their order."""
        found = (_compared(each, lives) for each, lives in sorted(self._delivered.items()))
        return [each for each in found if each is not None and each.messages]

    def agreement(self) -> Agreement:
        """The result over all configurations."""
        found = self.configurations()
        return Agreement(
            all(each.same for each in found),
            sum(each.blocks for each in found),
            sum(each.compared for each in found),
            next((each.difference for each in found if each.difference is not None), None),
        )


def _compared(configuration: ConfigurationId, lives: Mapping[Life, _Delivered]) -> ConfigurationOrder | None:
    leavers: dict[object, list[_Delivered]] = {}
    for each in lives.values():
        if each.end is not None:
            # Who was left behind left with nobody.
            key = (each.end.together, each.end.into) if each.end.together else each.life
            leavers.setdefault(key, []).append(each)
    if not leavers:
        return None  # all its members were killed: nobody is left to compare them with
    groups = sorted(leavers.values(), key=lambda group: (-len(group), group[0].life))
    references = [max(group, key=lambda each: (each.whole, len(each.blocks))) for group in groups]
    main = references[0]
    assert main.end is not None
    entries = []
    differences = []
    for life, each in sorted(lives.items()):
        own = next((place for place, group in enumerate(groups) if each in group), None)
        found = None if own is None else _difference(each, references[own], regular=False)
        blocks = each.told()
        how: How = "to its end" if each.whole else "came later"
        if own != 0:
            how = "killed" if own is None else "parted"
            found = found or _difference(each, main, regular=True)
            blocks = each.told(regular=True)
        if found is not None:
            differences.append(f"{found} in configuration {configuration}")
        entries.append(MemberOrder(life.node, how, _messages(blocks), _digest(blocks), found is None))
    shared = [
        block
        for number, block in main.blocks.items()
        if any(number in each.blocks for each in lives.values() if each is not main)
    ]
    return ConfigurationOrder(
        configuration,
        main.end.members,
        main.end.messages,
        tuple(entries),
        len(shared),
        _messages(shared),
        next(iter(differences), None),
    )


def _difference(one: _Delivered, other: _Delivered, regular: bool) -> str | None:
    """Where two lives differ first, in a sentence without its end; None if they do not.

    Two that left together delivered the same, from where both were there, to the end. Of others, `regular`,
    only that can be compared which both delivered before either was told that the others are gone.
    """
    mine, theirs = one.told(regular=regular), other.told(regular=regular)
    if regular and (not mine or not theirs):
        return None
    first = max(blocks[0].number if blocks else 0 for blocks in (mine, theirs))
    last = min(blocks[-1].number for blocks in (mine, theirs)) if regular else float("inf")
    mine, theirs = (each.told(first, last, regular) for each in (one, other))
    if mine == theirs:
        return None
    nodes = sorted((one.life.node, other.life.node))
    counts = [_messages(blocks) for blocks in (mine, theirs)]
    if one.life.node != nodes[0]:
        counts.reverse()
    before = 0
    for left, right in zip(mine, theirs, strict=False):
        within = left is not mine[-1] and right is not theirs[-1]
        if left != right and (within or left.messages == right.messages):
            most = max(left.messages, right.messages)
            return (
                f"nodes {nodes[0]} and {nodes[1]} first differ between message {before + 1:,} and message "
                f"{before + most:,}"
            )
        before += left.messages
    # They are the same as far as the one goes that delivered less, or that lacks something in its last block.
    return f"nodes {nodes[0]} and {nodes[1]} delivered {counts[0]:,} and {counts[1]:,} messages"


def _messages(blocks: Iterable[Block]) -> int:
    return sum(block.messages for block in blocks)


def _digest(blocks: Iterable[Block]) -> str:
    """One over many, in 16 hexadecimal digits."""
    whole = hashlib.blake2b(digest_size=8)
    for block in blocks:
        whole.update(f"{block.number} {block.digest:08x} ".encode())
    return whole.hexdigest()
