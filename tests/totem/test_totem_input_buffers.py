"""Input buffers cannot overflow (000 §8): members with different ones share a ring, and some are slow."""

from __future__ import annotations

from collections import Counter

import pytest

from ordercast.core.contract import Machine
from ordercast.core.identity import NodeId
from ordercast.sim.network import Lan
from ordercast.sim.workload import Workload, drive
from ordercast.sim.world import World
from ordercast.totem.config import TotemConfig
from ordercast.totem.limits import Limits
from ordercast.totem.machine import TotemMachine

pytestmark = pytest.mark.untraced

BUFFERS = {1: 1024 * 1024, 2: 60_000, 3: 212_992, 4: 400_000}
"""Bytes, by node."""


def saturated(
    packet_size: int, accelerated: int, slow: NodeId, pause: bool, seed: int = 1
) -> tuple[World, Counter[str]]:
    """A second of a ring of four, each with always more to send; what was dropped while it lasted."""

    def make(node: NodeId) -> Machine:
        config = TotemConfig(
            input_buffer=BUFFERS[node],
            packet_size=packet_size,
            window_size=4_096,
            max_messages=4_096,
            accelerated_window=accelerated,
            token_loss_us=400_000,
        )
        return TotemMachine(node, config)

    world = World(make, tuple(BUFFERS), Lan(), seed)
    for node, held in BUFFERS.items():
        world.limit_input(node, held)
    world.start(*BUFFERS)
    world.run_until(300_000)
    assert all(world.hosts[node].configuration.members == (1, 2, 3, 4) for node in BUFFERS)  # type: ignore[union-attr]
    before = Counter(world.drops)
    drive(world, Workload(arrivals="saturating", size=1_000, start_us=300_000))
    world.slow(slow, 150)
    if pause:  # for as long as the ring waits for it
        world.run_until(500_000)
        world.pause(slow)
        world.run_until(700_000)
        world.resume(slow)
    world.run_until(1_000_000)
    return world, world.drops - before


@pytest.mark.parametrize("pause", [False, True], ids=["slow", "stopped for a while"])
@pytest.mark.parametrize("accelerated", [0, 1_000], ids=["plain", "accelerated"])
@pytest.mark.parametrize("packet_size", [1_400, 20_000])
@pytest.mark.parametrize("slow", [2, 3])
def test_no_input_buffer_overflows(packet_size: int, accelerated: int, slow: NodeId, pause: bool) -> None:
    """000 §8: "If the maximum number of messages broadcast during any one token rotation is limited by the
    size of each processor's input buffer, then input buffer overflow cannot occur."
    """
    world, drops = saturated(packet_size, accelerated, slow, pause)
    assert drops["overflow"] == 0
    members = {world.hosts[node].configuration.members for node in BUFFERS}  # type: ignore[union-attr]
    assert members == {(1, 2, 3, 4)}, "the ring lasted"
    assert world.hosts[1].machine is not None
    assert world.hosts[1].machine.stats["packets"] > 20


@pytest.mark.parametrize("accelerated", [0, 1_000])
def test_a_window_by_ones_own_buffer_would_overflow_a_smaller_one(
    accelerated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the negotiation is for; and that the test above can fail."""
    monkeypatch.setattr(Limits, "smallest", lambda self, other: Limits(*map(max, self, other)))
    _, drops = saturated(1_400, accelerated, slow=2, pause=True)
    assert drops["overflow"] > 0


def test_the_smallest_of_each_limit_rules_on_a_ring() -> None:
    """000 §8.1: the constants "can be negotiated during ring formation"."""
    one, two = Limits(1_000_000, 20_000, 500), Limits(60_000, 64_000, 1_400)
    assert one.smallest(two) == two.smallest(one) == Limits(60_000, 20_000, 500)
