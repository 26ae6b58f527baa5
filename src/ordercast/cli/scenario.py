"""``ordercast sim scenario``: stories of a group, and whether they end as they should."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ordercast.catalogue import LAB_PROTOCOLS, OVER_NETWORKS
from ordercast.cli.options import Json
from ordercast.cli.screen import STDOUT, Code, answer, blaming, refuse, verdict
from ordercast.draw import ladder
from ordercast.draw import svg as svg_drawing
from ordercast.draw.packets import Names, flights, keeping, marks
from ordercast.draw.spacetime import timeline_of
from ordercast.draw.terminal import Drawing
from ordercast.sim.notes import notes
from ordercast.sim.reading import parse_time
from ordercast.sim.scenario import Report, Scenario, ScenarioError, parse
from ordercast.sim.scenario import run as run_scenario


def scenario(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Scenario files.")],
    draw: Annotated[bool, typer.Option("--draw", help="Draw what happened.")] = False,
    svg: Annotated[
        Path | None, typer.Option(dir_okay=False, metavar="FILE", help="Draw it as SVG, of one scenario.")
    ] = None,
    packets: Annotated[
        str | None,
        typer.Option(metavar="FROM:TO", help="Let --svg show every packet between two times: 300ms:310ms."),
    ] = None,
    json: Json = False,
) -> None:
    """Run scenario files: what happens to a group, and what must come of it.

    Exit code 1 if something expected does not come true; 2 if a file cannot be read.
    """
    span = _span(files, svg, packets)
    results = []
    for file in files:
        story, report = _run(file, span is not None)
        if svg is not None:
            with blaming("--svg"):
                svg.parent.mkdir(parents=True, exist_ok=True)
                svg.write_text(_drawing(file, story, report, span), encoding="utf-8")
        results.append({"file": str(file), "ok": report.ok, "expectations": _outcomes(report)})
        if not json:
            _show(file, story, report, draw)
    failed = sum(not result["ok"] for result in results)
    if json:
        answer({"scenarios": len(results), "failed": failed, "results": results})
    elif len(results) > 1:
        wrong = f"{failed} of {len(results)} scenarios went otherwise than expected"
        STDOUT.print(verdict(not failed, wrong if failed else f"all {len(results)} scenarios as expected"))
    raise typer.Exit(Code.FAILED if failed else Code.OK)


def _span(files: list[Path], svg: Path | None, packets: str | None) -> tuple[int, int] | None:
    """Between which times packets are to be drawn."""
    if svg is not None and len(files) > 1:
        raise typer.BadParameter("draws one scenario: name one file", param_hint="--svg")
    if packets is None:
        return None
    if svg is None:
        raise typer.BadParameter("is for --svg FILE", param_hint="--packets")
    with blaming("--packets"):
        start_us, end_us = map(parse_time, packets.split(":", 1)) if ":" in packets else (0, 0)
        if start_us >= end_us:
            raise ValueError(f"{packets!r}: write two times, as in 300ms:310ms")
    return start_us, end_us


def _drawing(file: Path, story: Scenario, report: Report, span: tuple[int, int] | None) -> str:
    title = file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip() or file.stem
    rows = report.world.rows
    if span is None:
        told = timeline_of(rows, story.networks)
        return svg_drawing.draw(told, notes(story.faults, report.world.changes, rows), title=title)
    names = Names(story.nodes, report.world.applications.names, story.protocol in ("pinwheel", "dtp"))
    lanes = [ladder.Lane(node, name) for name, node in story.nodes.items()]
    return ladder.draw(flights(rows, names), marks(rows, names), lanes, span, title)


def _run(file: Path, packets: bool) -> tuple[Scenario, Report]:
    known = {**LAB_PROTOCOLS, **OVER_NETWORKS}
    if packets:
        known = {
            name: protocol._replace(kind_of=keeping(protocol.product)) for name, protocol in known.items()
        }
    with blaming_scenario(file):
        story = parse(file.read_text(encoding="utf-8"))
        return story, run_scenario(story, known, packets=packets)


@contextmanager
def blaming_scenario(file: Path) -> Iterator[None]:
    """What is wrong inside is wrong with this scenario file: the command ends, and says what it is."""
    try:
        yield
    except OSError as error:
        refuse(f"{file} cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        refuse(f"{file} is not a scenario: it is no text")
    except ScenarioError as error:
        refuse(f"{file}: {error}")


def _outcomes(report: Report) -> list[dict[str, Any]]:
    return [
        {
            "line": outcome.expectation.line,
            "text": outcome.expectation.text,
            "ok": outcome.ok,
            "problems": list(outcome.problems),
        }
        for outcome in report.outcomes
    ]


def _show(file: Path, story: Scenario, report: Report, draw: bool) -> None:
    STDOUT.print(f"[bold]{escape(str(file))}[/]", soft_wrap=True)
    if draw:
        who = ", ".join(f"{name} is {node}" for name, node in story.nodes.items())
        STDOUT.print(f"[bright_black]{who}[/]")
        STDOUT.print(
            Drawing(
                timeline_of(report.world.rows, story.networks),
                notes(story.faults, report.world.changes, report.world.rows),
            )
        )
        STDOUT.print()
    for outcome in report.outcomes:
        STDOUT.print("  " + verdict(outcome.ok, escape(outcome.expectation.text)))
        for problem in outcome.problems:
            STDOUT.print(f"      [red]{escape(problem)}[/]")
    STDOUT.print()
