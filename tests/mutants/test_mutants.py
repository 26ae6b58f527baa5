"""Every planted defect is noticed by the fuzzer, and none is there when it is not planted."""

from __future__ import annotations

import pytest

from hunts import CAMPAIGN, rounds
from ordercast.catalogue import LAB_PROTOCOLS, OVER_NETWORKS, fuzzed_protocol
from ordercast.core.protocol import GROUPS
from ordercast.mutants import MUTANTS
from ordercast.mutants.hunt import hunt_one
from ordercast.objects_fuzz import OBJECTS
from ordercast.sim.fuzz import plan, run

SEEDS, SEEDS_OF_OBJECTS = 500, 300
"""So many a campaign tries for each mutant, and for each of replicated objects."""
TRIED_INSTEAD = 40
"""So many are tried every day where the seed that is said to show a mutant does so no longer: half a minute
of work at most, and not the five minutes that all of them take."""
NODES = (2, 7)
NODES_OF_RINGS = (6, 8)
AS_IT_IS = [
    (name, seed)
    for name in LAB_PROTOCOLS
    for seed in range(rounds(8, 60) if name == "totem" else rounds(4, 25))
] + [(name + GROUPS, seed) for name in LAB_PROTOCOLS for seed in range(rounds(2, 40))]
"""Protocols, and seeds that each is run with as it is."""


def nodes(protocol: str) -> tuple[int, int]:
    """How many nodes the runs of a protocol have: where gateways join rings, enough for that."""
    return NODES_OF_RINGS if protocol.removesuffix(GROUPS) in OVER_NETWORKS else NODES


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_caught(name: str) -> None:
    """By the seed that is said to show it, or by a short hunt: then replace the seed."""
    mutant = MUTANTS[name]
    of = nodes(mutant.protocol)
    first = hunt_one(range(mutant.shown_by, mutant.shown_by + 1), of, name)
    assert first.failure is not None or hunt_one(range(TRIED_INSTEAD), of, name).failure is not None, (
        f"it lives: seed {mutant.shown_by} does not show it, nor do the first {TRIED_INSTEAD}; "
        "one that does, for mutants/shown_by.py: "
        f"ordercast sim mutants --only {name} --nodes {of[0]}:{of[1]}"
    )


@pytest.mark.campaign
@pytest.mark.skipif(not CAMPAIGN, reason="one seed of each mutant is enough every day")
@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_found_without_being_told_where(name: str) -> None:
    protocol = MUTANTS[name].protocol
    seeds = SEEDS_OF_OBJECTS if protocol.endswith(OBJECTS) else SEEDS
    assert hunt_one(range(seeds), nodes(protocol), name).failure is not None, "it lives"


def test_there_are_mutants_of_every_area() -> None:
    areas = {mutant.area for mutant in MUTANTS.values() if mutant.protocol == "totem"}
    assert areas == {"ordering", "packing", "flow control", "membership", "recovery", "persistence", "visits"}
    rings = [mutant for mutant in MUTANTS.values() if mutant.protocol.removesuffix(GROUPS) == "rings"]
    assert len(rings) >= 15
    areas = {mutant.area for mutant in rings}
    assert areas == {"order", "gateways", "safe", "topology", "recovery", "locality"}
    groups = [
        mutant for mutant in MUTANTS.values() if mutant.protocol.endswith(GROUPS) and mutant not in rings
    ]
    assert len(groups) >= 12
    assert {mutant.area for mutant in groups} == {"states", "views", "messages", "queues"}
    others = (*groups, *rings)
    objects = [mutant for mutant in MUTANTS.values() if mutant.protocol.endswith(OBJECTS)]
    assert len(objects) >= 15
    areas = {mutant.area for mutant in objects}
    assert areas == {"state", "rounds", "calls", "disks", "leases", "queues"}
    others = (*others, *objects)
    family = [mutant for mutant in MUTANTS.values() if mutant.protocol != "totem" and mutant not in others]
    assert len(family) >= 20
    assert {mutant.protocol for mutant in family} == LAB_PROTOCOLS.keys() - {"totem"}


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "seed"), AS_IT_IS)
def test_the_protocol_as_it_is_keeps_every_property(name: str, seed: int) -> None:
    of = fuzzed_protocol(name)
    result, _ = run(of, plan(of, seed, NODES))
    assert result.failed is None, result.sentences
    assert result.converged


def test_a_mutant_is_gone_when_it_is_no_longer_planted() -> None:
    mutant = MUTANTS["safe-as-agreed"]
    right = mutant.place.__dict__[mutant.attribute]
    with mutant.planted():
        assert mutant.place.__dict__[mutant.attribute] is not right
    assert mutant.place.__dict__[mutant.attribute] is right
