"""Spark and a living group: the replica that is read is killed, tasks fail, queries are started again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from live_nodes import Heard, LiveNodes

from ordercast.keys import create
from ordercast.threads import Group

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNodes]:
    with LiveNodes(tmp_path_factory.mktemp("live"), 3) as live:
        yield live


def send(group: Group, begin: int, count: int) -> None:
    group.send_many([b"%d" % number for number in range(begin, begin + count)])


# --- the sink -----------------------------------------------------------------------------------


def failing_at_first() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The first two attempts of a task fail, each after more rows than the one before."""

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # which goes to workers as it is
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for place, batch in enumerate(batches):
            if context.attemptNumber() < 2 and place == 2 + 3 * context.attemptNumber():
                time.sleep(0.5)  # its rows are on their way
                raise RuntimeError("this attempt fails")
            yield batch

    return fail


def numbered_files(spark: SparkSession, directory: Path, count: int, rows: int) -> DataFrame:
    """A stream of files, one a batch: the numbers from 0 on."""
    for file in range(count):
        lines = "\n".join(str(file * rows + row) for row in range(rows))
        (directory / f"{file}.txt").write_text(lines)
    return spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(directory))


def written(frame: DataFrame, live: LiveNodes, group: str, checkpoint: Path) -> StreamingQuery:
    return (
        frame.writeStream.format("ordercast")
        .option("nodes", live.nodes)
        .option("group", group)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def test_tasks_that_fail_and_queries_that_are_started_again_write_each_row_once(
    spark: SparkSession, live: LiveNodes, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 50)
    try:
        heard = Heard(live.member.join("sink"))
        (tmp_path / "in").mkdir()
        lines = numbered_files(spark, tmp_path / "in", count=3, rows=500)
        long_ones = lines.selectExpr("concat(value, ' ', repeat('x', 2000)) as payload")  # flow at once
        rows = long_ones.mapInArrow(failing_at_first(), "payload string")
        for wanted in (1, 600, 1500):
            query = written(rows, live, "sink", tmp_path / "checkpoint")
            until = time.monotonic() + 60
            while len(heard.messages) < wanted and time.monotonic() < until:
                assert query.exception() is None, query.exception()
                time.sleep(0.05)
            if wanted == 1500:
                query.processAllAvailable()
            query.stop()
        assert sorted(int(payload.split()[0]) for payload in heard.payloads) == list(range(1500))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_a_table_is_written_once(spark: SparkSession, live: LiveNodes) -> None:
    heard = Heard(live.member.join("table"))
    frame = spark.range(0, 1000, 1, 3).selectExpr("cast(id as string) payload")
    frame.write.format("ordercast").mode("append").options(nodes=live.nodes, group="table").save()
    heard.wait_for(1000)
    assert sorted(map(int, heard.payloads)) == list(range(1000))


def test_other_columns_than_a_payload_are_refused(spark: SparkSession, live: LiveNodes) -> None:
    with pytest.raises(
        Exception, match=r"a column, payload \(or value\), binary or string, .*this has id bigint"
    ):
        spark.range(3).write.format("ordercast").mode("append").options(nodes=live.nodes, group="g").save()


# --- the source ---------------------------------------------------------------------------------


def test_the_replica_that_is_read_is_killed_and_the_output_is_the_groups_order(
    spark: SparkSession, live: LiveNodes, tmp_path: Path
) -> None:
    group = live.member.join("ledger")
    heard = Heard(group)
    query = (
        spark.readStream.format("ordercast")
        .options(nodes=live.nodes, group="ledger", startingPosition="latest", maxRowsPerTrigger=3000)
        .load()
        .where("kind = 'message'")
        .selectExpr("position", "cast(payload as string) payload")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    while query.lastProgress is None:
        assert query.exception() is None, query.exception()
        time.sleep(0.05)
    send(group, 0, 20_000)
    while not any(progress["numInputRows"] for progress in query.recentProgress):
        assert query.exception() is None, query.exception()
        time.sleep(0.02)
    read, *_ = live.being_read()
    live.kill(read)
    send(group, 20_000, 5_000)
    heard.wait_for(25_000)
    until = time.monotonic() + 60
    while spark.read.parquet(str(tmp_path / "out")).count() < 25_000 and time.monotonic() < until:
        assert query.exception() is None, query.exception()
        time.sleep(0.2)
    query.stop()
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("position").collect()
    assert [row.payload.encode() for row in rows] == heard.payloads
    assert [tuple(row.position) for row in rows] == heard.positions


def test_rows_with_keys_go_to_several_groups_and_wrong_uses_are_told(
    spark: SparkSession, live: LiveNodes
) -> None:
    heard = {name: Heard(live.member.join(name)) for name in ("even", "odd")}
    frame = spark.range(0, 200, 1, 2).selectExpr(
        "cast(id as string) value",
        "if(id % 2 = 0, 'even', 'odd') topic",
        "if(id % 10 = 0, null, concat('k', id)) key",
        "map('about', 'a test') headers",
    )
    frame.write.format("ordercast").mode("append").options(nodes=live.nodes).save()
    for name, some in heard.items():
        some.wait_for(100)
        assert sorted(map(int, some.payloads)) == list(range(name == "odd", 200, 2))
        for message in some.messages:
            number = int(message.payload)
            assert message.key == (None if number % 10 == 0 else f"k{number}")
            assert message.headers["about"] == "a test"
            assert abs(time.time() - message.sent_us / 1e6) < 600
    told = {"nodes": live.nodes, "group": "even"}
    plain = frame.select("value")
    with pytest.raises(Exception, match=r"put them into one, as in df\.repartition\(1\)"):
        plain.write.format("ordercast").mode("append").options(**told, ordered="true").save()
    away = {"nodes": "127.0.0.1:9", "group": "even", "connectTimeout": "1"}
    with pytest.raises(Exception, match="no node that nodes names can be reached"):
        plain.write.format("ordercast").mode("append").options(**away).save()


# --- with a group key ---------------------------------------------------------------------------


def test_what_is_written_to_a_sealed_group_is_read_from_it_with_the_key_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    keys = [tmp_path / name for name in ("group.key", "other.key")]
    for key in keys:
        create(key)
    with LiveNodes(tmp_path, 2, keys[0]) as live:
        heard = Heard(live.member.join("sealed"))
        told = {"nodes": live.nodes, "group": "sealed"}
        frame = spark.range(0, 300, 1, 2).selectExpr("cast(id as string) payload")
        frame.write.format("ordercast").mode("append").options(**told, keyFile=str(keys[0])).save()
        heard.wait_for(300)
        log = spark.read.format("ordercast").options(**told, keyFile=str(keys[0])).load()
        found = log.where("kind = 'message'").orderBy("position").collect()
        assert [bytes(row.payload) for row in found] == heard.payloads
        assert sorted(map(int, heard.payloads)) == list(range(300))
        for wrong in ({"keyFile": str(keys[1])}, {}):
            with pytest.raises(Exception, match="key"):
                spark.read.format("ordercast").options(**told, **wrong).load().count()
