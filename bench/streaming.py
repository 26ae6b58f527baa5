"""The ordered log in Spark, measured and tried: how quick it is, and that nothing is lost or comes twice.

    .venv/bin/python bench/streaming.py [backlog] [latency] [failover] [sink] [--json]

- backlog: rows of 100 bytes, read over TCP from one node, by a query that drops them;
- latency: from a member's delivery of a message to a batch of the query that has it;
- failover: kill -9 of the replica being read, again and again while messages come; then the output is
  compared with what a member of the group delivered;
- sink: tasks that fail after some of their rows, and queries that are stopped and started again; then each
  row must have been delivered once.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ordercast import Message
from ordercast.core.addresses import address
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.core.percentiles import percentile
from ordercast.log.store import Delivered, Installed, Store
from ordercast.spark.sessions import spark_session

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "streaming"))
from live_nodes import Heard, LiveNodes

GROUP = "bench"


def stream(spark: SparkSession, nodes: str, **options: Any) -> DataFrame:
    """The log as a stream."""
    return spark.readStream.format("ordercast").options(nodes=nodes, **options).load()


# --- backlog ------------------------------------------------------------------------------------


def fill(path: Path, node: int, rows: int, size: int = 100, packet: int = 400) -> None:
    """The log of a node that has been alone for a while."""
    store = Store(path, node, most_bytes=8 * 2**30, sync=False)
    ring = ConfigurationId(1, node)
    store.append([Installed(1, Configuration(ring, Kind.REGULAR, (node,)), True)])
    front = address(0, [GROUP])
    payloads = [front + random.randbytes(size) for _ in range(packet)]
    now = time.time_ns() // 1000
    for begin in range(0, rows // packet, 100):
        seqs = range(begin + 1, begin + 101)
        store.append(
            [Delivered(now, Batch(ring, s, 0, node, 0, 1, Guarantee.AGREED, payloads)) for s in seqs]
        )
    store.close()


def backlog(spark: SparkSession, directory: Path, rows: int = 8_000_000) -> dict[str, Any]:
    """Rows a second of a table and of a stream that drop them."""
    fill(directory / "log-1", 1, rows)
    rates = []
    with LiveNodes(directory, 1) as live:
        table = spark.read.format("ordercast").options(nodes=live.nodes, group=GROUP).load()
        for _ in range(4):
            begun = time.monotonic()
            table.write.format("noop").mode("overwrite").save()
            rates.append(rows / (time.monotonic() - begun))
        begun = time.monotonic()
        query = stream(spark, live.nodes, group=GROUP).writeStream.format("noop").trigger(availableNow=True)
        query.start().awaitTermination()
        streamed = rows / (time.monotonic() - begun)
    return {
        "rows": rows,
        "table_rows_per_s": [round(rate) for rate in rates],
        "stream_rows_per_s": round(streamed),
        "holds": max(rates) >= 1_500_000,
    }


# --- latency ------------------------------------------------------------------------------------


def latency(spark: SparkSession, directory: Path, messages: int = 100) -> dict[str, Any]:
    """Milliseconds from a member's delivery to Spark's driver having the row."""
    with LiveNodes(directory, 3) as live:
        group = live.member.join(GROUP)
        delivered: dict[str, float] = {}
        seen: dict[str, float] = {}

        def listen() -> None:
            for event in group:
                if isinstance(event, Message):
                    delivered[event.payload.decode()] = time.time()

        def look(batch: DataFrame, _: int) -> None:
            rows = batch.collect()
            now = time.time()
            seen.update((row.payload, now) for row in rows)

        threading.Thread(target=listen, daemon=True).start()
        frame = stream(spark, live.nodes, group=GROUP, startingPosition="latest")
        frame = frame.where("kind = 'message'").selectExpr("cast(payload as string) payload")
        query = frame.writeStream.foreachBatch(look).start()
        while len(seen) < 5:  # warming up: what is sent before the query has begun is not for it
            assert query.exception() is None, query.exception()
            group.send(b"-1" if not seen else b"%d" % (-1 - len(seen)))
            time.sleep(0.5)
        chance = random.Random(1)
        for number in range(messages):
            group.send(b"%d" % number)
            time.sleep(chance.uniform(0.3, 0.8))
        until = time.monotonic() + 20
        while len(seen) < messages + 5 and time.monotonic() < until:
            time.sleep(0.1)
        query.stop()
    took = [1000 * (seen[name] - delivered[name]) for name in seen if int(name) >= 0]
    return {
        "messages": len(took),
        "median_ms": round(statistics.median(took)),
        "p95_ms": percentile(Counter(map(round, took)), 95),
        "holds": len(took) == messages and statistics.median(took) <= 500,
    }


# --- failover -----------------------------------------------------------------------------------


def failover(spark: SparkSession, directory: Path, kills: int = 20) -> dict[str, Any]:
    """The replica being read is killed, and comes back; the output is the group's order."""
    killed: list[int] = []
    with LiveNodes(directory, 3) as live:
        group = live.member.join(GROUP)
        heard = Heard(group)
        over = threading.Event()

        def send() -> None:
            number = 0
            while not over.is_set():
                group.send_many([b"%d" % each for each in range(number, number + 200)])
                number += 200
                time.sleep(0.05)

        frame = stream(spark, live.nodes, group=GROUP).where("kind = 'message'")
        query = (
            frame.selectExpr("position", "payload")
            .writeStream.format("parquet")
            .option("path", str(directory / "out"))
            .option("checkpointLocation", str(directory / "checkpoint"))
            .start()
        )
        sending = threading.Thread(target=send)
        sending.start()
        chance = random.Random(2)
        try:
            for _ in range(kills):
                time.sleep(chance.uniform(0.5, 1.5))
                assert query.exception() is None, query.exception()
                before = len(query.recentProgress)
                while not (read := live.being_read()):
                    assert query.exception() is None, query.exception()
                    time.sleep(0.01)
                live.kill(read[0])
                killed.append(read[0])
                until = time.monotonic() + 60
                while len(query.recentProgress) < before + 2 and before < 90 and time.monotonic() < until:
                    assert query.exception() is None, query.exception()
                    time.sleep(0.05)
                live.start(read[0])
                live.wait_for(*live.ports)
        finally:
            over.set()
            sending.join()
        live.member.join(GROUP, receive=False).send(b"last")
        while not heard.messages or heard.messages[-1].payload != b"last":
            time.sleep(0.05)
        until = time.monotonic() + 60
        while time.monotonic() < until and query.exception() is None:
            if spark.read.parquet(str(directory / "out")).where("payload = cast('last' as binary)").count():
                break
            time.sleep(0.5)
        query.stop()
        rows = spark.read.parquet(str(directory / "out")).orderBy("position").collect()
        found = [(tuple(row.position), bytes(row.payload)) for row in rows]
        expected = list(zip(map(tuple, heard.positions), heard.payloads, strict=True))
    return {
        "kills": len(killed),
        "killed": killed,
        "messages": len(expected),
        "rows": len(found),
        "holds": found == expected and len(killed) == kills,
    }


