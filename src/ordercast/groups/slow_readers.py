"""Tells the other members which groups have readers, or disks, at this node that do not keep up."""

from __future__ import annotations

import asyncio
import logging

from ordercast.groups.lifetime import Lifetime
from ordercast.groups.notes import MOST_GROUPS, Slow, written
from ordercast.groups.producers import GUARANTEE
from ordercast.groups.readers import Readers
from ordercast.groups.send_gate import SendGate

LOG = logging.getLogger("ordercast")


class SlowReaders:
    """Multicasts which groups are slow because of readers here (`notes.Slow`), whenever that changes."""

    def __init__(self, readers: Readers, gate: SendGate, lifetime: Lifetime) -> None:
        """What is to be told goes through `gate`."""
        self._readers = readers
        self._gate = gate
        self._lifetime = lifetime
        self._held: dict[str, str] = {}
        """Groups that something else at this node holds up: for people, why."""
        self._told: tuple[str, ...] = ()
        """What the others know."""
        self._telling = False

    def install(self) -> None:
        """A regular configuration begins: its members hear of slow readers anew."""
        self._told = ()
        self.changed()

    def hold(self, group: str, why: str | None) -> None:
        """Something at this node does not keep up with a group, and why; None: it does again."""
        if why is None:
            self._held.pop(group, None)
        else:
            self._held[group] = why
        self.changed()

    def changed(self) -> None:
        """The groups with slow readers here may have changed."""
        if not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        """Tell all members which groups have readers here that do not keep up, if that has changed."""
        self._telling = False
        readers, told = self._readers, self._told
        groups = tuple(dict.fromkeys((*self._held, *readers.slow_groups)))[:MOST_GROUPS]
        if groups == told or self._lifetime.leaving or not (self._gate.live and readers.placed):
            return
        self._told = groups
        unread = readers.unread_by_group()
        for group in sorted(set(groups) - set(told)):
            why = self._held.get(group) or (
                f"the application does not read group {group}: {unread.get(group, 0)} bytes wait"
            )
            LOG.warning("%s, and who sends to it is slowed down", why)
        while len(note := written(Slow(groups))) > self._gate.largest:
            groups = groups[: len(groups) // 2]  # tiny messages: better some than none
        self._gate.submit((note,), len(note), GUARANTEE)
