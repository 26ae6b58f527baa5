"""Rings joined by gateways, simulated: one order everywhere, through failures (001)."""

from __future__ import annotations

import pytest
from rings_world import LINE, Rings

from ordercast.core.contract import Drop, Packet
from ordercast.core.identity import Guarantee
from ordercast.rings.order import SOURCE_BITS
from ordercast.rings.protocol import RINGS
from ordercast.sim.network import Lan

ALL = set(LINE)


def test_nodes_of_three_rings_deliver_in_one_order() -> None:
    """001 Fig. 3: gateways forward; timestamps merge the rings, source rings decide between equal ones."""
    rings = Rings(LINE)
    rings.come_together()
    for turn in range(20):
        for node in LINE:
            rings.send(node, guarantee=Guarantee.SAFE if (turn + node) % 3 == 0 else Guarantee.AGREED)
        rings.world.run_until(rings.world.now + 700)
    rings.run_until(lambda: all(len(rings.delivered(node)) == 160 for node in LINE))
    assert len({tuple(rings.delivered(node)) for node in LINE}) == 1
    assert rings.places(1) == sorted(rings.places(1))
    assert {seq & (1 << SOURCE_BITS) - 1 for seq, _ in rings.places(1)} == {0, 1, 2}
    rings.check(ALL)


@pytest.mark.parametrize("guarantee", [Guarantee.AGREED, Guarantee.SAFE])
def test_rings_that_nobody_sends_on_hold_up_nobody(guarantee: Guarantee) -> None:
    """001: Guarantee Vectors speak for them. When all is delivered, no more are sent."""
    rings = Rings(LINE)
    rings.come_together()
    rings.world.run_until(rings.world.now + 50_000)
    rings.send(1, guarantee=guarantee)
    rings.run_until(lambda: all(rings.delivered(node) for node in LINE), most_us=100_000)
    rings.world.run_until(rings.world.now + 100_000)
    told = [rings.machine(node).stats["vectors"] for node in (3, 6)]
    rings.world.run_until(rings.world.now + 500_000)
    assert [rings.machine(node).stats["vectors"] for node in (3, 6)] == told


def test_everything_is_forgotten_once_all_members_of_all_rings_have_it() -> None:
    rings = Rings(LINE)
    rings.come_together()
    for node in LINE:
        rings.send(node, 5)
    rings.run_until(lambda: all(len(rings.delivered(node)) == 40 for node in LINE))
    rings.run_until(lambda: not any(rings.machine(node).order.entries for node in LINE), most_us=500_000)
    final = rings.machine(8).final
    assert final is not None
    assert final[1] >= rings.places(8)[-1][0]


def test_a_gateway_dies_with_messages_queued() -> None:
    """Both parts go on, each with what it has; when it is back, they merge."""
    rings = Rings(LINE, window_size=8, max_messages=1)
    rings.come_together()
    for node in LINE:
        rings.send(node, 30)
    rings.world.run_until(rings.world.now + 4_000)
    rings.world.crash(3)
    rings.come_together(1, 2)
    rings.come_together(4, 5, 6, 7, 8)
    rings.send(1, 3)
    rings.send(8, 3)
    rings.world.run_until(rings.world.now + 100_000)
    rings.world.restart(3)
    rings.come_together()
    rings.send(3, guarantee=Guarantee.SAFE)
    rings.world.run_until(rings.world.now + 100_000)
    assert {rings.delivered(node)[-1] for node in LINE} == {(3, 1)}
    rings.check(ALL)


def test_the_route_changes_in_mid_stream() -> None:
    """A cycle of three rings: when a gateway goes, messages take the other way, none lost and none twice."""
    cycle = {1: (1,), 2: (2,), 3: (3,), 4: (1, 2), 5: (2, 3), 6: (3, 1)}
    rings = Rings(cycle)
    rings.come_together()
    for _ in range(40):
        for node in (1, 2, 3):
            rings.send(node)
        rings.world.run_until(rings.world.now + 500)
        if rings.world.now % 7 == 0 and rings.world.up(4):
            rings.world.crash(4)
    if rings.world.up(4):
        rings.world.crash(4)
    rings.come_together(1, 2, 3, 5, 6)
    rings.run_until(lambda: all(len(rings.delivered(node)) == 120 for node in (1, 2, 3, 5, 6)))
    assert len({tuple(rings.delivered(node)) for node in (1, 2, 3, 5, 6)}) == 1
    rings.check({1, 2, 3, 5, 6})


