"""``ordercast sim mutants``: does the fuzzer notice a protocol that is wrong?"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer
from rich.table import Table

from ordercast.catalogue import fuzzed_protocol as protocol_called
from ordercast.cli import options
from ordercast.cli.options import CORES, Jobs, Json, NodeRange, SeedRange
from ordercast.cli.screen import STDOUT, Code, answer, blaming, counting, verdict
from ordercast.mutants import MUTANTS
from ordercast.mutants.hunt import Hunt, hunt_one, named
from ordercast.objects_fuzz import OBJECTS
from ordercast.sim.process_pool import each


def mutants(
    protocol: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only those of this protocol; of all, if it is left out."),
    ] = None,
    seeds: SeedRange = "0:500",
    nodes: NodeRange = None,
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
        between = None if nodes is None else options.nodes(nodes)
    with blaming("--protocol"):
        objects = protocol is not None and protocol.endswith(OBJECTS)
        of = protocol if protocol is None or objects else protocol_called(protocol).name
    with blaming("--only"):
        names = named(only, of)
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


def _hunt_all(seeds: range, nodes: tuple[int, int] | None, names: list[str], jobs: int) -> dict[str, Hunt]:
    hunts: dict[str, Hunt] = {}
    with counting("mutants", len(names)) as bar:
        for hunt in each(partial(hunt_one, seeds, nodes), names, min(jobs, len(names))):
            hunts[hunt.mutant] = hunt
            bar.step()
            if hunt.failure is None:
                bar.say(f"[bold red]✗[/] {hunt.mutant} survives {_seeds(hunt.seeds)}")
    return hunts


def _show(hunts: dict[str, Hunt], names: list[str], most: int) -> None:
    known = MUTANTS
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    table.add_column("mutant", overflow="fold")
    table.add_column("area", no_wrap=True)
    table.add_column("seeds", justify="right")
    table.add_column("caught by", no_wrap=True)
    for name in names:
        failure = hunts[name].failure
        caught_by = failure.property if failure else "[bold red]nothing[/]"
        table.add_row(name, known[name].area, f"{hunts[name].seeds:,}", caught_by)
    STDOUT.print(table)
    STDOUT.print()
    alive = [name for name in names if hunts[name].failure is None]
    for name in alive:
        STDOUT.print(f"[bold red]✗[/] {name}: {known[name].breaks}")
    if alive:
        STDOUT.print(verdict(False, f"{len(alive)} of {len(names)} mutants survive {_seeds(most)}"))
    else:
        slowest = max(hunt.seeds for hunt in hunts.values())
        STDOUT.print(verdict(True, f"all {len(names)} mutants are caught, the last after {_seeds(slowest)}"))


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count:,} seeds"
