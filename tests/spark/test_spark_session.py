"""A session comes up by itself, is quiet, and is shared."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ordercast.spark.sessions import _is_here, _reason, spark_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_tasks_run_this_python_with_this_package(spark: SparkSession) -> None:
    def who(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import ordercast

        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"python": sys.executable, "version": ordercast.__version__}])

    import ordercast

    rows = spark.range(0, 3, 1, 3).mapInArrow(who, "python string, version string").collect()
    assert {tuple(row) for row in rows} == {(sys.executable, ordercast.__version__)}


def test_a_session_that_runs_is_used_and_left_running(spark: SparkSession) -> None:
    with spark_session("inner", "local[1]") as inner:
        assert inner is spark
    assert spark.range(5).count() == 5


def test_masters_on_this_machine_are_told_from_others() -> None:
    assert all(
        map(_is_here, ("local", "local[2,4]", "spark://127.0.0.1:7077", "spark://localhost:1,127.0.0.1:2"))
    )
    assert not any(
        map(_is_here, ("spark://10.0.0.7:7077", "spark://127.0.0.1:1,node:2", "k8s://https://x:443", "yarn"))
    )


def test_what_spark_says_last_is_told(tmp_path: Path) -> None:
    noise = tmp_path / "noise"
    noise.write_text("WARNING: Using incubator modules\nError: Could not find or load main class X\n\n")
    assert _reason(noise) == "Error: Could not find or load main class X"


@pytest.mark.spark
def test_a_master_that_is_not_there_is_an_error_that_names_it_and_nothing_else_is_printed(
    tmp_path: Path,
) -> None:
    """In a process of its own, and without the machine's Java: on that of the wheel."""
    script = (
        "from ordercast.spark.sessions import spark_session\n"
        "from ordercast.errors import SparkProblem\n"
        "try:\n"
        "    with spark_session('try', 'spark:/nowhere'): pass\n"
        "except SparkProblem as error: print(error)\n"
        "with spark_session('again', 'local[1]') as spark: print(spark.range(7).count())\n"
    )
    for folder in filter(os.path.isdir, os.environ["PATH"].split(os.pathsep)):
        for program in os.listdir(folder):
            if program != "java" and not (tmp_path / program).is_symlink():
                (tmp_path / program).symlink_to(os.path.join(folder, program))
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    environment.pop("JAVA_HOME", None)
    told = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    error, count = told.stdout.splitlines()
    assert error.startswith("Spark did not start on spark:/nowhere: ")
    assert "All that it said is in " in error
    assert count == "7"
    assert told.stderr == ""


@pytest.mark.spark
def test_a_program_runs_from_anywhere_with_nothing_in_its_environment(tmp_path: Path) -> None:
    """Its tasks run its Python, on a Java that is found, and import what lies beside it."""
    (tmp_path / "beside.py").write_text("def twice(number): return 2 * number\n")
    (tmp_path / "job.py").write_text(
        "import beside\n"
        "from ordercast.spark import session\n"
        "spark = session(master='local[1]')\n"
        "assert session() is spark\n"
        "def work(batches):\n"
        "    import sys, pyarrow\n"
        "    for batch in batches:\n"
        "        for each in batch[0].to_pylist():\n"
        "            row = {'twice': beside.twice(each), 'python': sys.executable}\n"
        "            yield pyarrow.RecordBatch.from_pylist([row])\n"
        "rows = spark.range(3).mapInArrow(work, 'twice long, python string').collect()\n"
        "assert {row.python for row in rows} == {__import__('sys').executable}\n"
        "print(sorted(row.twice for row in rows))\n"
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
    }
    command = [sys.executable, "-W", "ignore", str(tmp_path / "job.py")]
    told = subprocess.run(
        command, env=environment, cwd=elsewhere, capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout) == (0, "[0, 2, 4]\n"), told.stderr
