"""The audit of a trace on disk: every run in it by what the protocol that wrote it promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ordercast.audit.explain import Report, merge
from ordercast.audit.properties import PROMISES, Promises, audit, promised
from ordercast.trace.reader import about_runs, read_runs
from ordercast.trace.schema import About, Row, TraceError
from ordercast.trace.trimmed import common_part


def audit_trace(path: Path, checks: Promises | None = None, *, trimmed: bool = False) -> Report:
    """Check every run of a trace by itself, and add up. Raises `TraceError` if it cannot be read.

    Without `checks` a run is judged by the set that its files name, or by what is found in it where they name
    none. Of a `trimmed` trace that part is judged which all nodes still have.
    """
    return merge(_reports(path, checks, trimmed))


def _reports(path: Path, checks: Promises | None, trimmed: bool) -> Iterator[Report]:
    about = about_runs(path) if checks is None else {}
    for run, rows in read_runs(path):
        its = checks if checks is not None else _promised(run, about.get(run, {}), rows)
        yield audit(common_part(rows) if trimmed else rows, None, its).of_run(run)


def _promised(run: str, about: About, rows: list[Row]) -> Promises:
    name = about.get("promises")
    if name is None:
        return promised(rows)
    if name not in PROMISES:
        raise TraceError(
            f"run {run!r} promises {name}, which is none of {', '.join(PROMISES)}: choose one with "
            "--promises, or audit it with the version of ordercast that wrote it."
        )
    return PROMISES[name]
