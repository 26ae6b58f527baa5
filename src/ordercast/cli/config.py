"""``ordercast config``: what a node can be told, and whether a file tells it right."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape

from ordercast.cli.options import Json, ProtocolName
from ordercast.cli.screen import SAY, Code, answer, blaming, verdict
from ordercast.errors import ConfigProblem
from ordercast.groups.equipment import protocol_of, protocol_settings_of
from ordercast.groups.founders import with_founders
from ordercast.protocols import PROTOCOLS
from ordercast.runtime.config import NodeConfig, load
from ordercast.runtime.explain import Explained, annotated, explain
from ordercast.transport.udp_socket import granted_buffer


def config(
    protocol: ProtocolName = "totem",
    check: Annotated[
        Path | None, typer.Option("--check", metavar="FILE", help="Say whether this file is right.")
    ] = None,
    json: Json = False,
) -> None:
    """Print a configuration file with every field, its meaning and its default; or check one.

    The file that is printed changes nothing as it is: put it into ring.toml, change what you need, and run
    `ordercast node -c ring.toml`. With --protocol, it has the settings of that one, as a node on this machine
    uses them. Exit code of --check: 1 if the file has a mistake.
    """
    if check is not None:
        _check(check, json)
    elif json:
        settings = {name: _table(explain(used(NodeConfig(protocol=name)))) for name in PROTOCOLS}
        fields = [field for field in explain(NodeConfig()) if field.name != "protocol_settings"]
        answer({"fields": _table(fields), "protocols": settings})
    else:
        with blaming("--protocol"):
            print(annotated(protocol, used(NodeConfig(protocol=protocol))), end="")


def _check(file: Path, json: bool) -> None:
    told: dict[str, Any] | None = None
    problem: str | None = None
    try:
        found = load(file)
        found.place()
        settings = msgspec.to_builtins(used(found))
        if (found.seeds or found.peers) and "founders" in settings.keys() - found.protocol_settings.keys():
            settings["founders"] = None  # follows from the addresses of seeds or peers when the node starts
        told = {**msgspec.to_builtins(found, enc_hook=str), "protocol_settings": settings}
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


def used(config: NodeConfig) -> msgspec.Struct:
    """All settings of the protocol as a node with this configuration uses them on this machine.

    But for `founders` where `seeds` or `peers` are given: it follows from their addresses when a node starts.
    """
    try:
        if not (config.seeds or config.peers):
            config = with_founders(config, protocol_of(config), {}, ("127.0.0.1", 0))
        return protocol_settings_of(config, granted_buffer(config.socket_buffer))
    except ConfigProblem as error:
        raise ConfigProblem(f"[{config.protocol}]: {error}") from error


def _table(fields: list[Explained]) -> list[dict[str, Any]]:
    return [
        {"name": field.name, "default": field.default, "example": field.example, "meaning": field.meaning}
        for field in fields
    ]
