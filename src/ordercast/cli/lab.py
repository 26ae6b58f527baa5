"""What the commands of ``ordercast lab`` share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ordercast.cli.screen import SAY
from ordercast.lab.experiment import Claim
from ordercast.lab.laboratory import Reported

Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark's master; by default all cores of this machine."),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", file_okay=False, metavar="DIR", help="Where results are kept: ./lab/NAME."),
]


def claims_of(reported: Reported | None) -> tuple[Claim, ...]:
    """The verdicts, if there is a report."""
    return () if reported is None else tuple(reported.claims)


def claim_documents(reported: Reported | None) -> list[dict[str, Any]]:
    """The verdicts for JSON."""
    return [
        {
            "says": claim.says,
            "where": claim.where,
            "measured": claim.measured,
            "holds": claim.holds,
            "note": claim.note,
        }
        for claim in claims_of(reported)
    ]


def show_claims(claims: Iterable[Claim]) -> None:
    """The verdicts for people."""
    marks = {True: "[bold green]✓[/]", False: "[bold red]✗[/]", None: "[bright_black]–[/]"}
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for claim in claims:
        table.add_row(marks[claim.holds], f"{escape(claim.says)}\n[bright_black]{escape(claim.measured)}[/]")
    SAY.print(table)
