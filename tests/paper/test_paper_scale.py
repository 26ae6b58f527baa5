"""Large rings and large messages: sizes that the paper does not reach and a user does."""

from __future__ import annotations

import pytest

from ordercast.audit.properties import Expectation, audit
from ordercast.catalogue import LAB_TOTEM
from ordercast.core.identity import Guarantee, NodeId
from ordercast.sim.network import preset
from ordercast.sim.workload import Workload, drive
from ordercast.sim.world import World

EVERYONE = tuple(range(1, 41))
LOST = (1, 2, *range(3, 40, 3))
"""Fifteen: the representative and its successor, and every third of the others."""


def last_configurations(world: World) -> dict[NodeId, tuple[NodeId, ...]]:
    found = {}
    for node, host in world.hosts.items():
        if host.configuration is not None:
            found[node] = host.configuration.members
    return found


def deliveries(world: World) -> list[tuple[NodeId, int]]:
    """Who delivered something, and when."""
    return [(row[0], row[3]) for row in world.rows if row[4] == "deliver"]


def test_a_ring_of_forty_forms_orders_and_survives_the_loss_of_fifteen() -> None:
    """000 §6: "every processor installs some configuration with an agreed membership" in bounded time."""
    assert len(LOST) == 15
    world = World(LAB_TOTEM.make({}), EVERYONE, preset("lan", {"loss": 0.001}), seed=5)
    drive(world, Workload(rate=300, size=200, safe=0.3, start_us=500_000, stop_us=2_500_000))
    world.at(0, world.start)
    world.run_until(500_000)
    assert set(last_configurations(world).values()) == {EVERYONE}, "it formed"
    world.run_until(1_500_000)
    assert {node for node, _ in deliveries(world)} == set(EVERYONE), "it orders"
    for node in LOST:
        world.crash(node)
    world.run_until(3_000_000)
    rest = tuple(node for node in EVERYONE if node not in LOST)
    assert last_configurations(world) == dict.fromkeys(rest, rest), "it survived"
    assert {node for node, at_us in deliveries(world) if at_us > 2_000_000} == set(rest), "and orders"
    report = audit(world.rows, Expectation((frozenset(rest),)))
    assert report.clean, report


SIXTEEN_MIB = 16 * 1024 * 1024


@pytest.mark.parametrize("guarantee", [Guarantee.AGREED, Guarantee.SAFE])
def test_a_message_of_16_mib_arrives_whole_on_a_network_that_loses_5_percent(guarantee: Guarantee) -> None:
    """000 §5: messages may be lost, and are retransmitted; the world compares what arrives byte by byte."""
    world = World(LAB_TOTEM.make({}), (1, 2, 3), preset("lan", {"loss": 0.05}), seed=3)
    world.at(0, world.start)
    world.at(500_000, lambda: world.applications.submit(2, SIXTEEN_MIB, guarantee))
    world.run_until(5_000_000)
    assert sorted(node for node, _ in deliveries(world)) == [1, 2, 3]
    assert all(row[18] == SIXTEEN_MIB for row in world.rows if row[4] == "deliver")
    assert not world.applications.corrupt
    assert audit(world.rows).clean


def test_a_large_message_that_a_ring_did_not_outlive_arrives_on_the_next() -> None:
    """A message of many fragments is originated by its last: if the ring ends before, it is sent anew."""
    world = World(LAB_TOTEM.make({}), (1, 2, 3, 4), preset("lan", {"loss": 0.05}), seed=3)
    world.at(0, world.start)
    world.at(500_000, lambda: world.applications.submit(2, SIXTEEN_MIB, Guarantee.SAFE))
    world.at(1_000_000, lambda: world.crash(4))
    world.run_until(6_000_000)
    assert sorted(node for node, _ in deliveries(world)) == [1, 2, 3]
    assert not world.applications.corrupt
    assert audit(world.rows).clean
