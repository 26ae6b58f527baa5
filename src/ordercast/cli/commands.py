"""The commands, by name. A module is loaded when its command is used."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_command

import ordercast
from ordercast.cli.failures import telling
from ordercast.core.build import build
from ordercast.errors import MissingExtra
from ordercast.extras import missing_of


class Commands(TyperGroup):
    """Commands by name, in the order of the help. Each is the function of its name in its module."""

    modules: ClassVar[dict[str, str]]
    extras: ClassVar[dict[str, str]] = {}
    """Commands that need another extra than `lab`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, then those of groups of commands."""
        return [*self.modules, *(name for name in self.commands if name not in self.modules)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name. For a word that is none, all are loaded, to suggest the nearest."""
        for name in (cmd_name,) if cmd_name in self.list_commands(ctx) else self.modules:
            if name not in self.commands:
                self.commands[name] = self._load(name)
        return self.commands.get(cmd_name)

    def _load(self, name: str) -> Any:
        alone = typer.Typer(add_completion=False)
        settings: dict[str, Any] = {}
        try:
            function = getattr(import_module(f"ordercast.cli.{self.modules[name]}"), name)
        except ModuleNotFoundError as error:
            missing = missing_of(error, f"`{name}`", self.extras.get(name, "lab"))
            if missing is None:
                raise
            function = _refusing(missing, _docstring(self.modules[name], name))
            settings = {"allow_extra_args": True, "ignore_unknown_options": True}
        alone.command(name, help=_flowing(function.__doc__), context_settings=settings)(function)
        return get_command(alone)


class _Real(Commands):
    modules: ClassVar = {
        "demo": "group_demo",
        **{name: name for name in ("node", "send", "listen", "status", "log", "config", "keygen", "bench")},
        **{name: name for name in ("audit", "sql", "protocols")},
    }
    extras: ClassVar = {"log": "log", "sql": "lake"}

    def invoke(self, ctx: Any) -> Any:
        """Run a command; what fails outside of ordercast is told here, for all of them."""
        with telling():
            return super().invoke(ctx)


class _Simulated(Commands):
    modules: ClassVar = {
        name: name
        for name in ("demo", "run", "fuzz", "inject", "replay", "scenario", "topology", "objects", "mutants")
    }


class _Laboratory(Commands):
    modules: ClassVar = {name: f"lab_{name}" for name in ("list", "run", "report")}


class _Lake(Commands):
    modules: ClassVar = {
        "add": "lake",
        "list": "lake_list",
        "audit": "lake_audit",
        "compact": "lake",
        "expire": "lake",
    }
    extras: ClassVar = dict.fromkeys(modules, "lake")


app = typer.Typer(
    name="ordercast",
    cls=_Real,
    help="Total-order multicast: the same messages, in the same order, at every member of a group.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
sim = typer.Typer(
    cls=_Simulated,
    help="Simulate groups: measure them, break them with faults from a seed, draw what happened.",
    no_args_is_help=True,
)
app.add_typer(sim, name="sim")
lab = typer.Typer(
    cls=_Laboratory,
    help="The laboratory: experiments over Spark, measured, drawn and judged.",
    no_args_is_help=True,
)
app.add_typer(lab, name="lab")
lake = typer.Typer(
    cls=_Lake,
    help="A lake of traces: runs, verdicts and results as tables, for `ordercast sql`.",
    no_args_is_help=True,
)
app.add_typer(lake, name="lake")


@sim.callback()
def _sim() -> None:
    pass


@lab.callback()
def _lab() -> None:
    pass


@lake.callback()
def _lake() -> None:
    pass


def _refusing(missing: MissingExtra, about: str) -> Callable[[typer.Context], None]:
    """A command in the place of one that cannot be loaded: whatever it is told, it tells what it lacks.

    Its help begins as that of the other one, and goes on with what is lacking.
    """

    def refusing(ctx: typer.Context) -> None:
        raise missing

    from rich.markup import escape

    first, *others = about.split("\n\n")
    refusing.__doc__ = "\n\n".join([f"{first} {escape(str(missing))}.", *others])
    return refusing


def _docstring(module: str, function: str) -> str:
    """The docstring of a command whose module cannot be loaded, from the module's text."""
    tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    return ast.get_docstring(found[0]) or ""


def _flowing(text: str | None) -> str:
    """A docstring whose lines may be broken anew where the terminal wants to."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n"))


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"ordercast {ordercast.__version__} ({build()})")
        raise typer.Exit


@app.callback()
def _ordercast(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and the build."
        ),
    ] = False,
) -> None:
    pass


def run() -> None:
    """The command. A defect is told with its traceback, and is no verdict either."""
    try:
        app()
    except Exception:  # noqa: BLE001 (told, and the command ends)
        from ordercast.cli.screen import STDERR, Code

        STDERR.print_exception()
        STDERR.print("[bold red]error:[/] this is a defect in ordercast, please report it")
        raise SystemExit(Code.BROKEN) from None
