"""Carries out the runs of a grid over Spark, each once, and goes on where an earlier attempt ended.

Every task is one partition of ``spark.range`` and carries out its runs one after the other; it writes its own
file of results, and answers with what the driver has to know of each run and commits at the end. A run that
raises is written down as failed, with what it raised, and the others go on. A run whose process dies (for
want of memory, say) is tried again by Spark; if it kills its process every time, the last attempt writes it
down as failed instead of carrying it out.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.lab.grid import LabError, Run, method_of
from ordercast.lab.on_spark import ATTEMPTS, meanwhile, spark_gave_up
from ordercast.lab.packing import pack
from ordercast.lab.store import COMMITTED, Done, Store, Task, new_round, row_of, rows_in
from ordercast.spark.sessions import processors_of
from ordercast.trace.writer import TraceWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ANSWER = "run string, file string, code string, error string, took_s double, notes array<string>"
"""As `ordercast.lab.store.COMMITTED` has it."""

Answer: TypeAlias = dict[str, Any]

Watch = Callable[[int, float], None]
"""Told, while runs are carried out: how many are done, and what they were expected to cost."""


class Carried(NamedTuple):
    """What became of the runs of a grid."""

    asked: int
    earlier: int
    """Runs that had been carried out before."""
    failed: dict[str, str]
    """By run, what it raised."""
    took_s: float


def missing(store: Store, runs: Sequence[Run]) -> list[Run]:
    """The runs of which there is no result yet; one that failed counts as missing."""
    return _missing(store.done(), runs)


def _missing(done: Mapping[str, Done], runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.id not in done or done[run.id].error is not None]


def carry_out(
    spark: SparkSession,
    store: Store,
    runs: Sequence[Run],
    *,
    traces: bool = False,
    watch: Watch = lambda runs, cost: None,
) -> Carried:
    """Carry out those of the runs that are missing, and say what became of all."""
    began = time.perf_counter()
    store.prepare()
    wanted = _missing(store.settle(), runs)
    if wanted:
        round_ = new_round()
        tasks = pack(wanted, _cost, processors_of(spark))
        work = partial(_on_spark, spark, store, round_, tasks, traces)
        answers = _followed(store, round_, tasks, watch, work)
        _require_files(store, answers)
        store.commit(round_, answers)
    done = store.done()
    failed = {run.id: done[run.id].error or "" for run in runs if _failed(done.get(run.id))}
    return Carried(len(runs), len(runs) - len(wanted), failed, time.perf_counter() - began)


def _failed(done: Done | None) -> bool:
    return done is not None and done.error is not None


def _cost(run: Run) -> float:
    return method_of(run).cost(run)


def _on_spark(
    spark: SparkSession, store: Store, round_: str, tasks: Sequence[Task], traces: bool
) -> list[Answer]:
    """Have Spark do it; what came of the runs."""
    count = len(tasks)
    work = _worker(store.directory.uri, round_, list(tasks), traces)
    with spark_gave_up(store.directory):
        answers = spark.range(0, count, 1, count).mapInArrow(work, ANSWER).toArrow()
    found: list[Answer] = answers.to_pylist()
    return found


def _worker(
    directory: str, round_: str, tasks: list[Task], traces: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        for batch in batches:
            for index in batch.column(0).to_pylist():
                answers = do_task(Store(directory), tasks[index], attempt, traces, round_)
                yield pa.RecordBatch.from_pylist(answers, schema=COMMITTED)

    return work


def do_task(
    store: Store, task: Task, attempt: int = 0, traces: bool = False, round_: str = "alone"
) -> list[Answer]:
    """Carry out the runs of one task and keep what came of them; the answer tells of each."""
    store.prepare()
    file = store.file_of(task.id, round_)
    if attempt and file.is_file():  # the answer was lost, not the work
        return [{**row, "file": file.name} for row in rows_in(file)]
    rows = []
    for run in task.runs:
        with _marked(store, run, round_, attempt) as deaths:
            started = time.perf_counter()
            if deaths >= ATTEMPTS - 1:
                error: str | None = (
                    f"the process that carried it out died, {deaths} times: for want of memory?"
                )
                rows.append(row_of(run, None, error, 0.0))
                continue
            try:
                with _trace(store, run) if traces else nullcontext() as trace:
                    outcome, error = method_of(run).conduct(run, trace), None
            except Exception:  # noqa: BLE001 - whatever it is belongs to this run, and is told with it
                outcome, error = None, traceback.format_exc()
            rows.append(row_of(run, outcome, error, time.perf_counter() - started))
    store.write(task.id, round_, rows)
    return [{name: row.get(name, file.name) for name in COMMITTED.names} for row in rows]


def _trace(store: Store, run: Run) -> TraceWriter:
    heading = LAB_PROTOCOLS[run.protocol].heading
    return TraceWriter(store.traces, run.id, heading)


@contextmanager
def _marked(store: Store, run: Run, round_: str, attempt: int) -> Iterator[int]:
    """Yields how many earlier attempts at a run ended with the death of the process.

    The first attempt at a task leaves no mark: it costs nothing where nothing dies. So where it died is not
    known; a run at which every further attempt ended is taken for the one.
    """
    if not attempt:
        yield 0
        return
    marks = [store.begun / f"{run.id}-{round_}-{each}" for each in range(1, attempt + 1)]
    deaths = sum(mark.is_file() for mark in marks[:-1])
    marks[-1].put(b"begun")
    yield 1 + deaths if deaths == attempt - 1 else deaths
    for mark in marks:
        mark.remove()


def _require_files(store: Store, answers: Sequence[Answer]) -> None:
    """Who carries runs out on another machine has to write where everybody reads."""
    there = store.results.names()
    files = {answer["file"] for answer in answers}
    lost = [name for name in files - there if not (store.results / name).is_file()]
    if lost:
        raise LabError(
            f"{len(lost)} tasks were done and their results are not in {store.results}: the executors "
            "write on other machines; give --output a directory that all of them share, or the URI of a store"
        )


def _followed(
    store: Store, round_: str, tasks: Sequence[Task], watch: Watch, work: Callable[[], list[Answer]]
) -> list[Answer]:
    """Do the work, and look now and then which tasks have left their results."""
    left = {store.file_of(task.id, round_).name: task for task in tasks}
    runs, cost = 0, 0.0

    def look() -> None:
        nonlocal runs, cost
        for name in left.keys() & store.results.names():
            task = left.pop(name)
            runs, cost = runs + len(task.runs), cost + task.cost
        watch(runs, cost)

    return meanwhile(work, look, store.directory)
