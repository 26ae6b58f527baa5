"""``ordercast listen``: what a group delivers, as it is delivered."""

from __future__ import annotations

import asyncio
import json as json_format
import os
import queue
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ordercast.cli.clients import (
    Access,
    AsMember,
    Nodes,
    Password,
    Signer,
    Token,
    User,
    access,
    checked,
    for_members,
)
from ordercast.cli.member import (
    ConfigFile,
    Insecure,
    KeyFile,
    OfProfile,
    OfProtocol,
    ReachTimeout,
    Seeds,
    TracedTo,
    among_others,
    live,
    passing,
)
from ordercast.cli.screen import payload_document, printable, refuse

if TYPE_CHECKING:
    from ordercast import client as clients
    from ordercast.core.identity import Ended
    from ordercast.groups.events import Change, Message
    from ordercast.process_groups.views import Member
    from ordercast.runtime.config import NodeConfig


def listen(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")],
    client: Nodes = None,
    user: User = "",
    password: Password = "",
    token: Token = "",
    tls: Signer = None,
    start: Annotated[
        int | None,
        typer.Option("--from", min=1, metavar="PLACE", help="Place in the log to begin at; 1 is the first."),
    ] = None,
    member: AsMember = False,
    config: ConfigFile = None,
    seed: Seeds = None,
    key: KeyFile = None,
    insecure: Insecure = False,
    protocol: OfProtocol = None,
    profile: OfProfile = None,
    trace: TracedTo = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after so many messages.")] = None,
    timeout: ReachTimeout = 10.0,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line: a message or a configuration.")
    ] = False,
) -> None:
    """Print a group's messages in their order, as a client of a node: --client, or one on this machine.

    GROUP may be a pattern then: orders.* or orders.>. With --member: become a member of the group, and print
    its configurations, too. How nodes are reached is told as to `ordercast send`. Exit code 3 if none is.
    """
    if member:
        if start is not None:
            refuse("--from is for clients of a node that keeps a log: leave out --member")
        chosen = passing(config, seed, key, insecure, protocol, profile, trace)
        live(_listen(chosen, group, count, timeout, json))
        return
    only = for_members(seed=seed, key=key, insecure=insecure, protocol=protocol, profile=profile, trace=trace)
    node = access(client, user, password, token, tls, config, only)
    live(_listen_as_client(node, checked(group, pattern=True), start, count, timeout, json))


async def _listen_as_client(
    node: Access, group: str, start: int | None, most: int | None, timeout: float, json: bool
) -> None:
    async with node.connected(timeout) as client:
        joined = await client.join(group, start=start)
        printer = _Printer()
        read = 0
        async for messages in joined.batches():
            some = messages if most is None else messages[: most - read]
            await printer.print(
                [
                    json_format.dumps(_received(message))
                    if json
                    else f"{message.group}: {printable(message.payload)}"
                    for message in some
                ]
            )
            read += len(some)
            if read == most:
                return


def _received(message: clients.Message) -> dict[str, Any]:
    return {
        "event": "message",
        "group": message.group,
        **payload_document(message.payload),
        "headers": dict(message.headers),
        "seq": message.seq,
    }


async def _listen(config: NodeConfig, name: str, most: int | None, timeout: float, json: bool) -> None:
    from ordercast.groups.events import Delivery, Message

    async with among_others(config, timeout) as node:
        group = await node.join(name)
        printer = _Printer()
        read = 0
        async for entry in group.batches():
            events = list(entry.messages()) if isinstance(entry, Delivery) else [entry]
            if most is not None and read + len(events) > most:
                del events[most - read :]
            lines = [
                json_format.dumps(_document(event)) if json else _words(event, node.id) for event in events
            ]
            await printer.print(lines)
            read += sum(isinstance(event, Message) for event in events)
            if read == most:
                return


class _Printer:
    """Prints in a thread of its own: a pager or a pipe that takes nothing must not stop the node."""

    def __init__(self) -> None:
        self._texts: queue.SimpleQueue[tuple[str, asyncio.Future[None]]] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, name="ordercast-print", daemon=True).start()

    async def print(self, lines: Sequence[str]) -> None:
        """Print lines, and wait until they are out."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._texts.put(("".join(f"{line}\n" for line in lines), done))
        await done

    def _run(self) -> None:
        while True:
            text, done = self._texts.get()
            error = None
            try:
                self._write(text)
            except OSError as failed:
                error = failed
            self._loop.call_soon_threadsafe(_resolve, done, error)

    def _write(self, text: str) -> None:
        rest = memoryview(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))
        while rest:  # not by sys.stdout: its lock would be held while this waits, and keep Python from ending
            rest = rest[os.write(1, rest) :]


def _resolve(done: asyncio.Future[None], error: OSError | None) -> None:
    if not done.done():
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


def _document(event: Message | Change) -> dict[str, Any]:
    from ordercast.groups.events import ConfigurationChange, Joined, Left, PrimaryLost, PrimaryRegained

    if isinstance(event, PrimaryLost | PrimaryRegained):
        return {
            "event": "primary lost" if isinstance(event, PrimaryLost) else "primary regained",
            "members": list(event.configuration.members),
        }
    if isinstance(event, Joined | Left):
        return {
            "event": "joined" if isinstance(event, Joined) else "left",
            "group": event.group,
            "member": _member(event.member),
            "cause": str(event.cause),
            "members": [_member(member) for member in event.members],
        }
    if isinstance(event, ConfigurationChange):
        return {
            "event": "configuration",
            "kind": str(event.kind),
            "configuration": event.id._asdict(),
            "members": list(event.members),
            "ended": _ended(event.ended),
        }
    return {
        "event": "message",
        "group": event.group,
        "sender": event.sender,
        **payload_document(event.payload),
        "safe": event.safe,
        "id": event.id._asdict(),
        "configuration": event.configuration._asdict(),
        "seq": event.seq,
        "slot": event.slot,
    }


def _member(member: Member) -> dict[str, Any]:
    return {**member.process._asdict(), "properties": dict(member.properties)}


def _ended(ended: Ended | None) -> dict[str, Any] | None:
    if ended is None:
        return None
    return {"configuration": ended.configuration._asdict(), "place": ended.place}


def _words(event: Message | Change, me: int) -> str:
    from ordercast.core.identity import Kind
    from ordercast.groups.events import ConfigurationChange, Joined, Left, PrimaryLost, PrimaryRegained

    if isinstance(event, PrimaryLost):
        return f"-- not in the primary partition: {', '.join(map(str, event.missing))} are missing"
    if isinstance(event, PrimaryRegained):
        return "-- in the primary partition again"
    if isinstance(event, Joined | Left):
        what = "joined" if isinstance(event, Joined) else "left"
        said = ", ".join(f"{name}={value}" for name, value in event.member.properties.items())
        who = f"{event.member.process} ({printable(said.encode())})" if said else str(event.member.process)
        return f"-- {who} {what} ({event.cause}): {len(event.members)} in the group"
    if isinstance(event, ConfigurationChange):
        kind = "configuration" if event.kind is Kind.REGULAR else "transitional configuration"
        members = ", ".join(
            f"{member} (this node)" if member == me else str(member) for member in event.members
        )
        ended = event.ended
        after = f"; {ended.configuration} ended at place {ended.place}" if ended else ""
        return f"-- {kind} {event.id}: {members}{after}"
    return f"{event.sender}: {printable(event.payload)}"
