"""Small runs: the reference judges them where tasks of Spark run, each as a whole and many in a task.

What the passes ask of every run, configuration by configuration, costs the driver more than the reference
takes for a small one. A task reads its runs from the files where they lie, and answers with their findings.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ordercast.audit.files import judged
from ordercast.audit.findings import Findings
from ordercast.audit.properties import Promises
from ordercast.spark.sessions import processors_of
from ordercast.trace.contents import Contents, Part
from ordercast.trace.reader import by_run, run_of, stored_table
from ordercast.trace.schema import About, TraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_RUN = 100_000
"""Rows up to which a run is judged as a whole: a second of a task."""

_FEWEST, _MOST = 20_000, 200_000
"""Rows of a task: enough to be worth one, and few enough to be held."""

_TASKS = 4
"""Tasks for each processor, if there are rows enough."""

_ANSWER = "findings binary, error string"


class _Task(NamedTuple):
    runs: Mapping[str, About]
    """The runs, and what their files say of each."""
    parts: list[tuple[Part, tuple[int, ...]]]
    """The files that have rows of them, and which row groups of each do."""


def in_tasks(
    spark: SparkSession,
    contents: Contents,
    runs: Set[str],
    checks: Promises | None,
    *,
    trimmed: bool,
    shown: bool,
) -> Iterator[Findings]:
    """What the reference finds in these runs, in any order. Raises `TraceError` if one cannot be read."""
    tasks = [pickle.dumps(task) for task in _tasks(contents, runs, processors_of(spark))]
    if not tasks:
        return
    work = partial(_work, tasks, checks, trimmed, shown)
    found = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(work, _ANSWER).toArrow()
    for error in found.column("error").drop_null().to_pylist():
        raise TraceError(error)
    for findings in found.column("findings"):
        each: Findings = pickle.loads(findings.as_py())
        yield each


def _tasks(contents: Contents, runs: Set[str], processors: int) -> Iterator[_Task]:
    """The runs, in the order of the trace, so that those that lie together are read together."""
    rows = contents.rows
    share = sum(rows[run] for run in runs) // (processors * _TASKS)
    most = min(_MOST, max(_FEWEST, share))
    about = contents.about()
    place = {part.file: at for at, part in enumerate(contents.parts)}

    def task_of(held: list[str]) -> _Task:
        files = sorted({place[part.file] for run in held for part in contents.runs[run]})
        parts = [contents.parts[at] for at in files]
        its = {run: about.get(run, {}) for run in held}
        return _Task(its, [(replace(part, groups=()), _groups(part, its)) for part in parts])

    held: list[str] = []
    size = 0
    for run in contents.runs:
        if run not in runs:
            continue
        if held and size + rows[run] > most:
            yield task_of(held)
            held, size = [], 0
        held.append(run)
        size += rows[run]
    if held:
        yield task_of(held)


def _groups(part: Part, runs: Mapping[str, About]) -> tuple[int, ...]:
    """The row groups with rows of these runs."""
    return tuple(at for at, group in enumerate(part.groups) if not runs.keys().isdisjoint(group))


def _work(
    tasks: list[bytes],
    checks: Promises | None,
    trimmed: bool,
    shown: bool,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for at in batch.column(0).to_pylist():
            task: _Task = pickle.loads(tasks[at])
            for findings, error in _judged(task, checks, trimmed, shown):
                told = None if findings is None else pickle.dumps(findings)
                yield pa.RecordBatch.from_pydict(
                    {"findings": pa.array([told], pa.binary()), "error": pa.array([error], pa.string())}
                )


def _judged(
    task: _Task, checks: Promises | None, trimmed: bool, shown: bool
) -> Iterator[tuple[Findings | None, str | None]]:
    """Each run's findings; or what is wrong with the files, which is so however often it is tried."""
    try:
        tables: dict[str, list[pa.Table]] = {run: [] for run in task.runs}
        for part, groups in task.parts:
            for run, table in by_run(stored_table(part, groups)):
                if run in tables:
                    tables[run].append(table)
        for run, about in task.runs.items():
            if tables[run]:
                rows = run_of(tables.pop(run))
                yield judged(run, rows, about, checks, trimmed=trimmed, shown=shown), None
    except TraceError as error:
        yield None, str(error)
