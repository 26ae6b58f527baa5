"""What the results of a campaign add up to, and where it is to look next.

Results are read file by file, and what is kept is a few numbers for each thing that can happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ordercast.lab.campaign.table import Look
from ordercast.sim.coverage import ARROW

FAULT = "fault "
"""Stands before a kind of fault in the names of what happened."""
CRASH_IN = "crash in "
"""Stands before a state in them."""
WITNESSES = 4
"""Seeds of round 0 that are remembered for each thing that happened."""
RARE = 0.02
"""What happens in a smaller share of the runs is rare."""
RAREST = 16
"""Rare things that a round looks near, the rarest first."""
MOST_KEPT = 1_000
"""Failures that are told one by one; the table of results has all."""


@dataclass
class Met:
    """One thing that happens in some runs of a protocol."""

    runs: int = 0
    asked: int = 0
    """Runs among them of round 0: of the seeds that were asked for."""
    times: int = 0
    failed: int = 0
    """Runs in which it happened, and which failed."""
    witnesses: list[int] = field(default_factory=list)
    """The first seeds of round 0 that have it."""


@dataclass
class State:
    """A state of a protocol's machines."""

    entered: int = 0
    """How often machines entered it."""
    crashed: int = 0
    """Runs in which a machine crashed in it,"""
    failed: int = 0
    """and those of them that failed."""


@dataclass
class Tally:
    """All runs of one protocol."""

    runs: int = 0
    asked: int = 0
    """Runs of round 0: of the seeds that were asked for."""
    failed: int = 0
    violations: int = 0
    not_converged: int = 0
    events: int = 0
    receptions: int = 0
    rows: int = 0
    cpu_s: float = 0.0
    properties: Counter[str] = field(default_factory=Counter)
    """Runs that broke each property."""
    met: dict[str, Met] = field(default_factory=dict)
    """By what happened; what has to happen is there with 0 runs, too."""

    def add(self, row: dict[str, Any]) -> None:
        """Add the results of a seed."""
        failed, asked = row["property"] is not None, row["round"] == 0
        self.runs += 1
        self.asked += asked
        self.failed += failed
        self.violations += bool(row["broken"])
        self.not_converged += not row["converged"]
        self.events += row["events"] or 0
        self.receptions += row["receptions"] or 0
        self.rows += row["rows"] or 0
        self.cpu_s += row["cpu_s"] or 0.0
        self.properties.update(row["broken"])
        happened = [*row["coverage"], *((FAULT + kind, 1) for kind in row["faults"])]
        for name, times in happened:
            met = self.met.setdefault(name, Met())
            if times:
                met.runs += 1
                met.asked += asked
                met.times += times
                met.failed += failed
                if asked and len(met.witnesses) < WITNESSES:
                    met.witnesses.append(row["seed"])

    @property
    def rare(self) -> dict[str, Met]:
        """What happened in few runs, the rarest first."""
        few = [
            (name, met)
            for name, met in self.met.items()
            if met.witnesses and met.runs < max(WITNESSES, RARE * self.runs)
        ]
        return dict(sorted(few, key=lambda each: (each[1].runs, each[0])))

    @property
    def faults(self) -> dict[str, Met]:
        """By kind of fault, the runs that had it."""
        return {
            name.removeprefix(FAULT): met for name, met in sorted(self.met.items()) if name.startswith(FAULT)
        }

    @property
    def states(self) -> dict[str, State]:
        """By state of a machine, what happened in it."""
        found: dict[str, State] = {}
        for name, met in sorted(self.met.items()):
            if name.startswith(CRASH_IN):
                state = found.setdefault(name.removeprefix(CRASH_IN), State())
                state.crashed, state.failed = met.runs, met.failed
            elif ARROW in name:
                entered = name.partition(ARROW)[2].partition(":")[0]
                found.setdefault(entered, State()).entered += met.times
        return found


class Summary:
    """All results of a campaign."""

    def __init__(self, rows: Iterable[list[dict[str, Any]]]) -> None:
        self.protocols: dict[str, Tally] = {}
        self.failures: list[dict[str, Any]] = []
        """The first of those that failed: their rows, without what happened in them."""
        self.codes: set[str] = set()
        for each in rows:
            for row in each:
                self.protocols.setdefault(row["protocol"], Tally()).add(row)
                self.codes.add(row["code"])
                if row["property"] is not None and len(self.failures) < MOST_KEPT:
                    self.failures.append({name: row[name] for name in row if name != "coverage"})

    def total(self, name: str) -> Any:
        """One of the numbers of a `Tally`, over all protocols."""
        return sum(getattr(tally, name) for tally in self.protocols.values())

    @property
    def properties(self) -> dict[str, int]:
        """Runs that broke each property."""
        found: Counter[str] = Counter()
        for tally in self.protocols.values():
            found.update(tally.properties)
        return dict(sorted(found.items()))

    @property
    def times(self) -> dict[str, int]:
        """How often what happened, over all runs; what never did, though it should have, with 0."""
        found: Counter[str] = Counter()
        for tally in self.protocols.values():
            for name, met in tally.met.items():
                if not name.startswith(FAULT):
                    found[name] += met.times
        return dict(sorted(found.items()))


def look_next(tally: Tally, protocol: str, seeds: range) -> Look | None:
    """Where a round of so many seeds looks: near those in which happened what is rare; None if nothing is."""
    rare = dict(list(tally.rare.items())[:RAREST])
    turns = [met.witnesses[at] for at in range(WITNESSES) for met in rare.values() if at < len(met.witnesses)]
    if not turns:
        return None
    counts = {name: met.runs for name, met in rare.items()}
    return Look(protocol, (seeds.start, seeds.stop), tuple(dict.fromkeys(turns)), counts)
