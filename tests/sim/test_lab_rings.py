"""Several Totem rings in the simulator: scenarios with gateways, and a few fuzzed runs."""

from __future__ import annotations

import random

import pytest

from ordercast.catalogue import LAB_RINGS, fuzzed_protocol
from ordercast.sim.fuzz import plan, run
from ordercast.sim.network import Lan
from ordercast.sim.scenario import parse
from ordercast.sim.scenario import run as play


def told(text: str) -> None:
    report = play(parse(text), {LAB_RINGS.name: LAB_RINGS})
    assert report.ok, str(report)


def test_where_nothing_is_said_of_networks_all_nodes_are_on_one_ring() -> None:
    told("nodes p q r\nat 400ms p sends a safe\nuntil 1s\nexpect p q r delivers a in pqr\nexpect clean")


def test_drawn_settings_are_right_and_name_the_networks_of_every_node() -> None:
    for seed in range(100):
        nodes = random.Random(seed).randint(*LAB_RINGS.nodes)
        settings = LAB_RINGS.draw_settings(random.Random(seed), nodes, Lan())
        make = LAB_RINGS.make(settings)
        for node in range(1, nodes + 1):
            make(node)


@pytest.mark.parametrize(("name", "seed"), [("rings", 0), ("rings", 8461135), ("rings+groups", 3)])
def test_rings_keep_their_promises(name: str, seed: int) -> None:
    protocol = fuzzed_protocol(name)
    result, world = run(protocol, plan(protocol, seed, protocol.nodes))
    assert result.failed is None, result.sentences
    assert len(world.networks) > 1
