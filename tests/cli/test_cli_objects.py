from __future__ import annotations

from cli_parts import ordercast

from ordercast.mutants import MUTANTS

BROKEN = MUTANTS["tokens-stay"]


def test_seeds_of_replicated_objects_are_judged() -> None:
    said = ordercast("sim", "objects", "--seeds", "0:2", "--jobs", 1, "--json")
    assert said.code == 0
    assert said.document == {"protocol": "totem", "seeds": 2, "failures": []}


def test_a_failure_says_how_to_see_it_again() -> None:
    with BROKEN.planted():
        said = ordercast("sim", "objects", "--seeds", BROKEN.shown_by, "--jobs", 1)
        document = ordercast("sim", "objects", "--seeds", BROKEN.shown_by, "--jobs", 1, "--json").document
    assert said.code == 1
    assert f"seed {BROKEN.shown_by}: AssertionError: the token 1 is not larger than 1" in said.out
    assert document["failures"][0]["seed"] == BROKEN.shown_by


def test_a_mutant_of_replicated_objects_is_hunted() -> None:
    words = ("--protocol", "totem+objects", "--only", BROKEN.name, "--seeds", BROKEN.shown_by, "--jobs", 1)
    said = ordercast("sim", "mutants", *words)
    assert said.code == 0
    assert "all 1 mutants are caught" in said.out


def test_a_protocol_that_there_is_not_is_refused() -> None:
    said = ordercast("sim", "objects", "--protocol", "rumour")
    assert said.code == 2
    assert "rumour" in said.err
