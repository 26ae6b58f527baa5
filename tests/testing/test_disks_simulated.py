"""Objects on disk in simulation: what ends with a node, what with its machine, and what is damaged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import ordercast
from ordercast.testing import Service, World, run

NODES = (1, 2, 3)


async def _counters(world: World) -> Service[ordercast.Counter]:
    async def counter(node: ordercast.Node) -> ordercast.Counter:
        return await node.replicate(ordercast.Counter(), "counter", durable="objects")

    service = world.service(counter)
    await world.ready()
    return service


def _in_world(protocol: str, what: Callable[[World], object]) -> None:
    async def main() -> None:
        world = World(3, seed=5, protocol=protocol, voters=NODES)
        await world.start()
        service = await _counters(world)
        assert await service.at(1).add(5) == 5
        what(world)
        await world.calm()
        for node in NODES:
            assert await service.at(node).get() == 5
        await world.stop()

    run(main())


@pytest.mark.parametrize("protocol", ["totem", "total"])
@pytest.mark.parametrize("silently", [False, True])
def test_all_nodes_end_and_what_was_answered_is_there(protocol: str, silently: bool) -> None:
    def end_all(world: World) -> None:
        for node in NODES:
            world.crash(node, silently=silently)

    _in_world(protocol, end_all)


@pytest.mark.parametrize("damaged", NODES)
def test_what_is_damaged_is_repaired(damaged: int) -> None:
    def damage(world: World) -> None:
        for node in NODES:
            world.crash(node)
        before = {place: each.copy() for place, each in world._cluster._directories.items()}
        world.damage(damaged)
        changed = [
            (place[0], name)
            for place, each in world._cluster._directories.items()
            for name in each.names()
            if each.content(name) != before[place].content(name)
        ]
        assert [node for node, _ in changed] == [damaged]

    _in_world("totem", damage)


def test_who_comes_back_without_a_disk_has_no_objects_there() -> None:
    def lose(world: World) -> None:
        world.crash(2)
        assert any(node == 2 for node, _ in world._cluster._directories)
        world.restart(2, without_disk=True)
        assert not any(node == 2 for node, _ in world._cluster._directories)

    _in_world("totem", lose)
