"""The command line: one module per command, no logic."""

from __future__ import annotations

from typing import Annotated

import typer

import ordercast
from ordercast.cli.audit import audit
from ordercast.cli.demo import demo
from ordercast.cli.fuzz import fuzz
from ordercast.cli.mutants import mutants
from ordercast.cli.replay import replay
from ordercast.cli.run import run
from ordercast.cli.scenario import scenario
from ordercast.cli.screen import ASIDE, Code
from ordercast.sim.crew import WorkerDied

app = typer.Typer(
    name="ordercast",
    help="Total-order multicast: the same messages, in the same order, at every member of a group.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
sim = typer.Typer(
    help="Simulate groups: measure them, torture them, and see what happened.", no_args_is_help=True
)
app.add_typer(sim, name="sim")


def _flowing(text: str | None) -> str:
    """A docstring whose lines may be broken anew where the terminal wants to."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n"))


app.command(help=_flowing(audit.__doc__))(audit)
for command in (demo, run, fuzz, replay, scenario, mutants):
    sim.command(help=_flowing(command.__doc__))(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"ordercast {ordercast.__version__}")
        raise typer.Exit


@app.callback()
def _ordercast(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The command `ordercast`."""
    try:
        app()
    except WorkerDied as error:
        ASIDE.print(f"[bold red]error:[/] {error}")
        raise SystemExit(Code.BROKEN) from None
