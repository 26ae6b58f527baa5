"""Every planted defect is noticed by the fuzzer, and none is there when it is not planted."""

from __future__ import annotations

import pytest

from ordercast.catalogue import LAB_PROTOCOLS, lab_protocol
from ordercast.mutants import MUTANTS
from ordercast.mutants.hunt import hunt_one
from ordercast.sim.fuzz import plan, run

SEEDS = 500
NODES = (2, 7)
EACH = {"totem": 60}
"""Seeds with which a protocol is run as it is."""


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_caught(name: str) -> None:
    mutant = MUTANTS[name]
    first = hunt_one(range(mutant.shown_by, mutant.shown_by + 1), NODES, name)
    assert first.failure is not None or hunt_one(range(SEEDS), NODES, name).failure is not None, "it lives"


def test_there_are_mutants_of_every_area() -> None:
    areas = {mutant.area for mutant in MUTANTS.values() if mutant.protocol == "totem"}
    assert areas == {"ordering", "packing", "flow control", "membership", "recovery", "persistence"}
    family = [mutant for mutant in MUTANTS.values() if mutant.protocol != "totem"]
    assert len(family) >= 20
    assert {mutant.protocol for mutant in family} == LAB_PROTOCOLS.keys() - {"totem"}


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name in LAB_PROTOCOLS for seed in range(EACH.get(name, 25))]
)
def test_the_protocol_as_it_is_keeps_every_property(name: str, seed: int) -> None:
    of = lab_protocol(name)
    result, _ = run(of, plan(of, seed, NODES))
    assert result.failed is None, result.sentences
    assert result.converged


def test_a_mutant_is_gone_when_it_is_no_longer_planted() -> None:
    mutant = MUTANTS["safe-as-agreed"]
    right = mutant.place.__dict__[mutant.attribute]
    with mutant.planted():
        assert mutant.place.__dict__[mutant.attribute] is not right
    assert mutant.place.__dict__[mutant.attribute] is right
