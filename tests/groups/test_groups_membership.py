"""Members of groups, as applications at several nodes see them: in virtual time, over two families."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import pytest

from ordercast import (
    ConfigProblem,
    ConfigurationChange,
    Group,
    Joined,
    Left,
    Message,
    MessageTooLarge,
    Node,
    NodeClosed,
    NoMajority,
    PrimaryLost,
    PrimaryRegained,
    Rejoined,
    SendTimeout,
)
from ordercast.audit.properties import PROMISES, audit
from ordercast.groups import processes as processes_module
from ordercast.protocols import PROTOCOLS as PROTOCOLS_THERE_ARE
from ordercast.testing import Cluster, run
from ordercast.trace.schema import GROUP_EVENTS, Row

PROTOCOLS = pytest.mark.parametrize("protocol", ["totem", "dtp"])


def nicks(group: Group | Joined | Left) -> str:
    return " ".join(member.properties.get("nick", "?") for member in group.members)


class Reader:
    """Reads a group in the background; what happens is kept as words."""

    def __init__(self, group: Group, changes: bool = False) -> None:
        """With `changes`, configurations of nodes are kept too."""
        self.group = group
        self.seen: list[str] = []
        self.messages: list[Message] = []
        self._changes = changes
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.group:
            match event:
                case Message():
                    self.messages.append(event)
                    self.seen.append(event.payload.decode())
                case Joined() | Left():
                    word = "+" if isinstance(event, Joined) else "-"
                    nick = event.member.properties.get("nick", "?")
                    self.seen.append(f"{word}{nick} ({event.cause}): {nicks(event)}")
                case PrimaryLost():
                    self.seen.append(f"lost {event.missing}")
                case PrimaryRegained():
                    self.seen.append(f"regained {event.configuration.members}")
                case ConfigurationChange():
                    if self._changes or isinstance(event, Rejoined):
                        self.seen.append(f"{type(event).__name__} {event.members}")

    async def until(self, last: str) -> list[str]:
        """All that was seen, once this is the last of it."""
        while self.seen[-1:] != [last]:
            assert not self._task.done(), self._task
            await asyncio.sleep(0.001)
        return self.seen


async def join(node: Node, nick: str, group: str = "room") -> Reader:
    return Reader(await node.join(group, properties={"nick": nick}))


# --- joining and leaving ------------------------------------------------------------------------


@PROTOCOLS
def test_who_joins_and_leaves_is_seen_by_all_at_one_place_in_the_order(protocol: str) -> None:
    async def main() -> None:
        async with Cluster(3, protocol=protocol) as cluster:
            ann = await join(cluster.nodes[0], "ann")
            assert nicks(ann.group) == "ann"
            await ann.group.send(b"1")
            await ann.until("1")
            bob = await join(cluster.nodes[1], "bob")
            assert nicks(bob.group) == "ann bob", "known when the join returns"
            bob_then = bob.group.me
            await bob.group.send(b"2", safe=True)
            await ann.until("2")
            cid = await join(cluster.nodes[2], "cid")
            await bob.group.leave()
            await cid.until("-bob (left): ann cid")
            await cid.group.send(b"3")
            assert await ann.until("3") == [
                "+ann (joined): ann",
                "1",
                "+bob (joined): ann bob",
                "2",
                "+cid (joined): ann bob cid",
                "-bob (left): ann cid",
                "3",
            ]
            assert await cid.until("3") == ["+cid (joined): ann bob cid", "-bob (left): ann cid", "3"]
            assert bob.group.members == ()
            assert [member.process for member in ann.group.members] == [ann.group.me, cid.group.me]
            assert [message.process for message in ann.messages] == [ann.group.me, bob_then, cid.group.me]

    run(main())


def test_readers_of_one_group_are_members_each_and_who_only_sends_is_none() -> None:
    async def main() -> None:
        async with Cluster(2) as cluster:
            first, second = await join(cluster.nodes[0], "ann"), await join(cluster.nodes[0], "too")
            sender = await cluster.nodes[1].join("room", receive=False)
            while nicks(sender) != "ann too":
                await asyncio.sleep(0.001)
            assert sender.me is None
            await sender.send(b"1")
            await second.until("1")
            assert await first.until("1") == ["+ann (joined): ann", "+too (joined): ann too", "1"]
            assert first.messages[0].process.number == 0
            with pytest.raises(ValueError, match="properties are for members"):
                await cluster.nodes[1].join("room", properties={"nick": "bob"}, receive=False)

    run(main())


def test_a_dropped_group_is_left() -> None:
    async def main() -> None:
        async with Cluster(2) as cluster:
            ann = await join(cluster.nodes[0], "ann")
            await cluster.nodes[1].join("room", properties={"nick": "bob"})
            assert (await ann.until("-bob (left): ann"))[-2:] == [
                "+bob (joined): ann bob",
                "-bob (left): ann",
            ]

    run(main())


@PROTOCOLS
def test_a_message_to_several_groups_comes_once_to_each_who_is_in_any(protocol: str) -> None:
    async def main() -> None:
        async with Cluster(3, protocol=protocol) as cluster:
            one, two, three = cluster.nodes
            readers = [
                await join(one, "ann", "a"),
                await join(two, "bob", "b"),
                await join(two, "cid", "a"),
                await join(three, "dan", "c"),
            ]
            receipt = await one.send(["a", "b", "nobody"], b"to two", receipt=True)
            message = await receipt
            assert message.groups == ("a", "b", "nobody")
            await three.send(["a", "b", "c"], b"to all", safe=True)
            for reader, expected in zip(readers, (2, 2, 2, 1), strict=True):
                await reader.until("to all")
                assert len(reader.messages) == expected
            assert readers[1].messages[0].group == "b"
            assert readers[1].messages[0].groups == ("a", "b", "nobody")
            for wrong, error in (([], ConfigProblem), (["a", "a"], ConfigProblem), ("ab", TypeError)):
                with pytest.raises(error):
                    await one.send(wrong, b"x")

    run(main())


# --- nodes that come and go ---------------------------------------------------------------------


@PROTOCOLS
def test_members_at_a_node_that_is_lost_leave_and_it_is_told_why(protocol: str) -> None:
    async def main() -> None:
        async with Cluster(3, protocol=protocol) as cluster:
            ann, bob, _ = [
                await join(node, nick)
                for node, nick in zip(cluster.nodes, ("ann", "bob", "cid"), strict=True)
            ]
            for reader in (ann, bob):
                await reader.until("+cid (joined): ann bob cid")
            cluster.network.partition({3}, {1, 2})
            await cluster.together(1, 2)
            await ann.group.send(b"on")
            assert (await ann.until("on"))[-2:] == ["-cid (node lost): ann bob", "on"]
            assert (await bob.until("on"))[-2:] == ["-cid (node lost): ann bob", "on"]

    run(main())


def test_groups_that_changed_in_both_parts_are_put_together() -> None:
    async def main() -> None:
        async with Cluster(4) as cluster:
            ann, bob, cid, dan = [
                await join(node, nick)
                for node, nick in zip(cluster.nodes, ("ann", "bob", "cid", "dan"), strict=True)
            ]
            for reader in (ann, bob, cid):
                await reader.until("+dan (joined): ann bob cid dan")
            cluster.network.partition({1, 2}, {3, 4})
            await cluster.together(1, 2)
            await cluster.together(3, 4)
            await bob.group.leave()
            eve = await join(cluster.nodes[2], "eve")
            await cid.group.send(b"apart")
            await eve.until("apart")
            cluster.network.heal()
            await cluster.together()
            await ann.group.send(b"together")
            seen = [await reader.until("together") for reader in (ann, cid, dan, eve)]
            assert seen[0][-4:] == [
                "+cid (merged): ann cid eve dan",
                "+eve (merged): ann cid eve dan",
                "+dan (merged): ann cid eve dan",
                "together",
            ]
            assert seen[1][-3:] == ["apart", "+ann (merged): ann cid eve dan", "together"]
            assert seen[1][-3:] == seen[2][-3:] == seen[3][-3:]
            assert {nicks(reader.group) for reader in (ann, cid, dan, eve)} == {"ann cid eve dan"}

    run(main())


@PROTOCOLS
def test_a_join_that_is_under_way_when_the_network_parts_is_done_in_the_end(protocol: str) -> None:
    async def main() -> None:
        async with Cluster(3, protocol=protocol) as cluster:
            ann = await join(cluster.nodes[0], "ann")
            joining = asyncio.create_task(join(cluster.nodes[1], "bob"))
            await asyncio.sleep(0)
            cluster.network.partition({3}, {1, 2})
            bob = await joining
            await cluster.together(1, 2)
            cluster.network.heal()
            await cluster.together()
            cid = await join(cluster.nodes[2], "cid")
            await bob.group.send(b"all")
            for reader in (ann, bob, cid):
                await reader.until("all")
                assert nicks(reader.group) == "ann bob cid"

    run(main())


def test_a_late_node_knows_who_is_there_before_the_first_message() -> None:
    async def main() -> None:
        async with Cluster(3) as cluster:
            readers = [await join(node, nick) for node, nick in zip(cluster.nodes, "abc", strict=True)]
            await cluster.nodes[2].stop()
            await readers[0].until("-c (node lost): a b")
            again = cluster.nodes[2] = cluster.node(3)
            await again.start()
            await cluster.together()
            late = await join(again, "late")
            assert nicks(late.group) == "a b late"

    run(main())


@PROTOCOLS
def test_another_life_joins_again_with_its_properties_and_misses_nothing_of_it(protocol: str) -> None:
    async def main() -> None:
        async with Cluster(3, protocol=protocol) as cluster:
            ann, _, cid = [
                await join(node, nick)
                for node, nick in zip(cluster.nodes, ("ann", "bob", "cid"), strict=True)
            ]
            node = cluster.nodes[2]
            before = node.incarnation
            node._running.outlived(before)
            sent = 0
            while node.incarnation == before or len(node.members) < 3 or cid.seen[-1] != f"m{sent}":
                sent += 1
                await ann.group.send(f"m{sent}".encode())
                await asyncio.sleep(0.05)
            rejoined = next(at for at, word in enumerate(cid.seen) if word.startswith("Rejoined"))
            assert cid.seen[rejoined + 1].startswith("+cid (merged)")
            assert cid.group.me is not None
            assert cid.group.me.incarnation == node.incarnation > before
            assert nicks(cid.group) == "ann bob cid"
            configuration = node.configuration.id
            all_of_it = [m.payload for m in ann.messages if m.configuration == configuration]
            assert [m.payload for m in cid.messages if m.configuration == configuration] == all_of_it

    run(main())


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({"nick": "x" * 257}, ConfigProblem),
        ({str(number): "" for number in range(33)}, ConfigProblem),
        ({"nick": 7}, ConfigProblem),
        ({str(number): "ä" * 256 for number in range(32)}, MessageTooLarge),
    ],
)
def test_what_a_member_says_of_itself_is_bounded(properties: dict[str, str], error: type[Exception]) -> None:
    async def main() -> None:
        async with Cluster(1, settings={"max_message_size": 8_000}) as cluster:
            with pytest.raises(error):
                await cluster.nodes[0].join("room", properties=properties)
            assert nicks((await join(cluster.nodes[0], "ann")).group) == "ann"

    run(main())


def test_memberships_of_a_node_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes_module, "MOST_STATE", 300)

    async def main() -> None:
        async with Cluster(1) as cluster:
            node = cluster.nodes[0]
            readers = [await join(node, "x" * 50, f"g{number}") for number in range(4)]
            with pytest.raises(ConfigProblem, match="join fewer groups"):
                await join(node, "x" * 50, "one more")
            await readers[0].group.leave()
            await join(node, "x" * 50, "one more")

    run(main())


def test_thousands_of_memberships_are_told_in_messages_that_are_small() -> None:
    async def main() -> None:
        async with Cluster(2, settings={"max_message_size": 2_000}) as cluster:
            one, two = cluster.nodes
            rooms = await asyncio.gather(*(one.join(f"g{number}") for number in range(1_000)))
            cluster.network.partition({1}, {2})
            await cluster.together(1)
            await cluster.together(2)
            late = await two.join("g7")
            cluster.network.heal()
            await cluster.together()
            await rooms[7].send(b"x")
            while len(late.members) < 2:
                await asyncio.sleep(0.01)
            assert len(rooms[7].members) == 2

    run(main())


def test_a_join_that_takes_too_long_is_given_up() -> None:
    async def main() -> None:
        async with Cluster(2) as cluster:
            ann = await join(cluster.nodes[0], "ann")
            cluster.nodes[1]._running.driver.brake(True)
            with pytest.raises(SendTimeout, match="room could not be joined for 1 s"):
                await cluster.nodes[0].join("room", timeout=1)
            cluster.nodes[1]._running.driver.brake(False)
            await ann.group.send(b"on")
            await ann.until("on")
            assert nicks(ann.group) == "ann", "who gave up is no member"

    run(main())


def test_joining_and_leaving_end_with_the_node() -> None:
    async def main() -> None:
        async with Cluster(2) as cluster:
            one, two = cluster.nodes
            ann = await join(one, "ann")
            two._running.driver.brake(True)
            joining, leaving = asyncio.create_task(join(one, "bob")), asyncio.create_task(ann.group.leave())
            await asyncio.sleep(0.01)
            one._running.driver.end(None)
            with pytest.raises(NodeClosed):
                await joining
            await leaving

    run(main())


def test_a_group_that_is_dropped_after_its_node_has_ended_is_no_mistake() -> None:
    async def main() -> None:
        wrong: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: wrong.append(context))
        async with Cluster(1) as cluster:
            group = await cluster.nodes[0].join("room")
        del group
        gc.collect()
        await asyncio.sleep(1)
        assert wrong == []

    run(main())


# --- one primary partition ----------------------------------------------------------------------


def test_without_a_majority_of_voters_nothing_is_sent_or_delivered() -> None:
    async def main() -> None:
        async with Cluster(4, voters=[1, 2, 3]) as cluster:
            readers = [await join(node, str(node.id)) for node in cluster.nodes]
            cluster.network.partition({1, 4}, {2, 3})
            await cluster.together(1, 4)
            await cluster.together(2, 3)
            for node, reader in ((cluster.nodes[0], readers[0]), (cluster.nodes[3], readers[3])):
                await reader.until("lost (2, 3)")
                assert node.status()["primary"] is False
                with pytest.raises(NoMajority, match="does not reach 2, 3"):
                    await reader.group.send(b"x", receipt=True)
                with pytest.raises(NoMajority):
                    await node.send(["room"], b"x")
                with pytest.raises(NoMajority):
                    await node.join("room")
            await readers[1].group.send(b"majority", safe=True)
            await readers[2].until("majority")
            cluster.network.heal()
            await cluster.together()
            await readers[0].until("+3 (merged): 1 2 3 4")
            await readers[0].group.send(b"again")
            for reader in readers:
                await reader.until("again")
            assert any(word == "regained (1, 2, 3, 4)" for word in readers[0].seen)
            assert not any(word.startswith(("lost", "regained")) for word in readers[1].seen)
            assert [m.payload for m in readers[0].messages] == [b"again"]
            assert [m.payload for m in readers[1].messages] == [b"majority", b"again"]

    run(main())


def test_what_a_minority_had_accepted_is_delivered_by_nobody_and_its_sender_is_told() -> None:
    async def main() -> None:
        async with Cluster(3, voters=[1, 2, 3]) as cluster:
            readers = [await join(node, str(node.id)) for node in cluster.nodes]
            cluster.network.partition({1}, {2, 3})
            receipts = [await readers[0].group.send(b"%d" % number, receipt=True) for number in range(50)]
            with pytest.raises(NoMajority):
                await receipts[-1]
            await cluster.together(1)
            await cluster.together(2, 3)
            cluster.network.heal()
            await cluster.together()
            await readers[1].until("+1 (merged): 1 2 3")
            await readers[1].group.send(b"end", safe=True)
            for reader in readers:
                await reader.until("end")
            assert [m.payload for m in readers[1].messages] == [b"end"]
            known = [m.payload for m in readers[0].messages]
            assert known == [b"%d" % number for number in range(len(known) - 1)] + [b"end"]

    run(main())


def test_a_node_with_voters_starts_when_a_majority_is_there() -> None:
    async def main() -> None:
        cluster = Cluster(3, voters=[1, 2, 3])
        starting = asyncio.create_task(cluster.nodes[0].start())
        await asyncio.sleep(20)
        assert not starting.done()
        await cluster.nodes[1].start()
        await starting
        assert await join(cluster.nodes[0], "ann")
        await cluster.nodes[0].stop()
        await cluster.nodes[1].stop()

    run(main())


async def outside(reader: Reader) -> None:
    """Wait until a reader was told that the primary partition is lost; others are there, and merge."""
    async with asyncio.timeout(60):
        while "lost ()" not in reader.seen:
            await asyncio.sleep(0.01)


def test_who_was_given_other_voters_than_most_does_not_count_itself_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Node 4 would be a majority of its own voters, alone, and for good."""

    async def main() -> None:
        cluster = Cluster(4, voters=[1, 2, 3])
        cluster.nodes[3] = cluster.node(4, voters=[4])
        nodes = cluster.nodes
        cluster.network.partition({1, 2, 3}, {4})
        await asyncio.gather(*(node.start() for node in nodes))
        readers = [await join(node, str(node.id)) for node in nodes]
        other = readers[3]
        await other.group.send(b"alone")
        cluster.network.heal()
        await outside(other)
        with pytest.raises(NoMajority, match="nodes 1, 2, 3 were given other voters"):
            await other.group.send(b"x")
        await readers[0].group.send(b"the majority goes on")
        await readers[1].until("the majority goes on")
        assert "nodes 4 were given other voters than this one" in caplog.text
        cluster.network.partition({1, 2, 3}, {4})
        await cluster.together(1, 2, 3)
        while len(nodes[3].configuration.members) > 1:
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)
        assert [node.status()["primary"] for node in nodes] == [True, True, True, False]
        with pytest.raises(NoMajority):
            await other.group.send(b"x")
        await asyncio.gather(*(node.stop() for node in nodes))

    run(asyncio.wait_for(main(), 600))


