"""The hunt for a mutant: fuzz a protocol with a defect planted in it until a seed gives it away."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ordercast.catalogue import fuzzed_protocol
from ordercast.mutants import MUTANTS
from ordercast.objects_fuzz import OBJECTS, failure_of_objects
from ordercast.sim.campaign import Campaign, Failure, failure_of, run_seed


class Hunt(NamedTuple):
    """What came of fuzzing one mutant."""

    mutant: str
    seeds: int
    """How many it took."""
    failure: Failure | None
    """What gave it away; None if nothing did."""


def hunt_one(seeds: range, nodes: tuple[int, int] | None, name: str) -> Hunt:
    """Fuzz one mutant until a seed fails with it, and not without it as well.

    Without `nodes`, runs have as many as they usually have of its protocol; those with replicated objects
    have as many as the seed says.
    """
    mutant = MUTANTS[name]
    for tried, seed in enumerate(seeds, 1):
        with mutant.planted():
            failure = _failure(mutant.protocol, nodes, seed)
        if failure is not None and _is_right(mutant.protocol, nodes, seed):
            return Hunt(name, tried, failure)
    return Hunt(name, len(seeds), None)


def _failure(protocol: str, nodes: tuple[int, int] | None, seed: int) -> Failure | None:
    """What is wrong in the run of a seed."""
    if protocol.endswith(OBJECTS):
        return failure_of_objects(protocol, seed)
    nodes = nodes or fuzzed_protocol(protocol).nodes
    campaign = Campaign(protocol=protocol, nodes=nodes, seeds=range(seed, seed + 1))
    return failure_of(run_seed(campaign, fuzzed_protocol, seed).result)


@cache
def _is_right(protocol: str, nodes: tuple[int, int] | None, seed: int) -> bool:
    """Whether a seed passes without any mutant. Many mutants are shown by the same seed."""
    return _failure(protocol, nodes, seed) is None


def named(only: list[str] | None, protocol: str | None) -> list[str]:
    """The mutants to hunt: those of a protocol, or of all if it is None; or only those that are named.

    Raises ValueError, with those there are, for names that none has.
    """
    known = {name: mutant for name, mutant in MUTANTS.items() if protocol in (None, mutant.protocol)}
    if not known:
        there = ", ".join(dict.fromkeys(mutant.protocol for mutant in MUTANTS.values()))
        raise ValueError(f"there are no mutants of {protocol}; there are some of {there}")
    for name in only or ():
        if name not in known:
            raise ValueError(f"no mutant is called {name!r}; there are {', '.join(known)}")
    return list(dict.fromkeys(only or known))
