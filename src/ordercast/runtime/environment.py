"""What a node takes from the world around it: clock, chance, how packets travel, where state is kept.

A real node has the `system`'s. Tests hand a node another one (`ordercast.testing`), and the code above cannot
tell.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ordercast.core.identity import NodeId
from ordercast.errors import StorageProblem
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.storage import DataDirectory, Memory, Storage
from ordercast.trace.schema import About, Row
from ordercast.transport.interface import OneNetwork, Setup, Transport
from ordercast.transport.streams import Streams

if TYPE_CHECKING:
    from ordercast.directory import Directory
    from ordercast.keys import Keyring
    from ordercast.runtime.client_listener import ClientListener, Listen
    from ordercast.runtime.connections import Connections
    from ordercast.runtime.direct_connections import Begin


class Trace(Protocol):
    """Where the rows of a node's trace go."""

    @property
    def problem(self) -> str | None:
        """Why the trace breaks off, if it does: a sentence."""

    def append(self, rows: Sequence[Row]) -> None:
        """Rows, in order; they survive the node's process when this returns."""

    def close(self) -> None:
        """The node writes no more."""


class Environment(NamedTuple):
    """The world around one node."""

    now_us: Callable[[], int]
    """Microseconds since the epoch, which never go back."""
    new_seed: Callable[[], int]
    """64 random bits for the machine of each life."""
    open_storage: Callable[[NodeConfig], Storage]
    """Begins a life on the node's disk; called in a thread, since it syncs, and may wait for the clock."""
    open_transport: Callable[[NodeConfig, Setup], Awaitable[OneNetwork]]
    """On one network; called for each that the node is on, with what it is told of that one alone."""
    open_trace: Callable[[NodeConfig, NodeId, int, About], Trace | None]
    """For a life of the node: its identifier and incarnation; None if no trace is to be kept."""
    open_streams: Callable[[NodeConfig, Transport, Callable[[], Keyring | None]], Streams]
    """For a life of the node, whose packets that transport carries; with the keys that it has at any time."""
    open_directory: Callable[[Path], Directory]
    """Where a replicated object is kept on disk; called in a thread."""
    listen_for_clients: Listen
    """How processes that are no members connect to a life of the node."""
    at_moment: Callable[[str], None] = lambda moment: None
    """Told, where a test may want something to happen, what begins or ends now; names are plain words."""


def system() -> Environment:
    """The environment of a real node."""
    offset_us = time.time_ns() // 1000 - time.monotonic_ns() // 1000
    return Environment(
        now_us=lambda: time.monotonic_ns() // 1000 + offset_us,
        new_seed=lambda: secrets.randbits(64),
        open_storage=_open_storage,
        open_transport=_open_udp,
        open_trace=_open_journal,
        open_streams=_open_tcp,
        open_directory=_open_directory,
        listen_for_clients=_listen_for_clients,
    )


def _open_storage(config: NodeConfig) -> Storage:
    if config.data is None:
        return Memory(config.id)
    return DataDirectory.open(config.data, config.id, protocol=config.protocol)


async def _open_udp(config: NodeConfig, setup: Setup) -> OneNetwork:
    from ordercast.transport.udp import UdpSettings, UdpTransport

    settings = UdpSettings(
        place=config.place(sealed=setup.keyring is not None),
        datagram=config.datagram_size,
        buffer=config.socket_buffer,
        greets=config.peers or config.seeds,
        closed=config.peers is not None,
        shared=f"protocol {setup.protocol}, mtu {config.mtu}",
        multicast=config.multicast,
        interface=config.interface,
        cipher=config.cipher,
    )
    return await UdpTransport.open(setup, settings)


def _open_tcp(config: NodeConfig, transport: Transport, keyring: Callable[[], Keyring | None]) -> Streams:
    from ordercast.runtime.tcp_streams import TcpStreams

    places = (each.place(sealed=transport.sealed) for each in config.by_network().values())
    return TcpStreams(list(dict.fromkeys(place.host for place in places)), transport.host_of, keyring)


def _open_directory(path: Path) -> Directory:
    from ordercast.directory import DiskDirectory

    return DiskDirectory(path)


async def _listen_for_clients(
    config: NodeConfig, connections: Connections, begin: Begin, refusal: bytes
) -> ClientListener:
    from ordercast.runtime.client_listener import listen_for_clients

    return await listen_for_clients(config, connections, begin, refusal)


def _open_journal(config: NodeConfig, node: NodeId, incarnation: int, about: About) -> Trace | None:
    directory = config.trace
    if directory is None:
        return None
    from ordercast.trace.journal import Journal
    from ordercast.trace.schema import TraceError

    try:
        return Journal(
            directory,
            directory.name or "trace",
            node,
            incarnation,
            about,
            rows_per_file=config.trace_rows,
            keep_files=config.trace_files,
        )
    except TraceError as error:
        raise StorageProblem(str(error)) from error
