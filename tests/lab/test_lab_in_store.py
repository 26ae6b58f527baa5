"""The laboratory with everything in a store: as it does here, over an S3 server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ordercast.cli import app
from ordercast.lab.experiment import Claim, Experiment, Table
from ordercast.lab.frames import Frames
from ordercast.lab.grid import LabError, runs_of
from ordercast.lab.laboratory import Laboratory
from ordercast.lab.runner import do_task
from ordercast.lab.store import Store, Task
from ordercast.storage import Location
from ordercast.trace.reader import read_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = runs_of({"protocol": ["cm", "dtp"], "nodes": [2, 3]}, messages=20, rate=200)


def claims(frames: Frames) -> list[Claim]:
    points = len(frames.mean(["protocol", "nodes"], ["overhead"]))
    return [Claim(says="All of them", where="", measured=f"{points} points", holds=points == len(RUNS))]


MINE = Experiment(
    name="mine",
    title="Mine",
    grid=lambda quick: RUNS,
    claims=claims,
    tables=lambda frames: [Table(title="Notes", columns=("note",), rows=[(note,) for note in frames.notes])],
)


@pytest.fixture
def directory(store: str, tmp_path: Path) -> str:
    return store.format(f"lab/{tmp_path.name}")


def test_runs_are_carried_out_go_on_and_are_reported(spark: SparkSession, directory: str) -> None:
    left = Store(directory)
    do_task(left, Task((RUNS[1],), 1.0), round_="killed")  # by a driver that committed nothing
    lab = Laboratory(MINE, directory)
    carried = lab.run(spark, traces=True)
    assert (carried.asked, carried.earlier, carried.failed) == (4, 1, {})
    assert Laboratory(MINE, directory).pending() == []
    reported = lab.report(spark)
    assert [claim.holds for claim in reported.claims] == [True]
    page = (Location.of(directory) / "report.html").read().decode()
    assert "4 points" in page
    assert "secret" not in page
    assert {name for name, _ in read_runs(lab.store.traces)} == {run.id for run in RUNS} - {RUNS[1].id}
    lab.store.clear()
    assert len(Laboratory(MINE, directory).pending()) == len(RUNS)


def test_what_is_written_to_a_store_is_there_whole_or_not_at_all(directory: str) -> None:
    """A process that is killed while it writes leaves nothing: there is no half result."""
    store = Store(directory)
    file = (store.results / "half-round.parquet").create()
    file.write(b"PAR1" + bytes(2**20))
    assert store.done() == {}
    assert store.results.names() == set()
    file.close()
    assert store.results.names() == {"half-round.parquet"}
    assert store.done() == {}, "what nobody committed and cannot be read is done again"


def test_a_report_of_what_is_not_in_a_store_is_refused_and_no_secret_told(directory: str) -> None:
    told = CliRunner().invoke(app, ["lab", "report", directory])
    assert told.exit_code != 0
    with pytest.raises(LabError, match="holds no results") as refused:
        Laboratory.reopen(directory)
    assert isinstance(told.exception, LabError | SystemExit)
    assert "secret" not in f"{refused.value} {told.output} {told.exception}"
