"""Groups of real nodes on several rings, joined by gateways, in one process and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from group_nodes import ANYWHERE, payloads, together, until
from group_nodes import run as run_live

from free_ports import free_address
from ordercast import ConfigProblem, Delivery, DuplicateNode, Group, Node, OtherProtocol, RingSettings
from ordercast.core.identity import NodeId
from ordercast.keys import add, create
from ordercast.runtime.metrics import families
from ordercast.testing import Cluster, run
from ordercast.transport import udp

pytestmark = pytest.mark.untraced

LINE = {1: (1, 2, 3), 2: (3, 4, 5), 3: (5, 6, 7)}
"""Three rings in a line; the nodes 3 and 5 are the gateways."""


async def read(group: Group, into: list[bytes]) -> None:
    async for event in group.batches():
        if isinstance(event, Delivery):
            into += event.payloads


class Readers:
    """Reads a group at some nodes, in the background."""

    def __init__(self) -> None:
        self.groups: dict[NodeId, Group] = {}
        self.seen: dict[NodeId, list[bytes]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            group = self.groups[node.id] = await node.join("g")
            seen = self.seen[node.id] = []
            self._tasks.append(asyncio.create_task(read(group, seen)))

    async def send(self, word: str, *nodes: NodeId, each: int = 20, safe: bool = False) -> None:
        """All of them at once; returns when all of these have got it all, in one order."""
        before = {node: len(self.seen[node]) for node in nodes}
        await asyncio.gather(
            *(
                self.groups[node].send_many([f"{word} {node} {i}".encode() for i in range(each)], safe=safe)
                for node in nodes
            )
        )
        while any(len(self.seen[node]) < before[node] + each * len(nodes) for node in nodes):
            await asyncio.sleep(0.001)
        orders = {tuple(self.seen[node][before[node] :]) for node in nodes}
        assert len(orders) == 1
        assert len(set(orders.pop())) == each * len(nodes)


def test_three_rings_are_one_group_whatever_becomes_of_a_gateway() -> None:
    everybody = tuple(range(1, 8))

    async def main() -> None:
        cluster = Cluster(7, seed=3, protocol="rings", rings=LINE)
        async with cluster:
            readers = Readers()
            await readers.join(cluster.nodes)
            await readers.send("together", *everybody)
            await readers.send("safely", *everybody, safe=True)

            cluster.networks[2].partition({5})  # the gateway's link: its own ring goes on with ring 3
            await cluster.together(1, 2, 3, 4)
            await cluster.together(5, 6, 7)
            await readers.send("left", 1, 2, 3, 4)
            await readers.send("right", 5, 6, 7)
            cluster.networks[2].heal()
            await cluster.together()
            await readers.send("again", *everybody)

            gateway = cluster.nodes[2]
            await gateway.stop()
            await cluster.together(1, 2)
            await cluster.together(4, 5, 6, 7)
            await readers.send("without", 4, 5, 6, 7)
            cluster.nodes[2] = cluster.node(3)
            await cluster.nodes[2].start()
            await readers.join([cluster.nodes[2]])
            await cluster.together()
            await readers.send("back", *everybody)

    run(main())


def test_the_status_tells_the_topology_and_which_ring_is_waited_for() -> None:
    async def main() -> None:
        async with Cluster(7, seed=3, protocol="rings", rings=LINE) as cluster:
            readers = Readers()
            await readers.join(cluster.nodes)
            await readers.send("together", *range(1, 8))
            first, gateway = (cluster.nodes[at].status()["topology"] for at in (0, 2))
            assert [(ring["network"], ring["members"]) for ring in first["rings"]] == [
                (number, list(nodes)) for number, nodes in LINE.items()
            ]
            assert [ring["gateways"] for ring in first["rings"]] == [[3], [3, 5], [5]]
            assert [ring["attached"] for ring in gateway["rings"]] == [True, True, False]
            assert {(path["from"], path["to"]): path["gateway"] for path in first["paths"]} == {
                (1, 2): 3,
                (2, 1): 3,
                (2, 3): 5,
                (3, 2): 5,
            }
            assert (first["lagging"], first["paused_by"]) == (None, [])

            cluster.networks[3].partition({5}, {6}, {7})
            for _ in range(10):
                await readers.groups[1].send(b"one", safe=True)
                await asyncio.sleep(0.005)  # ring 3 is not given up yet
            status = cluster.nodes[0].status()
            *others, ring = status["topology"]["rings"]
            assert [other["waiting"] for other in others] == [0, 0]
            assert 10 >= ring["waiting_safe"] >= ring["waiting"] > 0
            assert status["topology"]["lagging"] == 3
            metrics = {
                (sample.name, *sample.labels.values()): sample.value
                for family in families(status, ())
                for sample in family.samples
            }
            assert (
                metrics["ordercast_ring_waiting", "3", f"{ring['seq']}.{ring['rep']}", "agreed"]
                == ring["waiting"]
            )
            assert metrics["ordercast_paths", "3"] == 2
            assert metrics["ordercast_peer_linked", "3", "1"] == 1

    run(main())


async def latencies(senders: Sequence[NodeId]) -> list[float]:
    """Seconds from sending at node 1 to delivery at each node, where these nodes send."""
    now = asyncio.get_running_loop().time
    async with Cluster(7, seed=5, protocol="rings", rings=LINE) as cluster:
        readers = Readers()
        await readers.join(cluster.nodes)
        took: list[float] = []
        for _ in range(15):
            await asyncio.sleep(0.05)
            sent = now()
            seen = {node: len(payloads) + len(senders) for node, payloads in readers.seen.items()}
            for node in senders:
                await readers.groups[node].send(b"from %d" % node)
            while any(len(readers.seen[node]) < count for node, count in seen.items()):
                await asyncio.sleep(0.0002)
            took.append(now() - sent)
    return took


def test_rings_that_nobody_sends_on_keep_nobody_waiting() -> None:
    """Their word comes one rotation of a token later, at most, than if they had something to send."""
    rotation = max(map(len, LINE.values())) * 250e-6
    idle, busy = (max(run(latencies(senders))) for senders in ((1,), (1, 4, 7)))
    assert idle <= busy + rotation


def test_contents_go_only_to_rings_where_a_group_has_members() -> None:
    """001: locality. Who joins later gets everything from its place in the order on."""

    async def main() -> None:
        async with Cluster(7, seed=5, protocol="rings", rings=LINE) as cluster:
            near, far = Readers(), Readers()
            await near.join(cluster.nodes[:2])
            before = forwarded(cluster)
            await near.send("before", 1, 2, each=50)
            assert forwarded(cluster) == before, "both gateways forward places alone"

            sending = asyncio.create_task(stream(near.groups[1], 200))
            await far.join(cluster.nodes[6:])  # while it is sent
            await sending
            while b"199" not in near.seen[2]:
                await asyncio.sleep(0.001)
            await near.send("after", 1, 2)
            while b"after 2 19" not in far.seen[7]:
                await asyncio.sleep(0.001)
            first = near.seen[1].index(far.seen[7][0])
            assert first >= 100, "what was sent before it asked to join is not for it"
            assert far.seen[7] == near.seen[1][first:], "and nothing is missing behind its join"

            await far.groups[7].leave()
            await near.send("until all know", 1, 2)
            before = forwarded(cluster)
            await near.send("alone", 1, 2, each=50)
            assert forwarded(cluster) == before

    run(main())


def forwarded(cluster: Cluster) -> list[float]:
    """How many bundles the two gateways have forwarded with their contents."""
    return [cluster.nodes[at].status()["statistics"]["forwarded"] for at in (2, 4)]


async def stream(group: Group, count: int) -> None:
    for i in range(count):
        await group.send(b"%d" % i)
        await asyncio.sleep(0.0002)


async def a_run(seed: int) -> str:
    """Two rings that lose packets; the checksum of their trace."""
    cluster = Cluster(5, seed=seed, protocol="rings", rings={1: (1, 2, 3), 7: (3, 4, 5)}, loss=0.01)
    async with cluster:
        readers = Readers()
        await readers.join(cluster.nodes)
        await readers.send("together", 1, 2, 3, 4, 5)
    return cluster.trace.sha256


def test_the_same_seed_gives_the_same_trace() -> None:
    first, again, other = (run(a_run(seed)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_a_node_without_rings_is_on_one() -> None:
    async def main() -> None:
        async with Cluster(3, protocol="rings") as cluster:
            readers = Readers()
            await readers.join(cluster.nodes)
            await readers.send("hello", 1, 2, 3, safe=True)
            assert [each["network"] for each in cluster.nodes[0].status()["networks"]] == [1]

    run(main())


def test_a_key_that_is_no_file_is_for_a_node_without_rings() -> None:
    async def test() -> None:
        node = Node(protocol="rings", ring=(RingSettings(network=1, listen=ANYWHERE),), key=b"x" * 32)
        with pytest.raises(ConfigProblem, match="give each of them the file of its key"):
            await node.start()

    run_live(test)


def test_of_two_nodes_with_one_id_on_different_rings_one_ends() -> None:
    def a_node(id: int, **seeds: str) -> Node:
        rings = (RingSettings(network=int(n[1:]), listen=ANYWHERE, seeds=(to,)) for n, to in seeds.items())
        return Node(id=id, protocol="rings", ring=tuple(rings))

    async def test() -> None:
        nowhere = free_address()
        async with (
            a_node(1, n1=nowhere) as one,
            a_node(1, n2=nowhere) as other,
            a_node(3, n1=one.address, n2=other.address) as gateway,
        ):
            closed = [asyncio.create_task(node.closed()) for node in (one, other)]
            ended, going_on = await asyncio.wait(closed, return_when=asyncio.FIRST_COMPLETED)
            error = ended.pop().exception()
            assert isinstance(error, DuplicateNode)
            assert "another node, perhaps on another ring, has the id 1: give this node" in str(error)
            await gateway.wait_for({1, 3})
            assert len(going_on) == 1
            going_on.pop().cancel()

    run_live(test)


def test_a_gateway_joins_rings_with_different_keys_and_takes_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ring of one node on each side of a gateway, on loopback."""
    monkeypatch.setattr(udp, "REFUSED_S", 0.3)
    keys = {network: tmp_path / f"{network}.key" for network in (1, 2)}
    for file in keys.values():
        create(file)

    def ring(network: int, *seeds: str, key: int | None = None) -> RingSettings:
        return RingSettings(network=network, listen=ANYWHERE, seeds=seeds, key=keys[key or network])

    def a_node(id: int, *rings: RingSettings) -> Node:
        return Node(id=id, protocol="rings", ring=rings, data=tmp_path / str(id))

    async def test() -> None:
        async with AsyncExitStack() as stack:
            left = await stack.enter_async_context(a_node(1, ring(1)))
            right = await stack.enter_async_context(a_node(2, ring(2)))
            gateway = await stack.enter_async_context(
                a_node(3, ring(1, left.address), ring(2, right.address))
            )
            nodes = [left, right, gateway]
            await together(nodes)
            assert gateway.status()["sealed"]
            assert [each["linked"] for each in gateway.status()["networks"]] == [[1], [2]]
            lost = a_node(4, ring(1, right.address, key=2))
            with pytest.raises(OtherProtocol, match="rings on network 2, and this node rings on network 1"):
                await lost.start()

            before = gateway.configuration.id
            changed = add(keys[2])
            await until(lambda: all(node._running._keys[-1].keyring == changed for node in nodes[1:]))
            groups = [await node.join("g") for node in nodes]
            for group in groups:
                await group.send(b"hello")
            orders = [await payloads(group, 3) for group in groups]
            assert orders[0] == orders[1] == orders[2]
            assert gateway.configuration.id == before
            await until((tmp_path / "3" / "lives-2").exists)

    run_live(test)
