"""``ordercast lake audit``: verdicts on the runs of a lake, kept there beside those of earlier versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated

import typer

from ordercast.audit.explain import Report, merge
from ordercast.audit.findings import Findings
from ordercast.cli.audit import Engine, engine_for, show_report, verdict_of
from ordercast.cli.lake import HERE, Where
from ordercast.cli.options import Json
from ordercast.cli.screen import STDOUT, Code, answer, counting, refuse
from ordercast.extras import need
from ordercast.lake import Lake
from ordercast.trace.contents import Contents

KEPT_AT = 500
"""Verdicts that are kept together: a commit each. Whoever is killed has those before."""


def audit(
    where: Where = HERE,
    run: Annotated[
        list[str] | None, typer.Option("--run", metavar="RUN", help="This run; may be repeated.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also runs on which this very program has given its verdict.")
    ] = False,
    engine: Annotated[Engine, typer.Option(help="Which auditor, as in `ordercast audit`.")] = Engine.AUTO,
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Spark's master; by default all cores of this machine."),
    ] = None,
    json: Json = False,
) -> None:
    """Judge the runs of a lake on which this program has given no verdict, and append the verdicts.

    Those of earlier versions stay: the tables `verdicts` and `violations` have them all. Exit code 1 if some
    run that was judged now breaks what its protocol promises.
    """
    if master is not None and engine is Engine.REFERENCE:
        refuse("--master is for Spark: leave it out with --engine reference")
    if engine is Engine.SPARK or master is not None:
        need("spark", "--engine spark")
    lake = Lake(where)
    wanted = lake.unjudged(again=again)
    if run:
        unknown = set(run) - lake.unjudged(again=True).keys()
        if unknown:
            refuse(f"there is no run {', '.join(sorted(unknown))} in {lake.where}: see ordercast lake list")
        wanted = {each: wanted[each] for each in run if each in wanted}
    report = Report(runs=0)
    if wanted:
        contents = lake.contents(wanted)
        engine = engine_for(Contents([part for each in contents for part in each.parts]), engine, master)
        judged = _on_spark(contents, master) if engine is Engine.SPARK else lake.judged(contents, wanted)
        report = _keep(lake, judged, wanted)
    if json:
        answer({"lake": str(lake.where), "runs": report.runs, **report.as_dict()})
    elif not report.runs:
        STDOUT.print("nothing to judge: this program has judged all of them (--again: once more)")
    else:
        show_report(report)
        runs = "1 run" if report.runs == 1 else f"{report.runs:,} runs"
        STDOUT.print(verdict_of(report, f"{report.events:,} events of {runs}"))
    raise typer.Exit(Code.OK if report.clean else Code.FAILED)


def _keep(lake: Lake, judged: Iterator[Findings], wanted: Mapping[str, datetime]) -> Report:
    held: list[Findings] = []
    report = Report(runs=0)
    with counting("runs", len(wanted)) as bar:
        for findings in judged:
            if findings.run not in wanted:
                continue
            held.append(findings)
            report = merge([report, findings.report])
            bar.step()
            if len(held) == KEPT_AT:
                lake.keep(held, wanted)
                held.clear()
        lake.keep(held, wanted)
    return report


def _on_spark(contents: list[Contents], master: str | None) -> Iterator[Findings]:
    from ordercast.audit.spark import audited_on_spark
    from ordercast.spark.sessions import spark_session

    with spark_session("audit", master) as spark:
        yield from audited_on_spark(spark, Contents([part for each in contents for part in each.parts]))
