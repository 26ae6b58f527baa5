"""A round that there never was, far ahead of all others: the group agrees all the same."""

from __future__ import annotations

import pytest

from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.core.contract import Packet
from ordercast.core.identity import ConfigurationId
from ordercast.sim.network import Lan
from ordercast.sim.world import World
from ordercast.viewsync.header import NO_VIEW, header
from ordercast.viewsync.packets import Collect, Round, encode

NODES = (1, 2, 3)
FAR = 1_000_000


def forge(world: World, to: int, sender: int, view: ConfigurationId) -> None:
    """Node `to` is asked, as if by `sender`, to take part in a round far ahead."""
    kind, body = encode(Collect(0, Round(FAR, sender)))
    world._step(world.hosts[to], Packet(header(kind, view, sender, 0) + body, sender))


def members(world: World) -> set[tuple[int, ...]]:
    return {host.configuration.members for host in world.hosts.values() if host.configuration is not None}


@pytest.mark.parametrize("name", ["total", "rbp"])
def test_a_group_is_founded_though_somebody_promised_a_round_far_ahead(name: str) -> None:
    world = LAB_PROTOCOLS[name].world({}, NODES, Lan(), seed=1)
    world.start()
    forge(world, 2, 3, NO_VIEW)
    forge(world, 3, 2, NO_VIEW)
    world.run_until(3_000_000)
    assert members(world) == {NODES}


def test_a_view_changes_though_somebody_promised_a_round_far_ahead() -> None:
    world = LAB_PROTOCOLS["total"].world({}, NODES, Lan(), seed=1)
    world.start()
    world.run_until(1_000_000)
    assert world.latest is not None
    forge(world, 2, 3, world.latest.id)
    world.crash(3)
    world.run_until(6_000_000)
    assert {world.hosts[node].configuration.members for node in (1, 2)} == {(1, 2)}  # type: ignore[union-attr]
