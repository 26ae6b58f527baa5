"""A Spark session that works at once, here or on a cluster, and keeps its noise to itself.

What Spark and its workers print goes to a file; an error names it. Whatever can be said in the environment
(``PYSPARK_PYTHON``, ``SPARK_LOCAL_IP``) or in the settings wins over what is set here.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ordercast.errors import MissingExtra, SparkProblem
from ordercast.extras import need
from ordercast.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*,4]"
"""All cores of this machine, and four attempts at a task, as on a cluster."""
CONNECT = "sc://"
"""How the address of a server of Spark Connect begins."""
CONNECT_PORT, CONNECT_S = 15002, 10.0
"""Where such a server listens unless that is said, and how long it may take to answer."""
USUALLY = 8
"""Tasks at a time that work is divided for, where nobody says how many there are."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_LOGGING = Path(__file__).with_name("log4j2.properties")
_FOR_BATCHES = "-XX:+UseParallelGC"
"""Work is in batches, for which throughput counts and not the longest pause."""
_MOST_SAID = 5
"""Lines of Spark's own that an error repeats."""


@contextmanager
def spark_session(
    name: str, master: str | None = None, settings: Mapping[str, Any] | None = None
) -> Iterator[SparkSession]:
    """A session called ``ordercast NAME`` on `master`, by default all cores of this machine.

    A session that already runs in this process is used as it is, and left running. Raises `SparkProblem`
    if Spark is not installed, cannot be started or cannot reach the master.
    """
    need("spark", "what runs on Spark")
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    spark = _start(name, master or os.environ.get("ORDERCAST_MASTER") or LOCAL, settings or {})
    try:
        yield spark
    finally:
        _stop(spark)


def session(
    name: str = "job", master: str | None = None, settings: Mapping[str, Any] | None = None
) -> SparkSession:
    """A session for a program of your own, which is started by any Python that has ordercast: its tasks run
    that Python, on the Java that there is, and import what the program imports.

    `settings` are Spark's. A session that already runs in this process is given as it is. It lasts until the
    program ends, or until ``stop()``. Raises `SparkProblem` if Spark is not installed, cannot be started or
    cannot reach the master.
    """
    need("spark", "what runs on Spark")
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    made = _start(name, master or os.environ.get("ORDERCAST_MASTER") or LOCAL, settings or {})
    atexit.register(_stop, made)
    return made


def _start(name: str, master: str, settings: Mapping[str, Any]) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if master.startswith(CONNECT):
        return _connect(name, master, settings)
    _prepare_environment(_is_here(master))
    conf = SparkConf(loadDefaults=False)
    for key, value in {**_defaults(master), **settings}.items():
        conf.set(key, str(value))
    conf.setMaster(master).setAppName(f"ordercast {name}")
    noise = _noise()
    with noise.open("ab") as file:
        try:
            gateway = launch_gateway(conf, {"stdout": file, "stderr": file})  # type: ignore[no-untyped-call]
            return SparkSession(SparkContext(conf=conf, gateway=gateway))
        except (PySparkException, Py4JError, OSError) as error:
            _end_java()
            raise SparkProblem(
                f"Spark did not start on {master}: {_reason(noise) or error}. "
                f"All that it said is in {noise}; Java was taken from {os.environ['JAVA_HOME']}."
            ) from error


def _stop(spark: SparkSession) -> None:
    """End the session and its JVM, so that the next one can have other settings."""
    spark.stop()
    if over_connect(spark):
        return
    _end_java()
    _noise().unlink(missing_ok=True)


def _end_java() -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # at which it ends
        gateway.proc.wait()
        SparkContext._gateway = SparkContext._jvm = None


def _connect(name: str, master: str, settings: Mapping[str, Any]) -> SparkSession:
    """A session at a server of Spark Connect, which has settings of its own: no JVM is started here."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if any(find_spec(module) is None for module in ("grpc", "grpc_status", "zstandard")):
        raise MissingExtra(
            f"{master} needs what Spark Connect needs: pip install 'pyspark[connect]' brings it"
        )
    server = urlsplit(master)
    try:  # its client would try again for minutes
        socket.create_connection((server.hostname or "", server.port or CONNECT_PORT), CONNECT_S).close()
        spark = SparkSession.builder.remote(master).appName(f"ordercast {name}").create()
        for key, value in settings.items():
            spark.conf.set(key, str(value))
        spark.range(1).count()
    except (PySparkException, OSError) as error:
        raise SparkProblem(f"there is no Spark Connect at {master}: {str(error).splitlines()[0]}") from error
    return spark


def over_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, which tells nothing of its processors, jobs and tasks."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def processors_of(spark: SparkSession) -> int:
    """How many tasks Spark does at a time; over Spark Connect, which does not tell, what is usual."""
    if over_connect(spark):
        return int(spark.conf.get("spark.default.parallelism", str(USUALLY)) or USUALLY)
    return spark.sparkContext.defaultParallelism


def _is_here(master: str) -> bool:
    address = master.partition("://")[2]
    return master.startswith("local") or all(each.startswith(LOOPBACK) for each in address.split(","))


def _prepare_environment(here: bool) -> None:
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if here:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _defaults(master: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "spark.driver.memory": f"{_memory_mb()}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {_FOR_BATCHES}",
        "spark.executor.extraJavaOptions": _FOR_BATCHES,
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",  # damage is an error, no other data
        "spark.buffer.size": 2**20,  # of what Python's workers send
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",  # for tables over the ordered log
    }
    if master.startswith("local"):  # 200, which is for clusters, would be many small tasks
        found["spark.sql.shuffle.partitions"] = max(2, os.cpu_count() or 2)
    if _is_here(master):
        found |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        found["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(_own_path())
    return found


def _own_path() -> list[str]:
    """Where this program finds modules, apart from what is installed: tasks here are to find them, too."""
    installed = (sys.prefix, sys.base_prefix)
    return [os.path.abspath(each) for each in sys.path if not each.startswith(installed)]


def _memory_mb() -> int:
    """A quarter of the machine, and between 1 and 8 GB: Python's workers want theirs, too."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(1024, min(8192, whole // 4))


def _noise() -> Path:
    """Where Spark's own words go while it runs."""
    return Path(tempfile.gettempdir()) / f"ordercast-spark-{os.getuid()}-{os.getpid()}.log"


def _reason(noise: Path) -> str:
    lines = [line.strip() for line in noise.read_text(errors="replace").splitlines()]
    telling = [line for line in lines if "rror" in line or "xception" in line or "ould not" in line]
    return " / ".join(telling[-_MOST_SAID:])
