"""Nodes that are far apart, with the settings that a real node has by profile (`ordercast.core.protocol`)."""

from __future__ import annotations

import msgspec
import pytest

from ordercast.catalogue import LAB_PROTOCOLS, LabProtocol
from ordercast.core.identity import Kind
from ordercast.core.protocol import LAN, ROUND_TRIPS_US, WAN, Buffers
from ordercast.sim.network import Lan
from ordercast.sim.world import World
from ordercast.totem.config import TotemConfig
from ordercast.totem.protocol import PROFILES, TOTEM

ALL = pytest.mark.parametrize("each", LAB_PROTOCOLS.values(), ids=list(LAB_PROTOCOLS))
NODES = range(1, 6)
FAR = Lan(base_us=ROUND_TRIPS_US[WAN] // 2 - 2_000, tail_us=500, loss=0.005)
FORMED_US = 15_000_000
MESSAGES = 100


def far_apart(each: LabProtocol, profile: str, until_us: int = FORMED_US) -> World:
    """Five nodes 300 ms apart, with the settings of a profile and a buffer of 4 MiB."""
    config = each.product.configure({"packet_size": 1_400}, profile, Buffers(4 * 2**20, 1_400))
    settings = msgspec.structs.asdict(config)
    settings.pop("founders", None)
    world = each.world(settings, NODES, FAR, 7)
    world.start()
    world.run_until(until_us)
    return world


def installed(world: World, kind: Kind = Kind.REGULAR) -> list[tuple[int, ...]]:
    return [row[8] for row in world.rows if row[4] == "install" and row[7] == kind and row[8] is not None]


@ALL
def test_a_group_forms_and_stays_and_takes_in_who_was_gone(each: LabProtocol) -> None:
    world = far_apart(each, WAN)
    assert world.latest is not None
    assert world.latest.members == tuple(NODES)
    formed = len(installed(world))
    for number in range(MESSAGES):
        assert world.applications.submit(number % 5 + 1, 100)
        world.run_until(world.now + 50_000)
    world.run_until(world.now + 5_000_000)
    assert len(installed(world)) == formed, "nobody is suspected wrongly, under load"
    for node in NODES:
        delivered = [row[9:12] for row in world.rows if row[0] == node and row[4] == "deliver"]
        assert len(delivered) == MESSAGES
    world.crash(3)
    world.run_until(world.now + 30_000_000)
    assert installed(world)[-4:] == [(1, 2, 4, 5)] * 4
    world.restart(3)
    world.run_until(world.now + 30_000_000)
    assert installed(world)[-5:] == [(1, 2, 3, 4, 5)] * 5


@ALL
def test_settings_for_a_local_network_would_not_do(each: LabProtocol) -> None:
    """Totem forms no ring; the others send over and over what is still on its way."""
    near, far = (far_apart(each, profile) for profile in (LAN, WAN))
    if each.product is TOTEM:
        assert tuple(NODES) not in installed(near)
    assert near.sent_packets > 2 * far.sent_packets


def test_totem_is_not_stretched_twice() -> None:
    """What a node tells its machine of 300 ms is what the profile is made for: it changes nothing more."""
    told_us = 3 * ROUND_TRIPS_US[WAN] // 2
    near, far = (msgspec.convert(PROFILES[name], TotemConfig) for name in (LAN, WAN))
    assert far.round_trip_us == told_us
    assert near.stretched(told_us) == msgspec.structs.replace(far, round_trip_us=0)
    assert far.stretched(told_us) == far.stretched(0) == far
    further = far.stretched(2 * told_us)
    assert far.token_loss_us < further.token_loss_us <= near.stretched(2 * told_us).token_loss_us
