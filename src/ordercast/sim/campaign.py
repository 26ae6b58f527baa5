"""A fuzzing campaign: many seeds over several processes, and what they add up to.

Protocols are found by name with a function that the caller passes along, so that a worker process can
find them too and this package knows none. Totals do not depend on the order in which results come.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator
from functools import partial

import msgspec

from ordercast.sim.fuzz import Cuts, Result, is_ending, plan, run
from ordercast.sim.process_pool import each
from ordercast.sim.protocol import LabProtocol

Find = Callable[[str], LabProtocol]
"""A protocol by its name. Has to be a function of a module, for other processes to find it."""


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """Which seeds of which protocol are fuzzed, with how many nodes."""

    protocol: str
    nodes: tuple[int, int]
    """The fewest and the most nodes of a run."""
    seeds: range
    traces: str | None = None
    """The directory that keeps every run's trace."""

    def replay(self, seed: int, cuts: Cuts | None = None, near: int | None = None) -> str:
        """The command that runs one of the seeds again, by itself."""
        fewest, most = self.nodes
        words = ["ordercast sim replay", f"--protocol {self.protocol}", f"--seed {seed}"]
        words.append(f"--nodes {fewest}:{most}")
        if near is not None:
            words.append(f"--near {near}")
        if cuts is not None and cuts.options:
            words.append(cuts.options)
        return " ".join(words)


class SeedResult(msgspec.Struct, frozen=True):
    """What came of one seed, and how long it took."""

    result: Result
    cpu_s: float
    """Processor time it took, with drawing the case and judging it."""
    nodes: int
    faults: tuple[str, ...]
    """Kinds of faults that it had, each once."""


class Failure(msgspec.Struct, frozen=True):
    """A seed that failed."""

    seed: int
    property: str
    """The one to name; others may be broken too."""
    sentence: str
    """What happened, for a person."""


class Totals(msgspec.Struct, kw_only=True):
    """What runs add up to."""

    runs: int = 0
    violations: int = 0
    """Runs in which a property was broken, a machine raised, or a payload was damaged."""
    not_converged: int = 0
    """Runs that were not one configuration in time, once faults had stopped."""
    properties: Counter[str] = msgspec.field(default_factory=Counter)
    """Runs that broke each property."""
    failures: dict[int, Failure] = msgspec.field(default_factory=dict)
    """By seed, how it failed."""
    events: int = 0
    receptions: int = 0
    rows: int = 0
    cpu_s: float = 0.0
    coverage: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, done: SeedResult) -> None:
        """Add what came of one seed."""
        result = done.result
        self.runs += 1
        self.violations += bool(result.violations)
        self.not_converged += not result.converged
        self.properties.update(result.violations.keys())
        failure = failure_of(result)
        if failure is not None:
            self.failures[result.seed] = failure
        self.events += result.events
        self.receptions += result.receptions
        self.rows += result.rows
        self.cpu_s += done.cpu_s
        self.coverage.update(result.coverage)


def failure_of(result: Result) -> Failure | None:
    """What to say of a run, if it failed."""
    code = result.failed
    if code is None:
        return None
    apart = "the faults were over and the nodes did not become one configuration in time"
    told = next((told for told in result.sentences if told.startswith(f"{code}: ")), None)
    told = told or next(iter(result.sentences), apart)
    return Failure(result.seed, code, told.removeprefix(f"{code}: "))


def explore(campaign: Campaign, find: Find, jobs: int = 1) -> Generator[SeedResult, None, None]:
    """Run every seed; results come as they are ready, which over several processes is not in order."""
    yield from each(partial(run_seed, campaign, find), campaign.seeds, jobs)


def run_seed(campaign: Campaign, find: Find, seed: int, near: int | None = None) -> SeedResult:
    """Run one seed of a campaign, and keep its trace if that is wanted. `near` is as for `plan`."""
    began = time.process_time()
    protocol = find(campaign.protocol)
    case = plan(protocol, seed, campaign.nodes, near=near)
    result, world = run(protocol, case)
    faults = {type(fault.do).__name__.lower() for fault in case.faults if not is_ending(case, fault)}
    cpu_s = time.process_time() - began
    done = SeedResult(result, cpu_s, len(case.nodes), tuple(sorted(faults)))
    if campaign.traces is not None:
        from ordercast.trace.writer import TraceWriter  # loads Arrow, of an extra

        name = trace_name(campaign.protocol, seed)
        with TraceWriter(campaign.traces, name, protocol.heading) as writer:
            writer.write(world.rows)
    return done


def trace_name(protocol: str, seed: int) -> str:
    """The run's name in its trace."""
    return f"{protocol}-{seed}"
