"""Micro-batches of the source in a table: each row once, whatever is landed again, and whoever dies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from log_files import Writer, configuration

from ordercast.lake import LakeError, Landing
from ordercast.lake import landing as module
from ordercast.lake.delta import DeltaFiles, delta_place
from ordercast.log import Position
from ordercast.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log of two configurations, with the numbers from 0 to 119 in packets of ten."""
    log = Writer(tmp_path_factory.mktemp("landed") / "log", 1)
    log.install(configuration(4, 1, 1, 2, 3)).packets(10)
    return log.install(configuration(8, 1, 1, 2)).packets(2, 100).done()


@pytest.fixture(params=["here", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "here":
        return Location.of(tmp_path / "a table")
    return Location.of(request.getfixturevalue("store").format(f"{tmp_path.name}/table"))


def read(spark: SparkSession, nodes: str, begin: str = "earliest", end: str = "latest") -> DataFrame:
    told = {"nodes": nodes, "startingPosition": begin, "endingPosition": end}
    return spark.read.format("ordercast").options(**told).load()


def numbers(table: pa.Table) -> list[int]:
    """The messages of a table, in their order."""
    rows = table.sort_by([("position", "ascending")]) if table.num_rows else table
    return [int(each) for each in rows.column("payload").to_pylist() if each is not None]


def landed(where: Location) -> pa.Table:
    last = Landing(where).position
    assert last is not None
    return Landing(where).as_of(last)


def test_what_is_landed_again_is_there_once(spark: SparkSession, nodes: str, place: Location) -> None:
    landing = Landing(place)
    assert landing.position is None
    first = landing.land(read(spark, nodes, end="4.1/5/9"))
    assert first is not None
    assert (str(first.first), str(first.last), first.rows) == ("4.1/0/0", "4.1/5/9", 51)
    assert landing.land(read(spark, nodes, end="4.1/5/9")) is None
    assert Landing(place).land(read(spark, nodes, "4.1/2/3", "4.1/4/0")) is None
    more = Landing(place).land(read(spark, nodes, "4.1/3/9"))
    assert more is not None
    assert (str(more.first), str(more.last), more.rows) == ("4.1/6/0", "8.1/2/9", 71)
    assert numbers(landed(place)) == list(range(120))
    assert [str(each) for each in Landing(place).span or ()] == ["4.1/0/0", "8.1/2/9"]


def test_a_commit_says_which_positions_it_adds(spark: SparkSession, nodes: str, tmp_path: Path) -> None:
    landing = Landing(tmp_path / "table")
    landing.land(read(spark, nodes, end="4.1/5/9"))
    landing.land(read(spark, nodes))
    told = [commit for commit in DeltaTable(tmp_path / "table").history() if "ordercast.to" in commit]
    assert [(commit["ordercast.from"], commit["ordercast.to"]) for commit in told] == [
        ("4.1/6/0", "8.1/2/9"),
        ("4.1/0/0", "4.1/5/9"),
    ]


def test_the_table_as_of_a_position(spark: SparkSession, nodes: str, place: Location) -> None:
    landing = Landing(place)
    landing.land(read(spark, nodes, end="4.1/7/9"))
    assert numbers(landing.as_of("4.1/3/4")) == list(range(25))
    assert numbers(landing.as_of("4.1/0/0")) == []
    with pytest.raises(LakeError, match=r"holds the order up to 4.1/7/9: it was never as of 8.1/0/0"):
        landing.as_of(Position.parse("8.1/0/0"))
    landing.land(read(spark, nodes))
    assert numbers(landing.as_of("4.1/7/9")) == list(range(70))
    assert numbers(landing.as_of("8.1/1/0")) == list(range(101))


def test_a_stream_without_its_checkpoint_lands_nothing_twice(
    spark: SparkSession, nodes: str, tmp_path: Path
) -> None:
    def run(checkpoint: str, start: str = "earliest") -> None:
        source = spark.readStream.format("ordercast").options(
            nodes=nodes, maxRowsPerTrigger=17, startingPosition=start
        )
        query = (
            source.load().select("position", "payload").writeStream.foreachBatch(Landing(tmp_path / "table"))
        )
        query = query.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True)
        query.start().awaitTermination()

    run("first")
    before = DeltaTable(tmp_path / "table").version()
    run("second")
    assert numbers(landed(Location.of(tmp_path / "table"))) == list(range(120))
    assert DeltaTable(tmp_path / "table").version() == before
    run("third", str(Landing(tmp_path / "table").position))
    assert DeltaTable(tmp_path / "table").version() == before


def test_of_two_that_land_the_same_one_does(
    spark: SparkSession, nodes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first has written its files and not committed them, another lands half of the rows."""
    where = tmp_path / "table"
    commit = DeltaFiles.commit
    interrupted: list[bool] = []

    def late(self: DeltaFiles, plan: Any) -> bool:
        if not interrupted:
            interrupted.append(True)
            Landing(where).land(read(spark, nodes, end="4.1/5/9"))
        return commit(self, plan)

    monkeypatch.setattr(DeltaFiles, "commit", late)
    done = Landing(where).land(read(spark, nodes))
    assert done is not None
    assert (str(done.first), done.rows) == ("4.1/6/0", 71)
    assert numbers(landed(Location.of(where))) == list(range(120))
    named = {Path(uri).name for uri in DeltaTable(where).file_uris()}
    assert {path.name for path in where.glob("*.parquet")} == named


class Killed(BaseException):
    """Stands for SIGKILL: nothing is tidied up."""


def test_a_driver_that_is_killed_leaves_no_half_batch(
    spark: SparkSession, nodes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(tmp_path / "table")
    landing.land(read(spark, nodes, end="4.1/5/9"))
    with monkeypatch.context() as patch:
        patch.setattr(DeltaFiles, "commit", lambda *_: (_ for _ in ()).throw(Killed))
        patch.setattr(DeltaFiles, "remove", lambda *_: None)
        with pytest.raises(Killed):
            landing.land(read(spark, nodes))
    assert numbers(landed(Location.of(tmp_path / "table"))) == list(range(50))
    landing.land(read(spark, nodes))
    assert numbers(landed(Location.of(tmp_path / "table"))) == list(range(120))


def test_a_table_whose_log_says_nothing_any_more(
    spark: SparkSession, nodes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(tmp_path / "table")
    landing.land(read(spark, nodes, end="4.1/5/9"))
    told = landing.span
    monkeypatch.setattr(DeltaFiles, "commits", lambda *_: iter(()))
    assert landing.span == told
    assert landing.land(read(spark, nodes, end="4.1/5/9")) is None


def test_tasks_write_files_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [
        pa.RecordBatch.from_pydict(
            {"position": [{"configuration": 4, "representative": 1, "seq": at, "slot": 0}], "n": [at]}
        )
        for at in range(1, 6)
    ]
    monkeypatch.setattr(module, "ROWS_A_FILE", 2)
    found = [
        row
        for out in module._files(Location.of(tmp_path), Position(4, 1, 1, 0), batches)
        for row in out.to_pylist()
    ]
    assert [(row["rows"], row["least"], row["first"], row["last"]) for row in found] == [
        (2, "4.1/1/0", "4.1/2/0", "4.1/3/0"),
        (2, "4.1/1/0", "4.1/4/0", "4.1/5/0"),
    ]


def test_mistakes_are_explained(spark: SparkSession, nodes: str, tmp_path: Path) -> None:
    where = tmp_path / "table"
    landing = Landing(where)
    with pytest.raises(LakeError, match=r"needs the column position of the source"):
        landing.land(read(spark, nodes).select("payload"))
    landing.land(read(spark, nodes, "4.1/5/9").select("position", "payload"))
    with pytest.raises(LakeError, match=r"begins at 4.1/0/0, and .* at 4.1/6/0"):
        landing.land(read(spark, nodes).select("position", "payload"))
    with pytest.raises(LakeError, match=r"has the columns position struct.*, payload binary, and the batch"):
        landing.land(read(spark, nodes))
    assert delta_place(Location.of(where))[0] == str(where)
    with pytest.raises(LakeError, match=r"is empty: it was never as of 4.1/0/0"):
        Landing(tmp_path / "none").as_of("4.1/0/0")
