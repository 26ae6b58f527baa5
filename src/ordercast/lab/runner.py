"""Carries out the runs of a grid over Spark, each once, and goes on where an earlier attempt ended.

Every task is one partition of ``spark.range`` and carries out its runs one after the other; it writes its own
file of results and answers with one row. A run that raises is written down as failed, with what it raised,
and the others go on. A run whose process dies (for want of memory, say) is tried again by Spark; if it kills
its process every time, the last attempt writes it down as failed instead of carrying it out.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.lab.grid import LabError, Run, method_of
from ordercast.lab.packing import pack
from ordercast.lab.store import Done, Store, Task, row_of
from ordercast.trace.writer import TraceWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ATTEMPTS = 4
"""Attempts that Spark makes at a task, on a cluster as on this machine."""
POLL_S = 0.5

ANSWER = "task string, runs bigint, failed bigint, took_s double"

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
    done = store.done()
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
    wanted = missing(store, runs)
    for mark in store.results.glob("*.begun"):  # of an earlier attempt that was killed as a whole
        mark.unlink()
    if wanted:
        tasks = pack(wanted, _cost, spark.sparkContext.defaultParallelism)
        work = partial(_on_spark, spark, store.directory, tasks, traces)
        _require_files(store, _followed(store, tasks, watch, work))
    done = store.done()
    failed = {run.id: done[run.id].error or "" for run in runs if _failed(done.get(run.id))}
    return Carried(len(runs), len(runs) - len(wanted), failed, time.perf_counter() - began)


def _failed(done: Done | None) -> bool:
    return done is not None and done.error is not None


def _cost(run: Run) -> float:
    return method_of(run).cost(run)


def _on_spark(spark: SparkSession, directory: Path, tasks: Sequence[Task], traces: bool) -> list[str]:
    """Have Spark do it; the tasks that answered."""
    from pyspark.errors import PySparkException

    count = len(tasks)
    work = _worker(str(directory.absolute()), list(tasks), traces)
    try:
        rows = spark.range(0, count, 1, count).mapInArrow(work, ANSWER).collect()
    except PySparkException as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise LabError(
            f"Spark gave up: {lines[0] if lines else error}. What was done is kept in {directory}: "
            "the same command goes on from there"
        ) from error
    return [row["task"] for row in rows]


def _worker(
    directory: str, tasks: list[Task], traces: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        for batch in batches:
            for index in batch.column(0).to_pylist():
                answer = do_task(Store(Path(directory)), tasks[index], attempt, traces)
                yield pa.RecordBatch.from_pylist([answer])

    return work


def do_task(store: Store, task: Task, attempt: int = 0, traces: bool = False) -> dict[str, object]:
    """Carry out the runs of one task and keep what came of them; the answer tells of it."""
    began = time.perf_counter()
    store.prepare()
    if attempt and store.path_of(task.id).exists():  # the answer was lost, not the work
        return {"task": task.id, "runs": len(task.runs), "failed": 0, "took_s": 0.0}
    rows = []
    for run in task.runs:
        with _marked(store, run, attempt) as deaths:
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
    store.write(task.id, rows)
    failed = sum(row["error"] is not None for row in rows)
    took_s = time.perf_counter() - began
    return {"task": task.id, "runs": len(rows), "failed": failed, "took_s": took_s}


def _trace(store: Store, run: Run) -> TraceWriter:
    heading = LAB_PROTOCOLS[run.protocol].heading
    return TraceWriter(store.traces, run.id, heading)


@contextmanager
def _marked(store: Store, run: Run, attempt: int) -> Iterator[int]:
    """A mark stays behind where the process dies; yields how many earlier attempts left one."""
    marks = sorted(store.results.glob(f"{run.id}.*.begun")) if attempt else []
    mark = store.results / f"{run.id}.{attempt}.begun"
    mark.touch()
    yield len(marks)
    for each in (*marks, mark):
        each.unlink(missing_ok=True)


def _require_files(store: Store, tasks: Sequence[str]) -> None:
    """Who carries runs out on another machine has to write where everybody reads."""
    lost = [task for task in tasks if not store.path_of(task).exists()]
    if lost:
        raise LabError(
            f"{len(lost)} tasks were done and their results are not in {store.results}: the executors "
            "write on other machines; give --output a directory that all of them share"
        )


def _followed(store: Store, tasks: Sequence[Task], watch: Watch, work: Callable[[], list[str]]) -> list[str]:
    """Do the work in a thread, and look now and then which tasks have left their results.

    An interrupt comes to this thread, which is not the one that talks to Spark: it can be heard at once.
    """
    left = {store.path_of(task.id): task for task in tasks}
    runs, cost = 0, 0.0
    with ThreadPoolExecutor(1, "ordercast-lab") as pool:
        job = pool.submit(work)
        while not wait([job], POLL_S).done:
            for path in [path for path in left if path.exists()]:
                task = left.pop(path)
                runs, cost = runs + len(task.runs), cost + task.cost
            watch(runs, cost)
        return job.result()
