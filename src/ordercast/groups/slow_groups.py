"""Which groups are slowed down because a reader of them, at whatever member, does not keep up.

A member with an inbox that is full multicasts the names of such groups (`notes.Slow`), all of them each time,
and once more when a configuration begins. So every member knows the same, at the same place in the order; and
who is no member any more slows nothing down. A `send` to a group waits while anybody slows it; sends to other
groups go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from ordercast.core.identity import NodeId
from ordercast.groups.reader import READING, may_pass


class SlowGroups:
    """What a member knows of slow groups, and the sends that wait for them."""

    def __init__(self) -> None:
        self.holders: dict[str, list[NodeId]] = {}
        """By group that is slowed down: the members with a reader that does not keep up."""
        self._told: dict[NodeId, Sequence[str]] = {}
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        self._error: BaseException | None = None

    def hear(self, member: NodeId, groups: Sequence[str]) -> None:
        """A member says which groups it slows down: these, and no others."""
        self._told[member] = groups
        self._update()

    def install(self) -> None:
        """Another configuration begins: whoever slows something down says so again."""
        self._told.clear()
        self._update()

    def _update(self) -> None:
        self.holders.clear()
        for member in sorted(self._told):
            for group in self._told[member]:
                self.holders.setdefault(group, []).append(member)
        for group in [group for group in self._waiting if group not in self.holders]:
            self._wake(self._waiting[group])

    def refuse(self, error: BaseException) -> None:
        """Let all sends that wait now raise this error."""
        for waiting in self._waiting.values():
            for future in waiting:
                if not future.done():
                    future.set_exception(error)

    def end(self, error: BaseException) -> None:
        """Nothing can be sent any more."""
        self._error = error.with_traceback(None)
        for waiting in self._waiting.values():
            self._wake(waiting)

    @staticmethod
    def _wake(waiting: Iterable[asyncio.Future[None]]) -> None:
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def slow(self, groups: Iterable[str]) -> str | None:
        """One of these groups that is slowed down; None if none is."""
        return next((group for group in groups if group in self.holders), None)

    async def wait(self, groups: Iterable[str], size: int) -> bool:
        """Wait until so many bytes may be sent to these groups.

        True if they may though one of them is still slow (`may_pass`).
        """
        while (slow := self.slow(groups)) is not None:
            if may_pass(size):
                return True
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            places = [self._waiting.setdefault(slow, {}), *(inbox.watchers for inbox in READING.get())]
            for waiting in places:
                waiting[future] = None
            try:
                await future
            finally:
                for waiting in places:
                    del waiting[future]
                if not places[0]:
                    del self._waiting[slow]
            if self._error is not None:
                raise self._error
        return False

    @property
    def holder(self) -> NodeId | None:
        """A member with a slow reader, before others of a group that sends of this node wait for."""
        for group in (*self._waiting, *self.holders):
            for member in self.holders.get(group, ()):
                return member
        return None

    def status(self) -> dict[str, list[NodeId]]:
        """By group that is slowed down: the members with a reader that does not keep up."""
        return {group: list(members) for group, members in sorted(self.holders.items())}
