"""What replicated objects need of their node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from ordercast.core.identity import Configuration, Guarantee, NodeId
from ordercast.directory import Directory
from ordercast.process_groups.views import Cause, Life, Received, Unheard, View
from ordercast.replicated.quorum import Quorum
from ordercast.transport.streams import Streams


class Listener(Protocol):
    """Is told what one local process gets, in the one order."""

    def received(self, received: Received) -> None:
        """Messages."""

    def unheard(self, unheard: Unheard) -> None:
        """Messages that the process sent reach nobody."""

    def installed(self, view: View) -> None:
        """A group that the process is in has a new view."""

    def left(self, group: str, cause: Cause) -> None:
        """The process is in a group no longer."""

    def configuration(self, change: Configuration) -> None:
        """A configuration of nodes begins, or another life of the node with it."""


class LocalProcess(Protocol):
    """A process at this node."""

    number: int

    def join(self, group: str, properties: Mapping[str, str] | None = None) -> None:
        """Ask to be in a group."""

    def end(self) -> None:
        """Leave all groups, and be told nothing more."""

    def front(self, groups: tuple[str, ...]) -> bytes:
        """What stands in front of a message from this process to these groups."""

    def try_send(
        self, groups: tuple[str, ...], payloads: Sequence[bytes], guarantee: Guarantee
    ) -> int | None:
        """Send messages without waiting; None if there is no room now.

        Raises `NoMajority` outside the primary partition, `MessageTooLarge`, or why the node has ended."""


class Processes(Protocol):
    """All local processes of a node."""

    def begin(self, listener: Listener) -> LocalProcess:
        """A process begins, and is in no group yet."""

    @property
    def life(self) -> Life:
        """The life of the node that they are in."""

    @property
    def largest(self) -> int:
        """Bytes of the largest message, with its address and what is said beside it."""

    @property
    def configuration(self) -> Configuration | None:
        """The one installed last."""


class Gate(Protocol):
    """What messages wait for."""

    async def wait(self, groups: Sequence[str], size: int, timeout: float | None) -> None:
        """Wait until so many bytes may be sent to these groups."""

    def submit(self, payloads: Sequence[bytes], size: int, guarantee: Guarantee) -> int:
        """Hand over messages, with their addresses, after having waited."""

    def check_majority(self) -> None:
        """Raise `NoMajority` outside the primary partition."""


class Surroundings(NamedTuple):
    """A node, as its replicas know it."""

    processes: Processes
    gate: Gate
    streams: Streams
    quorum: Quorum | None
    """When replicas may go on; None where every partition goes on by itself."""
    open_directory: Callable[[Path], Directory]
    """Where an object is kept on disk; called in a thread."""
    most_waiting: int
    """Bytes that may wait for the state of an object."""
    slowest: Callable[[], NodeId | None]
    """The node for which the others wait, if there is one."""
    now_us: Callable[[], int]
    new_seed: Callable[[], int]
    at_moment: Callable[[str], None]
    """Told, for tests, what begins or ends."""
    hold_up: Callable[[str, str | None], None]
    """Told that this node does not keep up with a group, and why, as a sentence that goes on; None: that it
    does again."""
    check_open: Callable[[], None]
    """Raises why the node takes no more work."""
