"""``ordercast config``: what a node can be told, and whether a file tells it right."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape

from ordercast.cli.options import Json
from ordercast.cli.screen import SAY, Code, answer, verdict
from ordercast.errors import ConfigProblem
from ordercast.protocols import protocol
from ordercast.runtime.config import NodeConfig, load
from ordercast.runtime.explain import Explained, annotated, explain
from ordercast.totem.config import TotemConfig

SETTINGS: dict[str, type[msgspec.Struct]] = {"totem": TotemConfig}
"""The settings of each protocol that a node can run."""


def config(
    check: Annotated[
        Path | None, typer.Option("--check", metavar="FILE", help="Say whether this file is right.")
    ] = None,
    json: Json = False,
) -> None:
    """Print a configuration file with every field, its meaning and its default; or check one.

    The file that is printed changes nothing as it is: put it into ring.toml, change what you need, and run
    `ordercast node -c ring.toml`. Exit code of --check: 1 if the file has a mistake.
    """
    if check is not None:
        _check(check, json)
    elif json:
        settings = {name: _table(explain(struct)) for name, struct in SETTINGS.items()}
        fields = [field for field in explain(NodeConfig) if field.name != "protocol_settings"]
        answer({"fields": _table(fields), "protocols": settings})
    else:
        ((name, struct),) = SETTINGS.items()
        print(annotated(name, struct), end="")


def _check(file: Path, json: bool) -> None:
    told: dict[str, Any] | None = None
    problem: str | None = None
    try:
        found = load(file)
        checked(found)
        told = msgspec.to_builtins(found, enc_hook=str)
    except ConfigProblem as error:
        problem = str(error)
        if not problem.startswith(str(file)):
            problem = f"{file}: {problem}"
    if json:
        answer({"file": str(file), "ok": problem is None, "problem": problem, "config": told})
    else:
        words = f"{file} is right" if problem is None else problem
        SAY.print(verdict(problem is None, escape(words)), soft_wrap=True)
    raise typer.Exit(Code.OK if problem is None else Code.FAILED)


def checked(found: NodeConfig) -> NodeConfig:
    """The configuration, if a node could be started with it as far as it alone can tell."""
    found.place()
    try:
        protocol(found.protocol).make(found.protocol_settings)
    except ValueError as error:
        raise ConfigProblem(f"[{found.protocol}]: {error}") from error
    return found


def _table(fields: list[Explained]) -> list[dict[str, Any]]:
    return [
        {"name": field.name, "default": field.default, "example": field.example, "meaning": field.meaning}
        for field in fields
    ]
