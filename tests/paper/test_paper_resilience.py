"""002 §4.2, "Adjusting degree of fault tolerance": DTP's F-resilience, over its whole range.

"LTM_i defers the delivery U until |{R_i[k] | R_i[k] ≥ g}| ≥ F + 1 … When the condition is satisfied, it is
certain that F + 1 processes have obtained U. … as long as F or fewer sites fails, all lost messages can be
recovered."
"""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.audit.properties import audit
from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.core.identity import Guarantee, NodeId
from ordercast.sim.network import Lan
from ordercast.sim.world import World
from ordercast.trace.columns import EVENT, NODE, SEQ
from ordercast.trace.schema import Row

DTP = LAB_PROTOCOLS["dtp"]
NETWORK = Lan(base_us=200, tail_us=0)
BEGIN_US = 500_000
LOOK_US = 50
"""A quarter of what a packet takes: nobody has anything more since the delivery that is looked at."""
RANGE = [(nodes, failures) for nodes in (2, 3, 5, 7) for failures in range(nodes)]


def group(nodes: int, seed: int = 0) -> World:
    """A group that has formed."""
    world = DTP.world({"silence_us": 5_000}, range(1, nodes + 1), NETWORK, seed)
    world.at(0, world.start)
    world.run_until(BEGIN_US)
    assert len({host.configuration for host in world.hosts.values()}) == 1
    return world


def level_of(failures: int) -> Guarantee:
    """The level that tolerates so many failures."""
    return Guarantee.of(failures + 1)


def until_delivered(world: World, kept: list[Row]) -> Row:
    """Carry on until somebody delivers something; rows go to `kept`."""
    latest_us = world.now + 1_000_000
    while world.now < latest_us:
        world.run_until(world.now + LOOK_US)
        rows = list(world.rows)
        world.rows.clear()
        kept += rows
        for row in rows:
            if row[EVENT] == "deliver":
                return row
    raise AssertionError("nothing was delivered in a second")


def known_to_have(world: World, node: NodeId, place: int) -> int:
    """How many members have everything up to that place, as far as that node knows."""
    machine: Any = world.hosts[node].machine
    return sum(known >= place for known in machine.orderer.order.R.values())


def have(world: World, place: int) -> set[NodeId]:
    """The nodes that have everything up to that place."""
    found = set()
    for node, host in world.hosts.items():
        machine: Any = host.machine
        if machine is not None and machine.orderer.order.hgsn >= place:
            found.add(node)
    return found


@pytest.mark.parametrize(("nodes", "failures"), RANGE)
def test_what_is_delivered_has_been_obtained_by_f_plus_1(nodes: int, failures: int) -> None:
    world = group(nodes)
    for number in range(nodes):
        world.applications.submit(1 + number, 50, level_of(failures))
        row = until_delivered(world, [])
        assert row[SEQ] is not None
        assert known_to_have(world, row[NODE], row[SEQ]) >= failures + 1
        assert len(have(world, row[SEQ])) >= failures + 1
        world.run_until(world.now + 100_000)
        world.rows.clear()


@pytest.mark.parametrize(
    ("nodes", "failures"), [(n, f) for n, f in RANGE if f and f <= (n - 1) // 2]
)  # so that a majority is left, which goes on
@pytest.mark.parametrize("seed", range(3))
def test_it_outlives_the_failure_of_any_f_at_that_moment(nodes: int, failures: int, seed: int) -> None:
    world, kept = group(nodes, seed), list[Row]()
    kept += world.rows
    world.rows.clear()
    world.applications.submit(1 + seed % nodes, 50, level_of(failures))
    row = until_delivered(world, kept)
    assert row[SEQ] is not None
    # Who has delivered it is the first to fail, and of the others those who are known to have it.
    victims = [row[NODE], *sorted(have(world, row[SEQ]) - {row[NODE]})][:failures]
    for victim in victims:
        world.crash(victim)
    world.run_until(world.now + 1_500_000)
    kept += world.rows
    survivors = {node for node, host in world.hosts.items() if host.up} - set(victims)
    assert {each[NODE] for each in kept if each[EVENT] == "deliver"} >= survivors
    assert audit(kept, checks=DTP.checks).clean
