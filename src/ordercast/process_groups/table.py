"""The members of all groups, as far as this node's configuration reaches.

Every node keeps the whole table: then who joins a group knows at once who else is in it, and to join takes
one ordered message (``docs/decisions/process-groups.md`` says what that costs).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from ordercast.process_groups.notes import Membership
from ordercast.process_groups.patterns import Patterns
from ordercast.process_groups.views import Life, Member, Process, Properties


class Table:
    """Who is in which group."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Process, Properties]] = {}
        self._processes: dict[Process, set[str]] = {}
        self._patterns = Patterns()

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    @property
    def groups(self) -> Iterable[str]:
        """The groups that have members."""
        return self._groups.keys()

    def processes(self, group: str) -> Iterable[Process]:
        """The members of a group."""
        return self._groups.get(group, {}).keys()

    def subscriptions(self, subject: str) -> list[str]:
        """The groups of those who subscribe to patterns that describe a subject, or to it over a queue."""
        return self._patterns.of(subject)

    def members(self, group: str) -> tuple[Member, ...]:
        """The members of a group, in ascending order, with what they say of themselves."""
        return tuple(Member(*each) for each in sorted(self._groups.get(group, {}).items(), key=_process))

    def same(self, other: Table, group: str) -> bool:
        """Whether a group has the same members in another table."""
        return self._groups.get(group, {}).keys() == other._groups.get(group, {}).keys()

    def of_life(self, life: Life) -> Iterator[Membership]:
        """The groups that processes of one life of a node are in, by process and name."""
        for process in sorted(process for process in self._processes if process.life == life):
            for group in sorted(self._processes[process]):
                yield Membership(process.number, group, dict(self._groups[group][process]))

    def groups_of(self, process: Process) -> list[str]:
        """The groups that a process is in, in alphabetical order."""
        return sorted(self._processes.get(process, ()))

    # --- changes --------------------------------------------------------------------------------

    def add(self, process: Process, group: str, properties: Properties) -> bool:
        """A process is in a group from here on; False if it was before."""
        members = self._groups.get(group)
        if members is None:
            members = self._groups[group] = {}
            self._patterns.add(group)
        elif process in members:
            return False
        members[process] = properties
        self._processes.setdefault(process, set()).add(group)
        return True

    def remove(self, process: Process, group: str) -> bool:
        """A process is no longer in a group; False if it was not. A group without members is forgotten."""
        members = self._groups.get(group, {})
        if process not in members:
            return False
        del members[process]
        if not members:
            del self._groups[group]
            self._patterns.remove(group)
        groups = self._processes[process]
        groups.remove(group)
        if not groups:
            del self._processes[process]
        return True

    def keep(self, lives: Container[Life]) -> list[str]:
        """Only processes of these lives are left; the groups that lost members, in alphabetical order."""
        gone = [process for process in self._processes if process.life not in lives]
        lost = {group for process in gone for group in self._processes[process]}
        for process in gone:
            for group in tuple(self._processes[process]):
                self.remove(process, group)
        return sorted(lost)


def _process(item: tuple[Process, Properties]) -> Process:
    return item[0]
