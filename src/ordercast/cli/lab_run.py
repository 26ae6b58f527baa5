"""``ordercast lab run``: an experiment over Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ordercast.cli import options
from ordercast.cli.lab import (
    Master,
    Output,
    claim_documents,
    claims_of,
    progressing,
    show_advice,
    show_claims,
)
from ordercast.cli.lab_fuzz import fuzz
from ordercast.cli.options import Json
from ordercast.cli.screen import STDERR, STDOUT, Code, answer, blaming, facts, refuse
from ordercast.extras import need
from ordercast.lab.campaign.conduct import ROUNDS
from ordercast.lab.experiment import FUZZ, Experiment, Sizes
from ordercast.lab.laboratory import Laboratory, Reported, find
from ordercast.lab.profile import NETWORKS, Profile, like_trace, profile_of, seconds_of
from ordercast.lab.runner import Carried
from ordercast.spark.sessions import processors_of

PROFILE_PANEL = "What choose is to find a protocol for"
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
    nodes: Annotated[
        str | None, typer.Option(metavar="N|N:M", help="Only groups of so many nodes; of choose: how many.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Messages/s of all nodes together.", rich_help_panel=PROFILE_PANEL),
    ] = None,
    size: Annotated[int | None, typer.Option(help="Bytes a message.", rich_help_panel=PROFILE_PANEL)] = None,
    loss: Annotated[
        float | None,
        typer.Option(
            help="Share of the packets that are lost, 0.001 for 0.1%.", rich_help_panel=PROFILE_PANEL
        ),
    ] = None,
    mtbf: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Mean time between failures of a node: 90s, 15m, 1h, 30d.",
            rich_help_panel=PROFILE_PANEL,
        ),
    ] = None,
    safe: Annotated[
        bool,
        typer.Option("--safe", help="Rank by safe delivery, not agreed.", rich_help_panel=PROFILE_PANEL),
    ] = False,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help=f"The network: {', '.join(NETWORKS)}.", rich_help_panel=PROFILE_PANEL
        ),
    ] = None,
    net: Annotated[
        list[str] | None,
        typer.Option(
            "--net",
            metavar="KEY=VALUE",
            help="A field of it; may be repeated.",
            rich_help_panel=PROFILE_PANEL,
        ),
    ] = None,
    traces: Annotated[bool, typer.Option("--traces", help="Keep the trace of every run, too.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget earlier results.")] = False,
    only: Annotated[
        str | None, typer.Option(metavar="RUN", help="Carry out this run alone, here, and keep nothing.")
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="TRACE",
            help="Send the messages of this trace again, on a model of the machine that made it.",
            rich_help_panel=PROFILE_PANEL,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting that the nodes of the trace had; may be repeated.",
            rich_help_panel=PROFILE_PANEL,
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=0,
            help=f"Of fuzz: how many further rounds look near what was rare; {ROUNDS} if not said.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Carry out an experiment over Spark, and write its report.

    What is in the output directory already is not done again: an experiment that was interrupted goes on
    where it was. A run that fails is told with the command that repeats it alone, and does not stop the
    others. Exit code 1 if one failed; for fuzz, if a seed did.
    """
    with blaming("--seeds/--nodes"):
        sizes = Sizes(
            protocols=tuple(protocol) if protocol else None,
            seeds=None if seeds is None else options.seeds(seeds),
            nodes=None if nodes is None else options.nodes(nodes),
        )
    if experiment == FUZZ:
        for_others = (
            rate,
            size,
            loss,
            mtbf,
            safe or None,
            network,
            net,
            traces or None,
            only,
            like,
            settings,
        )
        if any(each is not None for each in for_others):
            refuse(
                "fuzz takes --protocol, --seeds, --nodes, --rounds, --quick, --fresh, --output and --master"
            )
        fuzz(sizes, quick, output, rounds, master, fresh, json)
        return
    if rounds is not None:
        refuse("--rounds is for fuzz: other experiments have a grid of runs")
    chosen, text = find(experiment)
    told = {"rate": rate, "size": size, "loss": loss, "safe": safe or None, "network": network}
    sizes = _with_profile(sizes, told, mtbf, net)
    if like is not None:
        sizes = _with_trace(chosen, sizes, like, settings, quick)
    elif settings:
        refuse("--set says what the nodes of a trace had: give it with --like TRACE")
    lab = Laboratory(chosen, output, quick=quick, sizes=sizes, declared=text, source=experiment)
    if only is not None:
        _run_alone(lab, only, json)
        return
    if not fresh:
        for surprise in lab.surprises():
            STDERR.print(f"[yellow]note:[/] {escape(surprise)}", soft_wrap=True)
    try:
        carried, reported = _carry_out(lab, master, traces, fresh)
    except KeyboardInterrupt:
        STDERR.print(f"interrupted; what was done is kept in {lab.store.directory}: run it again to go on")
        raise typer.Exit(Code.INTERRUPTED) from None
    failed = {run: lab.command(run) for run in carried.failed}
    if json:
        answer(_document(lab, carried, reported, failed))
    else:
        _show(lab, carried, reported, failed)
    raise typer.Exit(Code.FAILED if failed else Code.OK)


