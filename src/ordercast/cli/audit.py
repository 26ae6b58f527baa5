"""``ordercast audit``: are the guarantees kept in a trace?"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ordercast.audit.explain import Report, Violation, merge
from ordercast.audit.findings import Findings
from ordercast.audit.page import write_page
from ordercast.audit.properties import PROMISES, Promises
from ordercast.cli.options import Json
from ordercast.cli.screen import STDERR, STDOUT, Code, answer, blaming, refuse, verdict
from ordercast.extras import has, need
from ordercast.storage import Location

if TYPE_CHECKING:
    from ordercast.trace.contents import Contents

MOST_SHOWN = 6
"""Violations told to people; JSON has all that the auditor keeps."""


class Promised(StrEnum):
    """Sets of properties that protocols promise: the names of `ordercast.audit.properties.PROMISES`."""

    EXTENDED_VIRTUAL_SYNCHRONY = "extended-virtual-synchrony"
    VIEW_SYNCHRONY = "view-synchrony"
    TOKEN_LIST_VIEW_SYNCHRONY = "token-list-view-synchrony"
    FOLLOWED_VIEW_SYNCHRONY = "followed-view-synchrony"


class Engine(StrEnum):
    """Which implementation of the auditor."""

    AUTO = "auto"
    SPARK = "spark"
    REFERENCE = "reference"


def audit(
    trace: Annotated[
        str,
        typer.Argument(
            metavar="DIR|URI",
            help="A trace: its directory, or one Parquet file; here, or in a store (s3://…, hdfs://…).",
        ),
    ],
    engine: Annotated[
        Engine,
        typer.Option(
            help="Which auditor: spark for traces of any size; reference, in plain Python, starts at once. "
            "Both give the same answers; auto takes the one that is quicker for a trace of this size."
        ),
    ] = Engine.AUTO,
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
        str | None,
        typer.Option("--report", metavar="FILE|URI", help="Write a page about it: one HTML file."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Audit while nodes write: read what comes and tell what is broken in it, until SIGINT.",
        ),
    ] = False,
    patience: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="With --follow: how long a row may come later than rows of other nodes that speak of it. By "
            "default 3, and 60 in a store.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="FILE|URI", help="With --follow: go on where an earlier one ended."),
    ] = None,
    webhook: Annotated[
        str | None, typer.Option(metavar="URL", help="With --follow: post each violation there, as JSON.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="With --follow: answer Prometheus there.")
    ] = None,
    until_quiet: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="SECONDS", help="With --follow: end when nothing came for so long."),
    ] = None,
    until_violation: Annotated[
        bool, typer.Option("--until-violation", help="With --follow: end at the first violation.")
    ] = False,
    json: Json = False,
) -> None:
    """Check every guarantee against a trace, simulated or real.

    The trace says which protocol wrote it, and so what was promised; one that does not is judged by
    what is found in it.

    Exit code 0: all are kept; 1: some are broken; 2: there is no verdict, because this is no trace that can
    be read, or because Spark failed.
    """
    chosen = PROMISES[promises] if promises is not None else None
    if master is not None and engine is Engine.REFERENCE:
        refuse("--master is for Spark: leave it out with --engine reference")
    if engine is Engine.SPARK or master is not None:
        need("spark", "--engine spark")
    if follow:
        if master is not None or trimmed or page is not None or engine is Engine.SPARK:
            refuse("--follow takes neither --master, --engine spark, --trimmed nor --report: leave them out")
        from ordercast.cli.audit_follow import Following, end
        from ordercast.cli.audit_follow import follow as follow_trace

        asked = Following(
            trace, chosen, patience, checkpoint, webhook, metrics, until_quiet, until_violation, json
        )
        end(asked, follow_trace(asked))
    if until_violation or any(
        each is not None for each in (patience, checkpoint, webhook, metrics, until_quiet)
    ):
        refuse("--patience, --checkpoint, --webhook, --metrics and --until-… are for --follow: add it")
    from ordercast.trace.contents import contents_of  # loads Arrow, of an extra

    contents = contents_of(trace)
    engine = engine_for(contents, engine, master)
    judge = _with_spark if engine is Engine.SPARK else _with_reference
    runs = judge(contents, chosen, trimmed, page is not None, master)
    report = merge(findings.report for findings in runs)
    if not report.runs:
        refuse(f"{trace} holds no event: there is nothing to audit")
    if page is not None:
        with blaming("--report"):
            write_page(page, str(Location.of(trace)), report, runs, str(engine))
    if json:
        answer({"engine": str(engine), "runs": report.runs, **report.as_dict()})
    else:
        show_report(report)
        runs_ = "1 run" if report.runs == 1 else f"{report.runs:,} runs"
        STDOUT.print(verdict_of(report, f"{report.events:,} events of {runs_}"))
    raise typer.Exit(Code.OK if report.clean else Code.FAILED)


def engine_for(contents: Contents, engine: Engine, master: str | None) -> Engine:
    """The engine that is asked for, or else the one for a trace of this size."""
    if engine is not Engine.AUTO:
        return engine
    from ordercast.audit.files import fits_here

    if master is None and fits_here(contents):
        return Engine.REFERENCE
    if master is None and not has("spark"):
        told = (
            "the trace is large, and Spark is not installed: the reference audits, which holds all rows of a "
            "run in memory; pip install 'ordercast[spark]' brings Spark"
        )
        STDERR.print(f"[bright_black]{escape(told)}[/]", soft_wrap=True)
        return Engine.REFERENCE
    return Engine.SPARK


def _with_reference(
    contents: Contents, promises: Promises | None, trimmed: bool, shown: bool, _: str | None
) -> list[Findings]:
    from ordercast.audit.files import audited

    return list(audited(contents, promises, trimmed=trimmed, shown=shown))


def _with_spark(
    contents: Contents, promises: Promises | None, trimmed: bool, shown: bool, master: str | None
) -> list[Findings]:
    from ordercast.audit.spark import audited_on_spark
    from ordercast.spark.sessions import spark_session

    with spark_session("audit", master) as spark:
        return list(audited_on_spark(spark, contents, promises, trimmed=trimmed, shown=shown))


def show_report(report: Report) -> None:
    """The properties, and what broke them in words."""
    STDOUT.print(f"[bright_black]judged by what is promised as[/] {' and '.join(report.promises)}")
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    table.add_column("property")
    table.add_column("violations", justify="right")
    for code, count in report.properties.items():
        if code in report.unchecked:
            table.add_row(f"[bright_black]{code}[/]", "[bright_black]not judged[/]")
        else:
            table.add_row(code, f"[bold red]{count:,}[/]" if count else "[green]none[/]")
    STDOUT.print(table)
    if report.unchecked:
        STDOUT.print(
            "[bright_black]not judged: a trace does not tell when faults stopped, after which these are "
            "due; sim fuzz knows, and judges them[/]"
        )
    for note in report.notes:
        STDOUT.print(f"[bright_black]{escape(note)}[/]")
    STDOUT.print()
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
        STDOUT.print(f"[bold red]{violation.property}[/]{escape(where)}: {escape(violation.told())}")
    if len(violations) > len(shown):
        STDOUT.print(f"[bright_black]… and {len(violations) - len(shown):,} more[/]")


def verdict_of(report: Report, what: str) -> str:
    """A report in one line."""
    if report.clean:
        return verdict(True, f"clean: {what} keep every property that was judged")
    broken = sum(1 for count in report.properties.values() if count)
    properties = "1 property is" if broken == 1 else f"{broken} properties are"
    return verdict(False, f"violated: {properties} broken in {what}")
