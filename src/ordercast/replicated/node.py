"""What replicated objects need of their node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from ordercast.core.identity import Configuration, Guarantee, NodeId
from ordercast.directory import Directory
from ordercast.process_groups.interface import LocalProcesses
from ordercast.replicated.quorum import Quorum
from ordercast.transport.streams import Streams


class Processes(LocalProcesses, Protocol):
    """All local processes of a node, and the configuration that they are in."""

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
