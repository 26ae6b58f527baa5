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
from standalone import PATIENCE_S, Standalone, standalone

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


def test_a_worker_that_dies_in_the_middle_changes_nothing(cluster: Standalone, tmp_path: Path) -> None:
    begun = time.monotonic()
    here = answer(begin("sim", "fuzz", "--seeds", SEEDS, "--nodes", NODES))
    took_s = time.monotonic() - begun
    options = ("--seeds", SEEDS, "--protocol", "totem", "--nodes", NODES, "--output", str(tmp_path / "fuzz"))
    running = begin("lab", "run", "fuzz", *options, "--master", cluster.master)
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
