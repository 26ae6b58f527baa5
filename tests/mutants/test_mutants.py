"""Every planted defect is noticed by the fuzzer, and none is there when it is not planted."""

from __future__ import annotations

import pytest

from ordercast.mutants import MUTANTS
from ordercast.protocols import TOTEM
from ordercast.sim.fuzz import plan, run

SEEDS = 500
NODES = (2, 7)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_caught(name: str) -> None:
    with MUTANTS[name].planted():
        assert any(run(TOTEM, plan(TOTEM, seed, NODES))[0].failed for seed in range(SEEDS)), "it lives"


def test_there_are_mutants_of_every_area() -> None:
    areas = {mutant.area for mutant in MUTANTS.values()}
    assert areas == {"ordering", "packing", "flow control", "membership", "recovery", "persistence"}
    assert len(MUTANTS) >= 20


@pytest.mark.parametrize("seed", range(60))
def test_the_protocol_as_it_is_keeps_every_property(seed: int) -> None:
    result, _ = run(TOTEM, plan(TOTEM, seed, NODES))
    assert result.failed is None, result.sentences
    assert result.converged


def test_a_mutant_is_gone_when_it_is_no_longer_planted() -> None:
    mutant = MUTANTS["safe-as-agreed"]
    right = mutant.place.__dict__[mutant.attribute]
    with mutant.planted():
        assert mutant.place.__dict__[mutant.attribute] is not right
    assert mutant.place.__dict__[mutant.attribute] is right
