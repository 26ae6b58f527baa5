"""Who keeps the token waiting: each member enters on the token how long it lay there before it was handled.

A member is slow when its process is, or its application: then the token waits in its socket buffers. All
members read all entries, so each of them can name the slow one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import mul

from ordercast.core.identity import NodeId
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import LONGEST_HOLD_US, Token

SPAN_US = 1_000_000
"""The longest wait is kept for so long, and then for as long again."""


class Waits:
    """What the entries of the token said of late, on one ring.

    Of each member the longest wait of the last one to two seconds: long enough for a person to see it, and
    forgotten when the member is quick again.
    """

    def __init__(self) -> None:
        self._members: tuple[NodeId, ...] = ()
        self._before: list[int] = []
        self._now: list[int] = []
        self._since_us = 0
        self.total_us = 0
        """The longest wait of each member, at all visits of a cycle together."""

    def begin(self, now_us: int, members: tuple[NodeId, ...]) -> None:
        """A ring was installed: what was known of the members of the last one is forgotten."""
        self._members = members
        self._before = self._now = [0] * len(members)
        self._since_us = now_us
        self.total_us = 0

    def enter(self, ring: Ring, token: Token, waited_us: int) -> None:
        """The token is here, and waited for so long."""
        if len(token.holds) != len(ring.members):
            token.holds = [0] * len(ring.members) if waited_us > 0 else []
        if token.holds:
            token.holds[ring.place] = min(max(waited_us, 0), LONGEST_HOLD_US)
            if not any(token.holds):
                token.holds = []

    def learn(self, now_us: int, holds: list[int], times: Sequence[int] = ()) -> None:
        """Take note of what the token says of everybody. It visits each so many times, once if `times` is
        empty."""
        if now_us - self._since_us >= SPAN_US:
            self._before, self._now = self._now, list(holds) or [0] * len(self._members)
            self._since_us = now_us
        elif holds:
            self._now = [max(pair) for pair in zip(self._now, holds, strict=True)]
        else:
            return
        longest = map(max, self._now, self._before)
        self.total_us = sum(map(mul, longest, times)) if times else sum(longest)

    @property
    def longest(self) -> Mapping[NodeId, int]:
        """By member, in microseconds."""
        return dict(zip(self._members, map(max, self._now, self._before), strict=True))


class Rotations:
    """Measures how long the token takes to come round, into a machine's statistics."""

    def __init__(self, stats: dict[str, float]) -> None:
        self._stats = stats
        self._visited_us: int | None = None

    def forget(self) -> None:
        """Another ring is being recovered: its token was never here."""
        self._visited_us = None

    def count(self, now_us: int, token: Token) -> None:
        """Account for the time since the last visit, unless the token was held in between."""
        if self._visited_us is not None and not token.idle:
            took = now_us - self._visited_us
            stats = self._stats
            stats["rotations"] += 1
            stats["rotation_us_total"] += took
            if took > stats["rotation_us_max"]:
                stats["rotation_us_max"] = took
        self._visited_us = now_us
