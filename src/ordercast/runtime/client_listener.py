"""Where processes that are no members connect to a node: at an address of its machine, or a Unix socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from ordercast.errors import AddressProblem
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.connections import Connections, bound
from ordercast.runtime.direct_connections import Begin, DirectListener
from ordercast.transport.address import format_address, parse_address

UNIX = "unix:"


class ClientListener(Protocol):
    """Accepts clients."""

    @property
    def address(self) -> str:
        """Where they connect: ``HOST:PORT`` or ``unix:PATH``."""

    def refuse(self) -> None:
        """Accept no more."""

    async def close(self) -> None:
        """Accept no more, and end all connections."""


Listen: TypeAlias = Callable[[NodeConfig, Connections, Begin, bytes], Awaitable[ClientListener]]
"""Accepts clients where the configuration says, counts them, and has each served by the handler that `Begin`
makes; who is refused is told the bytes."""


async def listen_for_clients(
    config: NodeConfig, connections: Connections, begin: Begin, refusal: bytes
) -> ClientListener:
    """Accept clients over sockets."""
    where = config.clients
    assert where is not None, "the node serves clients"
    if where.startswith(UNIX):
        path = Path(where.removeprefix(UNIX))
        return _AtPath(path, DirectListener(_unix_socket(path), connections, begin, refusal))
    listening = await bound(*parse_address(where), "clients", "choose another address for clients")
    return _AtPort(DirectListener(listening, connections, begin, refusal))


class _AtPort:
    def __init__(self, listener: DirectListener) -> None:
        self._listener = listener
        self.address = format_address(*listener.address[:2])
        self.refuse = listener.refuse
        self.close = listener.close


class _AtPath:
    def __init__(self, path: Path, listener: DirectListener) -> None:
        self._path = path
        self._listener = listener
        self.address = f"{UNIX}{path}"
        self.refuse = listener.refuse

    async def close(self) -> None:
        await self._listener.close()
        self._path.unlink(missing_ok=True)


def _unix_socket(path: Path) -> socket.socket:
    """A socket at a path that nobody listens at; one that a killed node left behind is replaced."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
            except FileNotFoundError:
                pass
            else:
                raise AddressProblem(f"clients are served at {path} already: choose another path")
        listening.bind(str(path))
        os.chmod(path, 0o600)
    except OSError as error:
        listening.close()
        raise AddressProblem(
            f"clients cannot be served at {path}: {error.strerror or error}; choose another path"
        ) from error
    except BaseException:
        listening.close()
        raise
    return listening
