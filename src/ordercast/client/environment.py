"""What a client takes from the world around it: how it connects, and chance.

A real client has the `system`'s. Tests hand a client another one (`ordercast.testing`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ordercast.client.servers import Server

READ = 256 * 1024
"""Bytes read at a time."""


class Environment(NamedTuple):
    """The world around a client."""

    open_connection: Callable[[Server], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
    """Connects to a server. Raises `OSError`."""
    chance: random.Random
    """For names that nobody else has, and for the order in which servers are tried."""


def system() -> Environment:
    """The environment of a real client."""
    return Environment(_open_connection, random.SystemRandom())


async def _open_connection(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if server.path:
        return await asyncio.open_unix_connection(server.path, limit=READ)
    return await asyncio.open_connection(server.host, server.port, limit=READ)
