"""All objects that a node replicates."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from ordercast.errors import ConfigProblem, NodeClosed, NoMajority
from ordercast.replicated.disk import ReplicaDisk
from ordercast.replicated.effects import Fetch, Offer, StopFetching
from ordercast.replicated.levels import Level, level_of
from ordercast.replicated.node import Surroundings
from ordercast.replicated.quorum import Always, Majority, Quorum
from ordercast.replicated.replica import Replica
from ordercast.replicated.replicated import Replicated, Subject
from ordercast.replicated.transfer import Fetching, Giving

T = TypeVar("T", bound=Replicated)


class Replicas:
    """The replicas of a node, over all lives that it has in one process."""

    def __init__(self, node: Surroundings) -> None:
        self._node = node
        self._names: set[str] = set()
        """Of the objects that are here, or about to be."""
        self._replicas: dict[str, Replica] = {}
        self._fetching: dict[Replica, Fetching] = {}
        self._disks: dict[Replica, ReplicaDisk] = {}
        self._giving = Giving(self._replicas.get, node.at_moment)
        self._port: asyncio.Task[int] | None = None

    async def replicate(
        self,
        target: T,
        name: str,
        timeout: float | None,
        durable: str | os.PathLike[str] | None,
        level: str | None,
        partition: str = "primary",
        run: str = "everywhere",
        history: str | None = None,
    ) -> T:
        """Replicate an object; returns it when it has the state that the others have."""
        directory = None if durable is None else Path(durable)
        before = self._replicas.get(name)
        if before is not None and before.closed:
            await self.release(name)  # its disk had refused
        if name in self._names:
            raise ConfigProblem(
                f"an object {name!r} is replicated at this node already: use that one, or another name"
            )
        if isinstance(target, Replicated) and target._replica is not None:
            raise ConfigProblem(
                f"this {type(target).__name__} is replicated already: make another object for {name!r}"
            )
        if partition not in ("primary", "merge"):
            raise ConfigProblem(f"partition is {partition!r}: choose one of primary, merge")
        if partition == "merge":
            self._check_merged(target, name, durable is not None, level)
        elif self._node.quorum is None:
            raise ConfigProblem(
                f"{name!r} is to live in one partition, and here every partition goes on by itself: give "
                "all nodes "
                'primary="majority" and voters, or a protocol with a primary partition, as in '
                'protocol="total", or replicate it with partition="merge"'
            )
        if run not in ("everywhere", "primary"):
            raise ConfigProblem(f"run is {run!r}: choose one of everywhere, primary")
        if run == "primary" and partition == "merge":
            raise ConfigProblem(
                f"the commands of {name!r} are to run at the primary, and every partition would have one "
                '(partition="merge"): leave `run` or `partition` out'
            )
        if history is not None and partition == "merge":
            raise ConfigProblem(
                f"the history of {name!r} is to be told in {history!r}, and every partition would tell "
                'another one (partition="merge"): leave `history` or `partition` out'
            )
        asked = level_of(level, durable=durable is not None)
        quorum = Always(merges=True) if partition == "merge" else self._node.quorum
        assert quorum is not None, "it is checked above"
        if (durable is not None or asked is Level.MAJORITY_DISK) and not isinstance(quorum, Majority):
            raise ConfigProblem(
                f"{name!r} is to be on disk, and nobody knows on whose disks: give all nodes voters, as in "
                "voters=[1, 2, 3], each of which has a fixed id"
            )
        self._names.add(name)
        try:
            at_primary = run == "primary"
            return await self._begin(target, name, timeout, directory, asked, quorum, at_primary, history)
        except BaseException:
            self._names.discard(name)
            raise

    def _check_merged(self, target: Replicated, name: str, durable: bool, level: str | None) -> None:
        """Raise why an object cannot live in every partition."""
        if self._node.quorum is not None:
            raise ConfigProblem(
                f'{name!r} is to be merged (partition="merge"), and here one partition alone goes on: leave '
                "`partition` out, or have every partition go on, with the protocol totem and without voters"
            )
        if durable or level not in (None, Level.MEMORY.value):
            raise ConfigProblem(
                f'{name!r} is to be merged (partition="merge"), and such objects are in memory alone: leave '
                "`durable` and `level` out, or keep it in a primary partition"
            )
        why_not = Subject(target).why_not_merged
        if why_not:
            raise ConfigProblem(why_not)

    async def _begin(
        self,
        target: T,
        name: str,
        timeout: float | None,
        durable: Path | None,
        level: Level,
        quorum: Quorum,
        at_primary: bool,
        history: str | None,
    ) -> T:
        if self._port is None:
            self._port = asyncio.create_task(self._node.streams.serve(self._giving.serve))
        port = await asyncio.shield(self._port)
        disk = None if durable is None else await self._open_disk(name, durable)
        try:
            replica = Replica(
                name,
                target,
                quorum,
                self._node,
                timeout,
                self._fetch,
                port,
                level,
                disk,
                at_primary=at_primary,
                told_in=history,
            )
        except BaseException:  # the class or the object is not as it has to be
            if disk is not None:
                await disk.close()
            raise
        self._replicas[name] = replica
        if disk is not None:
            self._disks[replica] = disk
        try:
            async with asyncio.timeout(timeout):
                await replica.begin()
                await asyncio.shield(replica.ready)
        except TimeoutError:
            why = replica.machine.agreement.why_not
            await self._close(replica)
            raise TimeoutError(
                f"{name} could not be replicated for {timeout or 0:g} s{f': {why}' if why else ''}"
            ) from None
        except BaseException:
            await self._close(replica)
            raise
        return target

    async def _open_disk(self, name: str, durable: Path) -> ReplicaDisk:
        # names may be anything: none is a path, or another one's
        directory = durable / quote(name, safe="").replace(".", "%2E")
        node = self._node
        return await ReplicaDisk.open(lambda: node.open_directory(directory), name, node.processes.life.node)

    async def release(self, name: str) -> None:
        """Replicate an object here no longer; who calls its commands or waits for them gets `NodeClosed`."""
        replica = self._replicas.get(name)
        if replica is not None:
            await self._close(replica)
            self._names.discard(name)

    async def _close(self, replica: Replica) -> None:
        if self._replicas.get(replica.name) is replica:
            del self._replicas[replica.name]
        replica.close(NodeClosed(f"{replica.name} is not replicated here any more: replicate it again"))
        disk = self._disks.pop(replica, None)
        if disk is not None:
            await disk.close()

    def _fetch(self, replica: Replica, what: Fetch | StopFetching | Offer) -> None:
        if isinstance(what, Offer):
            self._giving.keep(replica, what.snapshot)
            return
        running = self._fetching.get(replica)
        if isinstance(what, Fetch):
            if running is not None and not running.done:
                running.fetch = what
                return
            self._fetching[replica] = Fetching(
                self._node.streams, replica, what, self._node.slowest, self._node.at_moment
            )
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
        self._giving.end()
        if self._port is not None:
            self._port.cancel()

    async def close(self) -> None:
        """After the end: write what is to be on disk, and let go of it."""
        while self._disks:
            _, disk = self._disks.popitem()
            await disk.close()
