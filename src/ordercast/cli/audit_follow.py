"""``ordercast audit --follow``: the audit of a trace that is still being written."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType

import typer
from rich.markup import escape

from ordercast.audit.explain import Report, Violation
from ordercast.audit.properties import Promises
from ordercast.cli.screen import STDERR, STDOUT, Code, answer, blaming
from ordercast.storage import Location

PATIENCE_S = 3.0
"""How long rows may be under way that are written on this machine."""
PATIENCE_IN_STORE_S = 60.0

_LOOK_S = 0.5
_LOOK_IN_STORE_S = 2.0
_SAVE_S = 5.0
_PROGRESS_S = 5.0


@dataclass(frozen=True)
class Following:
    """What is asked for."""

    trace: str
    promises: Promises | None
    patience: float | None
    checkpoint: str | None
    webhook: str | None
    metrics: str | None
    until_quiet: float | None
    until_violation: bool
    json: bool


def follow(asked: Following) -> Report:
    """Read and judge until it is to end; answers with all that was found."""
    from ordercast.audit.follow.alerts import Hook, Metrics
    from ordercast.audit.follow.checkpoint import load, save
    from ordercast.audit.follow.follower import Follower

    store = bool(Location.of(asked.trace).store)
    patience = asked.patience
    if patience is None:
        patience = PATIENCE_IN_STORE_S if store else PATIENCE_S
    with ExitStack() as stack:
        if asked.checkpoint is None:
            follower = Follower(asked.trace, patience, asked.promises)
        else:
            follower = load(asked.trace, patience, asked.promises, asked.checkpoint)
        stack.callback(follower.close)
        hook = metrics = None
        if asked.webhook is not None:
            with blaming("--webhook"):
                hook = Hook(asked.webhook, _warn)
            stack.callback(hook.close)
        if asked.metrics is not None:
            with blaming("--metrics"):
                metrics = Metrics(*_address(asked.metrics))
            stack.callback(metrics.close)
        stop = stack.enter_context(_until_asked())
        say = _Progress(follower, asked)
        last_rows = last_saved = time.monotonic()
        ended = False
        while not (ended or stop.is_set()):
            read = follower.read()
            now = time.monotonic()
            last_rows = now if read else last_rows
            ended = not read and asked.until_quiet is not None and now - last_rows >= asked.until_quiet
            found = follower.judge(now, ended=ended)
            for violation in found:
                _tell(violation, asked.json)
                if hook is not None:
                    hook.send(violation)
            if metrics is not None:
                metrics.tell(follower)
            if asked.checkpoint is not None and (found or ended or now - last_saved >= _SAVE_S):
                save(follower, asked.checkpoint)
                last_saved = now
            say.progress(now)
            if found and asked.until_violation:
                break
            if not read:
                stop.wait(_LOOK_IN_STORE_S if store else _LOOK_S)
        if asked.checkpoint is not None:
            save(follower, asked.checkpoint)
        return follower.report()


def end(asked: Following, report: Report) -> None:
    """Say what came of it all, and end with 0 or 1."""
    if asked.json:
        answer({"engine": "follow", "runs": report.runs, **report.as_dict()})
    else:
        from ordercast.cli.audit import verdict_of

        for note in report.notes:
            STDOUT.print(f"[bright_black]{escape(note)}[/]")
        STDOUT.print(verdict_of(report, f"{report.events:,} events"))
    raise typer.Exit(Code.OK if report.clean else Code.FAILED)


class _Progress:
    """A line now and then of how far it is, for people."""

    def __init__(self, follower: object, asked: Following) -> None:
        from ordercast.audit.follow.follower import Follower

        assert isinstance(follower, Follower)
        self._follower = follower
        self._told = time.monotonic()
        self._events = follower.events
        if not asked.json:
            STDERR.print(f"[bright_black]following {escape(asked.trace)}; Ctrl-C ends it[/]")

    def progress(self, now: float) -> None:
        """Say how far it is, if it is time to."""
        if now - self._told < _PROGRESS_S:
            return
        events = self._follower.events
        rate = (events - self._events) / (now - self._told)
        broken = sum(self._follower.report().properties.values())
        STDERR.print(
            f"[bright_black]{events:,} events, {rate:,.0f}/s, {self._follower.held:,} held; "
            f"{broken:,} violations[/]"
        )
        self._told, self._events = now, events


def _tell(violation: Violation, json: bool) -> None:
    if json:
        answer({"violation": violation.as_dict()})
    else:
        where = f" in {violation.run}" if violation.run else ""
        STDOUT.print(f"[bold red]{violation.property}[/]{escape(where)}: {escape(violation.told())}")


def _warn(sentence: str) -> None:
    STDERR.print(f"[yellow]warning:[/] {escape(sentence)}", soft_wrap=True)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise ValueError(f"{text!r} is no address: give HOST:PORT")
    return host.strip("[]"), int(port)


@contextmanager
def _until_asked() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set."""
    stop = threading.Event()

    def on_signal(_: int, __: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
