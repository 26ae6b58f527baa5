"""Of which groups a node needs the messages' contents: what it tells the ordering machine (`Attend`)."""

from __future__ import annotations

from collections import Counter

from ordercast.core.contract import MOST_ATTENDED, Attend
from ordercast.core.subjects import read_subscription


class Needs:
    """The groups that processes of this node are in, asked to join, or have left and are not told so yet."""

    def __init__(self, everything: bool) -> None:
        """With `everything` the node needs the contents of all messages, whatever its processes joined."""
        self._everything = everything
        self._joined: dict[int, Counter[str]] = {}
        """By process and group, how often it joined and is not told that it has left again."""
        self._groups: Counter[str] = Counter()
        """The same for all processes together."""
        self._subscriptions = 0
        self._queues = 0
        """How many of the groups are subscriptions, and how many of these are to a queue."""
        self._told: Attend | None = None
        self.changed = True
        """Whether there may be something to tell."""

    def add(self, process: int, group: str) -> None:
        """A process asks to join a group."""
        self._joined.setdefault(process, Counter())[group] += 1
        self._groups[group] += 1
        if self._groups[group] == 1:
            self._count(group, 1)

    def remove(self, process: int, group: str) -> None:
        """A process has left a group, and everything of before that is here. It may have joined it again."""
        joined = self._joined.get(process)
        if joined is None or not joined[group]:
            return  # it was in no group of that name: somebody else wrote that it leaves one
        joined[group] -= 1
        self._subtract(group, 1)

    def end(self, process: int) -> None:
        """A process has ended, and everything of before that is here."""
        for group, times in self._joined.pop(process, Counter[str]()).items():
            if times:
                self._subtract(group, times)

    def _subtract(self, group: str, times: int) -> None:
        self._groups[group] -= times
        if not self._groups[group]:
            del self._groups[group]
            self._count(group, -1)

    def _count(self, group: str, change: int) -> None:
        self.changed = True
        found = read_subscription(group)
        if found is not None:
            self._subscriptions += change
            self._queues += change if found[1] is not None else 0

    def attend(self) -> Attend | None:
        """What the ordering machine is to be told before it is given more; None if nothing has changed."""
        if not self.changed:
            return None
        self.changed = False
        everything = self._everything or self._subscriptions or len(self._groups) > MOST_ATTENDED
        attend = Attend(None if everything else frozenset(self._groups), self._queues > 0)
        if attend == self._told:
            return None
        self._told = attend
        return attend
