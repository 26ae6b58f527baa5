"""Several networks in drawings: lanes network by network, and networks with their gateways."""

from __future__ import annotations

import io
import random
from itertools import combinations
from math import hypot
from xml.etree import ElementTree

import pytest
from rich.console import Console
from told_run import told_run

from ordercast.draw import svg
from ordercast.draw.networks import Line, in_a_row, lines
from ordercast.draw.spacetime import timeline_of
from ordercast.draw.terminal import Drawing
from ordercast.draw.topology import DOT, in_svg, in_terminal
from ordercast.sim.topology import attached, draw_networks

SVG = "{http://www.w3.org/2000/svg}"
LINE = {1: (1,), 2: (1, 2), 3: (2,), 4: (2, 3), 5: (3,)}
STAR = {1: (1,), 2: (2,), 3: (3,), 4: (1, 2), 5: (3, 1)}
TWICE = {1: (1,), 2: (1, 2), 3: (1, 2), 4: (2,)}


def printed(*what: object, width: int = 80) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(*what, sep="\n")
    return [line.rstrip() for line in out.getvalue().splitlines()]


# --- lanes -----------------------------------------------------------------------------------------


def test_a_gateway_stands_between_the_nodes_of_its_networks() -> None:
    assert in_a_row({5: (2,), 4: (1,), 3: (1, 2), 2: (1,), 1: (2,)}) == [2, 4, 3, 1, 5]
    assert in_a_row(STAR) == [1, 4, 2, 5, 3]


def test_networks_follow_each_other_as_gateways_join_them_and_not_by_number() -> None:
    assert in_a_row({1: (1,), 2: (2,), 3: (3,), 4: (1, 3), 5: (3, 2)}) == [1, 4, 3, 5, 2]


def test_a_network_joins_the_places_of_its_nodes() -> None:
    assert lines(LINE, in_a_row(LINE)) == [Line(1, (0, 1)), Line(2, (1, 2, 3)), Line(3, (3, 4))]


def test_the_terminal_shows_above_the_lanes_which_network_they_are_on() -> None:
    heading = printed(Drawing(timeline_of(told_run(), LINE)), width=100)[:4]
    assert heading == [
        " network 1  ●──────●",
        " network 2         ●──────●──────●",
        " network 3                       ●──────●",
        "      node  1      2      3      4      5",
    ]


def test_svg_has_a_band_for_each_network_and_a_dot_for_each_node_on_it() -> None:
    drawing = ElementTree.fromstring(svg.draw(timeline_of(told_run(), LINE)))
    bands = [each for each in drawing.iter(f"{SVG}rect") if each.get("class") == "band"]
    assert len(bands) == 3, "gateways are in none"
    dots = [each for each in drawing.iter(f"{SVG}circle") if each.get("class") == "on"]
    assert len(dots) == sum(map(len, LINE.values())) + 2, "and two in the legend"
    plain = svg.draw(timeline_of(told_run()))
    assert 'class="band"' not in plain
    assert 'class="on"' not in plain


# --- a network by itself ---------------------------------------------------------------------------


def test_in_the_terminal_networks_are_lines_that_gateways_are_on_together() -> None:
    told = printed(*in_terminal(TWICE, {(2, 1), (2, 2)}, {1: "p", 2: "g", 3: "h", 4: "q"}, 80))
    assert told[:3] == ["network 1  ●──◆──◇", "network 2     ◆──◇──●", "     node  p  g  h  q"]


def test_where_there_is_no_room_nodes_of_one_network_are_one_sign() -> None:
    many = {**dict.fromkeys(range(1, 30), (1,)), 30: (1, 2), 31: (2,)}
    told = printed(*in_terminal(many, {(30, 1), (30, 2)}, {node: str(node) for node in many}, 80))
    assert told[:3] == ["network 1  ●───◆", "network 2      ◆───●", "     node  ×29 30  31"]


@pytest.mark.parametrize("seed", range(25))
def test_in_svg_nothing_covers_anything_else(seed: int) -> None:
    nodes = range(1, 7 + seed % 9)
    networks = attached({"networks": draw_networks(random.Random(seed), nodes)}, nodes)
    assert networks is not None
    drawing = ElementTree.fromstring(in_svg(networks, (), {node: str(node) for node in nodes}, "a title"))
    circles = [
        (float(each.get("cx", 0)), float(each.get("cy", 0)), float(each.get("r", 0)))
        for each in drawing.iter(f"{SVG}circle")
    ]
    rings = [each for each in circles if each[2] > DOT]
    dots = [each for each in circles if each[2] == DOT]
    half = DOT
    boxes = [
        (float(each.get("x", 0)) + half, float(each.get("y", 0)) + half, half)
        for each in drawing.iter(f"{SVG}rect")
        if each.get("width") == f"{2 * half:.0f}"
    ]
    assert len(rings) == len({number for on in networks.values() for number in on})
    assert len(dots) + len(boxes) == len(networks)
    for one, other in (*combinations(rings, 2), *((ring, box) for ring in rings for box in boxes)):
        assert hypot(one[0] - other[0], one[1] - other[1]) > one[2] + other[2]
    for one, other in combinations([*dots, *boxes], 2):
        assert hypot(one[0] - other[0], one[1] - other[1]) > one[2] + other[2]


def test_gateways_that_forward_are_told_from_those_that_stand_by() -> None:
    drawing = in_svg(TWICE, {(2, 1), (2, 2)}, {1: "p", 2: "g", 3: "h", 4: "q"}, "a title")
    assert "gateway g, attached to networks 1 and 2: forwards between 1 and 2" in drawing
    assert "gateway h, attached to networks 1 and 2: stands by" in drawing
