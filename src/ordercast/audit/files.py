"""The audit of a trace on disk: every run in it by what the protocol that wrote it promises."""

from __future__ import annotations

from collections.abc import Iterator

from ordercast.audit.explain import Report, merge
from ordercast.audit.findings import Findings
from ordercast.audit.properties import PROMISES, Promises, audit, promised
from ordercast.storage import Where
from ordercast.trace.contents import Contents, contents_of
from ordercast.trace.reader import runs_in
from ordercast.trace.schema import ONE_CLOCK, About, Row, TraceError
from ordercast.trace.trimmed import common_part

MOST_OF_A_RUN = 2_000_000
"""Rows of a run that the reference is given here: it holds them all, which takes about 1.8 GB."""

MOST_HERE = 4_000_000
"""Rows of all runs together: that many take the reference some ten seconds, as Spark takes to start and to
make its first plans."""


def fits_here(contents: Contents) -> bool:
    """Whether the reference is the quicker one for a trace of this size, and can hold each of its runs."""
    rows = contents.rows.values()
    return max(rows, default=0) <= MOST_OF_A_RUN and sum(rows) <= MOST_HERE


def audit_trace(path: Where, checks: Promises | None = None, *, trimmed: bool = False) -> Report:
    """Check every run of a trace by itself, and add up. Raises `TraceError` if it cannot be read.

    Without `checks` a run is judged by the set that its files name, or by what is found in it where they name
    none. Of a `trimmed` trace that part is judged which all nodes still have.
    """
    return merge(findings.report for findings in audited_runs(path, checks, trimmed=trimmed))


def audited_runs(
    path: Where, checks: Promises | None = None, *, trimmed: bool = False, shown: bool = False
) -> Iterator[Findings]:
    """Check the runs of a trace one by one; with `shown`, each with the rows that its page shows."""
    return audited(contents_of(path), checks, trimmed=trimmed, shown=shown)


def audited(
    contents: Contents, checks: Promises | None = None, *, trimmed: bool = False, shown: bool = False
) -> Iterator[Findings]:
    """Check the runs, one by one, of a trace whose files have been looked at."""
    about = contents.about()
    for run, rows in runs_in(contents):
        yield judged(run, rows, about.get(run, {}), checks, trimmed=trimmed, shown=shown)


def judged(
    run: str, rows: list[Row], about: About, checks: Promises | None, *, trimmed: bool, shown: bool
) -> Findings:
    """What the reference finds in one run, whose files say `about` of it."""
    its = checks or promises_by_name(run, about) or promised(rows)
    rows = common_part(rows) if trimmed else rows
    report = audit(rows, None, its, whole=not trimmed, one_clock=has_one_clock(about))
    return Findings.of(run, report, rows, shown=shown)


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
