"""What serving clients needs of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ordercast.core.identity import ConfigurationId, Guarantee, Kind
from ordercast.process_groups.views import Cause, Life, Member, Received, Recounted, Unheard, View


class Change(Protocol):
    """A configuration of nodes."""

    @property
    def id(self) -> ConfigurationId:
        """Identifies the configuration."""

    @property
    def kind(self) -> Kind:
        """Regular, or transitional."""


class Told(Protocol):
    """Is told what one local process gets, in the one order."""

    def received(self, received: Received) -> None:
        """Messages."""

    def unheard(self, unheard: Unheard) -> None:
        """Messages that the process sent reach nobody."""

    def installed(self, view: View) -> None:
        """A group that the process is in has a new view."""

    def left(self, group: str, cause: Cause) -> None:
        """The process is in a group no longer."""

    def configuration(self, change: Change) -> None:
        """A configuration of nodes begins."""


class LocalProcess(Protocol):
    """A process at this node."""

    number: int

    def join(self, group: str, properties: Mapping[str, str] | None = None) -> None:
        """Ask to be in a group."""

    def leave(self, group: str) -> None:
        """Ask to be in a group no longer."""

    def end(self) -> None:
        """Leave all groups, and be told nothing more."""

    def try_send(
        self,
        groups: tuple[str, ...],
        payloads: Sequence[bytes],
        guarantee: Guarantee,
        *,
        heads: Sequence[bytes] | None = None,
    ) -> int | None:
        """Send messages without waiting; the number of the last, None if there is no room now.

        Raises `NoMajority` outside the primary partition, `MessageTooLarge`, or why the node has ended."""

    async def send(
        self,
        groups: Sequence[str],
        payloads: Sequence[bytes],
        guarantee: Guarantee,
        timeout: float | None = None,
        *,
        heads: Sequence[bytes] | None = None,
    ) -> int:
        """Send messages once there is room; the number of the first."""


class StreamLog(Protocol):
    """Keeps the stream of clients over restarts."""

    def reached(self, number: int) -> None:
        """The last message that was delivered has this number."""

    def recounted(self, recounted: Recounted) -> None:
        """Messages of a configuration are counted anew."""

    async def kept(self) -> None:
        """Wait until everything that was delivered so far is on the disk."""


class Processes(Protocol):
    """All local processes of a node."""

    def begin(self, listener: Told) -> LocalProcess:
        """A process begins, and is in no group yet."""

    @property
    def life(self) -> Life:
        """The life of the node that they are in."""

    @property
    def largest(self) -> int:
        """Bytes of the largest message, with its address and what is said beside it."""

    @property
    def alone(self) -> bool:
        """Whether no other node has what is delivered here."""

    def members(self, group: str) -> tuple[Member, ...]:
        """The members of any group."""

    def watch(self, on: bool) -> None:
        """Tell of all groups' views from now on, or not."""

    def hand_over(self, received: Received) -> None:
        """A process could not take messages of a queue: another member is to get them."""
