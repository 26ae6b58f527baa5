"""``ordercast send``: messages to a group, from the command line or from stdin."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.markup import escape

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
    NotReached,
    OfProfile,
    OfProtocol,
    ReachTimeout,
    Seeds,
    TracedTo,
    among_others,
    live,
    passing,
)
from ordercast.cli.options import Json
from ordercast.cli.screen import STDERR, STDOUT, answer, refuse, verdict

if TYPE_CHECKING:
    from ordercast.groups.api import Group
    from ordercast.groups.events import Message
    from ordercast.groups.receipts import Receipt
    from ordercast.runtime.config import NodeConfig

AT_A_TIME = 1_000
"""Messages handed over at a time."""
LONGEST_LINE = 64 * 1024 * 1024
"""No group takes messages that long: such a line is not read to its end."""


def send(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")],
    messages: Annotated[
        list[str] | None,
        typer.Argument(metavar="MESSAGE", help="What to send; without any, each line of stdin."),
    ] = None,
    client: Nodes = None,
    user: User = "",
    password: Password = "",
    token: Token = "",
    tls: Signer = None,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --safe: what was sent before, in this session and in this order, is not sent twice.",
        ),
    ] = None,
    member: AsMember = False,
    config: ConfigFile = None,
    seed: Seeds = None,
    key: KeyFile = None,
    insecure: Insecure = False,
    protocol: OfProtocol = None,
    profile: OfProfile = None,
    trace: TracedTo = None,
    safe: Annotated[
        bool, typer.Option("--safe", help="Wait until it is in the log; of a member: until all have it.")
    ] = False,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Send each message N times.")] = 1,
    timeout: ReachTimeout = 10.0,
    json: Json = False,
) -> None:
    """Send messages to a group, as a client of a node: --client, the one of --config, or one on this machine.

    With --member: become a member of the group, send, wait until they are ordered, leave. How the group is
    reached is then in --config, or told by --seed and --key. Exit code 3 if nobody is reached.
    """
    given = [os.fsencode(message) for message in messages or ()]
    if member:
        sending = _send(
            passing(config, seed, key, insecure, protocol, profile, trace),
            *(group, given, safe, count, timeout, json),
        )
    else:
        only = for_members(
            seed=seed, key=key, insecure=insecure, protocol=protocol, profile=profile, trace=trace
        )
        node = access(client, user, password, token, tls, config, only)
        if session is not None and not safe:
            refuse("--session makes safe messages exactly once: say --safe, too")
        sending = _send_as_client(node, checked(group), given, safe, count, timeout, session, json)
    if not given and sys.stdin.isatty():
        STDERR.print("[bright_black]a message a line; Ctrl-D ends[/]")
    live(sending)


async def _send_as_client(
    node: Access,
    group: str,
    given: Sequence[bytes],
    safe: bool,
    times: int,
    timeout: float,
    session: str | None,
    json: bool,
) -> None:
    async with node.connected(timeout, session) as client:
        begun = time.monotonic()
        count = duplicates = 0
        first = last = None
        async for some in _repeated(given, times):
            count += len(some)
            if not safe:
                for message in some:
                    await client.send(group, message, timeout=timeout)
                continue
            found = await asyncio.gather(
                *(client.send(group, message, safe=True, timeout=timeout) for message in some)
            )
            first, last = first or found[0].seq, found[-1].seq
            duplicates += sum(each.duplicate for each in found)
        await client.flush(timeout)
        document = {
            "group": group,
            "messages": count,
            "safe": safe,
            "first": first,
            "last": last,
            "duplicates": duplicates,
            "node": client.address,
            "took_s": round(time.monotonic() - begun, 6),
        }
    if json:
        answer(document)
    else:
        _show_to_client(document)


async def _send(
    config: NodeConfig, name: str, given: Sequence[bytes], safe: bool, times: int, timeout: float, json: bool
) -> None:
    async with among_others(config, timeout) as node:
        group = await node.join(name)
        reading = asyncio.create_task(_read_away(group))
        begun = time.monotonic()
        count = 0
        receipts: list[Receipt] = []  # of the first message and of the last
        async for some in _repeated(given, times):
            count += len(some)
            if not receipts:
                receipts.append(await _hand_over(group, some[:1], safe, timeout))
                some = some[1:]
            if some:
                receipts[1:] = [await _hand_over(group, some, safe, timeout)]
        ordered = [await receipt for receipt in receipts]
        took_s, members = time.monotonic() - begun, node.members
        reading.cancel()
    document = {
        "group": name,
        "messages": count,
        "safe": safe,
        "first": _position(ordered[0]) if ordered else None,
        "last": _position(ordered[-1]) if ordered else None,
        "members": list(members),
        "took_s": round(took_s, 6),
    }
    if json:
        answer(document)
    else:
        _show(document)
    if len(members) == 1:
        raise NotReached(
            "the other members were lost on the way, and the last messages may have been ordered by this "
            "node alone: send them again"
        )


async def _repeated(given: Sequence[bytes], times: int) -> AsyncIterator[list[bytes]]:
    """What was given, or else what stdin tells, each message so many times; a bounded number at once."""
    async for batch in _once(given) if given else lines(sys.stdin.buffer):
        messages = chain.from_iterable(repeat(message, times) for message in batch)
        while some := list(islice(messages, AT_A_TIME)):
            yield some


async def _once(given: Sequence[bytes]) -> AsyncIterator[Sequence[bytes]]:
    yield given


async def _hand_over(group: Group, some: list[bytes], safe: bool, timeout: float) -> Receipt:
    """Messages in order. A sender's messages keep their order, so the last one's receipt is for all."""
    await group.send_many(some[:-1], safe=safe, timeout=timeout)
    return await group.send(some[-1], safe=safe, timeout=timeout, receipt=True)


async def _read_away(group: Group) -> None:
    """What the group delivers does not matter here, and must not pile up."""
    async for _ in group.batches():
        pass


async def lines(source: BinaryIO) -> AsyncIterator[list[bytes]]:
    """The lines of a file, pipe or terminal, as many at once as there are. A thread of its own waits for
    them, which may be left waiting at the end of the program."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[list[bytes] | None] = asyncio.Queue(maxsize=2)

    def put(some: list[bytes] | None) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(some), loop).result()

    def read() -> None:
        rest = b""
        with suppress(RuntimeError, concurrent.futures.CancelledError):  # nobody wants them any more
            while chunk := source.read1(65_536):  # type: ignore[attr-defined]
                *whole, rest = (rest + chunk).split(b"\n")
                if len(rest) > LONGEST_LINE:
                    whole.append(rest)
                    rest = b""
                if whole:
                    put(whole)
            if rest:
                put([rest])
            put(None)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while (some := await queue.get()) is not None:
        yield some


