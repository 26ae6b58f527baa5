"""``ordercast audit``: are the guarantees kept in a trace?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ordercast.audit.explain import Report, Violation, merge
from ordercast.audit.findings import Findings
from ordercast.audit.page import write_page
from ordercast.audit.properties import PROMISES, Promises
from ordercast.cli.options import Json
from ordercast.cli.screen import ASIDE, SAY, Code, answer, blaming, refuse, verdict
from ordercast.extras import has, need

MOST_SHOWN = 6
"""Violations told to people; JSON has all that the auditor keeps."""


class Promised(StrEnum):
    """Sets of properties that protocols promise: the names of `ordercast.audit.properties.PROMISES`."""

    EXTENDED_VIRTUAL_SYNCHRONY = "extended-virtual-synchrony"
    VIEW_SYNCHRONY = "view-synchrony"
    TOKEN_LIST_VIEW_SYNCHRONY = "token-list-view-synchrony"


class Engine(StrEnum):
    """Which implementation of the auditor."""

    SPARK = "spark"
    REFERENCE = "reference"


def audit(
    trace: Annotated[
        Path, typer.Argument(metavar="DIR", help="A trace: its directory, or one Parquet file.")
    ],
    engine: Annotated[
        Engine,
        typer.Option(
            help="Which auditor: spark for traces of any size; reference, in plain Python, starts at once "
            "and is quicker below a million events. Both give the same answers."
        ),
    ] = Engine.SPARK,
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Spark's master; by default all cores of this machine."),
    ] = None,
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
    page: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE", help="Write a page about it: one HTML file.", dir_okay=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check every guarantee against a trace, simulated or real.

    The trace says which protocol wrote it, and so what was promised; one that does not is judged by
    what is found in it. Without Spark installed the reference judges.

    Exit code 0: all are kept; 1: some are broken; 2: there is no verdict, because this is no trace that can
    be read, or because Spark failed.
    """
    chosen = PROMISES[promises] if promises is not None else None
    engine = _at_hand(engine, master)
    judge = _with_spark if engine is Engine.SPARK else _with_reference
    runs = judge(trace, chosen, trimmed, page is not None, master)
    report = merge(findings.report for findings in runs)
    if not report.runs:
        refuse(f"{trace} holds no event: there is nothing to audit")
    if page is not None:
        with blaming("--report"):
            write_page(page, str(trace), report, runs, str(engine))
    if json:
        answer({"engine": str(engine), "runs": report.runs, **report.as_dict()})
    else:
        show_report(report)
        runs_ = "1 run" if report.runs == 1 else f"{report.runs:,} runs"
        SAY.print(verdict_of(report, f"{report.events:,} events of {runs_}"))
    raise typer.Exit(Code.OK if report.clean else Code.FAILED)


def _at_hand(engine: Engine, master: str | None) -> Engine:
    """The engine that is asked for, if it is installed."""
    if engine is Engine.SPARK and not has("spark") and master is None:
        told = "Spark is not installed, the reference audits: pip install 'ordercast[spark]' brings it"
        ASIDE.print(f"[bright_black]{escape(told)}[/]", soft_wrap=True)
        return Engine.REFERENCE
    return engine


def _with_reference(
    trace: Path, promises: Promises | None, trimmed: bool, shown: bool, master: str | None
) -> list[Findings]:
    if master is not None:
        refuse("--master is for Spark: leave it out with --engine reference")
    from ordercast.audit.files import audited_runs

    return list(audited_runs(trace, promises, trimmed=trimmed, shown=shown))


def _with_spark(
    trace: Path, promises: Promises | None, trimmed: bool, shown: bool, master: str | None
) -> list[Findings]:
    need("spark", "--engine spark")
    from ordercast.trace.reader import trace_files

    trace_files(trace)  # a mistake in the path is told at once, and not after Spark has started
    from ordercast.audit.spark import audited_on_spark
    from ordercast.spark.session import spark_session

    with spark_session("audit", master) as spark:
        return list(audited_on_spark(spark, trace, promises, trimmed=trimmed, shown=shown))


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
    for note in report.notes:
        SAY.print(f"[bright_black]{escape(note)}[/]")
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
