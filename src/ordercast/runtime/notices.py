"""What a log should say of a running node's status: changes and sums, never a line a packet."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ordercast.core.declared import DropReason

SUMMARY_S = 10.0
"""Drops are summed up over at least this long."""
SLOW_FOR_S = 5.0
"""Who is slow for less than this is not mentioned."""
NOTABLE_US = 20_000
"""Who keeps the token waiting for less than this is not called slow in a log."""
Notice = tuple[int, str]
"""A level of `logging`, and a sentence."""


class Notices:
    """Looks at the status now and then, about once a second."""

    def __init__(self, now: float, drops: Iterable[DropReason]) -> None:
        """`now` in seconds; `drops` are declared: of those that are everyday a log says nothing."""
        self._everyday = frozenset(drop.reason for drop in drops if drop.everyday)
        self._told_drops: dict[str, int] = {}
        self._summed = now
        self._lasting = {"slow": _Lasting(), "held up": _Lasting()}

    def look(self, now: float, status: Mapping[str, Any]) -> Iterator[Notice]:
        """What is worth a line since the last look; `now` in seconds."""
        yield from self._drops(now, status["drops"])
        slow = status.get("slow")
        notable = slow["node"] if slow and slow["waits_us"] >= NOTABLE_US else None
        for change, node in self._lasting["slow"].changes(now, notable):
            if slow and change == "begins":
                waits_ms = slow["waits_us"] / 1000
                yield (
                    logging.WARNING,
                    f"node {node} is slow: it keeps the token waiting for {waits_ms:.0f} ms",
                )
            else:
                yield logging.INFO, f"node {node} is not slow any more"
        for change, node in self._lasting["held up"].changes(now, status.get("held_up_by")):
            if change == "begins":
                yield logging.WARNING, f"the group waits for node {node}, which does not keep up"
            else:
                yield logging.INFO, f"the group does not wait for node {node} any more"

    def _drops(self, now: float, drops: Mapping[str, int]) -> Iterator[Notice]:
        since = now - self._summed
        if since < SUMMARY_S:
            return
        new = {
            reason: count - self._told_drops.get(reason, 0)
            for reason, count in drops.items()
            if reason not in self._everyday
        }
        self._told_drops = dict(drops)
        self._summed = now
        told = ", ".join(f"{count:,} {reason}" for reason, count in sorted(new.items()) if count)
        if told:
            yield logging.WARNING, f"packets not used in the last {since:.0f} s: {told}"


class _Lasting:
    """Tells of a state that one node at a time can be in: when it has lasted, and when it is over."""

    def __init__(self) -> None:
        self._node: int | None = None
        self._since = 0.0
        self._told: int | None = None

    def changes(self, now: float, node: int | None) -> Iterator[tuple[str, int]]:
        """Tell once `node` (None: no node) is in that state for `SLOW_FOR_S` seconds, and when no longer."""
        if node != self._node:
            self._node, self._since = node, now
        if self._node == self._told or now - self._since < SLOW_FOR_S:
            return
        if self._told is not None:
            yield "ends", self._told
        self._told = self._node
        if self._node is not None:
            yield "begins", self._node
