"""How far away its peers are is told to a machine; what follows from it ends with it."""

from __future__ import annotations

from ordercast.catalogue import LAB_TOTEM
from ordercast.core.contract import Distance
from ordercast.sim.network import Lan
from ordercast.sim.world import World

FAR_US = 3_000_000
"""A round trip that makes the machine wait for many seconds."""


def members(world: World) -> set[tuple[int, ...]]:
    return {host.configuration.members for host in world.hosts.values() if host.configuration is not None}


def test_who_was_far_away_merges_soon_when_it_is_near_again() -> None:
    world = LAB_TOTEM.world({}, (1, 2), Lan(), seed=1)
    world.network.links.partition([[1], [2]])
    world.start()
    for host in world.hosts.values():
        world._step(host, Distance(FAR_US))
    world.run_until(100_000)
    assert members(world) == {(1,), (2,)}
    for host in world.hosts.values():
        world._step(host, Distance(0))
    world.network.links.heal()
    world.run_until(3 * FAR_US)
    assert members(world) == {(1, 2)}


def test_that_all_others_are_gone_is_noticed_soon_although_they_were_far_away_before() -> None:
    """The wait for a token that was lost is as long as it would be without having been far away."""
    world = LAB_TOTEM.world({}, (1, 2), Lan(), seed=1)
    world.start()
    world.run_until(100_000)
    assert members(world) == {(1, 2)}
    world.tell_distance(2, FAR_US)
    world.run_until(world.now + 100_000)
    world.crash(1)
    world.tell_distance(2, 0)
    world.run_until(world.now + FAR_US)
    assert members(world) == {(2,)}
