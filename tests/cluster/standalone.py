"""A standalone Spark cluster on loopback, from the pip package: a master and workers, as processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ordercast.spark.java import java_home

PATIENCE_S = 120


class Standalone:
    """Its processes, and where they write."""

    def __init__(self, directory: Path) -> None:
        import pyspark

        self._directory = directory
        self._spark_home = Path(pyspark.__file__).parent
        self._environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(self._spark_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
        }
        self.workers: list[subprocess.Popen[bytes]] = []
        self._all: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def start(self, workers: int) -> None:
        """A master on a free port, and workers that have found it."""
        self._launch("master", "org.apache.spark.deploy.master.Master", "--port", "0", "--webui-port", "0")
        self.master = self._wait_for("master", r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            name = f"worker-{number}"
            options = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
            where = ("--work-dir", str(self._directory / name), self.master)
            self.workers.append(self._launch(name, "org.apache.spark.deploy.worker.Worker", *options, *where))
        for number in range(workers):
            self._wait_for(f"worker-{number}", r"(Successfully registered) with master")

    def _launch(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                [str(self._spark_home / "bin" / "spark-class"), main, "--host", "127.0.0.1", *arguments],
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._all.append(process)
        return process

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _wait_for(self, name: str, pattern: str) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = re.search(pattern, self._log(name).read_text(errors="replace"))
            if found is not None:
                return found[1]
            time.sleep(0.1)
        raise AssertionError(f"{name} did not come up: {self._log(name).read_text(errors='replace')[-2000:]}")

    def kill_worker(self, number: int) -> None:
        """The worker and its executors, at once: as if the machine were gone."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)

    def stop(self) -> None:
        """All of them."""
        for process in reversed(self._all):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def standalone(directory: Path, workers: int = 2) -> Iterator[Standalone]:
    """A cluster as long as it is needed."""
    cluster = Standalone(directory)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()
