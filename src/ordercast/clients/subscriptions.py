"""The subscriptions of one client: which of them gets a message."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from ordercast.core.subjects import ONE, REST, has_wildcards, matches, subscription

REMEMBERED = 1024
"""Beginnings of subjects of which it is remembered which subscriptions get them."""
ANY = "_"
"""Stands for any last word."""


class Subscription:
    """A subscription of a client (SUB)."""

    __slots__ = ("delivered", "group", "most", "pattern", "place", "queue", "sid")

    def __init__(self, sid: bytes, pattern: str, queue: str | None) -> None:
        self.sid = sid
        """The client's own name for it."""
        self.pattern = pattern
        self.queue = queue
        self.group = subscription(pattern, queue)
        """The group that the client's process is in for it."""
        self.place = 0
        """Which of the client's it is, counted from 1."""
        self.delivered = 0
        """Messages that went to the client over it."""
        self.most: int | None = None
        """Messages after which the subscription ends; None: it goes on."""


class Subscriptions:
    """All of a client's, by their names.

    Answers to requests have subjects of which each comes once, and differs from others in its last word.
    So it is remembered which subscriptions get subjects that begin alike, not which get each.
    """

    def __init__(self) -> None:
        self._by_sid: dict[bytes, Subscription] = {}
        self._groups: Counter[str] = Counter()
        self._literal: defaultdict[str, list[Subscription]] = defaultdict(list)
        """Subscriptions to one subject each that are in no queue, by subject."""
        self._open: list[Subscription] = []
        """Those to patterns whose last word is a wildcard,"""
        self._closed: list[Subscription] = []
        """and to other patterns."""
        self._queues: defaultdict[str, list[Subscription]] = defaultdict(list)
        self._found: dict[str, tuple[Subscription, ...]] = {}
        """Of those that are `_open`, the ones that get subjects that begin so."""
        self._begun = 0
        self._turn = 0

    def __len__(self) -> int:
        return len(self._by_sid)

    def _kept_in(self, one: Subscription) -> list[Subscription]:
        if one.queue is not None:
            return self._queues[one.group]
        if not has_wildcards(one.pattern):
            return self._literal[one.pattern]
        return self._open if one.pattern.rpartition(".")[2] in (ONE, REST) else self._closed

    def add(self, one: Subscription) -> bool:
        """Another one; True if it is the first of its group. One of a name that is taken is passed over."""
        if one.sid in self._by_sid:
            return False
        self._begun += 1
        one.place = self._begun
        self._by_sid[one.sid] = one
        self._kept_in(one).append(one)
        self._found.clear()
        self._groups[one.group] += 1
        return self._groups[one.group] == 1

    def get(self, sid: bytes) -> Subscription | None:
        """The subscription that the client calls so, if there is one."""
        return self._by_sid.get(sid)

    def remove(self, one: Subscription) -> bool:
        """One ends; True if it was the last of its group."""
        del self._by_sid[one.sid]
        self._kept_in(one).remove(one)
        self._found.clear()
        self._groups[one.group] -= 1
        if self._groups[one.group]:
            return False
        del self._groups[one.group]
        self._literal.pop(one.pattern, None) if one.queue is None else self._queues.pop(one.group, None)
        return True

    def of(self, subject: str) -> Sequence[Subscription]:
        """Those without a queue that get a message to a subject, in the order in which they were made."""
        begins = subject.rpartition(".")[0]
        found = self._found.get(begins)
        if found is None:
            if len(self._found) >= REMEMBERED:
                self._found.clear()
            other = f"{begins}.{ANY}" if begins else ANY
            found = tuple(one for one in self._open if matches(one.pattern, other))
            self._found[begins] = found
        literal = self._literal.get(subject)
        if literal is None and not self._closed:
            return found
        more = [one for one in self._closed if matches(one.pattern, subject)]
        return sorted((*found, *(literal or ()), *more), key=_place)

    def of_queue(self, group: str) -> Subscription | None:
        """The subscription whose turn it is, of those in the group of one queue."""
        found = self._queues.get(group)
        if not found:
            return None
        self._turn += 1
        return found[self._turn % len(found)]


def _place(one: Subscription) -> int:
    return one.place
