"""States on their way: from which donors, and from where another one goes on when the first is gone."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

import ordercast
from ordercast.core.identity import NodeId
from ordercast.process_groups.views import Process
from ordercast.replicated import machine as machines
from ordercast.replicated import snapshot as snapshots
from ordercast.replicated import state as states
from ordercast.replicated import transfer
from ordercast.replicated.effects import Effect
from ordercast.replicated.machine import Machine
from ordercast.replicated.replica import Replica
from ordercast.testing import Cluster, run
from ordercast.transport import memory_streams

VOTERS = (1, 2, 3)
PROTOCOLS = pytest.mark.parametrize(
    ("protocol", "voters"), [("totem", VOTERS), ("total", ())], ids=["totem", "total"]
)


class Pages(ordercast.Replicated):
    """Many entries that cannot change."""

    pages: dict[int, str]
    names: set[str]

    def __init__(self) -> None:
        self.pages = {}
        self.names = set()

    @ordercast.command
    def fill(self, first: int, count: int, length: int) -> None:
        """Write many pages at once."""
        for number in range(first, first + count):
            self.pages[number] = f"{number}:" + "x" * length

    @ordercast.command
    def write(self, number: int, text: str) -> None:
        """Write one page."""
        self.pages[number] = text

    @ordercast.command
    def name(self, count: int) -> None:
        """Put names into a set."""
        self.names.update(f"name {number}" for number in range(count))


class Lists(ordercast.Replicated):
    """Entries that can change."""

    lists: dict[int, list[int]]

    def __init__(self) -> None:
        self.lists = {}

    @ordercast.command
    def fill(self, count: int, length: int) -> None:
        """Make many lists."""
        self.lists = {number: [number] * length for number in range(count)}

    @ordercast.command
    def add(self, number: int) -> None:
        """Change all of them, and make another one."""
        for each in self.lists.values():
            each[0] += number
        self.lists[len(self.lists)] = [number]


class Sent:
    """What each node of a cluster sends of states, and what is done at some place of that."""

    def __init__(self, cluster: Cluster) -> None:
        self.slices: Counter[NodeId] = Counter()
        self.done: list[NodeId] = []
        """Nodes that were stopped."""
        self._at: dict[int, Callable[[NodeId], None]] = {}
        for node in cluster.nodes:
            self.watch(node)

    def watch(self, node: ordercast.Node) -> None:
        """Count what this node sends."""

        def moment(what: str) -> None:
            if what == "state half sent" and node.id not in self.done:
                self.slices[node.id] += 1
                do = self._at.pop(self.slices.total(), None)
                if do is not None:
                    do(node.id)

        node._running.replicas._giving._at_moment = moment

    def at(self, count: int, do: Callable[[NodeId], None]) -> None:
        """Do something when this slice is sent, counted over all nodes."""
        self._at[count] = do

    def stop_at(self, count: int, stop: Callable[[NodeId], None]) -> None:
        """Stop the node that sends this slice; what it does from then on does not count."""

        def do(node: NodeId) -> None:
            self.done.append(node)
            stop(node)

        self._at[count] = do


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """States of many slices, without being large."""
    monkeypatch.setattr(states, "PIECE_BYTES", 500)
    monkeypatch.setattr(states, "PIECE_ENTRIES", 4)
    monkeypatch.setattr(memory_streams, "BUFFER", 8192)


def replica_of(node: ordercast.Node, name: str) -> Replica:
    return node._running.replicas._replicas[name]


async def filled(cluster: Cluster, count: int = 800) -> list[Pages]:
    """Nodes 1 to 3 have the pages; the fourth has nothing yet."""
    objects = [await node.replicate(Pages(), "pages", timeout=30) for node in cluster.nodes[:3]]
    await objects[0].fill(0, count, 100)
    await asyncio.gather(*(each.sync() for each in objects))
    return objects


async def writing(pages: Pages) -> None:
    """Commands go on."""
    number = 0
    while True:
        number += 1
        await pages.write(number % 1000, f"again {number}")
        await asyncio.sleep(0.0005)


def same(one: ordercast.Replicated, other: ordercast.Replicated) -> bool:
    """Whether two objects have the same state, in the same order."""

    def told(target: ordercast.Replicated) -> list[Any]:
        values = (getattr(target, name) for name in sorted(target._fields.names))
        return [list(each.items()) if isinstance(each, dict) else each for each in values]

    return told(one) == told(other)


@PROTOCOLS
def test_who_represents_the_configuration_gives_nothing_if_others_can(
    protocol: str, voters: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)

    async def main() -> None:
        async with Cluster(4, seed=1, protocol=protocol, voters=voters) as cluster:
            objects = await filled(cluster)
            sent = Sent(cluster)
            late = await cluster.nodes[3].replicate(Pages(), "pages", timeout=30)
            assert same(late, objects[0])
            assert cluster.nodes[0].configuration.id.rep == 1
            assert sent.slices[1] == 0
            assert sorted(sent.slices.values()) == [sent.slices.total()], "one donor gave all of it"

    run(main())


@pytest.mark.parametrize("how", ["crash", "silently", "cut off"])
@PROTOCOLS
def test_a_donor_that_is_gone_or_says_nothing_is_followed_by_another_that_goes_on(
    protocol: str,
    voters: tuple[int, ...],
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    small_pieces(monkeypatch)
    caplog.set_level(logging.INFO, "ordercast")

    async def main() -> None:
        async with Cluster(4, seed=2, protocol=protocol, voters=voters) as cluster:
            network = cluster.network
            one, two, three = await filled(cluster, 2000)
            slices = len(list((await replica_of(cluster.nodes[0], "pages").snapshot()).slices()))
            assert slices > 450
            sent = Sent(cluster)
            busy = asyncio.create_task(writing(one))
            stop: dict[str, Callable[[NodeId], None]] = {
                "crash": network.crash,
                "silently": lambda node: network.crash(node, silently=True),
                "cut off": lambda node: network.partition({node}),
            }
            sent.stop_at(300, stop[how])
            late = await cluster.nodes[3].replicate(Pages(), "pages", timeout=60)
            busy.cancel()
            (gone,) = sent.done
            assert gone != 1
            other = ({2, 3} - {gone}).pop()
            goes_on = [each.getMessage() for each in caplog.records if "goes on from" in each.getMessage()]
            assert goes_on == [f"the state of pages goes on from node {other}"]
            whole = sent.slices[gone] + sent.slices[other]
            assert slices <= whole < slices + 100, "a few were on their way, and nothing was sent again"
            assert sent.slices[other] < slices - 200
            last = {2: two, 3: three}[other]
            await asyncio.gather(late.sync(), last.sync(), one.sync())
            assert same(late, last)
            assert same(late, one)

    run(main())


@pytest.mark.parametrize("broken", [1, 2])
def test_a_donor_that_does_not_give_is_followed_by_another(broken: int) -> None:
    """It stays a member all the time."""

    async def main() -> None:
        async with Cluster(4, seed=12, protocol="total") as cluster:
            objects = await filled(cluster, 10)
            tried: list[NodeId] = []

            def refusing(node: NodeId) -> Callable[[Any], Awaitable[None]]:
                async def serve(_: Any) -> None:
                    tried.append(node)
                    raise ConnectionError("it does not give")

                return serve

            for node in cluster.nodes[3 - broken : 3]:
                streams = node._running.streams._streams
                assert isinstance(streams, memory_streams.MemoryStreams)
                streams._handles[0] = refusing(node.id)
            late = await cluster.nodes[3].replicate(Pages(), "pages", timeout=30)
            assert same(late, objects[0])
            assert len(tried) <= broken

    run(main())


def test_what_is_in_another_order_elsewhere_is_sent_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets have another order in another process. They are the same, and no half of one and half of another
    comes together."""
    small_pieces(monkeypatch)

    async def main() -> None:
        async with Cluster(4, seed=3, protocol="total") as cluster:
            one, two, three = await filled(cluster, 10)
            await one.name(3000)
            await asyncio.gather(two.sync(), three.sync())
            two.names = set(sorted(two.names, reverse=True))  # noqa: C414 - in another order
            three.names = {*(f"other {number}" for number in range(5000)), *three.names}
            three.names -= {f"other {number}" for number in range(5000)}
            assert list(two.names) != list(three.names)
            assert two.names == three.names
            sent = Sent(cluster)
            sent.stop_at(150, cluster.network.crash)
            late = await cluster.nodes[3].replicate(Pages(), "pages", timeout=60)
            (gone,) = sent.done
            other = ({2, 3} - {gone}).pop()
            assert late.names == one.names
            assert sent.slices[other] > 600, "all of it"

    run(main())


