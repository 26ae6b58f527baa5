"""``ordercast listen``: what a group delivers, as it is delivered."""

from __future__ import annotations

import base64
import json as json_format
import sys
from typing import Annotated, Any

import typer

from ordercast.cli.member import (
    ConfigFile,
    Insecure,
    KeyFile,
    OfProtocol,
    Patience,
    Seeds,
    TracedTo,
    among_others,
    live,
    passing,
)
from ordercast.core.identity import Configuration, Kind
from ordercast.groups.events import Message
from ordercast.runtime.config import NodeConfig


def listen(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")],
    config: ConfigFile = None,
    seed: Seeds = None,
    key: KeyFile = None,
    insecure: Insecure = False,
    protocol: OfProtocol = None,
    trace: TracedTo = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after so many messages.")] = None,
    timeout: Patience = 10.0,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line: a message or a configuration.")
    ] = False,
) -> None:
    """Become a member of a group, and print its messages and configurations in their order.

    How the group is reached is told as to `ordercast send`. Exit code 3 if it cannot be reached.
    """
    live(_listen(passing(config, seed, key, insecure, protocol, trace), group, count, timeout, json))


async def _listen(config: NodeConfig, name: str, most: int | None, timeout: float, json: bool) -> None:
    async with among_others(config, timeout) as node:
        group = await node.join(name)
        read = 0
        async for event in group:
            _print(json_format.dumps(_document(event)) if json else _words(event, node.id))
            read += isinstance(event, Message)
            if read == most:
                return


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _document(event: Message | Configuration) -> dict[str, Any]:
    if isinstance(event, Configuration):
        return {
            "event": "configuration",
            "kind": str(event.kind),
            "configuration": event.id._asdict(),
            "members": list(event.members),
        }
    return {
        "event": "message",
        "group": event.group,
        "sender": event.sender,
        **_payload(event.payload),
        "safe": event.safe,
        "id": event.id._asdict(),
        "configuration": event.configuration._asdict(),
        "seq": event.seq,
        "slot": event.slot,
    }


def _payload(payload: bytes) -> dict[str, str]:
    """As text where it is one."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def _words(event: Message | Configuration, me: int) -> str:
    if isinstance(event, Configuration):
        kind = "configuration" if event.kind is Kind.REGULAR else "transitional configuration"
        members = ", ".join(
            f"{member} (this node)" if member == me else str(member) for member in event.members
        )
        return f"-- {kind} {event.id}: {members}"
    text = event.payload.decode(errors="backslashreplace")
    if not text.isprintable():
        text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return f"{event.sender}: {text}"
