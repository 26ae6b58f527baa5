"""The commands on a cluster of two workers, one of which dies: the answers are those of one machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_nodes import Heard, LiveNodes
from standalone import PATIENCE_S, Standalone, standalone

from ordercast.keys import create

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

SEEDS, NODES = os.environ.get("ORDERCAST_SEEDS", "0:150"), "2:3"
LONG_S = 3600.0
SMALL = "--executor-memory 600m --conf spark.executor.memoryOverhead=0 pyspark-shell"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def begin(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("ordercast")), *arguments, "--json"],
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": SMALL},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    said, errors = process.communicate(timeout=LONG_S)
    assert process.returncode == 0, errors
    found: dict[str, Any] = json.loads(said)
    return found


def test_an_audit_on_a_cluster_says_what_the_reference_says(cluster: Standalone, tmp_path: Path) -> None:
    traces = str(tmp_path / "traces")
    answer(begin("sim", "fuzz", "--seeds", "0:6", "--nodes", NODES, "--trace", traces))
    reference = answer(begin("audit", traces, "--engine", "reference"))
    on_cluster = answer(begin("audit", traces, "--master", cluster.master))
    assert on_cluster["engine"] == "spark"
    assert on_cluster["events"] == reference["events"] > 0
    assert on_cluster["properties"] == reference["properties"]


WRITE_AND_READ = """
import sys, time
from ordercast.spark.sessions import spark_session

master, count, *told = sys.argv[1:]
options = dict(zip(("nodes", "group", "keyFile"), told))
with spark_session("log", master) as spark:
    rows = spark.range(0, int(count), 1, 4).selectExpr("cast(id as string) payload")
    rows.write.format("ordercast").mode("append").options(**options).save()
    log = spark.read.format("ordercast").options(**options).load().where("kind = 'message'")
    while log.count() < int(count):
        time.sleep(0.2)
    for row in log.orderBy("position").collect():
        print(row.payload.decode())
"""


def test_executors_write_to_a_sealed_group_and_read_its_log(cluster: Standalone, tmp_path: Path) -> None:
    create(tmp_path / "group.key")
    with LiveNodes(tmp_path, 2, tmp_path / "group.key") as live:
        heard = Heard(live.member.join("rows"))
        told = (cluster.master, "2000", live.nodes, "rows", str(live.key))
        said = subprocess.run(
            [sys.executable, "-c", WRITE_AND_READ, *told],
            env={**os.environ, "PYSPARK_SUBMIT_ARGS": SMALL},
            capture_output=True,
            text=True,
            timeout=LONG_S,
        )
        assert said.returncode == 0, said.stderr
        heard.wait_for(2000)
    assert said.stdout.encode().split() == heard.payloads
    assert sorted(map(int, heard.payloads)) == list(range(2000))


def test_a_worker_that_dies_in_the_middle_changes_nothing(cluster: Standalone, tmp_path: Path) -> None:
    begun = time.monotonic()
    here = answer(begin("sim", "fuzz", "--seeds", SEEDS, "--nodes", NODES))
    took_s = time.monotonic() - begun
    options = ("--seeds", SEEDS, "--protocol", "totem", "--nodes", NODES, "--output", str(tmp_path / "fuzz"))
    running = begin("lab", "run", "fuzz", *options, "--rounds", "0", "--master", cluster.master)
    deadline = time.monotonic() + PATIENCE_S
    while not list((tmp_path / "fuzz").rglob("*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(took_s / 4)
    assert running.poll() is None, "it should have been in the middle"
    cluster.kill_worker(0)
    there = answer(running)
    for what in ("runs", "events", "receptions", "failures"):
        assert there[what] == here[what], what
    assert there["coverage"].items() <= here["coverage"].items()  # which has sums, too
    assert len(there["coverage"]) > 10
