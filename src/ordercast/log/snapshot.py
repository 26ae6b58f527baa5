"""A log on this machine as it was at one moment: its blocks, its changes of the configuration, its damage."""

from __future__ import annotations

from bisect import bisect_right

from ordercast.core.identity import ConfigurationId
from ordercast.log.blocks import MESSAGE, Head
from ordercast.log.disk import Found, Missing
from ordercast.log.position import Position
from ordercast.log.segment import FORMAT, Block, Meta


class Snapshot:
    """A log as it was at one moment: where its blocks are."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.meta = found.meta or Meta(FORMAT, 0)
        every = [block for segment in found.segments for block in segment.blocks]
        trimmed = self.meta.trimmed
        cut = 0 if trimmed is None else bisect_right(every, trimmed, key=_last)
        self.blocks = every[cut:]
        """The blocks that are kept, in order."""
        self.changes = [block for block in every if block.head.kind != MESSAGE]
        """All changes of the configuration that are known, those that were trimmed as well."""
        opening = found.segments[0].opening if found.segments else None
        if opening is not None and opening.configuration is not None:
            self.changes.insert(0, opening.configuration)
        self.finished = {segment.id for segment in found.segments if segment.finished}
        self.missing = found.missing()

    @property
    def oldest(self) -> Position | None:
        """The first entry that is kept."""
        return self.blocks[0].first if self.blocks else None

    @property
    def heads(self) -> list[Head]:
        """Those of the blocks behind the last damage."""
        after = self.missing[-1].last if self.missing else None
        return [block.head for block in self.blocks if after is None or block.first > after]

    def place(self, position: Position | None) -> int:
        """Which block a position is in, or would be in."""
        if position is None:
            return 0
        return max(0, bisect_right(self.blocks, position, key=_first) - 1)

    def hole_after(self, position: Position | None, end: Position | None = None) -> Missing | None:
        """The first damage that a range from behind `position` up to `end` meets."""
        for hole in self.missing:
            if (position is None or hole.last > position) and (end is None or _begins_before(hole, end)):
                return hole
        return None

    def around(self, configuration: ConfigurationId) -> tuple[Block | None, Block | None, Block | None]:
        """The change to a configuration, the one before it and the one after it, as far as they are known."""
        place = Position.beginning(configuration)
        changes = self.changes
        at = bisect_right(changes, place, key=_first)
        here = changes[at - 1] if at and changes[at - 1].first == place else None
        earlier = at - 1 - (here is not None)
        return here, changes[earlier] if earlier >= 0 else None, changes[at] if at < len(changes) else None

    def came_back(self, change: Block) -> Block | None:
        """The change with which the node came back, if it was alone from then to `change`, without a message.

        None if it had a history of its own by then. Numbers of configurations rise along one history only: a
        node that is alone after its start may take a lower number than the group took before that.
        """
        at = bisect_right(self.changes, change.first, key=_first) - 1
        while not change.gap and change.before is not None:  # else the log begins with it
            at -= 1
            before = self.changes[at] if at >= 0 else None
            if before is None or change.before != before.first or len(before.head.members) != 1:
                return None
            change = before
        return change


def _first(block: Block) -> Position:
    return block.first


def _last(block: Block) -> Position:
    return block.last


def _begins_before(hole: Missing, end: Position) -> bool:
    return hole.after is None or hole.after < end
