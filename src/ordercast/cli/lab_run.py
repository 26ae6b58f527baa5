"""``ordercast lab run``: an experiment over Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ordercast.cli import options
from ordercast.cli.lab import Master, Output, claim_documents, claims_of, show_claims
from ordercast.cli.options import Json
from ordercast.cli.screen import ASIDE, SAY, Code, answer, blaming, facts
from ordercast.lab.experiment import Sizes
from ordercast.lab.laboratory import Laboratory, Reported, find
from ordercast.lab.runner import Carried, Watch

SAID_S = 60.0
"""How often a run that nobody watches on a terminal says how far it is."""
MOST_SHOWN = 10
"""Runs that failed, told to people; all are in the JSON."""


def run(
    experiment: Annotated[str, typer.Argument(help="Its name, or a .toml file.", metavar="NAME|FILE")],
    quick: Annotated[bool, typer.Option("--quick", help="A small grid, for a first look.")] = False,
    output: Output = None,
    master: Master = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option("--protocol", metavar="NAME", help="Only this protocol; may be repeated."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="N|N:M", help="With each of these seeds; N up to but not M.")
    ] = None,
    nodes: Annotated[str | None, typer.Option(metavar="N|N:M", help="Only groups of so many nodes.")] = None,
    traces: Annotated[bool, typer.Option("--traces", help="Keep the trace of every run, too.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget earlier results.")] = False,
    only: Annotated[
        str | None, typer.Option(metavar="RUN", help="Carry out this run alone, here, and keep nothing.")
    ] = None,
    json: Json = False,
) -> None:
    """Carry out an experiment over Spark, and write its report.

    What is in the output directory already is not done again: an experiment that was interrupted goes on
    where it was. A run that fails is told with the command that repeats it alone, and does not stop the
    others. Exit code 1 if one failed; for fuzz, also if a seed did.
    """
    chosen, text = find(experiment)
    with blaming("--seeds/--nodes"):
        sizes = Sizes(
            protocols=tuple(protocol) if protocol else None,
            seeds=None if seeds is None else options.seeds(seeds),
            nodes=None if nodes is None else options.nodes(nodes),
        )
    lab = Laboratory(chosen, output, quick=quick, sizes=sizes, declared=text, source=experiment)
    if only is not None:
        _run_alone(lab, only, json)
        return
    if not fresh:
        for surprise in lab.surprises():
            ASIDE.print(f"[yellow]note:[/] {escape(surprise)}", soft_wrap=True)
    try:
        carried, reported = _carry_out(lab, master, traces, fresh)
    except KeyboardInterrupt:
        ASIDE.print(f"interrupted; what was done is kept in {lab.store.directory}: run it again to go on")
        raise typer.Exit(Code.INTERRUPTED) from None
    failed = {run: lab.command(run) for run in carried.failed}
    if json:
        answer(_document(lab, carried, reported, failed))
    else:
        _show(lab, carried, reported, failed)
    broken = lab.experiment.strict and any(claim.holds is False for claim in claims_of(reported))
    raise typer.Exit(Code.FAILED if failed or broken else Code.OK)


# --- the work ----------------------------------------------------------------------------------


def _carry_out(
    lab: Laboratory, master: str | None, traces: bool, fresh: bool
) -> tuple[Carried, Reported | None]:
    from ordercast.spark.session import spark_session

    if fresh:
        lab.store.clear()
    with spark_session("lab", master) as spark:
        with _progress(lab, spark.sparkContext.defaultParallelism) as watch:
            carried = lab.run(spark, traces=traces, watch=watch)
        whole = carried.asked > len(carried.failed)
        return carried, lab.report(spark) if whole else None


@contextmanager
def _progress(lab: Laboratory, processors: int) -> Iterator[Watch]:
    """Runs done, and the time left by what the others are expected to cost."""
    pending = lab.pending()
    cost = max(lab.cost(pending), 1e-9)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[runs]:,}/{task.fields[asked]:,} runs"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    began = time.monotonic()
    with Progress(*columns, console=ASIDE, transient=True, disable=not ASIDE.is_terminal) as progress:
        bar = progress.add_task(lab.experiment.name, total=cost, runs=0, asked=len(pending), left="")

        said = began

        def watch(runs: int, done: float) -> None:
            nonlocal said
            now = time.monotonic()
            left = _left(now - began, done, cost, processors)
            progress.update(bar, completed=done, runs=runs, left=left)
            if not ASIDE.is_terminal and now - said >= SAID_S:
                said = now
                ASIDE.print(f"{runs:,}/{len(pending):,} runs, {left}")

        yield watch


def _left(elapsed_s: float, done: float, cost: float, processors: int) -> str:
    """By what was done in the time so far; at first, by what is expected alone."""
    left_s = elapsed_s * (cost - done) / done if done else max(0.0, cost / processors - elapsed_s)
    return f"about {left_s / 60:.0f} min left" if left_s >= 90 else f"about {left_s:.0f} s left"


def _run_alone(lab: Laboratory, only: str, json: bool) -> None:
    run, outcome = lab.run_one(only)
    if json:
        answer({"run": run.id, "summary": run.summary, "figures": outcome.figures, "notes": outcome.notes})
        return
    SAY.print(f"[bold]{escape(run.summary)}[/]\n")
    SAY.print(facts({name: f"{value:,.3f}" for name, value in outcome.figures.items()}))
    for note in outcome.notes:
        SAY.print(escape(note))


# --- the answer --------------------------------------------------------------------------------


def _document(
    lab: Laboratory, carried: Carried, reported: Reported | None, failed: dict[str, str]
) -> dict[str, Any]:
    return {
        "experiment": lab.experiment.name,
        "directory": str(lab.store.directory),
        "asked": carried.asked,
        "earlier": carried.earlier,
        "failed": [
            {"run": run, "error": carried.failed[run], "repeat": command} for run, command in failed.items()
        ],
        "took_s": carried.took_s,
        "report": None if reported is None else str(reported.page),
        "claims": claim_documents(reported),
        **(reported.answer if reported is not None else {}),
    }


def _show(lab: Laboratory, carried: Carried, reported: Reported | None, failed: dict[str, str]) -> None:
    show_claims(claims_of(reported))
    earlier = f", {carried.earlier:,} of them earlier" if carried.earlier else ""
    SAY.print(
        f"{carried.asked - len(failed):,} of {carried.asked:,} runs carried out{earlier}; "
        f"{carried.took_s:,.0f} s; kept in {lab.store.directory}",
        soft_wrap=True,
    )
    for run, command in tuple(failed.items())[:MOST_SHOWN]:
        last = carried.failed[run].strip().splitlines()[-1]
        SAY.print(f"[bold red]✗[/] {escape(last)}\n  {escape(command)}", soft_wrap=True)
    if reported is not None:
        for each in reported.answer.get("failures", [])[:MOST_SHOWN]:
            SAY.print(
                f"[bold red]✗[/] {escape(each['property'])}\n  {escape(each['replay'])}", soft_wrap=True
            )
        SAY.print(f"report: {reported.page}", soft_wrap=True)
