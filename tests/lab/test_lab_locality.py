"""Where messages are needed, and runs in which they are needed in a part of the network only."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from ordercast.core.addresses import read_address
from ordercast.lab.grid import GridError, Run
from ordercast.lab.local_load import METHOD, conduct, locality_of
from ordercast.lab.locality import QUARTERS, address_to, neighbours, quarters

TWO_RINGS = {"1": (1,), "2": (1,), "3": (1,), "4": (1, 2), "5": (2,), "6": (2,), "7": (2,), "8": (2,)}
RUN = Run(
    protocol="rings",
    nodes=8,
    rate=400,
    size=200,
    seconds=0.2,
    settings={"networks": TWO_RINGS},
    labels={"p1": 0.0, "p2": 0.0},
    method="ordercast.lab.local_load",
)


def probability(area: int, needed: int, p1: float, p2: float) -> float:
    return sum(p for p, areas in quarters(40, p1, p2).destinations[area] if needed in areas)


@pytest.mark.parametrize("area", range(QUARTERS))
def test_messages_go_to_the_other_quarter_and_to_the_other_half_as_often_as_001_says(area: int) -> None:
    other_half = [each for each in range(QUARTERS) if each // 2 != area // 2]
    destinations = quarters(40, 0.1, 0.2).destinations[area]
    assert sum(p for p, _ in destinations) == pytest.approx(1)
    assert sum(p for p, areas in destinations if areas & set(other_half)) == pytest.approx(0.1)
    assert probability(area, area, 0.1, 0.2) == pytest.approx(1)
    assert probability(area, area ^ 1, 0.1, 0.2) == pytest.approx(0.2)
    assert [probability(area, each, 0.1, 0.2) for each in other_half] == pytest.approx([0.06, 0.06])


def test_with_ones_all_need_everything_and_with_zeros_nobody_but_the_own_quarter() -> None:
    assert [areas for _, areas in quarters(40, 1, 1).destinations[2]] == [frozenset(range(4))]
    assert [areas for _, areas in quarters(40, 0, 0).destinations[2]] == [frozenset({2})]


def test_areas_hold_the_nodes_by_their_numbers_and_draws_follow_the_probabilities() -> None:
    locality = quarters(40, 0.1, 0.2)
    assert [len(members) for members in locality.members] == [10] * 4
    assert {locality.area_of(node) for node in locality.members[3]} == {3}
    stream = random.Random(1)
    drawn = Counter(area for _ in range(4000) for area in locality.draw(1, stream))
    assert drawn[0] == 4000
    assert drawn[1] / 4000 == pytest.approx(0.2, abs=0.02)
    assert drawn[2] / 4000 == pytest.approx(0.06, abs=0.02)


def test_neighbours_are_near_and_all_others_far() -> None:
    line = neighbours(6, [[1], [0, 2], [1]], near=0.4, far=0.2)
    needed = [sum(p for p, areas in line.destinations[1] if area in areas) for area in range(3)]
    assert needed == pytest.approx([1 - 0.8 * 0.9, 1, 1 - 0.8 * 0.9])
    assert [areas for _, areas in neighbours(6, [[]], near=0.4, far=0.2).destinations[0]] == [frozenset({0})]


def test_an_address_names_the_groups_of_the_areas() -> None:
    where = read_address(address_to(frozenset({3, 0})))
    assert where is not None
    assert where.groups == ("A0", "A3")


def test_areas_are_the_rings_where_a_run_says_near_and_far() -> None:
    run = msgspec.structs.replace(RUN, labels={"near": 0.5, "far": 0.0})
    assert [sorted(map(sorted, (areas for _, areas in each))) for each in locality_of(run).destinations] == [
        [[0], [0, 1]],
        [[0, 1], [1]],
    ]


def test_contents_that_nobody_needs_stay_and_only_those_who_need_a_message_are_counted() -> None:
    local = conduct(RUN)
    everywhere = conduct(msgspec.structs.replace(RUN, labels={"p1": 1.0, "p2": 1.0}))
    assert local.figures["unsettled"] == everywhere.figures["unsettled"] == 0
    assert not local.notes
    assert local.figures["stats/withheld"] > 0 == local.figures["stats/forwarded"]
    assert everywhere.figures["stats/withheld"] == 0 < everywhere.figures["stats/forwarded"]
    counted = [sum(each.histograms["agreed"].values()) for each in (local, everywhere)]
    assert counted[0] == local.figures["measured"] * 2, "a quarter of eight nodes"
    assert counted[1] == everywhere.figures["measured"] * 8


def test_runs_that_do_not_say_how_local_they_are_are_refused() -> None:
    METHOD.check(RUN)
    with pytest.raises(GridError, match="how local"):
        METHOD.check(msgspec.structs.replace(RUN, labels={"p1": 0.1}))
    with pytest.raises(GridError, match="open"):
        METHOD.check(msgspec.structs.replace(RUN, arrivals="saturating"))
