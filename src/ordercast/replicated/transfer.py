"""States on their way from one replica to another: over a stream, out of the order.

Who needs a state asks one of those who hold it, by the object's name. The donor says at which place of the
history its state is, and sends it in frames with checksums, piece by piece; meanwhile it carries out nothing,
while the group goes on. If it falls silent or ends, the next one is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ordercast.core.identity import NodeId
from ordercast.replicated.effects import Fetch
from ordercast.replicated.snapshot import Restored

if TYPE_CHECKING:
    from ordercast.replicated.replica import Replica
    from ordercast.transport.streams import Channel, Streams

LOG = logging.getLogger("ordercast")

STALL_S = 5.0
"""How long a donor may keep a replica waiting for the next frame before another one is asked."""
AGAIN_S = 0.1
"""How long a replica waits before it asks all donors anew."""


class Giving:
    """Gives states of a node's objects to other nodes."""

    def __init__(self, find: Callable[[str], Replica | None], at_moment: Callable[[str], None]) -> None:
        """`find`: the replica of an object here, by name."""
        self._find = find
        self._at_moment = at_moment

    async def serve(self, channel: Channel) -> None:
        """Serve one connection: a name, then the state of the object of that name."""
        name = (await channel.receive()).decode(errors="replace")
        replica = self._find(name)
        if replica is None or not replica.machine.has_state:
            return
        snapshot = await replica.snapshot()
        async for data in snapshot.slowly():
            self._at_moment("state half sent")
            async with asyncio.timeout(STALL_S):
                await channel.send(data)


async def take(streams: Streams, node: NodeId, port: int, name: str, replica: Replica) -> Restored:
    """The state of an object, from another node. Raises `OSError` or `EOFError` if that is not to be had."""
    async with asyncio.timeout(STALL_S):
        channel = await streams.open(node, port)
    try:
        await channel.send(name.encode())
        state = Restored(replica.target)
        while not state.whole:
            async with asyncio.timeout(STALL_S):
                data = await channel.receive()
            state.add(data)
            await asyncio.sleep(0)
        return state
    finally:
        channel.close()


class Fetching:
    """Gets a state for one replica, from one donor after the other, until it has one."""

    def __init__(
        self, streams: Streams, replica: Replica, fetch: Fetch, at_moment: Callable[[str], None]
    ) -> None:
        self._streams = streams
        self._replica = replica
        self.fetch = fetch
        """From whom; may change while it goes on."""
        self._at_moment = at_moment
        self._task = asyncio.create_task(self._run(), name=f"ordercast-state-{replica.name}")

    @property
    def done(self) -> bool:
        """Whether a state has come."""
        return self._task.done()

    def stop(self) -> None:
        """It is not needed any more."""
        self._task.cancel()

    async def _run(self) -> None:
        replica, tried = self._replica, 0
        self._at_moment("state transfer begins")
        while True:
            fetch = self.fetch
            sources = fetch.sources
            if sources:
                process, port = sources[tried % len(sources)]
                tried += 1
                try:
                    state = await take(self._streams, process.node, port, replica.name, replica)
                    self._at_moment("state transfer ends")
                    replica.state_came(state)
                    if self.fetch is fetch:
                        return  # else it is not of the history that counts
                except (OSError, EOFError) as error:
                    LOG.info(
                        "the state of %s did not come from node %d: %s", replica.name, process.node, error
                    )
            await asyncio.sleep(AGAIN_S if tried % max(1, len(sources)) == 0 else 0)