def test_a_donor_that_kept_no_snapshot_sends_its_state_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields with mutable elements are not kept ready; donors are at different places."""
    small_pieces(monkeypatch)

    async def main() -> None:
        async with Cluster(4, seed=4, protocol="total") as cluster:
            objects = [await node.replicate(Lists(), "lists", timeout=30) for node in cluster.nodes[:3]]
            one = objects[0]
            await one.fill(1000, 20)
            sent = Sent(cluster)

            async def adding() -> None:
                while True:
                    await one.add(1)

            busy = asyncio.create_task(adding())
            sent.stop_at(100, cluster.network.crash)
            late = await cluster.nodes[3].replicate(Lists(), "lists", timeout=60)
            busy.cancel()
            assert len(sent.done) == 1
            await asyncio.gather(late.sync(), one.sync())
            assert same(late, one)

    run(main())


def test_commands_do_not_wait_for_a_state_that_is_being_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch)

    async def main() -> None:
        async with Cluster(4, seed=5, protocol="total") as cluster:
            await filled(cluster)
            sent = Sent(cluster)
            donors: list[tuple[int, int]] = []

            def look(node: NodeId) -> None:
                machine = replica_of(cluster.nodes[node - 1], "pages").machine
                donors.append((machine._pauses, machine.applied.position))

            for count in (1, 20, 200):
                sent.at(count, look)
            objects = await cluster.nodes[0].replicate(Pages(), "other", timeout=30)
            assert objects.pages == {}
            busy = asyncio.create_task(writing(replica_of(cluster.nodes[1], "pages").target))  # type: ignore[arg-type]
            await cluster.nodes[3].replicate(Pages(), "pages", timeout=60)
            busy.cancel()
            assert [pauses for pauses, _ in donors] == [0, 0, 0]
            positions = [position for _, position in donors]
            assert positions == sorted(positions)

    run(main())


@pytest.mark.parametrize("target", [Pages, Lists])
def test_a_snapshot_that_takes_several_steps_is_of_one_place(
    target: type[Pages] | type[Lists], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    monkeypatch.setattr(states, "STEP_ENTRIES", 10)
    monkeypatch.setattr(snapshots, "STEP_ENTRIES", 10)

    async def rest(self: snapshots.Pace) -> None:
        """Long enough for commands to be delivered meanwhile."""
        await asyncio.sleep(0.002)

    monkeypatch.setattr(snapshots.Pace, "rest", rest)

    async def main() -> None:
        async with Cluster(4, seed=6, protocol="total") as cluster:
            objects: list[Any] = [
                await node.replicate(target(), "it", timeout=30) for node in cluster.nodes[:3]
            ]
            one = objects[0]
            await (one.fill(300, 3) if target is Lists else one.fill(0, 300, 3))

            async def adding(each: Any) -> None:
                number = 0
                while True:
                    number += 1
                    await (each.add(number) if target is Lists else each.write(number % 500, f"{number}"))

            busy = [asyncio.create_task(adding(each)) for each in objects]
            late = await cluster.nodes[3].replicate(target(), "it", timeout=3)
            await asyncio.sleep(0.05)
            for task in busy:
                task.cancel()
            await asyncio.gather(late.sync(), *(each.sync() for each in objects))
            for each in objects:
                assert same(late, each)
                assert replica_of(cluster.nodes[0], "it").machine._pauses == 0

    run(main())


def test_a_donor_gives_to_so_many_at_once_and_others_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch)
    monkeypatch.setattr(transfer, "MOST_RECEIVERS", 1)

    async def main() -> None:
        async with Cluster(6, seed=7, protocol="total") as cluster:
            (one, _, _) = await filled(cluster)
            at_once: Counter[NodeId] = Counter()

            def counted(id: NodeId, giving: transfer.Giving) -> Callable[[str], None]:
                def moment(what: str) -> None:
                    at_once[id] = max(at_once[id], giving._receivers)

                return moment

            for node in cluster.nodes:
                giving = node._running.replicas._giving
                giving._at_moment = counted(node.id, giving)
            late = await asyncio.gather(
                *(node.replicate(Pages(), "pages", timeout=60) for node in cluster.nodes[3:])
            )
            assert all(same(each, one) for each in late)
            assert set(at_once.values()) == {1}
            assert len(at_once) >= 2

    run(main())


def test_the_slowest_node_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Cluster(4, seed=8, protocol="totem", voters=VOTERS) as cluster:
            objects = await filled(cluster)
            for slow in (2, 3):
                replicas = cluster.nodes[3]._running.replicas
                replicas._node = replicas._node._replace(slowest=partial(int, slow))
                name = f"pages of {slow}"
                for node in cluster.nodes[:3]:
                    await node.replicate(Pages(), name, timeout=30)
                sent = Sent(cluster)
                await cluster.nodes[3].replicate(Pages(), name, timeout=30)
                assert sent.slices[slow] == 0
                assert sent.slices.total() > 0
            assert objects

    run(main())


def test_snapshots_are_kept_until_nobody_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch)

    async def main() -> None:
        async with Cluster(4, seed=9, protocol="total") as cluster:
            await filled(cluster)
            await asyncio.sleep(transfer.LOOK_S + 0.1)
            sent = Sent(cluster)
            kept: list[list[int]] = []

            def look(_: NodeId) -> None:
                kept.append([len(node._running.replicas._giving._kept) for node in cluster.nodes])

            sent.at(100, look)
            await cluster.nodes[3].replicate(Pages(), "pages", timeout=60)
            await asyncio.sleep(transfer.LOOK_S + 0.1)
            look(0)
            assert kept == [[0, 1, 1, 0], [0, 0, 0, 0]]

    run(main())


def test_what_waits_for_a_state_is_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    small_pieces(monkeypatch)

    async def main() -> None:
        async with Cluster(4, seed=10, protocol="total") as cluster:
            one, two, _ = await filled(cluster, 3000)
            replicas = cluster.nodes[3]._running.replicas
            replicas._node = replicas._node._replace(most_waiting=5_000)
            waiting: list[int] = []

            async def writing_much() -> None:
                for number in range(200):
                    await one.write(number, "y" * 1000)
                    wanted = replica_of(cluster.nodes[3], "pages").machine._wanted
                    waiting.append(0 if wanted is None else wanted.bytes)

            sent = Sent(cluster)
            busy: list[asyncio.Task[None]] = []
            sent.at(1, lambda node: busy.append(asyncio.create_task(writing_much())))
            late = await cluster.nodes[3].replicate(Pages(), "pages", timeout=60)
            await busy[0]
            await asyncio.gather(late.sync(), one.sync(), two.sync())
            assert same(late, one)
            assert same(late, two)
            assert "wait for the state" in caplog.text
            assert 2_000 < max(waiting) < 7_000

    run(main())


def test_what_has_waited_for_a_state_is_carried_out_in_turns_while_more_is_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_pieces(monkeypatch)
    monkeypatch.setattr(machines, "AT_A_TIME", 5)

    async def main() -> None:
        async with Cluster(4, seed=12, protocol="total") as cluster:
            one, *_ = await filled(cluster, 3000)
            carried_out: list[int] = []
            deliver = Machine.deliver

            def watched(machine: Machine, sender: Process, payload: bytes) -> list[Effect]:
                before, backlog = machine.applied.position, machine._backlog
                effects = deliver(machine, sender, payload)
                if backlog:
                    carried_out.append(machine.applied.position - before)
                return effects

            turns = iter(range(10_000))

            def go_on(machine: Machine) -> list[Effect]:
                """Others take so long for their turn that something is delivered."""
                if next(turns) % 2:
                    return going_on(machine)
                replica = replica_of(cluster.nodes[3], "pages")
                asyncio.get_running_loop().call_later(0.002, lambda: replica.run(machine.go_on()))
                return []

            going_on = Machine.go_on
            monkeypatch.setattr(Machine, "deliver", watched)
            monkeypatch.setattr(Machine, "go_on", go_on)

            async def flood() -> None:
                written: list[asyncio.Future[None]] = []
                for number in range(400):
                    written.append(asyncio.ensure_future(one.write(number, "again")))
                    await asyncio.sleep(0.0001)
                await asyncio.gather(*written)

            busy: list[asyncio.Task[None]] = []
            Sent(cluster).at(1, lambda node: busy.append(asyncio.create_task(flood())))
            late = await cluster.nodes[3].replicate(Pages(), "pages", timeout=60)
            await asyncio.gather(*busy)
            await asyncio.gather(late.sync(), one.sync())
            assert carried_out
            assert not any(carried_out)
            assert replica_of(cluster.nodes[3], "pages").machine._backlog == 0
            assert same(late, one)

    run(main())


def test_a_state_that_cannot_be_encoded_is_told_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Cluster(2, seed=11, protocol="total") as cluster:
            one = await cluster.nodes[0].replicate(Lists(), "lists", timeout=30)
            await one.fill(3, 3)
            one.lists[1] = object()  # type: ignore[assignment]
            with pytest.raises(TimeoutError):
                await cluster.nodes[1].replicate(Lists(), "lists", timeout=5)
            assert "lists: the state cannot be given to other nodes" in caplog.text
            one.lists.pop(1)
            two = await cluster.nodes[1].replicate(Lists(), "lists", timeout=30)
            await one.add(1)
            await two.sync()
            assert same(one, two)

    run(main())
