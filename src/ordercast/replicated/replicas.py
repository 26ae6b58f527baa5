"""All objects that a node replicates."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TypeVar

from ordercast.errors import ConfigProblem, NodeClosed, NoMajority
from ordercast.replicated.effects import Fetch, StopFetching
from ordercast.replicated.node import Surroundings
from ordercast.replicated.replica import Replica
from ordercast.replicated.replicated import Replicated
from ordercast.replicated.transfer import Fetching, Giving

T = TypeVar("T", bound=Replicated)


class Replicas:
    """The replicas of a node, over all lives that it has in one process."""

    def __init__(self, node: Surroundings) -> None:
        self._node = node
        self._replicas: dict[str, Replica] = {}
        self._fetching: dict[Replica, Fetching] = {}
        self._giving = Giving(self._replicas.get, node.at_moment)
        self._port: asyncio.Task[int] | None = None

    async def replicate(self, target: T, name: str, timeout: float | None) -> T:
        """Replicate an object; returns it when it has the state that the others have."""
        if name in self._replicas:
            raise ConfigProblem(
                f"an object {name!r} is replicated at this node already: use that one, or another name"
            )
        if isinstance(target, Replicated) and target._replica is not None:
            raise ConfigProblem(
                f"this {type(target).__name__} is replicated already: make another object for {name!r}"
            )
        if self._node.quorum is None:
            raise ConfigProblem(
                f"{name!r} is to live in one partition, and here every partition goes on by itself: give "
                "all nodes "
                'primary="majority" and voters, or a protocol with a primary partition, as in '
                'protocol="total", or replicate it with partition="merge"'
            )
        if self._port is None:
            self._port = asyncio.create_task(self._node.streams.serve(self._giving.serve))
        port = await asyncio.shield(self._port)
        replica = Replica(name, target, self._node.quorum, self._node, timeout, self._fetch, port)
        self._replicas[name] = replica
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(replica.ready)
        except TimeoutError:
            why = replica.machine.agreement.why_not
            self._close(replica)
            raise TimeoutError(
                f"{name} could not be replicated for {timeout or 0:g} s{f': {why}' if why else ''}"
            ) from None
        except BaseException:
            self._close(replica)
            raise
        return target

    def _close(self, replica: Replica) -> None:
        self._replicas.pop(replica.name, None)
        replica.close(NodeClosed(f"{replica.name} is not replicated here any more: replicate it again"))

    def _fetch(self, replica: Replica, what: Fetch | StopFetching) -> None:
        running = self._fetching.get(replica)
        if isinstance(what, Fetch):
            if running is not None and not running.done:
                running.fetch = what
                return
            self._fetching[replica] = Fetching(self._node.streams, replica, what, self._node.at_moment)
        elif running is not None:
            del self._fetching[replica]
            running.stop()

    def all(self) -> Collection[Replica]:
        """The replicas of all objects here."""
        return self._replicas.values()

    def primary(self, lost: NoMajority | None) -> None:
        """The primary partition is lost, and why; or it is regained."""
        for replica in self._replicas.values():
            replica.primary(lost)

    def end(self, error: BaseException) -> None:
        """The node has ended."""
        for replica in self._replicas.values():
            replica.close(error)
        self._replicas.clear()
        if self._port is not None:
            self._port.cancel()
