"""The audit of a trace on disk: every run in it by what the protocol that wrote it promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ordercast.audit.explain import Report, merge
from ordercast.audit.findings import Findings
from ordercast.audit.properties import PROMISES, Promises, audit, promised
from ordercast.trace.reader import about_runs, read_runs
from ordercast.trace.schema import ONE_CLOCK, About, TraceError
from ordercast.trace.trimmed import common_part


def audit_trace(path: Path, checks: Promises | None = None, *, trimmed: bool = False) -> Report:
    """Check every run of a trace by itself, and add up. Raises `TraceError` if it cannot be read.

    Without `checks` a run is judged by the set that its files name, or by what is found in it where they name
    none. Of a `trimmed` trace that part is judged which all nodes still have.
    """
    return merge(findings.report for findings in audited_runs(path, checks, trimmed=trimmed))


def audited_runs(
    path: Path, checks: Promises | None = None, *, trimmed: bool = False, shown: bool = False
) -> Iterator[Findings]:
    """The same run by run; with `shown`, each with the rows that matter."""
    about = about_runs(path)
    for run, rows in read_runs(path):
        said = about.get(run, {})
        its = checks or promises_by_name(run, said) or promised(rows)
        judged = common_part(rows) if trimmed else rows
        report = audit(judged, None, its, whole=not trimmed, one_clock=has_one_clock(said))
        yield Findings.of(run, report, judged, shown=shown)


def has_one_clock(about: About) -> bool:
    """Whether the files of a run say that times of its nodes may be compared."""
    return about.get("clock") == ONE_CLOCK


def promises_by_name(run: str, about: About) -> Promises | None:
    """The set that the files of a run name; None if they name none."""
    name = about.get("promises")
    if name is None:
        return None
    if name not in PROMISES:
        raise TraceError(
            f"run {run!r} promises {name}, which is none of {', '.join(PROMISES)}: choose one with "
            "--promises, or audit it with the version of ordercast that wrote it."
        )
    return PROMISES[name]
