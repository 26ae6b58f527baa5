"""Servers that NATS clients are tried against: the same cases run against all of them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from nats_servers import (
    LOGGED,
    LONG_S,
    Server,
    Starting,
    Wanted,
    add_stream,
    certificates,
    nats_server,
    nats_servers,
    nodes,
)

KINDS: dict[str, tuple[Callable[..., list[Server]], Callable[[], object], str]] = {
    "nats-server": (
        nats_servers,
        nats_server,
        "nats-server is not installed (on Debian: apt-get install nats-server)",
    ),
    "node": (nodes, lambda: True, ""),
}
"""By name: what starts servers of the kind, what tells whether they can be started, and why not."""


@pytest.fixture(scope="session", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    """Which server the cases run against."""
    name: str = request.param
    _, there, reason = KINDS[name]
    if not there():
        pytest.skip(reason)
    return name


@pytest.fixture
def start(kind: str, tmp_path: Path) -> Iterator[Starting]:
    """Starts servers that have settings of their own, for one test."""
    with ExitStack() as stack:
        yield lambda count=1, **wanted: _started(stack, kind, tmp_path, count, **wanted)


@pytest.fixture(scope="session")
def server(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that most cases share, with a stream of the subjects that begin with `LOGGED`."""
    with ExitStack() as stack:
        (one,) = _started(stack, kind, tmp_path_factory.mktemp("server"), 1)
        asyncio.run(asyncio.wait_for(add_stream(one), LONG_S))
        yield one


@pytest.fixture(scope="session")
def bucket_server(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with key-value buckets that most cases about them share."""
    with ExitStack() as stack:
        yield _started(stack, kind, tmp_path_factory.mktemp("buckets"), 1, majority=True)[0]


@pytest.fixture
def bucket(_numbers: Iterator[int]) -> str:
    """The name of a bucket that no other test uses."""
    return f"b{next(_numbers)}"


@pytest.fixture
def subject(request: pytest.FixtureRequest, _numbers: Iterator[int]) -> str:
    """The beginning of subjects that no other test uses."""
    return f"case{next(_numbers)}"


@pytest.fixture
def logged(subject: str, kind: str) -> str:
    """The same, of subjects that are in the stream."""
    return LOGGED + subject


@pytest.fixture(scope="session")
def _numbers() -> Iterator[int]:
    return itertools.count(1)


def _started(stack: ExitStack, kind: str, directory: Path, count: int, **wanted: Any) -> list[Server]:
    if wanted.pop("tls", False):
        wanted["tls"] = certificates(directory)
    servers = KINDS[kind][0](directory, count, Wanted(**wanted))
    for each in servers:
        stack.callback(each.kill)
        each.start()
    return servers
