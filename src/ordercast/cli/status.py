"""``ordercast status``: how a running node is doing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ordercast.cli.clients import Access, Nodes, Password, Signer, Token, User, access
from ordercast.cli.member import ConfigFile, configured
from ordercast.cli.options import Json
from ordercast.cli.screen import STDERR, STDOUT, Code, answer, facts, refuse
from ordercast.draw.words import duration
from ordercast.errors import AccessDenied, NoResponders, NotConnected, RequestTimeout
from ordercast.runtime.control import SOCKET, NoNode, ask

Status = dict[str, Any]
OF_CLIENTS = "$ORDERCAST.STATUS"
"""The group in which a node answers its clients how it is doing."""
ANSWER_S = 5.0


def status(
    config: ConfigFile = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Data directory of the node, instead.")
    ] = None,
    socket: Annotated[Path | None, typer.Option(metavar="PATH", help="Its control socket, instead.")] = None,
    client: Nodes = None,
    user: User = "",
    password: Password = "",
    token: Token = "",
    tls: Signer = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew until interrupted.")] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often --watch asks.")] = 1.0,
    json: Json = False,
) -> None:
    """Ask a running node: members, state, rates, losses, and who is slow.

    A node on this machine is asked through its data directory, any that serves clients as a client: with
    --client, or with the configuration. With --watch and --json, an object a line. Exit code 1 if no node
    answers.
    """
    if client or (config is not None and _elsewhere(config)):
        asked = _asking_as_client(access(client, user, password, token, tls, config), data, socket)
    else:
        path = _socket(config, data, socket)
        asked = partial(ask, path)
    try:
        if watch and json:
            for found in _asked(asked, every):
                answer(found)
        elif watch:
            _watch(asked, every)
        elif json:
            answer(asked())
        else:
            STDOUT.print(shown(asked()))
    except NoNode as error:
        STDERR.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(Code.FAILED) from None
    except KeyboardInterrupt:
        raise typer.Exit(Code.OK) from None


def _elsewhere(file: Path) -> bool:
    """Whether the node of a configuration is not on this machine, as far as its data directory tells, or has
    none, and serves clients."""
    config = configured(file)
    return config.clients is not None and (config.data is None or not (config.data / SOCKET).exists())


def _asking_as_client(node: Access, data: Path | None, socket: Path | None) -> Callable[[], Status]:
    if data or socket:
        refuse("say which node in one way: --client HOST:PORT, or one of -c, --data and --socket")
    return lambda: asyncio.run(_ask_as_client(node))


async def _ask_as_client(node: Access) -> Status:
    import json

    try:
        async with node.connected(ANSWER_S) as client:
            answer = await client.request(OF_CLIENTS, timeout=ANSWER_S)
    except NoResponders:
        where = ", ".join(node.servers)
        raise NoNode(f"{where} does not say how it is doing: see that it is a node of ordercast") from None
    except (NotConnected, RequestTimeout, AccessDenied) as error:
        raise NoNode(str(error)) from None
    found: Status = json.loads(answer.payload)
    return found


def _socket(config: Path | None, data: Path | None, socket: Path | None) -> Path:
    named = [place for place in (config, data, socket) if place is not None]
    if len(named) != 1:
        refuse(
            "say which node: -c FILE, its configuration; --data DIR; --socket PATH; or --client HOST:PORT; "
            "one of them"
        )
    if socket is not None:
        return socket
    if config is not None:
        data = configured(config).data
        if data is None:
            refuse(
                f"{config} names no data directory and serves no clients, so that its node cannot be asked: "
                "write data = DIR there, or clients = HOST:PORT"
            )
    assert data is not None
    return data / SOCKET


def _asked(ask: Callable[[], Status], every: float) -> Iterator[Status]:
    while True:
        yield ask()
        time.sleep(every)


def _watch(ask: Callable[[], Status], every: float) -> None:
    """Until interrupted; a node that is restarted meanwhile is found again."""
    ask()
    with Live(console=STDOUT, auto_refresh=False) as live:
        while True:
            found: Group | Text
            try:
                found = shown(ask())
            except NoNode as error:
                found = Text(str(error), style="red")
            if STDOUT.is_terminal:
                live.update(found, refresh=True)
            else:
                STDOUT.print(found, "")
            time.sleep(every)


# --- for people ---------------------------------------------------------------------------------


def shown(status: Status) -> Group:
    """A status, to be looked at."""
    sealed = "sealed" if status["sealed"] else "[yellow]not sealed[/]"
    state = status["state"]
    said = f"[green]{state}[/]" if status["settled"] else f"[yellow]{state} ({status['because']})[/]"
    head = (
        f"[bold]node {status['node']}[/] at {escape(status['address'])}, {said}, {sealed}, "
        f"up {_time(status['uptime_s'])}"
    )
    role = f", {status['role']}" if status["role"] else ""
    rows = {
        "protocol": f"{status['protocol']}{role}",
        **_configuration(status),
        **_topology(status),
        **_figures(status),
        **_connections(status),
        **_log(status),
        **_clients(status),
        **_troubles(status),
    }
    parts: list[Any] = [Text.from_markup(head), Text(), facts(rows)]
    if _present(status):
        parts += [Text(), _peers(status)]
    return Group(*parts)


def _configuration(status: Status) -> dict[str, str]:
    found = status["configuration"]
    if found is None:
        return {"configuration": "[yellow]none yet[/]"}
    members = ", ".join(
        f"[bold]{member}[/]" if member == status["node"] else str(member) for member in found["members"]
    )
    return {
        "configuration": f"{found['seq']}.{found['rep']}, {found['kind']}",
        "members": f"{len(found['members'])}: {members}",
    }


def _topology(status: Status) -> dict[str, str]:
    """Rings and gateways, where there are such."""
    topology = status.get("topology")
    if not topology or not topology["rings"]:
        return {}
    rows = {}
    for ring in topology["rings"]:
        members = ", ".join(
            f"{node} (gateway)" if node in ring["gateways"] else str(node) for node in ring["members"]
        )
        waits = [
            f"{count:,} {what}"
            for count, what in (
                (ring["waiting"], "bundles of messages wait for it"),
                (ring["waiting_safe"], "safe ones wait for all its members"),
            )
            if count
        ]
        own = f", {ring['to_be_broadcast']:,} bytes to be broadcast" if ring["attached"] else ""
        told = f"; [yellow]{', '.join(waits)}[/]" if waits else ""
        rows[f"ring {ring['network']}"] = f"{members}{own}{told}"
    paths = ", ".join(
        f"{path['from']} to {path['to']} by node {path['gateway']}" for path in topology["paths"]
    )
    pausing = ", ".join(map(str, topology["paused_by"]))
    return {
        **rows,
        "paths": paths or "none",
        **({"lagging": f"[yellow]ring {topology['lagging']}[/]"} if topology["lagging"] else {}),
        **({"paused by": f"[yellow]node {pausing}[/]"} if pausing else {}),
    }


def _present(status: Status) -> list[dict[str, Any]]:
    """Peers that are there, or should be; not those that came and went."""
    members = status["configuration"]["members"] if status["configuration"] else ()
    return [peer for peer in status["peers"] if peer["linked"] or peer["node"] in members]


def _figures(status: Status) -> dict[str, str]:
    rates = status["throughput"]
    rotation = status["rotation_us"]
    turning = "[bright_black]none of late[/]" if rotation is None else duration(round(rotation))
    counted = status["statistics"]
    longest = counted.get("rotation_us_max", 0)
    return {
        **({"rotation": f"{turning}, at most {duration(round(longest))}"} if longest else {}),
        "delivered": f"{rates['delivered_per_s']:,.0f} messages/s, {rates['bytes_per_s'] / 1e6:,.3f} MB/s; "
        f"{status['delivered']:,} so far",
        "sent": f"{rates['sent_per_s']:,.0f} messages/s; {status['sent']:,} so far",
        "waiting": f"{status['queued_bytes']:,} bytes to be sent, {status['unread_bytes']:,} to be read",
        "counted": ", ".join(
            f"{name.replace('_', ' ')} {count:,.0f}"
            for name, count in counted.items()
            if count and "_us" not in name
        )
        or "nothing yet",
        "packets": ", ".join(f"{kind} {count:,}" for kind, count in status["packets_sent"].items() if count)
        or "none sent yet",
    }


def _connections(status: Status) -> dict[str, str]:
    """Of those to log and metrics, how many there are and why others are not."""
    there = status.get("connections")
    if not there or not (there["open"] or there["ended"]):
        return {}
    ended = ", ".join(f"{count:,} {escape(reason)}" for reason, count in there["ended"].items())
    full = f"[yellow]{there['open']}[/]" if 2 * there["open"] > there["most"] else str(there["open"])
    return {"connections": f"{full} of {there['most']}; ended by this node: {ended or 'none'}"}


def _clients(status: Status) -> dict[str, str]:
    served = status.get("clients")
    if not served:
        return {}
    cut = sum(served["malformed"].values()) + sum(served["refused"].values())
    return {
        "clients": f"{served['connected']:,} connected at {served['address']}, {served['subscriptions']:,} "
        f"subscriptions, {served['published']:,} messages published; {cut:,} cut off"
    }


def _log(status: Status) -> dict[str, str]:
    kept = status.get("log")
    if kept is None:
        return {}
    slow = ", [yellow]and the disk does not keep up[/]" if kept["braking"] else ""
    return {
        "log": f"{kept['entries']:,} entries, {kept['bytes'] / 1e6:,.1f} MB{slow}",
        "log in": escape(kept["directory"]),
        "log holds": f"{kept['oldest'] or 'nothing'} to {kept['head'] or 'nothing'}",
        "log at": f"{escape(kept['address'] or 'nowhere yet')}, {kept['clients']} clients",
    }


def _troubles(status: Status) -> dict[str, str]:
    drops = ", ".join(f"{count:,} {escape(reason)}" for reason, count in status["drops"].items())
    slow, holder, buffers = status["slow"], status["held_up_by"], status["buffers"]
    offload = [name for name, works in status["offload"].items() if works]
    granted = f"{buffers['granted']:,} bytes"
    if buffers["granted"] < buffers["asked"]:
        granted = f"[yellow]{granted}[/] of {buffers['asked']:,} asked for; raise net.core.rmem_max"
    return {
        "dropped": drops or "nothing",
        "slow": f"[yellow]node {slow['node']}[/] keeps the token waiting for {duration(slow['waits_us'])}"
        if slow
        else "nobody",
        "held up by": f"[yellow]node {holder}[/], which does not keep up" if holder is not None else "nobody",
        **({"slow readers": _slow_readers(status["slow_groups"])} if status.get("slow_groups") else {}),
        "own lag": duration(status["lag_us"]),
        "receive buffer": granted,
        "offload": ", ".join(offload) or "none",
    }


def _slow_readers(groups: dict[str, list[int]]) -> str:
    told = (f"of {escape(group)} at node {', '.join(map(str, nodes))}" for group, nodes in groups.items())
    return f"[yellow]{'; '.join(told)}[/]; who sends to it waits"


def _peers(status: Status) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    several = "networks" in status
    for name in ("node", *(("ring",) if several else ()), "address", "link", "heard", "token waits"):
        table.add_column(name, justify="left" if name in ("address", "link") else "right")
    waits = status["waits_us"]
    for peer in _present(status):
        wait = waits.get(str(peer["node"]))
        table.add_row(
            str(peer["node"]),
            *((str(peer["network"]),) if several else ()),
            escape(peer["address"]),
            "linked" if peer["linked"] else "[red]silent[/]",
            f"{_time(peer['silent_s'])} ago",
            "" if wait is None else duration(wait),
        )
    return table


def _time(seconds: float) -> str:
    """``3.2 s``, ``5 min 20 s``, ``2 d 3 h``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for size, unit, small, below in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // small} {below}"
    raise AssertionError("a minute is the smallest")