def test_a_ring_that_splits_stays_together_over_another() -> None:
    """Two gateways between the same rings: ring 1 falls apart, and both halves are in one component still."""
    double = {1: (1,), 2: (1,), 3: (2,), 4: (1, 2), 5: (1, 2)}
    rings = Rings(double)
    rings.come_together()
    for node in double:
        rings.send(node, 10)
    rings.partition(1, [1, 4], [2, 5])
    rings.run_until(lambda: rings.together(*double) and len(rings.machine(3).order.rings) == 3)
    rings.send(1, guarantee=Guarantee.SAFE)
    rings.send(2, guarantee=Guarantee.SAFE)
    rings.world.run_until(rings.world.now + 100_000)
    assert len({tuple(rings.delivered(node)) for node in double}) == 1
    assert len(rings.delivered(1)) == 52
    rings.heal(1)
    rings.run_until(lambda: rings.together(*double) and len(rings.machine(3).order.rings) == 2)
    rings.check(set(double))


def test_partition_between_rings_then_within_one_then_all_merge() -> None:
    rings = Rings(LINE)
    rings.come_together()
    rings.partition(2, [3], [4, 5, 6])
    rings.come_together(1, 2, 3)
    rings.come_together(4, 5, 6, 7, 8)
    rings.partition(3, [6, 7], [8])
    rings.come_together(8)
    rings.come_together(4, 5, 6, 7)
    for node in LINE:
        rings.send(node, 2)
    rings.world.run_until(rings.world.now + 100_000)
    rings.heal(2)
    rings.heal(3)
    rings.come_together()
    rings.check(ALL)


def test_messages_larger_than_packets_and_loss() -> None:
    rings = Rings(LINE, lan=Lan(loss=0.02, duplicate=0.01, reorder=0.02), packet_size=256)
    rings.come_together()
    for node in LINE:
        for size in (10, 1_500, 90_000):
            rings.world.applications.submit(node, size)
    rings.run_until(lambda: all(len(rings.delivered(node)) == 24 for node in LINE))
    assert len({tuple(rings.delivered(node)) for node in LINE}) == 1
    rings.check(ALL)


def test_a_gateway_that_has_too_much_to_forward_makes_all_pause() -> None:
    """What waits in gateways stays bounded, and everything arrives."""
    rings = Rings(LINE, forwarding=20_000, window_size=8, max_messages=1)
    rings.come_together()
    for _ in range(400):
        rings.world.applications.submit(1, 500)
    most = 0
    for _ in range(4_000):
        rings.world.run_until(rings.world.now + 500)
        most = max(most, *(ring.outbox.traffic_bytes for ring in rings.machine(3).rings))
        if len(rings.delivered(8)) == 400:
            break
    assert 0 < most < 150_000
    assert len(rings.delivered(8)) == 400


def test_what_waits_for_its_place_in_the_order_stays_bounded() -> None:
    """A node that has too much of it sends nothing new; fuzzed seed 8460007."""
    rings = Rings(LINE, undelivered=5_000, window_size=8, max_messages=1)
    rings.come_together()
    for node in (1, 8):
        for _ in range(200):
            rings.world.applications.submit(node, 500)
    most = 0
    while any(len(rings.delivered(node)) < 400 for node in LINE):
        rings.world.run_until(rings.world.now + 1_000)
        most = max(most, *(rings.machine(node).order.waiting_bytes for node in LINE))
    assert 1_000 < most < 20_000
    rings.check(ALL)


def test_a_brake_stops_new_messages_on_all_rings_until_it_is_let_go() -> None:
    rings = Rings(LINE)
    rings.come_together()
    rings.world.brake(8, True)
    rings.world.run_until(rings.world.now + 20_000)
    rings.send(1)
    rings.world.run_until(rings.world.now + 200_000)
    assert not rings.delivered(2)
    assert rings.machine(1).laggard == 8
    rings.world.brake(8, False)
    rings.run_until(lambda: all(rings.delivered(node) for node in LINE))


def test_a_node_leaves_when_everybody_has_what_it_sent() -> None:
    rings = Rings(LINE)
    rings.come_together()
    rings.send(6, 20, Guarantee.SAFE)
    rings.world.run_until(rings.world.now + 200)
    rings.world.leave(6)
    rings.come_together(1, 2, 3, 4, 5)
    rings.come_together(7, 8)
    assert not rings.world.up(6)
    assert len(rings.delivered(1)) == len(rings.delivered(8)) == 20
    rings.check({1, 2, 3, 4, 5}, {7, 8})


def test_a_packet_of_a_network_that_the_node_is_not_on_is_not_used() -> None:
    rings = Rings({1: (1,), 2: (1,)})
    assert rings.machine(1).handle(rings.world.now, Packet(b"anything", 2, 0, 7)) == (
        Drop("network unknown"),
    )


@pytest.mark.parametrize("networks", [[], [1, 1], [0], [1024]])
def test_wrong_networks_are_refused_in_words(networks: list[int]) -> None:
    with pytest.raises(ValueError, match="name each network"):
        RINGS.configure({"networks": networks}, "sim")
