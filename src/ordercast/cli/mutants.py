"""``ordercast sim mutants``: does the fuzzer notice a protocol that is wrong?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.table import Table

from ordercast.catalogue import lab_protocol as protocol_called
from ordercast.cli import options
from ordercast.cli.options import CORES, NODES, Jobs, Json, NodeRange, SeedRange
from ordercast.cli.screen import SAY, Code, answer, blaming, counting, verdict
from ordercast.sim.campaign import Campaign, Failure, failure_of, run_seed
from ordercast.sim.crew import each

if TYPE_CHECKING:
    from ordercast.mutants import Mutant


class Hunt(NamedTuple):
    """What came of fuzzing one mutant."""

    mutant: str
    seeds: int
    """How many it took."""
    failure: Failure | None
    """What gave it away; None if nothing did."""


def mutants(
    protocol: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only those of this protocol; of all, if it is left out."),
    ] = None,
    seeds: SeedRange = "0:500",
    nodes: NodeRange = NODES,
    jobs: Jobs = CORES,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="This mutant alone; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Plant known defects in the protocol, one at a time, and fuzz until they are noticed.

    A fuzzer that finds nothing is worth what it would have found. A seed counts only if it passes without the
    defect. Exit code 1 if a mutant survives.
    """
    with blaming("--seeds"):
        chosen = options.seeds(seeds)
    with blaming("--nodes"):
        between = options.nodes(nodes)
    with blaming("--protocol"):
        of = None if protocol is None else protocol_called(protocol).name
    with blaming("--only"):
        names = _names(only, of)
    hunts = _hunt_all(chosen, between, names, jobs)
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


def _planted() -> dict[str, Mutant]:
    """The mutants, by name. Loaded by this command alone."""
    from ordercast.mutants import MUTANTS

    return MUTANTS


def _names(only: list[str] | None, of: str | None) -> list[str]:
    known = {name: mutant for name, mutant in _planted().items() if of in (None, mutant.protocol)}
    if not known:
        there = ", ".join(dict.fromkeys(mutant.protocol for mutant in _planted().values()))
        raise ValueError(f"there are no mutants of {of}; there are some of {there}")
    for name in only or ():
        if name not in known:
            raise ValueError(f"no mutant is called {name!r}; there are {', '.join(known)}")
    return list(dict.fromkeys(only or known))


def _hunt_all(seeds: range, nodes: tuple[int, int], names: list[str], jobs: int) -> dict[str, Hunt]:
    hunts: dict[str, Hunt] = {}
    with counting("mutants", len(names)) as bar:
        for hunt in each(partial(hunt_one, seeds, nodes), names, min(jobs, len(names))):
            hunts[hunt.mutant] = hunt
            bar.step()
            if hunt.failure is None:
                bar.say(f"[bold red]✗[/] {hunt.mutant} survives {_seeds(hunt.seeds)}")
    return hunts


def hunt_one(seeds: range, nodes: tuple[int, int], name: str) -> Hunt:
    """Fuzz one mutant until a seed fails with it, and not without it as well."""
    mutant = _planted()[name]
    campaign = Campaign(protocol=mutant.protocol, nodes=nodes, seeds=seeds)
    for tried, seed in enumerate(seeds, 1):
        with mutant.planted():
            failure = failure_of(run_seed(campaign, protocol_called, seed).result)
        if failure is not None and failure_of(run_seed(campaign, protocol_called, seed).result) is None:
            return Hunt(name, tried, failure)
    return Hunt(name, len(seeds), None)


def _show(hunts: dict[str, Hunt], names: list[str], most: int) -> None:
    known = _planted()
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    table.add_column("mutant", overflow="fold")
    table.add_column("area", no_wrap=True)
    table.add_column("seeds", justify="right")
    table.add_column("caught by", no_wrap=True)
    for name in names:
        failure = hunts[name].failure
        caught_by = failure.property if failure else "[bold red]nothing[/]"
        table.add_row(name, known[name].area, f"{hunts[name].seeds:,}", caught_by)
    SAY.print(table)
    SAY.print()
    alive = [name for name in names if hunts[name].failure is None]
    for name in alive:
        SAY.print(f"[bold red]✗[/] {name}: {known[name].breaks}")
    if alive:
        SAY.print(verdict(False, f"{len(alive)} of {len(names)} mutants survive {_seeds(most)}"))
    else:
        slowest = max(hunt.seeds for hunt in hunts.values())
        SAY.print(verdict(True, f"all {len(names)} mutants are caught, the last after {_seeds(slowest)}"))


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count:,} seeds"
