"""The subscriptions of one client: which of them gets a message."""

from __future__ import annotations

from collections import Counter

from ordercast.core.subjects import matches, subscription

REMEMBERED = 1024
"""Subjects of which it is remembered which subscriptions get them."""


class Subscription:
    """One of a client's."""

    __slots__ = ("delivered", "group", "most", "pattern", "queue", "sid")

    def __init__(self, sid: bytes, pattern: str, queue: str | None) -> None:
        self.sid = sid
        """The client's own name for it."""
        self.pattern = pattern
        self.queue = queue
        self.group = subscription(pattern, queue)
        """The group that the client's process is in for it."""
        self.delivered = 0
        """Messages that went to the client over it."""
        self.most: int | None = None
        """After so many it ends."""


class Subscriptions:
    """All of a client's, by their names."""

    def __init__(self) -> None:
        self._by_sid: dict[bytes, Subscription] = {}
        self._groups: Counter[str] = Counter()
        self._found: dict[tuple[str, str | None], tuple[Subscription, ...]] = {}
        self._turn = 0

    def __len__(self) -> int:
        return len(self._by_sid)

    def add(self, one: Subscription) -> bool:
        """Another one; True if it is the first of its group. One of a name that is taken is passed over."""
        if one.sid in self._by_sid:
            return False
        self._by_sid[one.sid] = one
        self._groups[one.group] += 1
        self._found.clear()
        return self._groups[one.group] == 1

    def get(self, sid: bytes) -> Subscription | None:
        """The one of that name."""
        return self._by_sid.get(sid)

    def remove(self, one: Subscription) -> bool:
        """One ends; True if it was the last of its group."""
        del self._by_sid[one.sid]
        self._found.clear()
        self._groups[one.group] -= 1
        if self._groups[one.group]:
            return False
        del self._groups[one.group]
        return True

    def of(self, subject: str, queue: str | None = None) -> tuple[Subscription, ...]:
        """Those that get a message: all that describe its subject, or of a queue's group one, in turn."""
        found = self._found.get((subject, queue))
        if found is None:
            if len(self._found) >= REMEMBERED:
                self._found.clear()
            found = self._found[subject, queue] = tuple(
                one
                for one in self._by_sid.values()
                if (one.group == queue if one.queue or queue else _describes(one.pattern, subject))
            )
        if queue is None or len(found) < 2:
            return found
        self._turn += 1
        return (found[self._turn % len(found)],)


def _describes(pattern: str, subject: str) -> bool:
    return pattern == subject or matches(pattern, subject)
