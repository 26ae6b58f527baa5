"""A group of nodes, what runs at them, who asks them for something, and what goes wrong."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar, Unpack

from ordercast.client.api import Client as NodeClient
from ordercast.client.settings import ClientSettings
from ordercast.core.identity import Kind, NodeId
from ordercast.errors import NodeClosed
from ordercast.groups.api import Node
from ordercast.replicated.replica import Replica
from ordercast.testing.checks import compare_at_the_end, compare_often
from ordercast.testing.client_network import address_of
from ordercast.testing.cluster import Cluster
from ordercast.testing.event_loop import NodeProcess, WorldLoop
from ordercast.testing.fault_player import FaultPlayer
from ordercast.testing.faults import Fault
from ordercast.testing.history import History
from ordercast.testing.linearizability import linearizable
from ordercast.testing.models import Model
from ordercast.testing.rows import KeptRows
from ordercast.testing.services import Client, Service, supervise
from ordercast.testing.standstill import Stuck, standstill
from ordercast.testing.timetable import Timetable
from ordercast.transport.memory import MemoryNetwork

T = TypeVar("T")
EPOCH_S = 1_700_000_000
"""What the clocks of the nodes' machines say at the beginning, if they are right."""
LOOK_S = 0.01
"""How often it is looked whether all nodes are ready."""
LIMIT_S = 600.0
"""Virtual seconds after which a run that has not ended has failed."""


