"""Whole groups in virtual time: partitions, deaf members, groups that meet, groups that crash as a whole."""

from __future__ import annotations

import random

import pytest

from ordercast.audit.properties import audit
from ordercast.catalogue import lab_protocol
from ordercast.core.contract import Packet
from ordercast.core.identity import ConfigurationId, Guarantee, NodeId
from ordercast.sim.network import Lan
from ordercast.sim.world import World
from ordercast.viewsync.header import header
from ordercast.viewsync.machine import GroupMachine
from ordercast.viewsync.packets import Answer, Group, Heartbeat, encode

pytestmark = pytest.mark.untraced

FAMILY = ("cm", "rbp", "irbp", "pinwheel", "dtp", "total")
SECOND = 1_000_000


def world(name: str = "cm", nodes: int = 3, **settings: object) -> World:
    return lab_protocol(name).world(settings, tuple(range(1, nodes + 1)), Lan(), 1)


def up_and_running(name: str = "cm", nodes: int = 3, **settings: object) -> World:
    made = world(name, nodes, **settings)
    made.start()
    made.run_until(SECOND)
    return made


def wait(made: World, us: int = 2 * SECOND) -> None:
    made.run_until(made.now + us)


def members(made: World, node: NodeId) -> tuple[NodeId, ...]:
    current = made.hosts[node].configuration
    return current.members if current is not None else ()


def delivered(made: World, node: NodeId) -> list[tuple[object, ...]]:
    return [row[9:12] for row in made.rows if row[0] == node and row[4] == "deliver"]


def machine(made: World, node: NodeId) -> GroupMachine:
    found = made.hosts[node].machine
    assert isinstance(found, GroupMachine)
    return found


def properties_kept(made: World, name: str = "cm") -> None:
    report = audit(made.rows, None, lab_protocol(name).checks)
    assert not report.violations, [str(violation) for violation in report.violations[:3]]


@pytest.mark.parametrize("name", FAMILY)
def test_all_nodes_come_to_be_in_one_view(name: str) -> None:
    made = up_and_running(name, 5)
    assert {members(made, node) for node in made.nodes} == {(1, 2, 3, 4, 5)}


@pytest.mark.parametrize("name", FAMILY)
def test_in_a_partition_the_majority_goes_on_and_the_others_come_back(name: str) -> None:
    """Primary partition: who is excluded halts, and comes back as another life."""
    made = up_and_running(name, 5)
    made.network.links.partition([(1, 2), (3, 4, 5)])
    for node in made.nodes:
        made.applications.submit(node, 100)
    wait(made)
    assert members(made, 3) == (3, 4, 5)
    assert len(delivered(made, 1)) == 0, "a minority cannot go on"
    assert len(delivered(made, 3)) >= 3
    made.network.links.heal()
    wait(made)
    assert {members(made, node) for node in made.nodes} == {(1, 2, 3, 4, 5)}
    assert made.halt_reasons["excluded"] == 2
    assert made.hosts[1].incarnation == 1
    properties_kept(made, name)


@pytest.mark.parametrize("name", FAMILY)
def test_a_group_that_crashed_as_a_whole_goes_on_when_a_majority_is_back(name: str) -> None:
    made = up_and_running(name, 3)
    before = made.latest
    for node in made.nodes:
        made.crash(node)
    made.restart(1)
    wait(made)
    assert members(made, 1) == (), "one of three is no majority"
    made.restart(3)
    wait(made)
    assert members(made, 1) == (1, 3)
    assert before is not None
    assert made.latest is not None
    assert made.latest.id.seq > before.id.seq
    made.applications.submit(1, 100)
    wait(made)
    assert delivered(made, 1) == delivered(made, 3)
    assert len(delivered(made, 1)) == 1
    properties_kept(made, name)


@pytest.mark.parametrize("name", FAMILY)
def test_a_member_that_hears_nothing_is_left_out(name: str) -> None:
    made = up_and_running(name, 4)
    for node in (1, 2, 3):
        made.network.links.cut(node, 4)
    made.applications.submit(1, 100, Guarantee.SAFE)
    wait(made)
    assert members(made, 1) == (1, 2, 3)
    assert len(delivered(made, 1)) == 1
    properties_kept(made, name)