# --- what is said -------------------------------------------------------------------------------


def _position(message: Message) -> dict[str, Any]:
    return {
        "configuration": message.configuration._asdict(),
        "seq": message.seq,
        "slot": message.slot,
        "number": message.id.number,
    }


def _show_to_client(document: dict[str, Any]) -> None:
    count, group = document["messages"], escape(document["group"])
    if not count:
        STDOUT.print(f"nothing was sent to {group}: there was no message")
        return
    guarantee = "safe message" if document["safe"] else "message"
    what = f"1 {guarantee}" if count == 1 else f"{count:,} {guarantee}s"
    first, last = document["first"], document["last"]
    where = (
        ""
        if first is None
        else f", in the log at {first}"
        if count == 1
        else f", in the log from {first} to {last}"
    )
    STDOUT.print(verdict(True, f"{what} to {group}{where}"), soft_wrap=True)
    if document["duplicates"]:
        STDOUT.print(f"  [bright_black]{document['duplicates']:,} of them were there before[/]")


def _show(document: dict[str, Any]) -> None:
    count, first, last = document["messages"], document["first"], document["last"]
    group = escape(document["group"])
    if not count:
        STDOUT.print(f"nothing was sent to {group}: there was no message")
        return
    guarantee = "safe message" if document["safe"] else "message"
    what = f"1 {guarantee}" if count == 1 else f"{count:,} {guarantee}s"
    same = first["configuration"] == last["configuration"]
    where = f"at {_place(first)}" if count == 1 else f"from {_place(first, not same)} to {_place(last)}"
    STDOUT.print(verdict(True, f"{what} to {group}, ordered {where}"), soft_wrap=True)
    members = ", ".join(map(str, document["members"]))
    STDOUT.print(f"  [bright_black]delivered with the members {members}[/]", soft_wrap=True)


def _place(position: dict[str, Any], in_full: bool = True) -> str:
    configuration = position["configuration"]
    within = f" of configuration {configuration['seq']}.{configuration['rep']}" if in_full else ""
    return f"{position['seq']}.{position['slot']}{within}"
