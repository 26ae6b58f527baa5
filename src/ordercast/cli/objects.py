"""``ordercast sim objects``: replicated objects under everything that a seed has go wrong."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer
from msgspec import structs

from ordercast.catalogue import fuzzed_protocol as protocol_called
from ordercast.cli import options
from ordercast.cli.options import CORES, Jobs, Json, SeedRange
from ordercast.cli.screen import STDOUT, Code, answer, blaming, counting, verdict
from ordercast.objects_fuzz import OBJECTS, failure_of_objects
from ordercast.sim.campaign import Failure
from ordercast.sim.process_pool import each


def objects(
    protocol: Annotated[
        str, typer.Option(metavar="NAME", help="A protocol whose group has one primary partition.")
    ] = "totem",
    seeds: SeedRange = "0:200",
    jobs: Jobs = CORES,
    json: Json = False,
) -> None:
    """Fuzz replicated objects: each seed draws nodes, disks, objects, clients and faults; the run is judged.

    What was answered has to be there, once, in the order of time; replicas have to be equal. A seed alone
    runs one case again. Exit code 1 if any fails.
    """
    with blaming("--protocol"):
        name = protocol_called(protocol).name
    with blaming("--seeds"):
        chosen = options.seeds(seeds)
    failures: list[Failure] = []
    with counting("seeds", len(chosen)) as bar:
        for failure in each(partial(failure_of_objects, name + OBJECTS), chosen, min(jobs, len(chosen))):
            bar.step()
            if failure is not None:
                failures.append(failure)
                again = f"ordercast sim objects --protocol {name} --seeds {failure.seed}"
                bar.say(f"[bold red]✗[/] seed {failure.seed}: {failure.property}, see [bold]{again}[/]")
    failures.sort(key=lambda failure: failure.seed)
    if json:
        told = [structs.asdict(failure) for failure in failures]
        answer({"protocol": name, "seeds": len(chosen), "failures": told})
    else:
        for failure in failures:
            STDOUT.print(f"seed {failure.seed}: {failure.property}: {failure.sentence}", markup=False)
        some, of = f"{len(failures):,}", f"{len(chosen):,} seeds"
        STDOUT.print(
            verdict(not failures, f"{some} of {of} fail" if failures else f"nothing is wrong with {of}")
        )
    raise typer.Exit(Code.FAILED if failures else Code.OK)
