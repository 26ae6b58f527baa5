"""Runs over Spark: each once, whatever happens in between."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from ordercast.lab.experiment import Claim, Experiment, Figure, Table
from ordercast.lab.figures import lines
from ordercast.lab.frames import Frames
from ordercast.lab.grid import GridError, LabError, Run, runs_of
from ordercast.lab.laboratory import Laboratory
from ordercast.lab.on_spark import ATTEMPTS
from ordercast.lab.packing import pack
from ordercast.lab.runner import carry_out, do_task, missing
from ordercast.lab.store import Manifest, Store, Task, read_results
from ordercast.trace.reader import read_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = runs_of({"protocol": ["cm", "dtp"], "nodes": [2, 3], "seed": [0, 1]}, messages=20, rate=200)
TOO_LARGE = Run(protocol="cm", nodes=2, messages=5, size=2**30)
"""A run that raises: no machine takes such messages."""


def results(store: Store) -> dict[str, object]:
    """What came of each run, without how long it took and by which version of the program."""
    found: dict[str, object] = {}
    for file in {done.file for done in store.done().values()}:
        for row in read_results(file).to_pylist():
            del row["took_s"], row["code"]
            found[row["run"]] = row
    return found


def done_alone(directory: Path, runs: list[Run]) -> dict[str, object]:
    """The same runs, in this process, all in one task."""
    store = Store(directory)
    do_task(store, Task(tuple(runs), 1.0))
    return results(store)


@pytest.fixture(scope="module")
def finished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A directory in which all runs were carried out, in two rounds: so there are two files at least."""
    store = Store(tmp_path_factory.mktemp("finished"))
    carried = carry_out(spark, store, RUNS[:4])
    assert (carried.asked, carried.earlier, carried.failed) == (4, 0, {})
    carried = carry_out(spark, store, RUNS)
    assert (carried.asked, carried.earlier, carried.failed) == (8, 4, {})
    return store


def test_what_comes_of_runs_does_not_depend_on_how_they_are_packed(finished: Store, tmp_path: Path) -> None:
    assert results(finished) == done_alone(tmp_path, RUNS[::-1])


def test_a_second_time_nothing_is_done(spark: SparkSession, finished: Store) -> None:
    before = finished.results.names(), finished.commits.names()
    assert carry_out(spark, finished, RUNS).earlier == 8
    assert (finished.results.names(), finished.commits.names()) == before


def test_what_was_killed_in_the_middle_goes_on_with_what_is_missing(
    spark: SparkSession, finished: Store
) -> None:
    whole = results(finished)
    victim, *others = (entry.location for entry in finished.results.entries())
    for commit in finished.commits.entries():  # the driver was killed before it could write one,
        commit.location.remove()
    assert missing(finished, RUNS) == []
    victim.put(victim.read()[:1000])  # and a worker while it wrote to a store that shows what is half written
    assert others, "other tasks had ended"
    lost = len(missing(finished, RUNS))
    assert lost > 0
    carried = carry_out(spark, finished, RUNS)
    assert (carried.earlier, carried.failed) == (8 - lost, {})
    assert results(finished) == whole


def test_what_a_killed_round_left_is_committed_by_the_next(tmp_path: Path) -> None:
    store = Store(tmp_path)
    do_task(store, Task(tuple(RUNS[:2]), 1.0), round_="killed")
    before = store.done()
    assert store.settle() == before
    assert len(store.commits.names()) == 1
    assert store.settle() == store.done() == before
    assert len(store.commits.names()) == 1, "and it is so once"


def test_a_result_that_somebody_took_away_is_missing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    do_task(store, Task(tuple(RUNS[:2]), 1.0), round_="first")
    do_task(store, Task(tuple(RUNS[2:3]), 1.0), round_="first")
    store.settle()
    before = store.done()
    before[RUNS[2].id].file.remove()
    assert set(store.done()) == {run.id for run in RUNS[:2]}


