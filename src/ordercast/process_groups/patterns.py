"""Which subscriptions describe a subject: a tree of words, so that it takes no look at each of them."""

from __future__ import annotations

from ordercast.core.subjects import ONE, REST, is_subject, read_subscription


class _Branch:
    """The patterns that begin alike."""

    __slots__ = ("branches", "ends")

    def __init__(self) -> None:
        self.branches: dict[str, _Branch] = {}
        self.ends: set[str] = set()
        """The subscriptions whose pattern ends here."""


class Patterns:
    """Groups that are subscriptions, by their patterns."""

    def __init__(self) -> None:
        self._root = _Branch()

    def add(self, group: str) -> None:
        """A group has members; other groups than subscriptions are passed over."""
        found = read_subscription(group)
        if found is not None:
            branch = self._root
            for word in found[0].split("."):
                branch = branch.branches.setdefault(word, _Branch())
            branch.ends.add(group)

    def remove(self, group: str) -> None:
        """A group has no members any more."""
        found = read_subscription(group)
        if found is not None:
            self._remove(self._root, found[0].split("."), group)

    def _remove(self, branch: _Branch, words: list[str], group: str) -> None:
        path = [branch]
        for word in words:
            path.append(path[-1].branches[word])
        path[-1].ends.remove(group)
        for at in range(len(words), 0, -1):
            if path[at].ends or path[at].branches:
                break
            del path[at - 1].branches[words[at - 1]]

    def of(self, subject: str) -> list[str]:
        """The subscriptions that describe a subject, in alphabetical order."""
        if not (self._root.branches and is_subject(subject)):
            return []
        found: set[str] = set()
        level = [self._root]
        for word in subject.split("."):
            following: list[_Branch] = []
            for branch in level:
                if (rest := branch.branches.get(REST)) is not None:
                    found |= rest.ends
                following += (
                    inner for each in {word, ONE} - {REST} if (inner := branch.branches.get(each)) is not None
                )
            level = following
        for branch in level:
            found |= branch.ends
        return sorted(found)
