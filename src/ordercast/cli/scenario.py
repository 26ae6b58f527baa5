"""``ordercast sim scenario``: stories of a group, and whether they end as they should."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ordercast.cli.options import Json
from ordercast.cli.screen import SAY, Code, answer, refuse, verdict
from ordercast.draw.spacetime import tell
from ordercast.draw.terminal import Drawing
from ordercast.protocols import PROTOCOLS
from ordercast.sim.notes import notes
from ordercast.sim.scenario import Report, Scenario, ScenarioError, parse
from ordercast.sim.scenario import run as run_scenario


def scenario(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Scenario files.")],
    draw: Annotated[bool, typer.Option("--draw", help="Draw what happened.")] = False,
    json: Json = False,
) -> None:
    """Run scenario files: what happens to a group, and what must come of it.

    Exit code 1 if something expected does not come true; 2 if a file cannot be read.
    """
    results = []
    for file in files:
        story, report = _run(file)
        results.append({"file": str(file), "ok": report.ok, "expectations": _outcomes(report)})
        if not json:
            _show(file, story, report, draw)
    failed = sum(not result["ok"] for result in results)
    if json:
        answer({"scenarios": len(results), "failed": failed, "results": results})
    elif len(results) > 1:
        wrong = f"{failed} of {len(results)} scenarios went otherwise than expected"
        SAY.print(verdict(not failed, wrong if failed else f"all {len(results)} scenarios as expected"))
    raise typer.Exit(Code.FAILED if failed else Code.OK)


def _run(file: Path) -> tuple[Scenario, Report]:
    try:
        story = parse(file.read_text(encoding="utf-8"))
        return story, run_scenario(story, PROTOCOLS)
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
    SAY.print(f"[bold]{escape(str(file))}[/]", soft_wrap=True)
    if draw:
        who = ", ".join(f"{name} is {node}" for name, node in story.nodes.items())
        SAY.print(f"[bright_black]{who}[/]")
        SAY.print(
            Drawing(tell(report.world.rows), notes(story.faults, report.world.changes, report.world.rows))
        )
        SAY.print()
    for outcome in report.outcomes:
        SAY.print("  " + verdict(outcome.ok, escape(outcome.expectation.text)))
        for problem in outcome.problems:
            SAY.print(f"      [red]{escape(problem)}[/]")
    SAY.print()
