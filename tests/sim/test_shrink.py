from __future__ import annotations

import pytest
from careless import PROTOCOL

from fuzz_results import result
from ordercast.sim.fuzz import Cuts, is_ending, plan, run
from ordercast.sim.shrink import broke, shrink

NODES = (2, 5)


def failing(property: str) -> int:
    """A seed that breaks this property, with something to cut away."""
    for seed in range(200):
        case = plan(PROTOCOL, seed, NODES)
        if len(case.nodes) > 3 and len(case.faults) > 12 and run(PROTOCOL, case)[0].failed == property:
            return seed
    raise AssertionError(f"no seed breaks {property}")


def test_what_is_left_of_a_case_is_what_makes_it_fail() -> None:
    """Node 2 has to go down once; at the end of all faults it is started again, and fails."""
    seed = failing("exception")
    drawn = plan(PROTOCOL, seed, NODES)
    shrunk = shrink(PROTOCOL, seed, NODES, "exception")
    assert shrunk.property == "exception"
    assert 2 in shrunk.case.nodes
    assert len(shrunk.case.nodes) <= 2  # node 1 is who orders
    assert len([fault for fault in shrunk.case.faults if not is_ending(shrunk.case, fault)]) == 1
    assert shrunk.case.duration_us < drawn.duration_us
    assert shrunk.runs < 200


def test_the_cuts_alone_give_the_same_failure_again() -> None:
    seed = failing("exception")
    shrunk = shrink(PROTOCOL, seed, NODES, "exception")
    case = plan(PROTOCOL, seed, NODES, shrunk.cuts)
    assert case == shrunk.case
    assert run(PROTOCOL, case)[0].failed == "exception"


def test_another_failure_has_to_do_if_the_same_is_not_to_be_had() -> None:
    seed = failing("exception")
    shrunk = shrink(PROTOCOL, seed, NODES, "causal")
    assert shrunk.property in ("exception", "live-membership")
    assert shrunk.cuts != Cuts()


def test_runs_are_bounded_and_counted() -> None:
    steps: list[int] = []
    shrunk = shrink(PROTOCOL, failing("exception"), NODES, "exception", most_runs=5, step=steps.append)
    assert shrunk.runs == 5
    assert steps == [1, 2, 3, 4, 5]


def test_time_is_bounded_and_what_fails_is_kept() -> None:
    seed = failing("exception")
    shrunk = shrink(PROTOCOL, seed, NODES, "exception", most_s=0.0)
    assert shrunk.cuts == Cuts()
    assert shrunk.case == plan(PROTOCOL, seed, NODES)
    assert shrunk.property == "exception"


@pytest.mark.parametrize(
    ("violations", "converged", "wanted", "answer"),
    [
        ({"safe": 2}, True, "safe", True),
        ({"safe": 2}, True, "causal", False),
        ({}, False, "live-membership", True),
        ({}, True, "live-membership", False),
    ],
)
def test_whether_a_property_was_broken(
    violations: dict[str, int], converged: bool, wanted: str, answer: bool
) -> None:
    assert broke(result(violations=violations, converged=converged), wanted) is answer
