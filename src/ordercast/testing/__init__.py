"""Groups of real nodes in one process and in virtual time, for tests.

    async def main():
        async with Cluster(5, seed=7, loss=0.01) as cluster:
            groups = [await node.join("orders") for node in cluster.nodes]
            cluster.network.partition({1, 2})
            ...

    ordercast.testing.run(main())

`run` runs a coroutine in virtual time: `asyncio.sleep(3600)` takes no time at all. Nodes, groups, driver and
protocol are those of a real network; packets travel in memory, and disks are kept there. The same seed gives
the same run, and the same rows of trace.

`linearizable` judges what clients were answered, recorded in a `History`, by a `Model`.
"""

from __future__ import annotations

from ordercast.testing.checks import OfAnotherType as OfAnotherType
from ordercast.testing.checks import ReplicasDiffer as ReplicasDiffer
from ordercast.testing.cluster import Cluster as Cluster
from ordercast.testing.event_loop import run as run
from ordercast.testing.faults import KINDS as KINDS
from ordercast.testing.faults import MOMENTS as MOMENTS
from ordercast.testing.history import Call as Call
from ordercast.testing.history import History as History
from ordercast.testing.linearizability import NotLinearizable as NotLinearizable
from ordercast.testing.linearizability import Undecided as Undecided
from ordercast.testing.linearizability import linearizable as linearizable
from ordercast.testing.models import ANY as ANY
from ordercast.testing.models import COUNTER as COUNTER
from ordercast.testing.models import LOCK as LOCK
from ordercast.testing.models import MAP as MAP
from ordercast.testing.models import QUEUE as QUEUE
from ordercast.testing.models import Model as Model
from ordercast.testing.services import Client as Client
from ordercast.testing.services import Raised as Raised
from ordercast.testing.services import Service as Service
from ordercast.testing.simulated import simulated as simulated
from ordercast.testing.standstill import Stuck as Stuck
from ordercast.testing.world import World as World

__all__ = [
    "ANY",
    "COUNTER",
    "KINDS",
    "LOCK",
    "MAP",
    "MOMENTS",
    "QUEUE",
    "Call",
    "Client",
    "Cluster",
    "History",
    "Model",
    "NotLinearizable",
    "Raised",
    "ReplicasDiffer",
    "Service",
    "Stuck",
    "Undecided",
    "World",
    "linearizable",
    "run",
    "simulated",
]
