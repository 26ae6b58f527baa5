"""What a node is equipped with according to its configuration: its disk, protocol, machine and trace."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ordercast.core.contract import Machine
from ordercast.core.identity import NodeId
from ordercast.core.protocol import Buffers, Protocol
from ordercast.core.wire import MAX_PACKET
from ordercast.errors import ConfigProblem, StorageProblem
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.storage import DataDirectory, Memory, Storage
from ordercast.transport.seal import OVERHEAD
from ordercast.transport.segments import HEADER_SIZE, MOST_SEGMENTS

if TYPE_CHECKING:
    from ordercast.trace.journal import Journal

SEGMENTS_A_PACKET = 45
"""Datagrams that a full packet of the protocol fills: the more, the less work a byte. So many are a train."""
FULL_BUFFERS = 12
"""At least so many full packets fit into the socket's buffer: where it is small, packets are smaller."""


async def storage_of(config: NodeConfig) -> Storage:
    """Where the node keeps what it must not forget. In a thread: it syncs, and may wait for the clock."""

    def open_storage() -> Storage:
        if config.data is None:
            return Memory(config.id)
        return DataDirectory.open(config.data, config.id, protocol=config.protocol)

    opening = asyncio.get_running_loop().run_in_executor(None, open_storage)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_opened)
        raise


def _close_opened(opening: asyncio.Future[Storage]) -> None:
    """Nobody waits for it any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def protocol_of(config: NodeConfig) -> Protocol:
    """The protocol that a node runs. Only now are the machines loaded: a program may never start a node."""
    from ordercast.protocols import protocol

    try:
        return protocol(config.protocol)
    except ValueError as error:
        raise ConfigProblem(str(error)) from error


def protocol_settings_of(config: NodeConfig, buffer: int) -> msgspec.Struct:
    """All settings of the protocol, as a node uses them whose sockets have buffers of so many bytes.

    Packets fill whole datagrams and fit the buffer.
    """
    space = config.datagram_size - HEADER_SIZE
    segments = max(1, min(SEGMENTS_A_PACKET, buffer // (FULL_BUFFERS * space), MAX_PACKET // space))
    size = segments * space - OVERHEAD
    settings = {"packet_size": size, **config.protocol_settings}
    most = min(MAX_PACKET, MOST_SEGMENTS * space) - OVERHEAD
    if isinstance(settings["packet_size"], int) and settings["packet_size"] > most:
        raise ConfigProblem(
            f"packet_size is {settings['packet_size']}: choose at most {most} with an mtu of {config.mtu}"
        )
    try:
        return protocol_of(config).configure(
            settings, config.settings_profile, Buffers(buffer, space - OVERHEAD)
        )
    except ConfigProblem:
        raise
    except ValueError as error:
        raise ConfigProblem(str(error)) from error


def machine_of(config: NodeConfig, node: NodeId, buffer: int) -> Machine:
    """The protocol's machine for a node whose sockets have buffers of so many bytes."""
    return protocol_of(config).build(protocol_settings_of(config, buffer), node)


def journal_of(config: NodeConfig, node: NodeId, incarnation: int) -> Journal | None:
    """Where the node's trace goes, if it is to be kept."""
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
            protocol_of(config).heading,
            rows_per_file=config.trace_rows,
            keep_files=config.trace_files,
        )
    except TraceError as error:
        raise StorageProblem(str(error)) from error


def stamp_of(key_file: Path | None) -> tuple[int, int] | None:
    """Changes when the key file does."""
    if key_file is None:
        return None
    try:
        found = key_file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
