"""Which entries of a log a reader wants, by group, time and configuration: whole blocks are passed over."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, TypeAlias

import msgspec

from ordercast.core.identity import GROUPS_BETWEEN
from ordercast.core.subjects import matches

Names: TypeAlias = Annotated[tuple[str, ...], msgspec.Meta(max_length=10_000)]
_EVER = (0, 2**62)


class Selection(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which entries of a log a reader wants.

    By `sent_us` and `configurations` whole blocks of the log are left out, and no single entries: a reader
    gets others that lie near those that it wants.
    """

    names: Names | None = None
    """Messages to these groups; with `patterns`, to any of either. None: to all groups."""
    patterns: Names = ()
    """Messages to groups that these describe (`ordercast.core.subjects`)."""
    changes: bool = True
    """Changes of the configuration, whatever the groups."""
    sent_us: tuple[int, int] = _EVER
    """Messages that were sent between these times."""
    configurations: tuple[int, int] = _EVER
    """Entries of configurations whose number is between these."""

    @property
    def all_groups(self) -> bool:
        """Whether messages of all groups are wanted."""
        return self.names is None and not self.patterns

    def wants(self, names: str) -> bool:
        """Whether messages to these groups, which are one text (`GROUPS_BETWEEN`), are wanted."""
        return self.all_groups or _wanted(self.names or (), self.patterns, names)

    def wants_time(self, sent_us: tuple[int, int]) -> bool:
        """Whether messages that were sent between these times may be wanted; (0, 0): that is not known."""
        first, last = self.sent_us
        return sent_us == (0, 0) or (sent_us[1] >= first and sent_us[0] <= last)


ALL = Selection()
"""Everything."""


def selection(group: str | Selection | None) -> Selection:
    """One group's messages, and all changes of the configuration; or what is selected."""
    if isinstance(group, Selection):
        return group
    return ALL if group is None else Selection((group,))


@lru_cache(maxsize=4096)
def _wanted(names: tuple[str, ...], patterns: tuple[str, ...], groups: str) -> bool:
    every = groups.split(GROUPS_BETWEEN)
    return any(group in names or any(matches(pattern, group) for pattern in patterns) for group in every)
