"""What tests of several packages share: a Spark session, their order, which of them are traced."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import hypothesis
import pytest

from ordercast.core.build import build
from ordercast.runtime import incarnations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["server_fixtures"]

TESTS = Path(__file__).parent
WAITING = (
    "cli",
    "clients",
    "examples",
    "faults",
    "groups",
    "log",
    "measure",
    "runtime",
    "streaming",
    "transport",
)
"""Tests in these directories have real nodes or processes, for which they wait."""
PARSING = ("test_tidy.py", "test_architecture.py")
"""Tests in these files parse all of the source."""
TRACED = (
    "clients_server",
    "core",
    "groups",
    "log/test_log_catching_up.py",
    "log/test_log_nodes.py",
    "log/test_log_scrubber.py",
    "sequencers",
    "totem",
    "viewsync",
)
"""Tests of the parts that order messages, whose branches are counted: the tracer is slow."""
UNTRACED = ("untraced", "hypothesis")
"""Marks of tests there that are not traced: the examples of Hypothesis take other branches each time."""

# How long an example takes is for the machine to say, not for a test.
hypothesis.settings.register_profile(
    "ordercast", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("ordercast")

# What tests do in a JVM is over before its second compiler pays off, a third of the processor time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


# A shell that runs the tests in the background has SIGINT ignored, and so would all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def journals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes leave traces as journals, which are read as well: no interpreter is started for each life."""
    monkeypatch.setattr("ordercast.trace.journal._can_start_python", lambda: False)


@pytest.fixture(autouse=True)
def _lives_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes in this process that count their lives by the clock do not wait for its second to be over: for
    them it is, so that no two lives in a test have the same number."""
    ahead = [0.0]
    clock = SimpleNamespace(
        time=lambda: time.time() + ahead[0], sleep=lambda s: ahead.append(ahead.pop() + s)
    )
    monkeypatch.setattr(incarnations, "time", clock)


@cache
def _is_in(path: Path, places: tuple[str, ...]) -> bool:
    """Whether a file of tests is one of these, or in one of these directories, below `tests/`."""
    return any(path.is_relative_to(TESTS / place) for place in places)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session that tries a task again when it fails, as a cluster does."""
    from ordercast.spark.sessions import spark_session

    if getattr(request.config.option, "loadgroup", False):  # `--dist loadgroup`, in one of its processes
        mine = tmp_path_factory.getbasetemp().parent / "spark-session"
        assert not mine.exists(), (
            "another process of this run has a session: tests were not shared out by group"
        )
        mine.touch()

    settings = {"spark.sql.shuffle.partitions": 2, "spark.driver.memory": "2g"}
    with spark_session("tests", "local[2,4]", settings) as session:
        yield session


@pytest.fixture(scope="session")
def store() -> Iterator[str]:
    """A bucket of an S3 server on loopback, as a URI in which all is said that it takes to reach it.

    `{}` in it stands for a path in the bucket.
    """
    server_ = pytest.importorskip(
        "moto.server", reason="an S3 server to test against: pip install 'moto[s3]'"
    )
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    uri = f"s3a://key:secret@lake/{{}}?scheme=http&endpoint_override={host}:{port}&region=us-east-1"
    request = urllib.request.Request(f"http://{host}:{port}/lake", method="PUT")
    with urllib.request.urlopen(request, timeout=30):
        yield uri
    server.stop()


def _process_of(item: pytest.Item) -> str | None:
    """What one process runs: tests on Spark, whose session is a JVM; those that parse the source; those of a
    file, which share fixtures. None for a round of a hunt, which any process may run."""
    if item.get_closest_marker("spark") is not None:
        return "spark"
    if item.path.name in PARSING:
        return "source"
    return None if item.get_closest_marker("campaign") is not None else item.path.stem


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Share tests out among processes, so that there is work for all processors at any time.

    Those on Spark come first, for they take longest. Then files with tests that wait alternate with files
    whose tests compute. The largest come first, so that no process has one left when the others have ended.
    """
    groups: dict[str, list[pytest.Item]] = {}
    compiled = build() == "compiled"
    for item in items:
        if compiled and item.get_closest_marker("pure") is not None:
            item.add_marker(pytest.mark.skip(reason="needs the pure build: make pure"))
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        name = _process_of(item)
        if name is not None:
            item.add_marker(pytest.mark.xdist_group(name))
        groups.setdefault(name or item.nodeid, []).append(item)
    first = groups.pop("spark", [])
    rest = sorted(groups.values(), key=len, reverse=True)
    waiting = [group for group in rest if _is_in(group[0].path, WAITING)]
    computing = [group for group in rest if not _is_in(group[0].path, WAITING)]
    dealt = [(at / len(share), group) for share in (waiting, computing) for at, group in enumerate(share)]
    items[:] = chain(first, *(group for _, group in sorted(dealt, key=itemgetter(0))))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was loaded is no garbage: collections look at what tests make."""
    gc.freeze()


@contextmanager
def _untraced() -> Iterator[None]:
    """Where branches are counted, this runs at full speed, and what it takes is not counted."""
    here, in_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        sys.settrace(here)
        threading.settrace(in_threads)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """To load modules takes no branch that counts."""
    with _untraced():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Only tests of the parts whose branches are counted are traced."""
    if _is_in(item.path, TRACED) and not any(map(item.get_closest_marker, UNTRACED)):
        return (yield)
    with _untraced():
        return (yield)
