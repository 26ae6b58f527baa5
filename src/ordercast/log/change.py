"""What one commit is to add to a log: blocks, merged ones among them, and what retention takes away."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING
from zlib import crc32

from ordercast.log.blocks import Messages, head_of
from ordercast.log.segment import BadBlock, Block, Summary, digest_of

if TYPE_CHECKING:
    from ordercast.log.files import Files


class Change:
    """What one commit is to add."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.meta = copy(files.meta)
        self.meta.commit += 1
        self.summary = copy(files.tail.summary or Summary(files.tail.id))
        self.notes: dict[bytes, bytes | None] = {}
        self.pending: list[tuple[Block, bytes]] = []
        self._dropped = 0
        """How many of the last committed blocks are replaced by pending ones."""

    def put(self, data: bytes, gap: bool = False) -> None:
        """Add an encoded block behind all others; `gap`: entries before it are missing."""
        head = head_of(data)
        before = self.meta.head
        assert before is None or head.first > before, f"{head.first} does not follow {before}"
        self.pending.append((Block(head, before, 0, len(data), crc32(data), gap), data))
        self.meta.head = self.summary.last = head.last
        self.meta.entries += head.rows
        self.meta.bytes += len(data)
        self.summary.entries += head.rows
        self.summary.digest = digest_of(data, self.summary.digest)

    def merge(self, count: int) -> tuple[int, int] | None:
        """Make one block of the last ones: its rows and bytes. None if they cannot be read, or are gone."""
        committed = self._files.tail.blocks
        old = count - min(count, len(self.pending))
        kept = len(committed) - self._dropped
        some = committed[max(0, kept - old) : kept]
        if len(some) < old:
            return None
        try:
            parts = [self._files.read(block) for block in some]
        except BadBlock:
            return None
        new = self.pending[len(self.pending) - (count - old) :]
        del self.pending[len(self.pending) - (count - old) :]
        self._dropped += old
        joined = Messages.joined([Messages.decoded(data) for data in (*parts, *(data for _, data in new))])
        data = joined.encoded()
        before = (some[0] if some else new[0][0]).before
        block = Block(head_of(data), before, 0, len(data), crc32(data))
        self.meta.bytes += len(data) - sum(block.length for block in (*some, *(block for block, _ in new)))
        self.pending.append((block, data))
        return len(joined), len(data)

    def kept(self) -> Iterator[Block]:
        """The blocks that retention has left, the oldest first."""
        return self._files.kept(self.meta.trimmed, self._current())

    def trim(self, block: Block) -> None:
        """Let go of the oldest block."""
        self.meta.trimmed = block.last
        self.meta.entries -= block.head.rows
        self.meta.bytes -= block.length

    def _current(self) -> list[Block]:
        committed = self._files.tail.blocks
        return [*committed[: len(committed) - self._dropped], *(block for block, _ in self.pending)]

    @property
    def blocks_kept(self) -> int:
        """How many blocks of the segment that is being written retention has left."""
        trimmed = self.meta.trimmed
        return sum(trimmed is None or block.last > trimmed for block in self._current())