@pytest.mark.parametrize("name", FAMILY)
def test_of_two_groups_that_meet_the_younger_gives_itself_up(name: str) -> None:
    """003, "Future Improvements": its members end their lives, and the next ones are let into the other."""
    made = world(name, 5, founders=1)
    made.network.links.partition([(1, 2), (3, 4, 5)])
    made.start(3, 4, 5)
    made.run_until(SECOND // 2)
    made.start(1, 2)
    made.run_until(SECOND)
    assert members(made, 1) == (1, 2)
    assert members(made, 3) == (3, 4, 5)
    made.applications.submit(1, 100)
    wait(made)
    made.network.links.heal()
    wait(made)
    assert {members(made, node) for node in made.nodes} == {(1, 2, 3, 4, 5)}
    assert machine(made, 1).life.group.founder == 3, "the older one stays"
    assert made.halt_reasons == {"older group met": 2}
    made.applications.submit(1, 100)
    made.applications.submit(5, 100)
    wait(made)
    assert len(delivered(made, 1)) == 3
    assert delivered(made, 3) == delivered(made, 1)[1:]
    properties_kept(made, name)


@pytest.mark.parametrize("name", FAMILY)
def test_a_group_that_met_an_older_one_which_is_gone_goes_on_by_itself(name: str) -> None:
    """Whoever gives up a group for another one keeps its vote until it is let in there."""
    made = world(name, 4, founders=1)
    made.network.links.partition([(1, 2, 3), (4,)])
    made.start(4)
    made.run_until(SECOND // 2)
    made.start(1, 2, 3)
    made.run_until(SECOND)
    met = []
    made.watch_sent(lambda node, kind: met.append(node) if kind == "answer" else None)
    made.network.links.heal()
    while not met:
        made.run_until(made.now + 100)
    made.network.links.partition([(1, 2, 3), (4,)])
    wait(made)
    assert made.halt_reasons["older group met"] > 0
    assert {members(made, node) for node in (1, 2, 3)} == {(1, 2, 3)}
    made.network.links.heal()
    wait(made)
    assert {members(made, node) for node in made.nodes} == {(1, 2, 3, 4)}
    properties_kept(made, name)


def test_with_half_of_all_nodes_needed_only_one_group_is_founded() -> None:
    made = world("cm", 5)
    made.network.links.partition([(1, 2), (3, 4, 5)])
    made.start()
    wait(made)
    assert members(made, 1) == ()
    assert members(made, 3) == (3, 4, 5)


@pytest.mark.parametrize("name", FAMILY)
def test_whoever_leaves_takes_nothing_along(name: str) -> None:
    """It goes when all it accepted is delivered, whatever happens to the others meanwhile."""
    made = up_and_running(name, 3)
    for _ in range(100):
        made.applications.submit(2, 1_000)
    made.leave(2)
    wait(made, 3_000)
    made.crash(3)
    wait(made)
    assert made.halt_reasons == {"left": 1}
    assert members(made, 1) == (1,)
    assert len(delivered(made, 1)) == len(delivered(made, 2)) == 100
    properties_kept(made, name)


@pytest.mark.parametrize("name", FAMILY)
def test_a_brake_stops_the_senders_and_is_let_go(name: str) -> None:
    made = up_and_running(name, 3)
    made.brake(3, True)
    wait(made)
    for node in made.nodes:
        made.applications.submit(node, 100)
    wait(made)
    assert delivered(made, 1) == []
    made.brake(3, False)
    wait(made)
    assert len(delivered(made, 1)) == 3


@pytest.mark.parametrize("name", FAMILY)
def test_a_short_silence_of_a_member_that_nobody_waits_for_is_forgiven(name: str) -> None:
    made = up_and_running(name, 3)
    before = made.latest
    config = machine(made, 1).config
    made.network.links.partition([(1, 2), (3,)])
    wait(made, config.aggressive_us // 2)
    made.network.links.heal()
    wait(made)
    assert made.latest == before


@pytest.mark.parametrize("name", FAMILY)
def test_forged_word_of_an_older_group_ends_no_group_whatever_crashes_meanwhile(name: str) -> None:
    """Heartbeats and answers under members' names, in every state of a change, and through restarts."""
    made = up_and_running(name, 4)
    chance = random.Random(f"forged/{name}")
    older = Group(1, 9)

    def forge(to: NodeId) -> None:
        host = made.hosts[to]
        if host.up and not host.paused:
            sender = chance.choice(made.nodes)
            packet = chance.choice((Heartbeat(older, 0, False), Answer(older, chance.randrange(2**64))))
            kind, body = encode(packet)
            front = header(kind, ConfigurationId(chance.randrange(1, 50), 1), sender, chance.randrange(3))
            made._hear(host, Packet(front + body, sender))

    made.watch_sent(lambda node, kind: forge(chance.choice(made.nodes)) if kind == "collect" else None)
    for turn in range(400):
        for node in made.nodes:
            forge(node)
        if turn in (100, 200):
            made.crash(1 + turn // 100)
        if turn in (150, 250):
            made.restart(1 + turn // 100)
        made.run_until(made.now + 1_000)
    assert made.halt_reasons["older group met"] == 0
    wait(made, 5 * SECOND)
    assert {members(made, node) for node in made.nodes} == {(1, 2, 3, 4)}
    assert machine(made, 1).life.group != older
    made.applications.submit(1, 100, Guarantee.SAFE)
    wait(made)
    assert delivered(made, 1) == delivered(made, 4)
    assert len(delivered(made, 1)) == 1
    properties_kept(made, name)


# --- packets of garbage ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILY)
def test_garbage_among_the_packets_changes_nothing(name: str) -> None:
    """What cannot be read is dropped and counted; what is cut short or goes on is no packet."""
    made = up_and_running(name, 3)
    chance = random.Random(f"garbage/{name}")
    told: list[tuple[NodeId, bytes]] = []
    send = made.network.multicast

    def overhear(now_us: int, source: NodeId, data: bytes) -> None:
        told.append((source, data))
        send(now_us, source, data)

    made.network.multicast = overhear  # type: ignore[method-assign]
    for turn in range(300):
        made.applications.submit(1 + turn % 3, 50)
        made.run_until(made.now + 1_000)
        for node in made.nodes:
            source, data = chance.choice(told or [(1, b"")])
            cut = data[: chance.randrange(len(data) + 1)]
            for garbage in (chance.randbytes(chance.randrange(80)), cut[:-1], b"OC\x01" + cut):
                list(machine(made, node).handle(made.now, Packet(garbage, source)))
    wait(made)
    assert {members(made, node) for node in made.nodes} == {(1, 2, 3)}
    assert len(delivered(made, 1)) == 300
    assert delivered(made, 1) == delivered(made, 2) == delivered(made, 3)
