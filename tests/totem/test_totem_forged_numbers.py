"""Numbers that somebody forged, in a simulated group: it is whole again within seconds of the last."""

from __future__ import annotations

import pytest

from ordercast.catalogue import LAB_TOTEM
from ordercast.core.contract import Packet
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.core.wire import MAX_COUNT
from ordercast.sim.network import Lan
from ordercast.sim.world import World
from ordercast.totem.packets import Announce, Commit, Entry, Join

NODES = (1, 2, 3)
SECONDS = 5_000_000


def forgeries(machine: object, number: int) -> list[bytes]:
    """Packets that node 3 could send, with that ring number, to who is in the state of `machine`."""
    ring = ConfigurationId(number, 1)
    life = getattr(machine, "life", 0)
    return [
        Join(3, number, NODES, ()).encode(),
        Join(3, number, NODES, (1,), life=life).encode(),
        Join(3, number, (2, 3), (), merge=True).encode(),
        Announce(3, ring, (1, 3), NODES).encode(),
        Announce(3, ring, (3,), ()).encode(),
        Commit(ring, NODES, 3, tuple(_entries(machine)), (life, life, life)).encode(),
    ]


def _entries(machine: object) -> list[Entry]:
    forming = getattr(machine, "forming", None)
    known = forming.entries if forming is not None else ()
    limits = machine.config.limits  # type: ignore[attr-defined]
    return [*known, *(Entry(node, ConfigurationId(4, node), 0, 0, False, limits) for node in NODES)][:3]


def together(world: World) -> bool:
    return all(
        (now := world.hosts[node].configuration) is not None and now.members == NODES for node in NODES
    )


@pytest.mark.untraced
@pytest.mark.parametrize("number", [MAX_COUNT - 1, MAX_COUNT - 4, MAX_COUNT // 2, 2**41])
@pytest.mark.parametrize("victims", [(1, 2), (2,)])
def test_a_group_is_whole_again_after_numbers_that_somebody_forged(
    number: int, victims: tuple[NodeId, ...]
) -> None:
    world = LAB_TOTEM.world({}, NODES, Lan(), seed=number % 1_000)
    world.start()
    world.run_until(SECONDS // 5)
    assert together(world)
    for _ in range(40):
        for victim in victims:
            host = world.hosts[victim]
            for data in forgeries(host.machine, number):
                world._step(host, Packet(data, 3))
        world.run_until(world.now + 5_000)
    last_us = world.now
    while not together(world) and world.now - last_us < SECONDS:
        world.run_until(world.now + 50_000)
    assert together(world)
    world.applications.submit(2, 100)
    world.run_until(world.now + SECONDS // 5)
    assert together(world)
    highest = max(row[5] or 0 for row in world.rows if row[4] == "install")
    assert highest < 2**44, "and the numbers have not come far"
