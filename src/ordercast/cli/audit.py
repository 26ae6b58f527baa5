"""``ordercast audit``: are the guarantees kept in a trace?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ordercast.audit.explain import Report, Violation
from ordercast.audit.files import audit_trace
from ordercast.audit.properties import PROMISES
from ordercast.cli.options import Json
from ordercast.cli.screen import SAY, Code, answer, refuse, verdict
from ordercast.trace.schema import TraceError

MOST_SHOWN = 6
"""Violations told to people; JSON has all that the auditor keeps."""


class Promised(StrEnum):
    """Sets of properties that protocols promise: the names of `ordercast.audit.properties.PROMISES`."""

    EXTENDED_VIRTUAL_SYNCHRONY = "extended-virtual-synchrony"
    VIEW_SYNCHRONY = "view-synchrony"


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
    promises: Annotated[
        Promised | None,
        typer.Option(
            help="Judge by this set of properties, and not by the one of the protocol that wrote the trace."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check every guarantee against a trace, simulated or real.

    The trace says which protocol wrote it, and so what was promised; one that does not is judged by
    what is found in it.

    Exit code 0: all are kept; 1: some are broken; 2: this is no trace that can be read.
    """
    try:
        report = audit_trace(trace, PROMISES[promises] if promises is not None else None, trimmed=trimmed)
    except TraceError as error:
        refuse(str(error))
    if not report.runs:
        refuse(f"{trace} holds no event: there is nothing to audit")
    if json:
        answer({"engine": str(engine), "runs": report.runs, **report.as_dict()})
    else:
        show_report(report)
        runs = "1 run" if report.runs == 1 else f"{report.runs:,} runs"
        SAY.print(verdict_of(report, f"{report.events:,} events of {runs}"))
    raise typer.Exit(Code.OK if report.clean else Code.FAILED)


def show_report(report: Report) -> None:
    """The properties, and what broke them in words."""
    SAY.print(f"[bright_black]judged by what is promised as[/] {' and '.join(report.promises)}")
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
