"""Members that are slow, because the machine is busy or because their own event loop is.

Slow is not dead: nobody is excluded. How long a machine lets a process wait is not for a test of every day to
judge, so that only a campaign, on a machine of its own, insists on it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from group import Cluster

from hunts import CAMPAIGN, rounds

MESSAGES = rounds(500, 40_000)
"""Delivered by each member while some are slow: at their rate, a campaign's take two minutes."""
NODES = rounds(4, 8)
BUSY = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


@contextmanager
def busy_cores() -> Iterator[None]:
    """A process on each of two cores that does nothing but run."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    processes = [subprocess.Popen([sys.executable, "-c", BUSY, str(core)]) for core in cores]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def watch(group: Cluster) -> None:
    """Let messages pass, and see whether anybody is excluded."""
    before = {member.node: len(member.regular) for member in group.living}
    group.await_progress(MESSAGES)
    changes = {
        member.node: [told["members"] for told in member.regular[before[member.node] :]]
        for member in group.living
    }
    reports = group.settle()
    print(f"configurations in {MESSAGES} messages: {[len(told) for told in changes.values()]}")
    print(f"delivered: {[report['count'] for report in reports]}")
    print(f"lag_us: {[report['status']['lag_us'] for report in reports]}")
    if CAMPAIGN:
        assert not any(changes.values()), changes


@pytest.mark.campaign
def test_nobody_is_excluded_by_busy_cores(tmp_path: Path) -> None:
    with Cluster(tmp_path, rate=50.0, safe=0.2) as group:
        group.start_all(NODES)
        with busy_cores():
            watch(group)
        group.conclude()


@pytest.mark.campaign
def test_nobody_is_excluded_whose_own_event_loop_is_blocked_now_and_then(tmp_path: Path) -> None:
    with Cluster(tmp_path, rate=50.0, safe=0.2) as group:
        members = group.start_all(NODES)
        for member in (members[1], members[-1]):
            member.order("block", low_ms=50, high_ms=150)
        watch(group)
        for member in members:
            member.order("block", low_ms=0, high_ms=0)
        group.conclude()
