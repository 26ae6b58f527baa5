"""Fuzzes blocks of seeds over Spark, and makes seeds that failed smaller.

Each block is one partition of ``spark.range``: a task is told its number, and works out its seeds. It writes
the block's file and answers with next to nothing, so that the driver holds no result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ordercast.catalogue import fuzzed_protocol
from ordercast.lab.campaign.blocks import Block, Stage, Work
from ordercast.lab.campaign.table import CampaignStore, Smaller
from ordercast.lab.on_spark import ATTEMPTS, meanwhile, spark_gave_up
from ordercast.lab.store import code_version
from ordercast.sim.campaign import Campaign, Failure, SeedResult, failure_of, run_seed
from ordercast.sim.shrink import shrink
from ordercast.storage import Location

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

DIED = "died"
"""What is said instead of a property where a seed ends its process every time,"""
RAISED = "fuzzer"
"""and where the fuzzer itself raises."""


class Failed(NamedTuple):
    """A seed that failed."""

    protocol: str
    nodes: tuple[int, int]
    round: int
    seed: int
    near: int | None
    property: str
    """The property that was broken: a smaller case has to break it, too."""


Watch = Callable[[int], None]
"""Told, while seeds are fuzzed, of how many there are results."""


def fuzz(spark: SparkSession, store: CampaignStore, work: Work, watch: Watch = lambda seeds: None) -> None:
    """Fuzz all seeds of `work`. Raises `LabError` if Spark fails; what was done until then is kept."""
    tasks = work.blocks
    if not tasks:
        return
    before = {entry.location for entry in store.files()}

    def look() -> None:
        watch(sum(len(file.seeds) for file in store.files() if file.location not in before))

    _on_spark(spark, store, partial(_do_block, store.directory.uri, work), tasks, look)


def make_smaller(spark: SparkSession, store: CampaignStore, failed: Sequence[Failed]) -> None:
    """Make seeds that failed smaller, a task each."""
    if failed:
        work = partial(_do_smaller, store.directory.uri, tuple(failed))
        _on_spark(spark, store, work, len(failed), lambda: None)


def _on_spark(
    spark: SparkSession,
    store: CampaignStore,
    do: Callable[[int, int], None],
    tasks: int,
    look: Callable[[], None],
) -> None:
    """Have ``do(task, attempt)`` done for each task."""

    def run() -> None:
        with spark_gave_up(store.directory):
            spark.range(0, tasks, 1, tasks).mapInArrow(partial(_each, do), "done long").toArrow()

    meanwhile(run, look, store.directory)


def _each(do: Callable[[int, int], None], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else 0
    for batch in batches:
        tasks = batch.column(0).to_pylist()
        for task in tasks:
            do(task, attempt)
        yield pa.RecordBatch.from_pydict({"done": tasks})


# --- a block --------------------------------------------------------------------------------------


def _do_block(directory: str, work: Work, task: int, attempt: int) -> None:
    store, block = CampaignStore(directory), work.block(task)
    if attempt and store.file_of(block).is_file():  # the answer was lost, not the work
        return
    do_block(store, block, attempt)


def do_block(store: CampaignStore, block: Block, attempt: int = 0) -> None:
    """Fuzz the seeds of a block and keep what came of them.

    The first attempt leaves no marks. Later ones say which seed they have come to; a seed at which all of
    them ended is taken for the one that ends its process, and the last attempt passes it over.
    """
    stage, seeds = block
    marks = [store.begun / f"{store.file_of(block).stem}-{each}" for each in range(1, attempt + 1)]
    ended_at = {_seed_in(mark) for mark in marks[:-1]}
    killer = ended_at.pop() if attempt == ATTEMPTS - 1 and len(ended_at) == 1 else None
    campaign = Campaign(protocol=stage.protocol, nodes=stage.nodes, seeds=seeds)
    rows = []
    for seed in seeds:
        near = stage.near_of(seed)
        if seed == killer:
            sentence = f"its process died, {attempt - 1} times: for want of memory?"
            rows.append(_row(campaign, stage, seed, None, Failure(seed, DIED, sentence)))
            continue
        if marks:
            marks[-1].put(str(seed).encode())
        try:
            done = run_seed(campaign, fuzzed_protocol, seed, near)
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to this seed, and is told with it
            failure = Failure(seed, RAISED, f"the fuzzer raised {type(error).__name__}: {error}")
            rows.append(_row(campaign, stage, seed, None, failure))
        else:
            rows.append(_row(campaign, stage, seed, done, failure_of(done.result)))
    store.write(block, rows)
    for mark in marks:
        mark.remove()


def _seed_in(mark: Location) -> int | None:
    return int(mark.read()) if mark.is_file() else None


def _row(
    campaign: Campaign, stage: Stage, seed: int, done: SeedResult | None, failure: Failure | None
) -> dict[str, Any]:
    near = stage.near_of(seed)
    row: dict[str, Any] = {
        "protocol": stage.protocol,
        "round": stage.round,
        "seed": seed,
        "near": near,
        "property": None if failure is None else failure.property,
        "sentence": None if failure is None else failure.sentence,
        "replay": None if failure is None else campaign.replay(seed, near=near),
        "code": code_version(),
    }
    if done is None:
        return row | {"broken": [row["property"]], "converged": True, "faults": [], "coverage": []}
    result = done.result
    return row | {
        "nodes": done.nodes,
        "broken": sorted(result.violations),
        "converged": result.converged,
        "events": result.events,
        "receptions": result.receptions,
        "rows": result.rows,
        "cpu_s": done.cpu_s,
        "faults": list(done.faults),
        "coverage": sorted(result.coverage.items()),
    }


# --- a seed that failed ---------------------------------------------------------------------------


def _do_smaller(directory: str, all_of_them: Sequence[Failed], task: int, attempt: int) -> None:
    failed = all_of_them[task]
    found = shrink(
        fuzzed_protocol(failed.protocol), failed.seed, failed.nodes, failed.property, near=failed.near
    )
    campaign = Campaign(protocol=failed.protocol, nodes=failed.nodes, seeds=range(0))
    smaller = Smaller(
        protocol=failed.protocol,
        round=failed.round,
        seed=failed.seed,
        property=found.property,
        replay=campaign.replay(failed.seed, found.cuts, failed.near),
        runs=found.runs,
    )
    CampaignStore(directory).keep(smaller)
