"""The ordered log as Spark reads it: as a table, and as a stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from log_files import TIME_US, Writer, configuration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


def a_log(path: Path, node: int = 1) -> str:
    """300 messages to the ledger and 100 to another group; a change of the members; 600 more to the first."""
    log = Writer(path / str(node), node).install(configuration(4, 1, 1, 2, 3)).packets(30)
    log.packets(10, 5000, "gossip")
    return log.install(configuration(8, 1, 1, 2)).packets(60, 300).done()


def table(spark: SparkSession, nodes: str, **options: Any) -> DataFrame:
    return spark.read.format("ordercast").options(nodes=nodes, **options).load()


def streamed(
    spark: SparkSession, nodes: str, path: Path, name: str, **options: Any
) -> tuple[StreamingQuery, DataFrame]:
    """All there is now, as a stream: what came of it is in files."""
    query = (
        spark.readStream.format("ordercast")
        .options(nodes=nodes, **options)
        .load()
        .selectExpr("position", "kind", "cast(payload as string) payload")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(path / f"{name}-checkpoint"))
        .option("path", str(path / name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query, spark.read.parquet(str(path / name))


def numbers(frame: DataFrame) -> list[int]:
    rows = (
        frame.where("kind = 'message'").orderBy("position").selectExpr("cast(payload as string) n").collect()
    )
    return [int(row.n) for row in rows]


ALL = [*range(300), *range(5000, 5100), *range(300, 900)]


def test_a_table_has_every_entry_in_its_place(spark: SparkSession, tmp_path: Path) -> None:
    frame = table(spark, a_log(tmp_path))
    rows = frame.orderBy("position").collect()
    assert [int(row.payload) for row in rows if row.kind == "message"] == ALL
    changes = [(tuple(row.position), row.members) for row in rows if row.kind == "configuration"]
    assert changes == [((4, 1, 0, 0), [1, 2, 3]), ((8, 1, 0, 0), [1, 2])]
    message = rows[1]
    assert (tuple(message.position), message.sender, message.group) == ((4, 1, 1, 0), 2, "ledger")
    assert message.timestamp.timestamp() == TIME_US / 1_000_000
    assert (message.key, message.headers) == (None, None)


def test_of_one_group_there_are_its_messages_and_all_changes(spark: SparkSession, tmp_path: Path) -> None:
    frame = table(spark, a_log(tmp_path), group="gossip")
    assert numbers(frame) == list(range(5000, 5100))
    assert frame.where("kind = 'configuration'").count() == 2


def test_a_table_begins_after_a_position(spark: SparkSession, tmp_path: Path) -> None:
    frame = table(spark, a_log(tmp_path), startingPosition="8.1/59/9")
    assert numbers(frame) == list(range(890, 900))


def test_a_stream_has_each_entry_once_however_many_batches_it_takes(
    spark: SparkSession, tmp_path: Path
) -> None:
    query, found = streamed(spark, a_log(tmp_path), tmp_path, "all", maxRowsPerTrigger=350)
    assert numbers(found) == ALL
    assert [progress["numInputRows"] <= 350 for progress in query.recentProgress].count(True) >= 3


def test_a_query_that_is_started_again_goes_on_at_another_replica(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Offsets are positions in the total order: the replica that was read first is not needed any more."""
    first = Writer(tmp_path / "first", 1).install(configuration(4, 1, 1, 2)).packets(20).done()
    _, found = streamed(spark, first, tmp_path, "out")
    assert numbers(found) == list(range(200))
    second = Writer(tmp_path / "second", 2).install(configuration(4, 1, 1, 2)).packets(50).done()
    _, found = streamed(spark, f"{tmp_path / 'gone'},{second}", tmp_path, "out")
    assert numbers(found) == list(range(500))


def test_a_replica_that_split_away_is_not_read_on(spark: SparkSession, tmp_path: Path) -> None:
    ours = Writer(tmp_path / "ours", 1).install(configuration(4, 1, 1, 2)).packets(2)
    ours.install(configuration(12, 1, 1)).packets(2, 20)
    streamed(spark, ours.done(), tmp_path, "out")
    theirs = Writer(tmp_path / "theirs", 2).install(configuration(4, 1, 1, 2)).packets(2)
    theirs.install(configuration(8, 2, 2)).packets(2, 700).install(configuration(16, 1, 1, 2)).packets(2, 900)
    with pytest.raises(Exception, match="split away from the one that was read"):
        streamed(spark, theirs.done(), tmp_path, "out")


def trimmed(path: Path) -> str:
    log = Writer(path / "log", 1, most_bytes=4 * 1024 * 1024)
    return log.install(configuration(4, 1, 1)).packets(5).done()


def test_what_was_trimmed_ends_the_query_or_is_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    where = trimmed(tmp_path)
    streamed(spark, where, tmp_path, "out")
    log = Writer(tmp_path / "log", 1, most_bytes=4 * 1024 * 1024).install(configuration(8, 1, 1), gap=True)
    for turn in range(30):
        log.packets(10, 50 + turn * 100, size=2000)
    log.done()
    with pytest.raises(Exception, match="no longer kept by the replica of node 1"):
        streamed(spark, where, tmp_path, "out")
    _, found = streamed(spark, where, tmp_path, "out", failOnDataLoss="false")
    left = numbers(found)
    assert left[:50] == list(range(50))
    assert left[50:] == list(range(left[50], 3050))
    assert 50 < left[50] < 3000


def test_sql_names_a_log_and_filters_leave_blocks_of_it_out(spark: SparkSession, tmp_path: Path) -> None:
    where = a_log(tmp_path)
    spark.sql(
        f"CREATE TEMPORARY VIEW the_log USING ordercast OPTIONS (nodes '{where}', columns 'value,group')"
    )
    told = []
    for on in ("true", "false"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", on)
        found = spark.sql("SELECT min(`group`), count(*) FROM the_log WHERE `group` IN ('gossip', 'none')")
        told.append([tuple(row) for row in found.collect()])
    spark.sql("DROP VIEW the_log")
    assert told == [[("gossip", 100)]] * 2


def test_mistakes_are_explained(spark: SparkSession, tmp_path: Path) -> None:
    where = a_log(tmp_path)
    with pytest.raises(Exception, match=r"payload string is no column of ordercast: leave schema\(…\) out"):
        spark.read.format("ordercast").schema("payload string").option("nodes", where).load().collect()
    with pytest.raises(Exception, match="did you mean startingPosition"):
        table(spark, where, startPosition="earliest").collect()
    with pytest.raises(Exception, match="there is no ordered log in"):
        table(spark, str(tmp_path / "nothing")).collect()
