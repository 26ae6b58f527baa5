"""Random commands at replicas of one object, under all faults: linearizable, and all replicas equal."""

from __future__ import annotations

import pytest
from random_commands import use

from hunts import rounds
from ordercast.testing import World, simulated


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("protocol", "nodes"), [("totem", 3), ("totem", 5), ("total", 3), ("cm", 4), ("total", 5)]
)
def test_random_commands(protocol: str, nodes: int) -> None:
    @simulated(nodes=nodes, seeds=range(rounds(8, 2000)), protocol=protocol)
    async def random_commands(world: World) -> None:
        await use(world)

    random_commands()