# --- sink ---------------------------------------------------------------------------------------


def failing(failures: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Tasks fail now and then, after some of their rows; each failure is noted in a file."""

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for place, batch in enumerate(batches):
            if context.attemptNumber() < 2 and place == 3 + 4 * context.attemptNumber():
                time.sleep(0.3)  # its rows are on their way
                with open(failures, "a") as file:
                    file.write(f"{context.taskAttemptId()}\n")
                raise RuntimeError("this attempt was to fail")
            yield batch

    return fail


def sink(spark: SparkSession, directory: Path, files: int = 12, rows: int = 2000) -> dict[str, Any]:
    """Rows written by tasks that fail and queries that are stopped: each is delivered once."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
    source, failures = directory / "in", directory / "failures.txt"
    source.mkdir()
    failures.touch()
    for file in range(files):
        text = "\n".join(str(file * rows + row) for row in range(rows))
        (source / f"{file:03}.txt").write_text(text)
    restarts = -1
    with LiveNodes(directory, 3) as live:
        heard = Heard(live.member.join(GROUP))
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source))
        long_ones = lines.selectExpr("concat(value, ' ', repeat('x', 1000)) as payload")  # flow at once
        frame = long_ones.mapInArrow(failing(str(failures)), "payload string")
        chance = random.Random(3)
        goals = [files * rows * turn // 6 + chance.randrange(rows) for turn in range(1, 6)] + [files * rows]
        for goal in goals:
            restarts += 1
            query = (
                frame.writeStream.format("ordercast")
                .options(nodes=live.nodes, group=GROUP)
                .option("checkpointLocation", str(directory / "checkpoint"))
                .start()
            )
            while len(heard.messages) < goal and query.exception() is None:
                time.sleep(0.01)
            if goal == files * rows:
                query.processAllAvailable()
            assert query.exception() is None, query.exception()
            query.stop()
        time.sleep(1.0)
        delivered = sorted(int(payload.split()[0]) for payload in heard.payloads)
    failed = len(failures.read_text().split())
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    return {
        "rows": files * rows,
        "delivered": len(delivered),
        "failed_tasks": failed,
        "restarts": restarts,
        "holds": delivered == list(range(files * rows)) and failed >= 20 and restarts >= 5,
    }


PARTS: dict[str, Callable[[SparkSession, Path], dict[str, Any]]] = {
    "backlog": backlog,
    "latency": latency,
    "failover": failover,
    "sink": sink,
}


def main() -> int:
    """Run the parts that are named; 0 if all hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="which parts; all if none is named")
    parser.add_argument("--json", action="store_true", help="the results as JSON alone")
    chosen = parser.parse_args()
    results: dict[str, Any] = {}
    with spark_session("bench", "local[2,4]", {"spark.sql.shuffle.partitions": 2}) as spark:
        for name in chosen.parts or PARTS:
            with tempfile.TemporaryDirectory(prefix="ordercast-bench-") as directory:
                results[name] = PARTS[name](spark, Path(directory))
            if not chosen.json:
                print(f"{name}: {json.dumps(results[name])}", flush=True)
    if chosen.json:
        print(json.dumps(results, indent=2))
    return 0 if all(result["holds"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
