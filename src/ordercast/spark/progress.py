"""A progress bar for work on Spark: tasks done of the stages that are known so far."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ordercast.spark.sessions import over_connect

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

POLL_S = 0.25


@contextmanager
def watched(spark: SparkSession, what: str, console: Console | None = None) -> Iterator[None]:
    """Show how far the jobs get that this thread starts inside; on a terminal only, on stderr, and not over
    Spark Connect, which does not tell."""
    console = console or Console(stderr=True, highlight=False)
    if not console.is_terminal or over_connect(spark):
        yield
        return
    group = f"ordercast {what}"
    spark.sparkContext.setJobGroup(group, what)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    over = threading.Event()
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(what, total=None)
        tasks = _Tasks(spark.sparkContext.statusTracker(), group)

        def follow() -> None:
            while not over.wait(POLL_S):
                done, known = tasks.count()
                progress.update(bar, completed=done, total=known or None)

        follower = threading.Thread(target=follow, name="ordercast-progress", daemon=True)
        follower.start()
        try:
            yield
        finally:
            over.set()
            follower.join()
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


class _Tasks:
    """Tasks of a job group: Spark forgets stages that ended, so the counts are kept here."""

    def __init__(self, tracker: StatusTracker, group: str) -> None:
        self._tracker = tracker
        self._group = group
        self._stages: dict[int, tuple[int, int]] = {}

    def count(self) -> tuple[int, int]:
        """How many are done, of how many."""
        for job in self._tracker.getJobIdsForGroup(self._group):
            told = self._tracker.getJobInfo(job)
            for stage in told.stageIds if told is not None else ():
                info = self._tracker.getStageInfo(stage)
                if info is not None:
                    self._stages[stage] = (info.numCompletedTasks, info.numTasks)
        return sum(done for done, _ in self._stages.values()), sum(
            known for _, known in self._stages.values()
        )
