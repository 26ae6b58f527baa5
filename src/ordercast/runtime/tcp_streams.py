"""Connections between nodes over TCP, counted and ended as all of a node are (`connections.py`)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ordercast.core.identity import NodeId
from ordercast.runtime.connections import Connection, Connections, Listener, bound
from ordercast.transport.stream_seal import Handshake, Malformed, Refusal
from ordercast.transport.streams import BUFFER, FIRST_S, MOST, Channel, Damaged, Serve

if TYPE_CHECKING:
    from ordercast.keys import Keyring

LOG = logging.getLogger("ordercast")

HANDSHAKE = Handshake(b"OCNODE\x01", "streams", "what nodes say to each other", "not a node", "not a node")

PLACES = MOST + MOST // 3 + 1
"""Connections, also of strangers: a quarter is for those who have yet to show that they have the key."""


class Busy(OSError):
    """So many connections are served that there is no place for another one."""


class TcpStreams:
    """The connections of a real node."""

    def __init__(
        self,
        hosts: Sequence[str],
        host_of: Callable[[NodeId], str | None],
        keyring: Callable[[], Keyring | None],
    ) -> None:
        """`hosts`: where the node listens. `host_of` tells where another node's packets come from, `keyring`
        the keys of the group."""
        self._hosts = hosts
        self._host_of = host_of
        self._keyring = keyring
        self._listeners: list[Listener] = []
        self._connections = Connections(PLACES)
        self._opened: dict[asyncio.StreamWriter, int | None] = {}
        """Connections that this node opened, each with the identifier of its key."""
        self.drops: Counter[str] = Counter()
        """Connections that ended because of what came by them, by reason."""

    async def serve(self, handle: Serve) -> int:
        """Listen at any free port, the same on all hosts; another one for each `handle`."""
        port = 0
        for host in self._hosts:
            listening = await bound(host, port, "state of replicated objects", "choose another address")
            port = listening.getsockname()[1]
            self._listeners.append(Listener(listening, self._connections, partial(self._serve, handle)))
        return port

    async def _serve(
        self,
        handle: Serve,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: Connection,
    ) -> None:
        def heard() -> None:
            if not self._connections.prove(connection):
                raise Busy("too many are served already")

        try:
            async with asyncio.timeout(FIRST_S):
                seal, connection.key_id = await HANDSHAKE.accept(
                    reader, writer, self._keyring(), lambda: "busy" if self._connections.busy else ""
                )
            await handle(Channel(reader, writer, None if seal.open else seal, heard))
        except (Damaged, Malformed) as error:
            self.drops[str(error)] += 1
        except Refusal as refusal:
            self.drops["refused"] += 1
            LOG.info("a connection of another node is refused: %s", refusal)
            writer.write(refusal.answer)
        except TimeoutError:
            self.drops["stalled" if connection.proven else "silent"] += 1
        except (OSError, EOFError) as error:
            LOG.info("a connection of another node ends: %s", error or type(error).__name__)
        else:
            return
        writer.transport.abort()

    async def open(self, node: NodeId, port: int) -> Channel:
        """Connect to that port of the host that the node's packets come from."""
        host = self._host_of(node)
        if host is None:
            raise ConnectionRefusedError(f"node {node} is not reachable")
        reader, writer = await asyncio.open_connection(host, port, limit=BUFFER)
        writer.transport.set_write_buffer_limits(BUFFER)
        try:
            seal, key_id = await HANDSHAKE.greet(reader, writer, self._keyring())
        except (Malformed, Refusal) as error:
            writer.transport.abort()
            raise ConnectionRefusedError(str(error)) from error
        except BaseException:
            writer.transport.abort()
            raise
        self._opened = {each: key for each, key in self._opened.items() if not each.is_closing()}
        self._opened[writer] = key_id
        return Channel(reader, writer, None if seal.open else seal)

    def rekeyed(self) -> None:
        """End what was opened with a key that the group has no more."""
        keyring = self._keyring()
        ids = () if keyring is None else keyring.ids
        self._connections.end_of_other_keys(ids)
        for writer, key_id in self._opened.items():
            if key_id is not None and key_id not in ids:
                writer.transport.abort()

    async def close(self) -> None:
        """End everything at once."""
        for writer in self._opened:
            writer.transport.abort()
        await asyncio.gather(*(listener.close() for listener in self._listeners))
