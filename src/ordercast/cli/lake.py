"""``ordercast lake``: runs of many traces, kept as a table: what is added, merged and removed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated

import typer
from rich.markup import escape

from ordercast.cli.options import Json
from ordercast.cli.screen import STDERR, STDOUT, answer, blaming, refuse
from ordercast.lake import Lake
from ordercast.lake.lake import KEEP_HOURS

Where = Annotated[
    str,
    typer.Option(
        "--lake", envvar="ORDERCAST_LAKE", metavar="DIR|URI", help="The lake, here or in a store (s3://…)."
    ),
]
HERE = "lake"
"""The lake where none is named: a directory of the current one."""
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SHOWN = 40
"""Names of runs that are told to people; JSON has all."""


def add(
    traces: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE…",
            help="Traces: directories or files, here or in a store. Those that are given together are one. "
            "Or directories of `lab run`, whose results are added, and the traces in them.",
        ),
    ],
    where: Where = HERE,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Runs are called NAME/RUN in the lake, experiments NAME."),
    ] = None,
    json: Json = False,
) -> None:
    """Add the runs of traces to a lake, which is made if need be.

    All runs are added, or none. A run that is there already is told, and left as it is; one that is there
    with other events is refused.
    """
    lake = Lake(where)
    with _reading() as progress:
        added = lake.add(traces, name, progress)
    if json:
        answer({"lake": str(lake.where), **added._asdict()})
        return
    STDOUT.print(f"added to {lake.where}: {counted(len(added.runs), 'run')}, {added.events:,} events", end="")
    STDOUT.print(f", {counted(added.results, 'result')}" if added.results else "")
    if added.there:
        STDOUT.print(f"[bright_black]there already, and left as they are: {escape(_some(added.there))}[/]")


def compact(
    where: Where = HERE,
    keep: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="So long files are kept that nobody names any more: 12h, 7d. Shorter than a query or an "
            "`add` takes, it takes their files away.",
        ),
    ] = f"{KEEP_HOURS // 24}d",
    json: Json = False,
) -> None:
    """Merge small files, and remove those that no run needs any more."""
    hours = int(_time(keep, "--keep").total_seconds() // 3_600)
    done = Lake(where).compact(hours)
    if json:
        answer(done._asdict())
    else:
        STDOUT.print(f"{counted(done.merged, 'file')} merged into {done.into:,}; {done.removed:,} removed")


def expire(
    where: Where = HERE,
    older_than: Annotated[
        str | None, typer.Option(metavar="TIME", help="Runs that were added longer ago: 12h, 90d.")
    ] = None,
    run: Annotated[
        list[str] | None, typer.Option("--run", metavar="RUN", help="This run; may be repeated.")
    ] = None,
    protocol: Annotated[str | None, typer.Option(metavar="NAME", help="Runs of this protocol.")] = None,
    json: Json = False,
) -> None:
    """Remove runs from a lake: those to which all that is asked applies. Verdicts on them stay.

    Their files go with a later `compact`.
    """
    age = None if older_than is None else _time(older_than, "--older-than")
    if age is None and not run and protocol is None:
        refuse("say which runs are to be removed: --older-than, --run or --protocol")
    gone = Lake(where).expire(age, run or (), protocol)
    if json:
        answer({"removed": gone})
    else:
        STDOUT.print(f"removed: {counted(len(gone), 'run')}{escape(f' ({_some(gone)})' if gone else '')}")


@contextmanager
def _reading() -> Iterator[Callable[[int, int], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=STDERR, transient=True, disable=not STDERR.is_terminal) as bars:
        bar = bars.add_task("events", total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


def _time(text: str, option: str) -> timedelta:
    found = re.fullmatch(r"(\d+)([smhd])", text)
    with blaming(option):
        if found is None:
            raise ValueError(f"{text!r} is no time: write a number and a unit, as in 12h or 30d (s, m, h, d)")
        return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def counted(count: int, what: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN:,} more"