def test_a_run_that_raises_is_told_and_does_not_stop_the_others(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(tmp_path)
    carried = carry_out(spark, store, [TOO_LARGE, *RUNS[:2]])
    assert set(carried.failed) == {TOO_LARGE.id}
    assert "send smaller ones" in carried.failed[TOO_LARGE.id]
    assert missing(store, [TOO_LARGE, *RUNS[:2]]) == [TOO_LARGE]


METHOD_MODULE = """
import os
from pathlib import Path
from ordercast.lab.grid import Method, Outcome, Run

def conduct(run, trace=None):
    left = Path(run.labels["marks"]) / str(run.seed)
    if run.seed == 1 or (run.seed == 0 and not left.exists()):
        left.touch()
        os._exit(1)                      # dies without a word, as for want of memory: 0 once, 1 every time
    return Outcome(figures={"value": float(run.seed)})

METHOD = Method(conduct, lambda run: 10.0)
"""


@pytest.fixture
def deadly(spark: SparkSession, tmp_path: Path) -> Iterator[list[Run]]:
    """Runs of which one kills its process once, one does so every time, and one never."""
    path = tmp_path / "deadly_method.py"
    path.write_text(METHOD_MODULE)
    marks = tmp_path / "marks"
    marks.mkdir()
    spark.sparkContext.addPyFile(str(path))
    yield [
        Run(
            protocol="cm",
            nodes=2,
            messages=1,
            seed=seed,
            method="deadly_method",
            labels={"marks": str(marks)},
        )
        for seed in range(3)
    ]
    sys.modules.pop("deadly_method", None)


def test_a_run_that_kills_its_process_is_tried_again_and_at_last_given_up(
    spark: SparkSession, deadly: list[Run], tmp_path: Path
) -> None:
    store = Store(tmp_path / "lab")
    carried = carry_out(spark, store, deadly)
    assert set(carried.failed) == {deadly[1].id}
    assert f"died, {ATTEMPTS - 1} times" in carried.failed[deadly[1].id]
    assert store.begun.names() == set()


def test_an_attempt_whose_answer_was_lost_does_not_do_the_work_again(tmp_path: Path) -> None:
    store, (task,) = Store(tmp_path), pack(RUNS[:2], lambda run: 0.1, 1)
    answers = do_task(store, task)
    (before,) = (read_results(entry.location) for entry in store.results.entries())
    assert do_task(store, task, attempt=1) == answers
    (after,) = (read_results(entry.location) for entry in store.results.entries())
    assert after == before, "with the time that it took then"


def test_traces_are_kept_if_they_are_asked_for(tmp_path: Path) -> None:
    store = Store(tmp_path)
    do_task(store, Task((RUNS[0],), 1.0), traces=True)
    ((name, rows),) = read_runs(store.traces)
    assert name == RUNS[0].id
    assert sum(row[4] == "submit" for row in rows) >= 20


# --- the laboratory as a whole -----------------------------------------------------------------


def claims(frames: Frames) -> list[Claim]:
    mean = frames.mean(["protocol", "nodes"], ["overhead"])
    return [
        Claim(
            says="An acknowledgement & a message",
            where="002 §5",
            measured=f"{len(mean)} points",
            holds=bool((mean["runs"] == 2).all()),
        ),
        Claim(says="The moon is cheese", where="nowhere", measured="no", holds=False, note="it is not"),
        Claim(says="Nobody looked", where="nowhere", measured="", holds=None),
    ]


def figures(frames: Frames) -> list[Figure]:
    mean = frames.mean(["protocol", "nodes"], ["delivery_us"])
    drawing = lines(mean, x="nodes", y="delivery_us", by="protocol", x_label="nodes", y_label="µs")
    return [Figure(name="delivery", title="Delivery", caption="Over nodes.", drawing=drawing)]


def tables(frames: Frames) -> list[Table]:
    density = frames.density(["protocol"], "agreed")
    width = density["to_us"] - density["from_us"]
    mass = (density["density"] * width).groupby(density["protocol"]).sum()
    return [
        Table(title="Mass", columns=("protocol", "mass"), rows=[(p, f"{m:.6f}") for p, m in mass.items()])
    ]


MINE = Experiment(
    name="mine",
    title="Mine < yours",
    grid=lambda quick: RUNS[:2] if quick else RUNS,
    claims=claims,
    figures=figures,
    tables=tables,
)


def test_the_report_stands_alone_and_has_every_claim_figure_and_table(
    spark: SparkSession, finished: Store
) -> None:
    lab = Laboratory(MINE, finished.directory)
    lab.run(spark)
    page = lab.report(spark).page.read().decode()
    for claim in claims_of(spark, lab):
        assert claim.says.replace("&", "&amp;") in page
    assert "✓ holds" in page
    assert "✗ does not hold" in page
    assert "– cannot be decided" in page
    assert "Mine &lt; yours" in page
    assert "data:image/png;base64," in page
    assert "http://" not in page
    assert (finished.directory / "figures" / "delivery.png").read().startswith(b"\x89PNG")
    assert page.count("1.000000") == 2  # a density is one in all, for both protocols


def claims_of(spark: SparkSession, lab: Laboratory) -> list[Claim]:
    return list(lab.report(spark).claims)


def test_the_manifest_says_what_the_directory_holds(spark: SparkSession, finished: Store) -> None:
    Laboratory(MINE, finished.directory).run(spark)
    manifest = finished.read_manifest()
    assert manifest is not None
    assert [run.id for run in manifest.runs] == [run.id for run in RUNS]
    assert set(manifest.files) == {done.file.name for done in finished.done().values()}


def test_a_changed_program_or_grid_is_told(tmp_path: Path) -> None:
    lab = Laboratory(MINE, tmp_path)
    done_alone(tmp_path, [*RUNS[:2], msgspec.structs.replace(RUNS[0], seed=99)])
    lab.store.write_manifest(manifest_of(lab))
    (told,) = lab.surprises()
    assert told.startswith("1 results in")
    assert "not in this grid" in told
    (entry,) = lab.store.results.entries()
    rows = [row | {"code": "old"} for row in read_results(entry.location).to_pylist()]
    entry.location.remove()
    lab.store.write("old", "round", rows)
    assert "2 runs were carried out by another version" in lab.surprises()[0]


def manifest_of(lab: Laboratory, name: str = "mine") -> Manifest:
    return Manifest(experiment=name, quick=False, runs=lab.runs)


def test_a_directory_of_another_experiment_is_refused(tmp_path: Path) -> None:
    lab = Laboratory(MINE, tmp_path)
    lab.store.prepare()
    lab.store.write_manifest(manifest_of(lab, "theirs"))
    with pytest.raises(LabError, match="results of theirs, not of mine"):
        lab.surprises()


def test_a_run_that_failed_can_be_repeated_alone_by_its_command(tmp_path: Path) -> None:
    lab = Laboratory(MINE, tmp_path, quick=True)
    words = lab.command(RUNS[0].id).split()
    assert words == ["ordercast", "lab", "run", "mine", "--quick", "--only", RUNS[0].id]
    run, outcome = lab.run_one(words[-1])
    assert (run, outcome.figures["measured"]) == (RUNS[0], 20)
    with pytest.raises(GridError, match="stands for 0 runs"):
        lab.run_one("xyz")
