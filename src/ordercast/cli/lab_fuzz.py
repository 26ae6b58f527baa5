"""``ordercast lab run fuzz``: the fuzzer over Spark."""

from __future__ import annotations

from typing import Any

import typer
from rich.markup import escape

from ordercast.cli.lab import claim_documents, progressing, show_claims
from ordercast.cli.screen import STDERR, STDOUT, Code, answer
from ordercast.lab.campaign.conduct import QUICK, ROUNDS, SEEDS, FuzzCampaign, Fuzzed
from ordercast.lab.experiment import Sizes
from ordercast.lab.laboratory import Reported
from ordercast.spark.sessions import processors_of

MOST_SHOWN = 10
"""Failures told to people; the page has more, and the table of results all."""
_SEED_S = 0.2
"""What a seed takes, about."""


def fuzz(
    sizes: Sizes,
    quick: bool,
    output: str | None,
    rounds: int | None,
    master: str | None,
    fresh: bool,
    json: bool,
) -> None:
    """Fuzz seeds over Spark, and tell what came of it. Exit code 1 if a seed failed."""
    from ordercast.spark.sessions import spark_session

    campaign = FuzzCampaign(
        sizes.protocols or ("totem",),
        sizes.seeds or (QUICK if quick else SEEDS),
        sizes.nodes,
        output,
        ROUNDS if rounds is None else rounds,
    )
    if not fresh:
        for surprise in campaign.surprises():
            STDERR.print(f"[yellow]note:[/] {escape(surprise)}", soft_wrap=True)
    seeds = campaign.pending().seeds
    try:
        with spark_session("lab", master) as spark:
            cost = seeds * _SEED_S
            with progressing("fuzz", seeds, cost, processors_of(spark), "seeds") as watch:
                fuzzed = campaign.run(spark, fresh=fresh, watch=lambda done: watch(done, done * _SEED_S))
    except KeyboardInterrupt:
        told = f"interrupted; what was done is kept in {campaign.store.directory}: run it again to go on"
        STDERR.print(told, soft_wrap=True)
        raise typer.Exit(Code.INTERRUPTED) from None
    reported = campaign.report()
    if json:
        answer(_document(campaign, fuzzed, reported))
    else:
        _show(campaign, fuzzed, reported)
    raise typer.Exit(Code.FAILED if any(claim.holds is False for claim in reported.claims) else Code.OK)


def _document(campaign: FuzzCampaign, fuzzed: Fuzzed, reported: Reported) -> dict[str, Any]:
    return {
        "experiment": "fuzz",
        "directory": str(campaign.store.directory),
        "asked": fuzzed.asked,
        "earlier": fuzzed.earlier,
        "near": fuzzed.near,
        "took_s": fuzzed.took_s,
        "report": str(reported.page),
        "claims": claim_documents(reported),
        **reported.answer,
    }


def _show(campaign: FuzzCampaign, fuzzed: Fuzzed, reported: Reported) -> None:
    show_claims(reported.claims)
    show_failures(reported)
    earlier = f", {fuzzed.earlier:,} of them earlier" if fuzzed.earlier else ""
    near = f", and {fuzzed.near:,} near what was rare" if fuzzed.near else ""
    STDOUT.print(
        f"{fuzzed.asked:,} seeds{earlier}{near}; {fuzzed.took_s:,.0f} s; kept in {campaign.store.directory}",
        soft_wrap=True,
    )
    STDOUT.print(f"report: {reported.page}", soft_wrap=True)


def show_failures(reported: Reported) -> None:
    """The first seeds that failed, for people."""
    failures = reported.answer["failures"]
    for each in failures[:MOST_SHOWN]:
        STDOUT.print(f"[bold red]✗[/] {escape(each['property'])}\n  {escape(each['replay'])}", soft_wrap=True)
    if len(failures) > MOST_SHOWN:
        STDOUT.print(f"[bright_black]… and {len(failures) - MOST_SHOWN:,} more: --json names them[/]")
