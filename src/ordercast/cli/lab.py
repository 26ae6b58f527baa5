"""What the commands of ``ordercast lab`` share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ordercast.cli.screen import STDERR, STDOUT
from ordercast.lab.experiment import Advice, Claim, counted
from ordercast.lab.laboratory import Reported

SAID_S = 60.0
"""How often work that nobody watches on a terminal says how far it is."""

Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark's master; by default all cores of this machine."),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output", metavar="DIR|URI", help="Where results are kept, here or in a store: ./lab/NAME."
    ),
]


@contextmanager
def progressing(
    what: str, count: int, cost: float, processors: int, unit: str = "runs"
) -> Iterator[Callable[[int, float], None]]:
    """Shows how many of `count` are done, and the time left by what the others are expected to cost."""
    cost = max(cost, 1e-9)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]:,}/{task.fields[asked]:,} " + unit),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    began = said = time.monotonic()
    with Progress(*columns, console=STDERR, transient=True, disable=not STDERR.is_terminal) as progress:
        bar = progress.add_task(what, total=cost, done=0, asked=count, left="")

        def watch(done: int, spent: float) -> None:
            nonlocal said
            now = time.monotonic()
            left = _left(now - began, spent, cost, processors)
            progress.update(bar, completed=spent, done=done, left=left)
            if not STDERR.is_terminal and now - said >= SAID_S:
                said = now
                STDERR.print(f"{done:,}/{count:,} {unit}, {left}")

        yield watch


def _left(elapsed_s: float, done: float, cost: float, processors: int) -> str:
    """By what was done in the time so far; at first, by what is expected alone."""
    left_s = elapsed_s * (cost - done) / done if done else max(0.0, cost / processors - elapsed_s)
    return f"about {left_s / 60:.0f} min left" if left_s >= 90 else f"about {left_s:.0f} s left"


def claims_of(reported: Reported | None) -> tuple[Claim, ...]:
    """The verdicts, if there is a report."""
    return () if reported is None else tuple(reported.claims)


def claim_documents(reported: Reported | None) -> list[dict[str, Any]]:
    """The verdicts for JSON."""
    return [
        {
            "says": claim.says,
            "where": claim.where,
            "paper": claim.paper,
            "measured": claim.measured,
            "holds": claim.holds,
            "note": claim.note,
        }
        for claim in claims_of(reported)
    ]


def show_claims(claims: Sequence[Claim]) -> None:
    """The verdicts for people, with a heading for each paper where there are several, and how many hold."""
    marks = {True: "[bold green]✓[/]", False: "[bold red]✗[/]", None: "[bright_black]–[/]"}
    by_paper = {claim.paper: [each for each in claims if each.paper == claim.paper] for claim in claims}
    for paper, its in by_paper.items():
        if len(by_paper) > 1:
            STDOUT.print(f"\n[bold]{paper}[/]: {score(its)}")
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for claim in its:
            told = f"{escape(claim.says)} [bright_black]({escape(claim.where)})\n{escape(claim.measured)}[/]"
            table.add_row(marks[claim.holds], told)
        STDOUT.print(table)
    if claims:
        STDOUT.print(f"\n[bold]{score(claims)}[/]\n")


def score(claims: Sequence[Claim]) -> str:
    """How many there are, and of which verdict."""
    told = ", ".join(f"{count} {word}" for word, count in counted(claims).items() if count)
    return f"{len(claims)} claims: {told}"


def show_advice(advice: Advice) -> None:
    """The ranking, and what follows, for people."""
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for at, name in enumerate(advice.ranking.columns):
        table.add_column(escape(name), justify="right" if at else "left", no_wrap=bool(at), overflow="fold")
    for row in advice.ranking.rows:
        table.add_row(*(escape(str(value)) for value in row))
    STDOUT.print(table)
    STDOUT.print(f"[bright_black]{escape(advice.ranking.note)}[/]\n")
    first, *others = advice.says
    STDOUT.print(f"[bold]{escape(first)}[/]", soft_wrap=True)
    for sentence in others:
        STDOUT.print(escape(sentence), soft_wrap=True)
    STDOUT.print(f"\n{escape(advice.configuration)}")
