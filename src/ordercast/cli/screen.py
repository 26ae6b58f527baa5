"""What all commands share in speaking: to people, to programs, and of mistakes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

STDOUT = Console(highlight=False)
"""To stdout: the answer, for people."""
STDERR = Console(stderr=True, highlight=False)
"""To stderr: progress, and mistakes."""


class Code(IntEnum):
    """The exit codes of all commands."""

    OK = 0
    FAILED = 1
    """Something is wrong with what was looked at."""
    USAGE = 2
    """Something is wrong with what was asked, with a file, or with Spark: there is no verdict."""
    BROKEN = 3
    """A group, a node or a process of the command's own did not do its work."""
    INTERRUPTED = 130


def answer(document: Mapping[str, Any]) -> None:
    """To stdout: the answer, for programs. One JSON object on one line, and nothing else."""
    print(json.dumps(document), flush=True)


def refuse(sentence: str) -> NoReturn:
    """End with what is wrong with what was asked."""
    STDERR.print(f"[bold red]error:[/] {_escaped(sentence)}", soft_wrap=True)
    raise typer.Exit(Code.USAGE)


@contextmanager
def blaming(option: str) -> Iterator[None]:
    """What is wrong inside is wrong with the value of this option."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    except OSError as error:
        where = error.filename or "the file"
        raise typer.BadParameter(f"{where}: {error.strerror}", param_hint=option) from error


@contextmanager
def counting(what: str, total: int) -> Iterator[Counter]:
    """A bar that counts to `total`, with the time left; shown to people only."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=STDERR, transient=True, disable=not STDERR.is_terminal) as progress:
        yield Counter(progress, what, total)


class Counter:
    """A progress bar in use."""

    def __init__(self, progress: Progress, what: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=total)

    def step(self, by: int = 1) -> None:
        """Show that `by` more are done."""
        self._progress.advance(self._task, by)

    def at(self, done: int) -> None:
        """Show that `done` are done."""
        self._progress.update(self._task, completed=done)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(text)


def facts(rows: Mapping[str, str]) -> Table:
    """Names and values, side by side and without a frame."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bright_black", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def verdict(good: bool, sentence: str) -> str:
    """The last line of most answers."""
    return f"[bold green]✓[/] {sentence}" if good else f"[bold red]✗[/] {sentence}"


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")


def printable(payload: bytes) -> str:
    """A payload as text for a terminal: what cannot be printed is escaped."""
    text = payload.decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def payload_document(payload: bytes) -> dict[str, str]:
    """A payload for JSON: as text where it is UTF-8, in base 64 otherwise."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}
