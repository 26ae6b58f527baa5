"""The laboratory and the auditor over Spark Connect, from a process without a JVM."""

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

from free_ports import free_port
from ordercast.spark import java_home
from ordercast.spark.sessions import spark_session

pytest.importorskip("grpc", reason="Spark Connect: pip install 'pyspark[connect]'")
pytestmark = [pytest.mark.spark, pytest.mark.cluster]

PATIENCE_S = 120.0
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of Spark Connect, with two workers' worth of processors."""
    import pyspark

    home, port = Path(pyspark.__path__[0]), free_port()
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    settings = [f"spark.connect.grpc.binding.port={port}", "spark.connect.grpc.binding.address=127.0.0.1"]
    settings += ["spark.ui.enabled=false", "spark.sql.shuffle.partitions=2"]
    command = [str(home / "bin" / "spark-submit"), "--class", SERVER, "--master", "local[2,4]"]
    command += [word for each in settings for word in ("--conf", each)] + ["spark-internal"]
    said = tmp_path_factory.mktemp("connect") / "server.txt"
    with said.open("wb") as output:
        server = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        until = time.monotonic() + PATIENCE_S
        while "Spark Connect server started" not in said.read_text(errors="replace"):
            assert server.poll() is None, said.read_text(errors="replace")
            assert time.monotonic() < until, said.read_text(errors="replace")
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def answer(*arguments: str) -> dict[str, Any]:
    command = [str(Path(sys.executable).with_name("ordercast")), *arguments, "--json"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def test_seeds_are_fuzzed_and_a_trace_is_audited_as_without_spark(master: str, tmp_path: Path) -> None:
    options = ("--protocol", "totem", "--seeds", "0:12", "--nodes", "2:3")
    here = answer("sim", "fuzz", *options, "--trace", str(tmp_path / "traces"))
    out = str(tmp_path / "fuzz")
    there = answer("lab", "run", "fuzz", *options, "--rounds", "0", "--output", out, "--master", master)
    for what in ("runs", "events", "receptions", "failures"):
        assert there[what] == here[what], what
    traces = str(tmp_path / "traces")
    reference = answer("audit", traces, "--engine", "reference")
    over_connect = answer("audit", traces, "--engine", "spark", "--master", master)
    assert over_connect["events"] == reference["events"] > 0
    assert over_connect["properties"] == reference["properties"]


def test_a_grid_is_carried_out_and_reported(master: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        "[grid]\nprotocol = ['totem', 'cm']\nnodes = [2, 3]\nmessages = 20\n"
        "[report]\nfigures = ['delivery_us']\n"
    )
    out = tmp_path / "mine"
    answer("lab", "run", str(tmp_path / "mine.toml"), "--output", str(out), "--master", master)
    page = (out / "report.html").read_text()
    assert "Each point is one run." in page
    assert "Means of all points" in page


def test_where_nobody_listens_is_told(tmp_path: Path) -> None:
    from ordercast.errors import SparkProblem

    nobody = f"sc://127.0.0.1:{free_port()}"
    with pytest.raises(SparkProblem, match="there is no Spark Connect at"), spark_session("try", nobody):
        pass
