"""``ordercast sim mutants``: does the fuzzer notice a protocol that is wrong?"""

from __future__ import annotations

from functools import partial
from typing import Annotated, NamedTuple

import typer
from rich.table import Table

from ordercast.cli import options
from ordercast.cli.options import CORES, NODES, Jobs, Json, NodeRange, SeedRange
from ordercast.cli.screen import SAY, Code, answer, blaming, counting, verdict
from ordercast.protocols import protocol as protocol_called
from ordercast.sim.campaign import Campaign, Failure, first_failure
from ordercast.sim.crew import each


class Hunt(NamedTuple):
    """What came of fuzzing one mutant."""

    mutant: str
    seeds: int
    """How many it took."""
    failure: Failure | None
    """What gave it away; None if nothing did."""


def mutants(
    seeds: SeedRange = "0:500",
    nodes: NodeRange = NODES,
    jobs: Jobs = CORES,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="This mutant alone; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Plant known defects in the protocol, one at a time, and fuzz until they are noticed.

    A fuzzer that finds nothing is worth what it would have found. Exit code 1 if a mutant survives.
    """
    with blaming("--seeds"):
        chosen = options.seeds(seeds)
    with blaming("--nodes"):
        between = options.nodes(nodes)
    with blaming("--only"):
        names = _names(only)
    campaign = Campaign(protocol="totem", nodes=between, seeds=chosen)
    hunts = _hunt_all(campaign, names, jobs)
    alive = [name for name in names if hunts[name].failure is None]
    if json:
        needed = {name: hunts[name].seeds for name in names if name not in alive}
        by = {name: failure.property for name in names if (failure := hunts[name].failure)}
        caught = len(names) - len(alive)
        answer(
            {"mutants": len(names), "caught": caught, "alive": alive, "seeds_needed": needed, "caught_by": by}
        )
    else:
        _show(hunts, names, len(chosen))
    raise typer.Exit(Code.FAILED if alive else Code.OK)


def _names(only: list[str] | None) -> list[str]:
    from ordercast.mutants import MUTANTS

    for name in only or ():
        if name not in MUTANTS:
            raise ValueError(f"no mutant is called {name!r}; there are {', '.join(MUTANTS)}")
    return list(dict.fromkeys(only or MUTANTS))


def _hunt_all(campaign: Campaign, names: list[str], jobs: int) -> dict[str, Hunt]:
    hunts: dict[str, Hunt] = {}
    with counting("mutants", len(names)) as bar:
        for hunt in each(partial(hunt_one, campaign), names, min(jobs, len(names))):
            hunts[hunt.mutant] = hunt
            bar.step()
            if hunt.failure is None:
                bar.say(f"[bold red]✗[/] {hunt.mutant} survives {hunt.seeds} seeds")
    return hunts


def hunt_one(campaign: Campaign, name: str) -> Hunt:
    """Fuzz one mutant until a seed fails."""
    from ordercast.mutants import MUTANTS

    with MUTANTS[name].planted():
        return Hunt(name, *first_failure(campaign, protocol_called))


def _show(hunts: dict[str, Hunt], names: list[str], most: int) -> None:
    from ordercast.mutants import MUTANTS

    table = Table(box=None, pad_edge=False, header_style="bright_black")
    table.add_column("mutant", no_wrap=True)
    table.add_column("area")
    table.add_column("seeds", justify="right")
    table.add_column("caught by")
    table.add_column("what it breaks", style="bright_black")
    for name in names:
        hunt, mutant = hunts[name], MUTANTS[name]
        caught_by = hunt.failure.property if hunt.failure else "[bold red]alive[/]"
        table.add_row(name, mutant.area, f"{hunt.seeds:,}", caught_by, mutant.breaks)
    SAY.print(table)
    SAY.print()
    alive = sum(hunts[name].failure is None for name in names)
    if alive:
        SAY.print(verdict(False, f"{alive} of {len(names)} mutants survive {most:,} seeds"))
    else:
        slowest = max(hunts.values(), key=lambda hunt: hunt.seeds)
        SAY.print(
            verdict(True, f"all {len(names)} mutants are caught, the last after {slowest.seeds:,} seeds")
        )
