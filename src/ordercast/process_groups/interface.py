"""The local processes of a node, as what serves clients and what replicates objects use them.

They are implemented in `ordercast.groups`, which hands them on.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ordercast.core.identity import Configuration, Guarantee
from ordercast.process_groups.views import Cause, Life, Received, Unheard, View

Change_contra = TypeVar("Change_contra", bound=Configuration, contravariant=True)


class Listener(Protocol[Change_contra]):
    """Is told what one local process gets: all calls in the one order, on the event loop."""

    def received(self, received: Received) -> None:
        """Messages for the process."""

    def unheard(self, unheard: Unheard) -> None:
        """Messages with heads that the process has sent reach nobody at all."""

    def installed(self, view: View) -> None:
        """A group that the process is in has a new view."""

    def left(self, group: str, cause: Cause) -> None:
        """The process is in a group no longer."""

    def configuration(self, change: Change_contra) -> None:
        """A configuration of nodes begins, and with it another life of the node, if that had ended."""


class LocalProcess(Protocol):
    """A process at this node."""

    number: int
    """Which process of the node's life it is."""

    def join(self, group: str, properties: Mapping[str, str] | None = None) -> None:
        """Ask to be in a group."""

    def leave(self, group: str) -> None:
        """Ask to be in a group no longer."""

    def end(self) -> None:
        """Leave all groups, and be told nothing more."""

    def front(self, groups: tuple[str, ...]) -> bytes:
        """What stands in front of a message from this process to these groups."""

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

    def send(
        self,
        groups: Sequence[str],
        payloads: Sequence[bytes],
        guarantee: Guarantee,
        timeout: float | None = None,
        *,
        heads: Sequence[bytes] | None = None,
    ) -> Coroutine[Any, Any, int]:
        """Send messages once there is room; the number of the first. `heads`: what is said of each beside the
        message itself."""


class LocalProcesses(Protocol):
    """All local processes of a node."""

    def begin(self, listener: Listener[Configuration]) -> LocalProcess:
        """A process begins, and is in no group yet."""

    @property
    def life(self) -> Life:
        """The life of the node that they are in."""

    @property
    def largest(self) -> int:
        """Bytes of the largest message, with its address and what is said beside it."""
