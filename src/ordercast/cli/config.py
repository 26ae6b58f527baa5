"""``ordercast config``: what a node can be told, and whether a file tells it right."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from rich.markup import escape

from ordercast.cli.options import Json, ProtocolName
from ordercast.cli.screen import STDOUT, Code, answer, blaming, verdict
from ordercast.core.protocol import SIM
from ordercast.errors import ConfigProblem
from ordercast.groups.assembly import protocol_of, protocol_settings_of
from ordercast.groups.founders import with_founders
from ordercast.protocols import PROTOCOLS
from ordercast.protocols import protocol as named
from ordercast.runtime.config import NodeConfig, load
from ordercast.runtime.explain import Explained, annotated, annotated_settings, explain
from ordercast.transport.udp import udp_capacity
from ordercast.transport.udp_socket import granted_buffer


def config(
    protocol: ProtocolName = "totem",
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="Defaults for nodes that are near (auto, lan), far apart (wan) or simulated (sim).",
        ),
    ] = None,
    check: Annotated[
        Path | None, typer.Option("--check", metavar="FILE", help="Say whether this file is right.")
    ] = None,
    json: Json = False,
) -> None:
    """Print a configuration file with every field, its meaning and its default; or check one.

    The file that is printed changes nothing as it is: put it into ring.toml, change what you need, and run
    `ordercast node -c ring.toml`. With --protocol and --profile, it has the settings of that protocol, as a
    node with that profile uses them on this machine. Exit code of --check: 1 if the file has a mistake.
    """
    if check is not None:
        _check(check, profile, json)
    profile = profile or NodeConfig().profile
    with blaming("--protocol"):
        named(protocol)
    with blaming("--profile"):
        configs = {name: _config(name, profile) for name in PROTOCOLS}
    if json:
        settings = {name: _table(explain(_defaults(name, config))) for name, config in configs.items()}
        fields = [] if profile == SIM else explain(NodeConfig())
        told = _table([field for field in fields if field.name != "protocol_settings"])
        answer({"profile": profile, "fields": told, "protocols": settings})
    elif (config := configs[protocol]) is None:
        print(annotated_settings(protocol, _defaults(protocol, config)), end="")
    else:
        print(annotated(config, _defaults(protocol, config)), end="")


def _config(protocol: str, profile: str) -> NodeConfig | None:
    """The configuration of a node that is told these two things alone; None for a simulated one."""
    return None if profile == SIM else NodeConfig(protocol=protocol).with_changes(profile=profile)


def _defaults(protocol: str, config: NodeConfig | None) -> msgspec.Struct:
    """The settings of the protocol that a node with this configuration uses, or a simulated one if None."""
    return PROTOCOLS[protocol].configure({}, SIM) if config is None else used(config)


def _check(file: Path, profile: str | None, json: bool) -> NoReturn:
    told: dict[str, Any] | None = None
    problem: str | None = None
    try:
        found = load(file)
        if profile is not None:
            found = found.with_changes(profile=profile)
        for each in found.by_network().values():
            each.place()
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
        STDOUT.print(verdict(problem is None, escape(words)), soft_wrap=True)
    raise typer.Exit(Code.OK if problem is None else Code.FAILED)


def used(config: NodeConfig) -> msgspec.Struct:
    """All settings of the protocol as a node with this configuration uses them on this machine.

    But for `founders` where `seeds` or `peers` are given: it follows from their addresses when a node starts.
    """
    if not (config.seeds or config.peers):
        config = with_founders(config, protocol_of(config), {}, ("127.0.0.1", 0))
    return protocol_settings_of(
        config, udp_capacity(config.datagram_size, granted_buffer(config.socket_buffer))
    )


def _table(fields: list[Explained]) -> list[dict[str, Any]]:
    return [
        {"name": field.name, "default": field.default, "example": field.example, "meaning": field.meaning}
        for field in fields
    ]