def test_where_as_many_were_given_other_voters_nobody_goes_on() -> None:
    async def main() -> None:
        cluster = Cluster(4, voters=[1, 2])
        nodes = [*cluster.nodes[:2], cluster.node(3, voters=[3, 4]), cluster.node(4, voters=[3, 4])]
        cluster.network.partition({1, 2}, {3, 4})
        await asyncio.gather(*(node.start() for node in nodes))
        readers = [await join(node, str(node.id)) for node in nodes]
        cluster.network.heal()
        for reader in readers:
            await outside(reader)
        cluster.network.partition({1, 2}, {3, 4})
        await asyncio.sleep(10)
        assert [node.status()["primary"] for node in nodes] == [False] * 4
        for node in nodes:
            await node.stop()

    run(asyncio.wait_for(main(), 600))


def test_a_voter_that_was_not_told_that_it_is_one_does_not_count() -> None:
    async def main() -> None:
        cluster = Cluster(3, voters=[1, 2, 3])
        untold = cluster.node(2, voters=[])
        starting = asyncio.create_task(cluster.nodes[0].start())
        await untold.start()
        await asyncio.sleep(10)
        assert not starting.done()
        await cluster.nodes[2].start()
        await starting
        for node in (cluster.nodes[0], untold, cluster.nodes[2]):
            await node.stop()

    run(asyncio.wait_for(main(), 600))


