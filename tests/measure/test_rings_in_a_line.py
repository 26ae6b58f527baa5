"""Which nodes are on which ring of a benchmark or demo."""

from __future__ import annotations

import pytest

from ordercast.demo.run import Plan as DemoPlan
from ordercast.measure.bench import Plan
from ordercast.measure.rings import far, first_ring, gateways, in_a_line, places, without

NINE = {1: (1, 2, 3), 2: (3, 4, 5, 6), 3: (6, 7, 8, 9)}


def test_nodes_are_shared_out_and_neighbours_have_a_gateway_in_common() -> None:
    assert in_a_line(9, 3) == NINE
    assert in_a_line(5, 2) == {1: (1, 2), 2: (2, 3, 4, 5)}
    assert in_a_line(3, 1) == {1: (1, 2, 3)}
    with pytest.raises(ValueError, match="at least two nodes for each ring"):
        in_a_line(5, 3)
    assert gateways(NINE) == [3, 6]


def test_a_lost_gateway_leaves_parts_and_another_node_does_not() -> None:
    assert without(NINE, 3) == [(1, 2), (4, 5, 6, 7, 8, 9)]
    assert without(NINE, 5) == [(1, 2, 3, 4, 6, 7, 8, 9)]
    assert without({1: (1, 2, 3), 2: (2, 3, 4)}, 2) == [(1, 3, 4)]


def test_a_gateway_has_a_place_on_each_of_its_rings() -> None:
    found = places(NINE, lambda node, network: f"{network}:{node}")
    assert [(place.network, place.listen) for place in found[3]] == [(1, "1:3"), (2, "2:3")]
    assert found[4][0].seeds == ("2:3", "2:4", "2:5", "2:6")


def test_the_first_gateway_is_killed() -> None:
    assert Plan(nodes=9, protocol="rings", rings=3).victim == DemoPlan(nodes=9, rings=3).killed == 3
    assert Plan(nodes=9).victim == DemoPlan(nodes=9).killed == 9
    with pytest.raises(ValueError, match="protocol totem has one"):
        Plan(nodes=9, rings=3)


def test_nodes_send_on_their_first_ring_and_share_none_with_those_that_are_far() -> None:
    assert [first_ring(NINE, node) for node in range(1, 10)] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert far(NINE, 1) == (4, 5, 6, 7, 8, 9)
    assert far(NINE, 3) == (7, 8, 9)
    assert far({1: (1, 2)}, 1) == ()