def _with_profile(sizes: Sizes, told: Mapping[str, object], mtbf: str | None, net: list[str] | None) -> Sizes:
    """With what the user says of load, network and failures, if anything."""
    profile: dict[str, object] = {name: value for name, value in told.items() if value is not None}
    with blaming("--mtbf"):
        profile |= {} if mtbf is None else {"mtbf_s": seconds_of(mtbf)}
    with blaming("--net"):
        profile |= {"net": options.fields(net)} if net else {}
    if not profile:
        return sizes
    if sizes.nodes is not None and sizes.nodes[0] == sizes.nodes[1]:
        profile["nodes"] = sizes.nodes[0]
    return replace(sizes, profile=profile_of(profile))


def _with_trace(
    chosen: Experiment, sizes: Sizes, trace: Path, settings: list[str] | None, quick: bool
) -> Sizes:
    """With the messages of a trace, and what is estimated of the machine that made it."""
    if not chosen.takes_profile:
        refuse("--like is for choose: other experiments declare their loads themselves")
    profile = sizes.profile or Profile()
    if sizes.nodes is not None or sizes.profile not in (
        None,
        Profile(mtbf_s=profile.mtbf_s, loss=profile.loss),
    ):
        refuse(
            "--like says how many nodes there are, their load and their network: with it, give --loss and "
            "--mtbf only"
        )
    with blaming("--set"):
        had = options.fields(settings or ())
    need("spark", "--like")
    from ordercast.lab.trace_model import MOST_MESSAGES, MOST_QUICKLY, traced

    STDERR.print(f"estimating the machine behind {escape(str(trace))}", soft_wrap=True)
    found = traced(trace, had, MOST_QUICKLY if quick else MOST_MESSAGES)
    return replace(sizes, nodes=None, profile=like_trace(profile, found))


# --- the work ----------------------------------------------------------------------------------


def _carry_out(
    lab: Laboratory, master: str | None, traces: bool, fresh: bool
) -> tuple[Carried, Reported | None]:
    from ordercast.spark.sessions import spark_session

    if fresh:
        lab.store.clear()
    with spark_session("lab", master) as spark:
        pending = lab.pending()
        cost, processors = lab.cost(pending), processors_of(spark)
        with progressing(lab.experiment.name, len(pending), cost, processors) as watch:
            carried = lab.run(spark, traces=traces, watch=watch)
        whole = carried.asked > len(carried.failed)
        return carried, lab.report(spark) if whole else None


def _run_alone(lab: Laboratory, only: str, json: bool) -> None:
    run, outcome = lab.run_one(only)
    if json:
        answer({"run": run.id, "summary": run.summary, "figures": outcome.figures, "notes": outcome.notes})
        return
    STDOUT.print(f"[bold]{escape(run.summary)}[/]\n")
    STDOUT.print(facts({name: f"{value:,.3f}" for name, value in outcome.figures.items()}))
    for note in outcome.notes:
        STDOUT.print(escape(note))


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
    if reported is not None and reported.advice is not None:
        show_advice(reported.advice)
    earlier = f", {carried.earlier:,} of them earlier" if carried.earlier else ""
    STDOUT.print(
        f"{carried.asked - len(failed):,} of {carried.asked:,} runs carried out{earlier}; "
        f"{carried.took_s:,.0f} s; kept in {lab.store.directory}",
        soft_wrap=True,
    )
    for run, command in tuple(failed.items())[:MOST_SHOWN]:
        last = carried.failed[run].strip().splitlines()[-1]
        STDOUT.print(f"[bold red]✗[/] {escape(last)}\n  {escape(command)}", soft_wrap=True)
    if reported is not None:
        STDOUT.print(f"report: {reported.page}", soft_wrap=True)
