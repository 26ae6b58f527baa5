"""`ordercast demo`: short demos with real processes, and how it tells an order that differs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cli_nodes import COMMAND, until
from cli_parts import ordercast

from ordercast.audit.properties import audit
from ordercast.cli import group_demo
from ordercast.core.identity import ConfigurationId
from ordercast.demo import run as demo_run
from ordercast.measure.agreement import ConfigurationOrder, MemberOrder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HANGS_S = 600.0
"""A machine may be slow; what takes longer than this hangs."""
SHORT = ("--seconds", "1.5", "--rate", "60")


def performed(place: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "demo", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
        env={**os.environ, "COLUMNS": "100", "TMPDIR": str(place)},
    )


# --- whole demos --------------------------------------------------------------------------------


def test_its_trace_may_be_audited_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    said = ordercast("demo", "--nodes", 2, *SHORT, "--dir", tmp_path / "run", "--engine", "spark", "--json")
    assert said.code == 0, said.err
    document = said.document
    assert document["audit"]["clean"] is True
    assert document["audit"]["events"] > document["nodes"][0]["delivered"] > 0


@pytest.mark.parametrize("protocol", ["irbp", "primary-backup"])
def test_any_protocol_may_order_the_messages(protocol: str, tmp_path: Path) -> None:
    """The one that is stopped finds the others gone on without it, and comes back as another life."""
    done = performed(
        tmp_path, "--nodes", 3, *SHORT, "--dir", tmp_path / "run", "--protocol", protocol, "--json"
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["protocol"] == protocol
    assert document["order_equal"] is True
    assert document["audit"]["clean"] is True
    assert [node["lives"] for node in document["nodes"]] == [1, 2, 2], (
        "the second was stopped, the last killed"
    )
    outcomes = {step["step"]: step["outcome"] for step in document["steps"]}
    assert "back as incarnation 1" in outcomes["resume"]


def test_a_node_is_killed_another_stopped_and_the_order_is_the_same(tmp_path: Path) -> None:
    done = performed(tmp_path, "--nodes", 3, *SHORT, "--dir", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["order_equal"] is True
    assert document["audit"]["clean"] is True
    steps = [step["step"] for step in document["steps"]]
    assert steps == ["form", "flow", "kill", "restart", "stop", "resume", "leave"]
    assert [node["lives"] for node in document["nodes"]] == [1, 1, 2], "the last one was killed"
    assert all(node["sent"] and node["delivered"] for node in document["nodes"])
    whole = [page for page in document["configurations"] if page["members"] == [1, 2, 3]]
    ended = {
        entry["digest"] for entry in whole[-1]["delivered"] if entry["how"] == "to its end" and entry["same"]
    }
    assert len(ended) == 1, "at the end all are together again"
    said = ordercast("audit", tmp_path / "run" / "trace", "--json", "--engine", "reference").document
    assert (said["clean"], said["events"]) == (True, document["audit"]["events"])


def test_what_people_read_when_it_is_not_on_a_terminal(tmp_path: Path) -> None:
    done = performed(tmp_path, "--nodes", 2, *SHORT)
    assert done.returncode == 0, done.stderr
    for words in (
        "Two nodes",
        "1  Two processes start",
        "Node 2 is killed with -9",
        "it is back as node 2, incarnation 1",
        "Node 1 is stopped",
        "✓ the same order at every node",
        "✓ clean",
        "What to try next",
        "bench --nodes 3",
        f"kept      {tmp_path}/ordercast-demo-",
    ):
        assert words in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


# --- no process is left -------------------------------------------------------------------------


@contextmanager
def performing(place: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A demo under way, and the processes of its nodes."""
    process = subprocess.Popen(
        [*COMMAND, "demo", "--nodes", "2", "--seconds", "600", "--rate", "10", "--dir", str(place)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    workers: list[int] = []
    try:
        for node in (1, 2):
            workers.append(until(partial(_holder, place / f"node{node}"), "a node to start"))
        yield process, workers
    finally:
        for worker in workers:
            if not _is_gone(worker):
                os.kill(worker, signal.SIGKILL)
        if process.poll() is None:
            process.kill()
        process.communicate()


def _holder(data: Path) -> int | None:
    """The process that has a data directory, other than the one that prepared it."""
    try:
        holder = int((data / "lock").read_text())
    except (OSError, ValueError):
        return None
    return holder if not _is_gone(holder) and (data / "control.sock").exists() else None


def _state(process: int) -> str:
    """The letter by which the kernel tells what a process does; Z if there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def _is_gone(process: int) -> bool:
    return _state(process) == "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_ends_its_processes(tmp_path: Path, number: signal.Signals) -> None:
    with performing(tmp_path / "run") as (process, workers):
        process.send_signal(number)
        _, err = process.communicate(timeout=HANGS_S)
        assert process.returncode == 130, err
        assert f"interrupted: no process is left; data and logs are in {tmp_path}" in err
        assert all(map(_is_gone, workers))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_processes_end_when_their_director_is_killed_even_a_stopped_one(tmp_path: Path) -> None:
    with performing(tmp_path / "run") as (process, workers):
        os.kill(workers[0], signal.SIGSTOP)
        until(lambda: _state(workers[0]) == "T", "the process to stop")  # the kernel ends those that have
        process.kill()
        process.wait()
        for worker in workers:
            until(partial(_is_gone, worker), f"process {worker} to end")


def test_a_process_that_fails_is_shown_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unfit = tmp_path / "python"
    unfit.write_text("#!/bin/sh\necho no room for a node here >&2\nexit 1\n")
    unfit.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(unfit))
    said = ordercast("demo", "--dir", tmp_path / "run")
    assert said.code == 3
    assert "the process of node 1 ended before its time" in said.sentence
    assert "no room for a node here" in said.sentence


# --- what is asked for --------------------------------------------------------------------------


def test_places_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    said = ordercast("demo", "--dir", tmp_path)
    assert said.code == 2
    assert "is not empty: name a new directory with --dir" in said.sentence
    said = ordercast("demo", "--dir", "/proc/nowhere")
    assert said.code == 2
    assert "name another place with --dir" in said.sentence


def test_more_than_can_be_audited() -> None:
    said = ordercast("demo", "--rate", 10_000, "--seconds", 100)
    assert said.code == 2
    assert "choose --seconds and --rate" in said.sentence


# --- what is told -------------------------------------------------------------------------------


def test_an_order_that_differs_is_told_and_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forged(demo_run.DemoRun):
        def perform(self) -> None:
            pass

        def judge(self, _audit: object) -> demo_run.Result:
            nodes: list[dict[str, Any]] = [
                {"node": node, "lives": 1, "sent": 1, "delivered": 1, "safe": 0} for node in (1, 2)
            ]
            entries = (
                MemberOrder(1, "to its end", 1, "0123456789abcdef", True),
                MemberOrder(2, "to its end", 1, "fedcba9876543210", False),
            )
            order = [ConfigurationOrder(ConfigurationId(8, 1), (1, 2), 1, entries, 1, 1, "they differ")]
            return demo_run.Result(
                plan=self.plan, steps=[], order=order, nodes=nodes, audit=audit([]), took_s=1.0
            )

    monkeypatch.setattr(group_demo, "DemoRun", Forged)
    said = ordercast("demo", "--nodes", 2, "--dir", tmp_path / "one")
    assert said.code == 1
    assert "✗ the order differs" in said.out
    said = ordercast("demo", "--nodes", 2, "--dir", tmp_path / "two", "--json")
    assert (said.code, said.document["order_equal"]) == (1, False)
