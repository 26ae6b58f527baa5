"""``ordercast audit``: are the guarantees kept in a trace?"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ordercast.audit.explain import Report, Violation
from ordercast.audit.properties import audit_runs
from ordercast.cli.options import Json
from ordercast.cli.screen import SAY, Code, answer, refuse, verdict
from ordercast.trace.reader import read_runs
from ordercast.trace.schema import Row, TraceError
from ordercast.trace.trimmed import common_part

MOST_SHOWN = 6
"""Violations told to people; JSON has all that the auditor keeps."""


class Engine(StrEnum):
    """Which implementation of the auditor."""

    REFERENCE = "reference"


def audit(
    trace: Annotated[
        Path, typer.Argument(metavar="DIR", help="A trace: its directory, or one Parquet file.")
    ],
    engine: Annotated[Engine, typer.Option(help="Which auditor; the reference is plain Python.")] = (
        Engine.REFERENCE
    ),
    trimmed: Annotated[
        bool,
        typer.Option(
            "--trimmed",
            help="The oldest files of the trace were deleted (trace_files): judge what all nodes still have.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Check every guarantee against a trace, simulated or real.

    Exit code 0: all are kept; 1: some are broken; 2: this is no trace that can be read.
    """
    names: list[str] = []
    try:
        report = audit_runs(_noting(_common(read_runs(trace)) if trimmed else read_runs(trace), names))
    except TraceError as error:
        refuse(str(error))
    if not names:
        refuse(f"{trace} holds no event: there is nothing to audit")
    if json:
        answer({"engine": str(engine), "runs": len(names), **report.as_dict()})
    else:
        show_report(report)
        runs = "1 run" if len(names) == 1 else f"{len(names):,} runs"
        SAY.print(verdict_of(report, f"{report.events:,} events of {runs}"))
    raise typer.Exit(Code.OK if report.clean else Code.FAILED)


def _common(runs: Iterator[tuple[str, list[Row]]]) -> Iterator[tuple[str, list[Row]]]:
    for name, rows in runs:
        yield name, common_part(rows)


def _noting(runs: Iterator[tuple[str, list[Row]]], names: list[str]) -> Iterator[tuple[str, list[Row]]]:
    for name, rows in runs:
        names.append(name)
        yield name, rows


def show_report(report: Report) -> None:
    """The properties, and what broke them in words."""
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    table.add_column("property")
    table.add_column("violations", justify="right")
    for code, count in report.properties.items():
        if code in report.unchecked:
            table.add_row(f"[bright_black]{code}[/]", "[bright_black]not judged[/]")
        else:
            table.add_row(code, f"[bold red]{count:,}[/]" if count else "[green]none[/]")
    SAY.print(table)
    if report.unchecked:
        SAY.print(
            "[bright_black]not judged: a trace does not tell when faults stopped, after which these are "
            "due; sim fuzz knows, and judges them[/]"
        )
    SAY.print()
    show_violations(report.violations)


def show_violations(violations: tuple[Violation, ...]) -> None:
    """What was broken, in words, one of each property first."""
    first: dict[str, Violation] = {}
    for violation in violations:
        first.setdefault(violation.property, violation)
    rest = [violation for violation in violations if violation is not first[violation.property]]
    shown = [*first.values(), *rest][:MOST_SHOWN]
    for violation in shown:
        where = f" in {violation.run}" if violation.run else ""
        SAY.print(f"[bold red]{violation.property}[/]{escape(where)}: {escape(violation.sentence)}")
    if len(violations) > len(shown):
        SAY.print(f"[bright_black]… and {len(violations) - len(shown):,} more[/]")


def verdict_of(report: Report, what: str) -> str:
    """A report in one line."""
    if report.clean:
        return verdict(True, f"clean: {what} keep every property that was judged")
    broken = sum(1 for count in report.properties.values() if count)
    properties = "1 property is" if broken == 1 else f"{broken} properties are"
    return verdict(False, f"violated: {properties} broken in {what}")
