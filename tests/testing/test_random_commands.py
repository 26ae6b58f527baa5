"""Random commands at replicas of one object, under all faults: linearizable, and all replicas equal."""

from __future__ import annotations

import pytest
from random_commands import use

from hunts import rounds
from ordercast.testing import World, simulated


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("protocol", "nodes", "durable"),
    [
        ("totem", 3, False),
        ("totem", 5, False),
        ("total", 3, False),
        ("cm", 4, False),
        ("total", 5, False),
        ("totem", 3, True),
        ("total", 3, True),
    ],
)
def test_random_commands(protocol: str, nodes: int, durable: bool) -> None:
    @simulated(nodes=nodes, seeds=range(rounds(4, 2000)), protocol=protocol, durable=durable)
    async def random_commands(world: World) -> None:
        await use(world)

    random_commands()


@pytest.mark.campaign
def test_random_commands_at_replicas_on_three_rings() -> None:
    """States come from other rings, too: gateways carry them."""

    @simulated(
        nodes=5, seeds=range(rounds(3, 2000)), protocol="rings", rings={1: (1, 2), 2: (2, 3, 4), 3: (4, 5)}
    )
    async def random_commands(world: World) -> None:
        await use(world)

    random_commands()
