"""What serving clients needs of a node."""

from __future__ import annotations

from typing import Protocol

from ordercast.process_groups.interface import LocalProcesses
from ordercast.process_groups.views import Member, Received, Recounted


class StreamLog(Protocol):
    """Keeps the stream of clients over restarts."""

    def reached(self, number: int) -> None:
        """The last message that was delivered has this number."""

    def recounted(self, recounted: Recounted) -> None:
        """Messages of a configuration are counted anew."""

    async def kept(self) -> None:
        """Wait until everything that was delivered so far is on the disk."""


class Processes(LocalProcesses, Protocol):
    """All local processes of a node, and what there is of those of others."""

    @property
    def alone(self) -> bool:
        """Whether no other node has what is delivered here."""

    def members(self, group: str) -> tuple[Member, ...]:
        """The members of any group."""

    def watch(self, on: bool) -> None:
        """Tell of all groups' views from now on, or not."""

    def hand_over(self, received: Received) -> None:
        """A process could not take messages of a queue: another member is to get them."""