@pytest.mark.parametrize("protocol", ["total", "dtp"])
def test_the_sequencer_family_tells_that_its_primary_partition_is_lost(protocol: str) -> None:
    async def main() -> None:
        async with Cluster(3, protocol=protocol) as cluster:
            readers = [await join(node, str(node.id)) for node in cluster.nodes]
            cluster.network.partition({1}, {2}, {3})
            await readers[0].until("lost (2, 3)")
            with pytest.raises(NoMajority, match="does not reach 2, 3"):
                await readers[0].group.send(b"x")
            cluster.network.heal()
            while not all("regained" in " ".join(reader.seen) for reader in readers):
                await asyncio.sleep(0.1)
            await cluster.together()
            await readers[0].group.send(b"on")
            for reader in readers:
                await reader.until("on")

    run(main())


# --- what a trace tells of it -------------------------------------------------------------------


class Rows:
    """A trace in memory."""

    problem = None

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def append(self, rows: Sequence[Row]) -> None:
        self.rows += rows

    def close(self) -> None:
        """One of the nodes writes no more."""


@PROTOCOLS
def test_the_auditor_judges_what_members_were_told(protocol: str) -> None:
    trace: Any = Rows()

    async def main() -> None:
        cluster = Cluster(4, protocol=protocol)
        cluster.trace = trace
        async with cluster:
            readers = [await join(node, str(node.id)) for node in cluster.nodes]
            others = [await join(node, str(node.id), "other") for node in cluster.nodes[1:]]
            await cluster.nodes[0].send(["room", "other"], b"both", safe=True)
            cluster.network.partition({1, 2, 3}, {4})
            await readers[0].group.send(b"sent when they part")
            await cluster.together(1, 2, 3)
            await others[0].group.leave()
            node = cluster.nodes[0]
            node._running.outlived(node.incarnation)
            while "Rejoined" not in " ".join(readers[0].seen):
                await asyncio.sleep(0.1)
            cluster.network.heal()
            await cluster.together()
            await readers[0].group.send(b"end")
            for reader in readers:
                await reader.until("end")

    run(main())
    promised = PROTOCOLS_THERE_ARE[protocol].heading_with_groups["promises"]
    report = audit(trace.rows, checks=PROMISES[promised])
    assert report.violations == ()
    seen = {row[4] for row in trace.rows}
    assert set(GROUP_EVENTS) <= seen


def test_a_node_without_a_trace_makes_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes_module, "of_output", lambda output: pytest.fail("for whom?"))

    async def main() -> None:
        async with Cluster(2, open_trace=lambda ahead_us: None) as cluster:
            ann = await join(cluster.nodes[0], "ann")
            await ann.group.send(b"x")
            await ann.until("x")

    run(main())
