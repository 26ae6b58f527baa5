"""``ordercast log``: what is in the ordered log of a node."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ordercast.cli.member import KeyFile
from ordercast.cli.screen import (
    STDERR,
    STDOUT,
    Code,
    answer,
    facts,
    payload_document,
    printable,
    refuse,
    verdict,
)
from ordercast.errors import KeyProblem, NotThere, NotYet, OrdercastError
from ordercast.keys import Keyring
from ordercast.log import Bounds, Position, Replica
from ordercast.log.compare import compare
from ordercast.log.repair import check_log, repair_log
from ordercast.log.replica import is_address

LOOK_S = 0.2
"""How often --follow asks for more."""
AT_A_TIME = 10_000
FAR = 100
"""Among so many times as many entries as are to be shown those of one group are looked for."""
LONGEST = 60
"""Characters of a payload that are shown."""


def log(
    where: Annotated[str, typer.Argument(metavar="DIR|HOST:PORT", help="The log of a node, or its service.")],
    begin: Annotated[
        str | None, typer.Option("--from", metavar="POSITION", help="Show what comes after, as in 8.1/17/0.")
    ] = None,
    rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many entries; without --from, the last.")
    ] = 20,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Its messages, and changes of the configuration.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Show what comes, until interrupted.")] = False,
    verify: Annotated[
        str | None,
        typer.Option(metavar="DIR|HOST:PORT", help="Compare with this replica, where both have entries."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Read everything, and say which entries are damaged.")
    ] = False,
    repair: Annotated[
        str | None,
        typer.Option(metavar="DIR|HOST:PORT", help="Repair DIR, whose node is stopped, from this replica."),
    ] = None,
    key: KeyFile = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How long the node may take to answer.")
    ] = 5.0,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON: what the log holds, then an entry a line.")
    ] = False,
) -> None:
    """Look at the ordered log of a node: what it holds, and its last entries.

    The log of a node on this machine is read in its directory; any other from its log service, whose address
    `ordercast status` shows, with the group key if there is one. Exit code 1 if replicas differ or a log is
    damaged, 2 if a directory holds no log that can be read, 3 if a node does not serve it.
    """
    try:
        start = None if begin is None else Position.parse(begin)
    except ValueError as error:
        refuse(str(error))
    try:
        if key is not None:
            Keyring.load(key)
    except KeyProblem as error:
        refuse(str(error))
    try:
        if check or repair is not None:
            if is_address(where):
                refuse(
                    f"{where} is no directory: files are checked and repaired on the machine that has them"
                )
            damaged = check_log(Path(where)) if repair is None else _repair(Path(where), repair, _key(key))
            _tell_damage(where, damaged, repair, json)
            return
        with Replica(where, _key(key), timeout) as replica:
            if verify is not None:
                with Replica(verify, _key(key), timeout) as other:
                    _verify(replica, other, json)
                return
            _show(replica, start, rows, group, follow, json)
    except OrdercastError as error:
        STDERR.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(Code.BROKEN if is_address(where) else Code.USAGE) from None
    except KeyboardInterrupt:
        raise typer.Exit(Code.OK) from None


def _key(key: Path | None) -> str | None:
    return None if key is None else str(key)


def _show(
    replica: Replica, start: Position | None, rows: int, group: str | None, follow: bool, json: bool
) -> None:
    bounds = replica.bounds()
    if json:
        answer(_bounds(bounds))
    else:
        STDOUT.print(_facts(bounds), "")
    entries, at = _entries(replica, bounds, start, rows, group)
    _print(entries, json)
    sys.stdout.flush()
    while follow:
        try:
            end = replica.after(at, AT_A_TIME)
        except NotYet:  # it was ahead of what this replica has
            end = None
        if end is None:
            time.sleep(LOOK_S)
            continue
        _print(list(_read(replica, at, end, group)), json, headless=True)
        sys.stdout.flush()
        at = end


def _entries(
    replica: Replica, bounds: Bounds, start: Position | None, rows: int, group: str | None
) -> tuple[list[dict[str, Any]], Position | None]:
    """What is shown at first, and up to where that goes."""
    if bounds.head is None:
        return [], start
    if start is None:
        count = rows if group is None else FAR * rows
        start = replica.before(bounds.head, count)
        if bounds.since != bounds.oldest and (start is None or start < (bounds.since or start)):
            start = bounds.since  # what comes before it does not join
        return list(_read(replica, start, bounds.head, group))[-rows:], bounds.head
    shown: list[dict[str, Any]] = []
    try:
        while len(shown) < rows and (end := replica.after(start, rows - len(shown))) is not None:
            shown += _read(replica, start, end, group)
            start = end
    except NotThere as gap:
        if not shown:
            raise
        STDERR.print(f"[yellow]{escape(str(gap))}[/]", soft_wrap=True)
    return shown, start


def _read(
    replica: Replica, start: Position | None, end: Position, group: str | None
) -> Iterator[dict[str, Any]]:
    for batch in replica.read(start, end, group):
        yield from batch.to_pylist()


# --- for people and programs --------------------------------------------------------------------


def _bounds(bounds: Bounds) -> dict[str, Any]:
    return {
        name: str(value) if isinstance(value, Position) else value for name, value in bounds._asdict().items()
    }


def _facts(bounds: Bounds) -> Table:
    rows = {
        "log of": f"node {bounds.node}",
        "entries": f"{bounds.entries:,}, {bounds.bytes / 1e6:,.1f} MB",
        "oldest": str(bounds.oldest or "nothing yet"),
        "head": str(bounds.head or "nothing yet"),
    }
    if bounds.since != bounds.oldest:
        rows["without a gap"] = f"since {bounds.since}"
    return facts(rows)


def _print(entries: list[dict[str, Any]], json: bool, headless: bool = False) -> None:
    if json:
        for entry in entries:
            answer(_document(entry))
        return
    if not entries:
        return
    table = Table(box=None, pad_edge=False, header_style="bright_black", show_header=not headless)
    for name in ("position", "time", "sender", "group", "guarantee", "entry"):
        table.add_column(name, justify="right" if name == "sender" else "left", no_wrap=name != "entry")
    for entry in entries:
        table.add_row(*_row(entry))
    STDOUT.print(table)


def _position(entry: dict[str, Any]) -> str:
    return str(Position(entry["config_seq"], entry["config_rep"], entry["seq"], entry["slot"]))


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    when = datetime.fromtimestamp(entry["time_us"] / 1e6).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if entry["kind"] != "message":
        members = ", ".join(map(str, entry["members"]))
        return _position(entry), when, "", "", "", f"[cyan]{entry['kind']} configuration: {members}[/]"
    text = printable(entry["payload"][: 4 * LONGEST])
    if len(text) > LONGEST:
        text = f"{text[: LONGEST - 1]}…"
    return (
        _position(entry),
        when,
        str(entry["sender"]),
        escape(entry["group"]),
        entry["guarantee"],
        escape(text),
    )


def _document(entry: dict[str, Any]) -> dict[str, Any]:
    names = ("kind", "sender", "group", "guarantee", "time_us", "members")
    document = {name: entry[name] for name in names if entry[name] is not None}
    if entry["sent_us"]:  # 0 where it is not known
        document["sent_us"] = entry["sent_us"]
    if entry["payload"] is not None:
        document |= payload_document(entry["payload"])
    return {"position": _position(entry), **document}


def _repair(path: Path, source: str, key: str | None) -> tuple[list[str], list[str]]:
    """Repair a log, tell what was repaired, and answer with what still is damaged, as `check_log` does."""
    found = repair_log(path, source, key)
    for mended in found:
        if mended.source is not None:
            STDERR.print(escape(mended.sentence), soft_wrap=True)
    return [], [mended.sentence for mended in found if mended.source is None]


def _tell_damage(where: str, damaged: tuple[list[str], list[str]], repaired: str | None, json: bool) -> None:
    files, entries = damaged
    if json:
        answer({"whole": not (files or entries), "files": files, "entries": entries})
    else:
        for sentence in (*files, *entries):
            STDOUT.print(f"[yellow]{escape(sentence)}[/]", soft_wrap=True)
        advice = "the node repairs it from the others while it runs; or stop it, and use --repair"
        STDOUT.print(verdict(not (files or entries), advice if files or entries else f"{where} is whole"))
    if files or entries:
        raise typer.Exit(Code.FAILED)


def _verify(one: Replica, other: Replica, json: bool) -> None:
    found = compare(one, other)
    if json:
        answer(
            {
                "equal": found.equal,
                "entries": found.entries,
                "begin": str(found.begin),
                "end": str(found.end),
                "differs_after": None if found.differs_after is None else str(found.differs_after),
            }
        )
    else:
        STDOUT.print(verdict(found.equal, found.sentence))
    if not found.equal:
        raise typer.Exit(Code.FAILED)
