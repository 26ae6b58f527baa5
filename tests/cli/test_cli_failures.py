"""A file or Spark that fails is no verdict: exit code 2 and a sentence, never 1, never a traceback."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cli_parts import Said, ordercast, process
from damaged_files import DAMAGES, flip

from ordercast.cli import failures
from ordercast.cli.screen import Code
from ordercast.errors import SparkProblem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = tmp_path_factory.mktemp("whole") / "trace"
    said = ordercast("sim", "run", "--nodes", 3, "--rate", 100, "--seconds", 0.3, "--trace", trace)
    assert said.code == 0, said
    return trace


@pytest.fixture
def trace(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "trace"))


def is_no_verdict(said: Said) -> None:
    assert said.code == 2, said
    assert said.err.startswith("error: "), said
    assert "Traceback" not in said.err, said


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_trace_is_told_of(trace: Path, damage: object) -> None:
    (file,) = trace.glob("*.parquet")
    damage(file)  # type: ignore[operator]
    is_no_verdict(ordercast("audit", trace, "--engine", "reference"))


@pytest.mark.spark
def test_a_damaged_trace_is_told_of_on_spark(whole: Path, tmp_path: Path, spark: SparkSession) -> None:
    for damage in DAMAGES:
        trace = Path(shutil.copytree(whole, tmp_path / damage.__name__))
        (file,) = trace.glob("*.parquet")
        damage(file)
        is_no_verdict(ordercast("audit", trace, "--engine", "spark"))


def test_no_flipped_byte_is_taken_for_a_violation(trace: Path) -> None:
    (file,) = trace.glob("*.parquet")
    before = file.read_bytes()
    chance = random.Random(5)
    codes = set()
    for _ in range(25):
        file.write_bytes(before)
        flip(file, chance.randrange(len(before) - 3), 3)
        codes.add(ordercast("audit", trace, "--engine", "reference").code)
    assert codes == {2}


def test_a_trace_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = ordercast("sim", "run", "--seconds", 0.1, "--trace", tmp_path / "file" / "trace")
    assert (said.code, "Traceback" in said.err) == (2, False)


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000));"
        "from ordercast.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, "sim", "run", "--seconds", "0.3", "--trace", str(tmp_path / "trace")],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
        timeout=120,
        check=False,
    )
    is_no_verdict(Said(done.returncode, done.stdout, done.stderr))


def test_results_of_the_laboratory_that_are_damaged(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "lab" / "results").mkdir(parents=True)
    for manifest in ("", "{", "[]", '{"experiment": 1}'):
        (tmp_path / "lab" / "manifest.json").write_text(manifest)
        is_no_verdict(ordercast("lab", "report", tmp_path / "lab"))
    is_no_verdict(ordercast("lab", "report", tmp_path / "nothing"))


def test_java_that_fails(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "java" / "bin").mkdir(parents=True)
    java = tmp_path / "java" / "bin" / "java"
    java.write_text("#!/bin/sh\necho no memory >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("PATH", str(tmp_path / "java" / "bin"))
    is_no_verdict(process("audit", trace, "--engine", "spark"))


def test_a_defect_is_told_with_its_traceback_and_is_no_verdict(trace: Path) -> None:
    broken = (
        "import ordercast.cli.audit as audit\n"
        "def judge(*given): raise KeyError('a defect')\n"
        "audit._with_reference = judge\n"
        "from ordercast.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", broken, "audit", str(trace), "--engine", "reference"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == Code.BROKEN, done
    assert "a defect" in done.stderr


# --- what is said ---------------------------------------------------------------------------------

PYTHON = """[PYTHON_EXCEPTION] An exception was thrown: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
pyarrow.lib.ArrowInvalid: Couldn't deserialize thrift: TProtocolException: Invalid data

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(Runner.scala:561)
Caused by: java.lang.RuntimeException: more
"""


class PySparkException(Exception):
    """As if it were Spark's."""


PySparkException.__module__ = "pyspark.errors.exceptions.base"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PySparkException(PYTHON), "Spark failed: ArrowInvalid: Couldn't deserialize thrift"),
        (
            PySparkException("Job aborted due to stage failure\n\tat org.x"),
            "Spark failed: Job aborted due to",
        ),
        (PySparkException(""), "Spark failed: it does not say why"),
        (PySparkException("x" * 5000), "Spark failed: xxx"),
        (OSError(28, "No space left on device", "/data/x"), "/data/x: No space left on device: make room"),
        (PermissionError(13, "Permission denied", "/data/x"), "/data/x: Permission denied: see that it is"),
        (SparkProblem("Spark did not start"), "Spark did not start"),
        (MemoryError(), "there is not enough memory"),
    ],
)
def test_what_is_said(error: Exception, said: str) -> None:
    sentence = failures.sentence_of(error)
    assert sentence is not None
    assert sentence.startswith(said)
    assert len(sentence) < 700
    assert "\n" not in sentence


def test_a_defect_is_not_told_as_something_else() -> None:
    assert failures.sentence_of(KeyError("x")) is None
    assert failures.sentence_of(ValueError("x")) is None
