"""The hunt for a mutant: fuzz a protocol with a defect planted in it until a seed gives it away."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ordercast.catalogue import fuzzed_protocol
from ordercast.mutants import MUTANTS
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

    Without `nodes`, runs have as many as they usually have of its protocol.
    """
    mutant = MUTANTS[name]
    nodes = nodes or fuzzed_protocol(mutant.protocol).nodes
    campaign = Campaign(protocol=mutant.protocol, nodes=nodes, seeds=seeds)
    for tried, seed in enumerate(seeds, 1):
        with mutant.planted():
            failure = failure_of(run_seed(campaign, fuzzed_protocol, seed).result)
        if failure is not None and _is_right(mutant.protocol, nodes, seed):
            return Hunt(name, tried, failure)
    return Hunt(name, len(seeds), None)


@cache
def _is_right(protocol: str, nodes: tuple[int, int], seed: int) -> bool:
    """Whether a seed passes without any mutant. Many mutants are shown by the same seed."""
    campaign = Campaign(protocol=protocol, nodes=nodes, seeds=range(seed, seed + 1))
    return failure_of(run_seed(campaign, fuzzed_protocol, seed).result) is None


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