class World:
    """Nodes 1 to `nodes` in virtual time, with programs at them, clients, and faults.

    Each node runs in a process of its own: what a program does there stops and ends with it. A node that
    crashes loses its memory, and the objects in it; `restart` begins its next life, in which all programs
    begin anew.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        seed: int = 0,
        protocol: str = "totem",
        settings: Mapping[str, Any] | None = None,
        rings: Mapping[int, Sequence[NodeId]] | None = None,
        voters: Sequence[NodeId] | None = None,
        durable: bool = False,
        loss: float = 0.0,
        delay_us: tuple[int, int] = (50, 250),
        clocks_ahead_s: Mapping[NodeId, float] | None = None,
        limit_s: float = LIMIT_S,
        rows: KeptRows | None = None,
        clients: bool = False,
        client_stream: Sequence[str] = (),
    ) -> None:
        """`rings`: those of a `Cluster`. `voters`: with Totem all nodes, unless it is said otherwise; ``()``
        lets every partition go on. Where the protocol itself has a primary partition a majority of the nodes
        has to begin it. `durable`: what is answered is on the disks of a majority, so that all nodes may
        crash at once; all of them vote. `clocks_ahead_s`: whose clock is wrong by how much. `limit_s`:
        virtual seconds that a run may take. `rows`: where the nodes' traces go. `clients`: nodes serve
        clients, for `connect`; `client_stream`: which subjects they keep for them in a log."""
        any_partition = protocol in ("totem", "rings")
        if voters is None:
            voters = range(1, nodes + 1) if any_partition or durable else ()
        if not any_partition:
            settings = {"founders": nodes // 2 + 1, **(settings or {})}
        self.seed = seed
        self.durable = durable
        self._disk_chance = random.Random(f"{seed}/disks")
        self.limit_s = limit_s
        self.faults: list[tuple[float, str]] = []
        """What drawn faults did and when, in seconds since the start, for people."""
        self.took_s = 0.0
        """Seconds until the test and its clients had ended."""
        self.usual_loss = loss
        """The share of packets that is lost all the time."""
        self._zero = 0.0
        self._context = copy_context()
        self._processes: dict[NodeId, NodeProcess] = {}
        """The processes of the nodes that are up."""
        self._endings: dict[NodeId, asyncio.Task[None]] = {}
        """The ends of earlier lives, where they are not over yet."""
        self.stopped: dict[NodeId, None] = {}
        """Nodes that are up and do not run."""
        self._slow: dict[NodeId, None] = {}
        self._programs: list[Callable[[Node], Awaitable[Any]]] = []
        self.services: list[Service[Any]] = []
        """What nodes have for clients."""
        self._histories: list[tuple[History, Model]] = []
        self.clients: dict[Client, asyncio.Task[Any]] = {}
        """All that there ever were, and what they do."""
        self._over = False
        """The run has ended: that nodes end now is no crash."""
        self._timetable = Timetable(self._context, lambda id: id in self._processes, self.fail)
        self._failure: asyncio.Future[None] | None = None
        self.changes: Counter[object] = Counter()
        """How often what faults change was changed: the network, its loss, how slow a node is."""
        self._cluster = Cluster(
            nodes,
            seed=seed,
            protocol=protocol,
            settings=settings,
            rings=rings,
            loss=loss,
            delay_us=delay_us,
            voters=voters,
            open_trace=lambda ahead_us: None if rows is None else rows.by_clock(ahead_us),
            at_moment=self.at_moment,
            clients=clients,
            client_stream=client_stream,
        )
        self.nodes = self._cluster.nodes
        """Each node in its latest life."""
        self._networks = tuple(self._cluster.networks.values()) or (self._cluster.network,)
        self.voters = self._cluster.voters
        """Of whom a majority goes on; none: any partition does, or what the protocol itself says."""
        for id in self.ids:
            self.set_clock(id, EPOCH_S + (clocks_ahead_s or {}).get(id, 0.0))

    @property
    def ids(self) -> Sequence[NodeId]:
        """The nodes' identifiers, from 1."""
        return self._cluster.network.nodes

    @property
    def now(self) -> float:
        """Seconds since all nodes were together for the first time."""
        return asyncio.get_running_loop().time() - self._zero

    # --- what runs ------------------------------------------------------------------------------

    def run(self, program: Callable[[Node], Awaitable[Any]]) -> None:
        """Run a program at each node, in each of its lives: ``async def program(node): ...``. One that ends
        with an error of the library is started again after a while; any other error fails the test."""
        self._programs.append(program)
        for id, process in self._processes.items():
            self._begin(program, id, process)

    def service(self, open: Callable[[Node], Awaitable[T]], *, model: Model | None = None) -> Service[T]:
        """Have an object at each node, in each of its lives, which clients call:
        ``async def open(node): return await node.replicate(Accounts(), "accounts")``.

        With a `model` what the clients were answered has to be linearizable at the end.
        """
        service = Service(open, self.history(model), model)
        self.services.append(service)
        self.run(service.run)
        return service

    def client(self, what: Callable[[Client], Awaitable[T]]) -> asyncio.Task[T]:
        """Begin a client, which is outside of all nodes: ``async def what(client): ...``. A test ends when
        all its clients have."""
        name = f"{getattr(what, '__name__', 'client')} {len(self.clients) + 1}"
        client = Client(self, name, f"{self.seed}/{name}")
        task = self._task(_coroutine(what(client)), name)
        self.clients[client] = task
        task.add_done_callback(self._client_ended)
        return task

    def connect(self, *, beside: NodeId | None = None, **settings: Unpack[ClientSettings]) -> NodeClient:
        """An `ordercast.Client` of the nodes, which are to serve `clients`, with its settings: start it with
        ``async with``. It is on the side of the node `beside` in every partition; without, on all sides."""
        environment = self._cluster.client_network.environment(beside)
        return NodeClient([address_of(id) for id in self.ids], environment=environment, **settings)

    def history(self, model: Model | None) -> History:
        """A history that is judged at the end."""
        history = History(lambda: self.now)
        if model is not None:
            self._histories.append((history, model))
        return history

    def replicas_of(self, node: NodeId) -> list[Replica]:
        """The replicas of all objects at a node."""
        member = self.nodes[node - 1]._member
        return [] if member is None else list(member.replicas.all())

    def process(self, node: NodeId) -> NodeProcess | None:
        """The process of a node; None while it is down."""
        return self._processes.get(node)

    def _begin(self, program: Callable[[Node], Awaitable[Any]], id: NodeId, process: NodeProcess) -> None:
        node = self.nodes[id - 1]
        if node._member is not None:  # else it begins with the node
            process.start(supervise(self, program, node))

    def _client_ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def _task(self, what: Any, name: str) -> asyncio.Task[Any]:
        """A task that is in no node's process."""
        loop = asyncio.get_running_loop()
        return loop.create_task(what, name=name, context=self._context.copy())

    # --- lives ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all nodes, and wait until they are together."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, WorldLoop):
            raise RuntimeError("a World lives in virtual time: run it with ordercast.testing.run")
        loop.set_exception_handler(self._on_exception)
        loop.on_stuck = self._on_stuck
        self._failure = loop.create_future()
        for id in self.ids:
            self._begin_life(id)
        await self.until(self._task(self.ready(), "start"))
        self._zero = loop.time()

    async def stop(self) -> None:
        """End all nodes and clients at once."""
        self._over = True
        self._timetable.clear()
        for network in self._networks:
            network.partition(*({node} for node in network.nodes))
        for task in self.clients.values():
            task.cancel()
        for id in list(self._processes):
            self._kill(id, silently=True)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._endings.values(), *self.clients.values(), return_exceptions=True)
        if self._failure is not None:
            self._failure.cancel()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WorldLoop)
        loop.on_stuck = None
        self._cluster.end()

    async def ready(self) -> None:
        """Wait until all nodes that are up are in one configuration, and everything that runs at them has
        got as far as it does without anybody who asks."""
        while not self.is_ready:
            await asyncio.sleep(LOOK_S)

    @property
    def is_ready(self) -> bool:
        """Whether `ready` would return at once."""
        up = sorted(self._processes)
        return all(self.is_whole(id) for id in up) and all(
            sorted(self.nodes[id - 1].members) == up for id in up
        )

    def is_whole(self, id: NodeId) -> bool:
        """Whether a node has everything that it can have in memory."""
        member = self.nodes[id - 1]._member
        if id not in self._processes or member is None or member.driver.ended:
            return False
        configuration = member.readers.configuration
        return (
            member.settled
            and member.primary.there
            and configuration is not None
            and configuration.kind is Kind.REGULAR
            and all(id in service.there for service in self.services)
            and all(replica.machine.up_to_date for replica in self.replicas_of(id))
        )

    def _begin_life(self, id: NodeId) -> None:
        process = self._processes[id] = NodeProcess(f"the process of node {id}")
        self._processes = dict(sorted(self._processes.items()))
        process.start(self._live(id, process, self._endings.get(id)))

    async def _live(self, id: NodeId, process: NodeProcess, burial: asyncio.Task[None] | None) -> None:
        """A life of a node."""
        try:
            if burial is not None:
                await asyncio.shield(burial)
            node = self.nodes[id - 1] = self._cluster.node(id)  # with the clock that it finds now
            await node.start()
            for program in self._programs:
                self._begin(program, id, process)
            await node.closed()
        except Exception as error:  # noqa: BLE001 - nobody else ends a node: it is a defect
            if not process.killed:
                self.fail(error)

    def _kill(self, id: NodeId, *, silently: bool) -> None:
        process = self._processes.pop(id)
        process.kill()
        for network in self._networks_of(id):
            network.crash(id, silently=silently)
        self._cluster.client_network.gone(id)
        self._cluster.crash_disk(id, self._disk_chance if silently else None)
        for service in self.services:
            service.gone(id)
        self.stopped.pop(id, None)
        earlier = self._endings.get(id)
        self._endings[id] = self._task(self._end_life(id, process, earlier), f"end of node {id}")

    async def _end_life(self, id: NodeId, process: NodeProcess, earlier: asyncio.Task[None] | None) -> None:
        """Take the life of a node apart that nobody hears any more."""
        if earlier is not None:
            await asyncio.shield(earlier)
        member = self.nodes[id - 1]._member
        if member is not None and not member.driver.ended:
            if member.driver.live and not self._over:
                member.driver.crash("killed")
            member.driver.end(NodeClosed("the node was killed"))
        try:
            await process.end("ordercast-revive")
            await self.nodes[id - 1].stop()
            await process.end()
        except Exception as error:  # noqa: BLE001 - a node that cannot be taken apart is a defect
            self.fail(error)

    # --- what goes wrong ------------------------------------------------------------------------

    def partition(self, *sides: Collection[NodeId]) -> None:
        """Cut the network: nodes reach each other only within a side; those named nowhere are one more."""
        self.changes["network"] += 1
        for network in self._networks:
            network.partition(*(set(side) & set(network.nodes) for side in sides))

    def heal(self) -> None:
        """All nodes reach each other again."""
        self.changes["network"] += 1
        for network in self._networks:
            network.heal()

    def _networks_of(self, node: NodeId) -> Sequence[MemoryNetwork]:
        return [network for network in self._networks if node in network.nodes]

    def crash(self, node: NodeId, *, silently: bool = False) -> None:
        """A node's process ends, as by ``kill -9``: the others' systems tell them. Silently: its machine is
        switched off, nobody is told, and what was not synced to its disk may be lost."""
        if node not in self._processes:
            raise ValueError(f"node {node} is down already: restart it first")
        self._kill(node, silently=silently)

    def restart(self, node: NodeId, *, without_disk: bool = False) -> None:
        """The next life of a node that crashed begins; without a disk it finds an empty one. `ready` waits
        until it is there."""
        if node in self._processes:
            raise ValueError(f"node {node} is up: crash it first")
        if without_disk:
            self._cluster.lose_disk(node)
        self._begin_life(node)

    def damage(self, node: NodeId) -> None:
        """A bit of what replicated objects have on disk at a node that is down is not what was written."""
        if node in self._processes:
            raise ValueError(f"node {node} is up: crash it first")
        self._cluster.damage_disk(node, self._disk_chance)

    def pause(self, node: NodeId) -> None:
        """A node's process is stopped, as by SIGSTOP."""
        self._up(node).stop()
        self.stopped[node] = None
        for network in self._networks_of(node):
            network.pause(node)

    def resume(self, node: NodeId) -> None:
        """A node's process that was stopped goes on."""
        process = self._up(node)
        self.stopped.pop(node, None)
        for network in self._networks_of(node):
            process.call(network.resume, node)
        process.go_on()

    def slow(self, node: NodeId, by_s: float) -> None:
        """What a node sends and gets takes so many seconds longer; 0: no longer."""
        self.changes["slow", node] += 1
        self._slow[node] = None
        for network in self._networks_of(node):
            network.slow(node, round(by_s * 1_000_000))

    def lose(self, share: float) -> None:
        """From now on each packet is lost with this probability, at each receiver by itself."""
        self.changes["loss"] += 1
        for network in self._networks:
            network.loss = share

    def set_clock(self, node: NodeId, by_s: float) -> None:
        """The clock of a node's machine is set forward by so many seconds, or back. A node that runs does not
        notice, since it measures time by itself: its next life does."""
        self._cluster.ahead_us[node] += round(by_s * 1_000_000)

    def _up(self, node: NodeId) -> NodeProcess:
        if node not in self._processes:
            raise ValueError(f"node {node} is down: restart it first")
        return self._processes[node]

    # --- when -----------------------------------------------------------------------------------

    def at(self, seconds: float, do: Callable[..., Any], *args: Any) -> None:
        """Do it when `now` is so late: ``world.at(3.0, world.crash, 2)``."""
        self._timetable.at(self._zero + seconds, do, *args)

    def when(self, moment: str, do: Callable[[NodeId], Any], *, node: NodeId | None = None) -> None:
        """Do it, once, when a node comes to this moment, with that node: ``world.when("state half sent",
        world.crash)``. With `node`: when that one does."""
        self._timetable.when(moment, do, node)

    def at_moment(self, id: NodeId, moment: str) -> None:
        """A node has come to a moment: do what waits for it."""
        self._timetable.come(id, moment)

    # --- the end --------------------------------------------------------------------------------

    async def calm(self) -> None:
        """Nothing goes wrong any more, what did is mended, nodes that are down are started; returns when all
        are ready."""
        self._timetable.clear()
        self.heal()
        self.lose(0.0)
        for id in list(self._slow):
            self.slow(id, 0)
        for id in list(self.stopped):
            self.resume(id)
        for id in self.ids:
            if id not in self._processes:
                self.restart(id)
        await self.ready()

    async def play(self, test: Awaitable[Any], faults: Sequence[Fault] = ()) -> None:
        """Run a test while these faults happen, wait for its clients, and check what always has to hold.

        Raises what went wrong; `Stuck` if the end does not come."""
        loop = asyncio.get_running_loop()
        limit = loop.call_at(self._zero + self.limit_s, self._too_long, context=self._context.copy())
        comparing = self._task(self._compare(), "compare")
        try:
            FaultPlayer(self).schedule(faults)
            await self.until(self._task(_coroutine(test), "test"))
            while running := [task for task in self.clients.values() if not task.done()]:
                await self.until(running[0])
            self.took_s = self.now
            await self.until(self._task(self.calm(), "calm"))
            await self.until(self._task(compare_at_the_end(self), "the last comparison"))
        finally:
            limit.cancel()
            comparing.cancel()
        for history, model in self._histories:
            linearizable(history, model)

    async def _compare(self) -> None:
        try:
            await compare_often(self)
        except Exception as error:  # noqa: BLE001 - the test is told
            self.fail(error)

    async def until(self, task: asyncio.Task[T]) -> T:
        """Wait for a task, or for whatever makes the test fail."""
        assert self._failure is not None, "the world was started"
        try:
            await asyncio.wait((task, self._failure), return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                self._failure.result()
            return task.result()
        finally:
            task.cancel()

    def fail(self, error: BaseException) -> None:
        """The test fails with this error, unless it has failed before."""
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()

    def _on_exception(self, loop: asyncio.AbstractEventLoop, what: dict[str, Any]) -> None:
        """Something was raised where nobody waits."""
        self.fail(what.get("exception") or RuntimeError(what["message"]))

    def _on_stuck(self, why: str) -> None:
        """The event loop sees no end. With the failure the test ends, unless that is stuck as well."""
        assert self._failure is not None
        if self._failure.done():
            raise Stuck(why)
        self.fail(Stuck(f"{why}; {standstill(self)}"))

    def _too_long(self) -> None:
        told = standstill(self)
        self.fail(Stuck(f"the run has not ended after {self.limit_s:g} virtual seconds: {told}"))


async def _coroutine(what: Awaitable[T]) -> T:
    return await what
