"""A replicated map beside PySyncObj's replicated dict and etcd: sets a second, and the time that one takes.

    .venv/bin/python bench/replicated.py [--repeat 3] [--seconds 4] [--json]
    .venv/bin/python bench/replicated.py --only ordercast,etcd --level majority-disk

Three processes of each system on loopback. They take turns in every repeat, so that what else the machine
does hits all alike; figures are medians, and only their ratios count. ordercast and PySyncObj are libraries,
so the processes that set are those that replicate; with etcd they are clients, one at each server.

* one at a time: the median of how long a set takes whose process waits for each, at a node that leads, where
  one does, and at one that does not
* all send: sets a second in all, with many under way at each of the three
* one sends: the same where only one does, the leader where there is one

Each system has its best settings (`SYSTEMS`). PySyncObj appears twice: collecting what it sends gives it its
throughput, sending at once its latency.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from peers import etcd
from peers.figures import PeerMissing
from peers.workers import Workers
from rich.console import Console
from rich.table import Table
from server_groups import free_ports

STDERR = Console(stderr=True, highlight=False)
NODES = 3
ONE_BY_ONE = 500
WARM_UP_S = 0.5
LEADING, FOLLOWING = "one at a time, p50 µs, leader", "one at a time, p50 µs, other"
ALL, ONE = "all send, sets/s", "one sends, sets/s"
Figures = dict[str, float]


class Group(NamedTuple):
    """Processes that set, and which of them leads."""

    workers: Workers
    leader: int


class Load(NamedTuple):
    """What is asked of a system."""

    size: int
    """Bytes a value."""
    level: str
    """What is on disk before ordercast answers; etcd has it on the disks of a majority, PySyncObj nowhere."""
    seconds: float


class System(NamedTuple):
    """What is measured."""

    begin: Callable[[Load, Path], Iterator[Group]]
    in_flight: tuple[int, int]
    """Sets under way at each node where all send, and where one does: those with which it is fastest here."""


# --- systems ------------------------------------------------------------------------------------


def ordercast_group(load: Load, directory: Path) -> Iterator[Group]:
    """Nodes with a replicated map."""
    first = random.randrange(24_000, 30_000, 16)
    addresses = [f"127.0.0.1:{first + 4 * node}" for node in range(NODES)]
    jobs = [
        {
            "node": node,
            "addresses": addresses,
            "size": load.size,
            "level": load.level,
            "directory": str(directory / f"node-{node}"),
        }
        for node in range(1, NODES + 1)
    ]
    with Workers("peers.replicated_store", jobs) as workers:
        yield Group(workers, 0)


def _pysyncobj(load: Load, *, at_once: bool) -> Iterator[Group]:
    ports = free_ports(NODES)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    jobs = [
        {"node": node, "addresses": addresses, "period_s": 0.002, "at_once": at_once, "size": load.size}
        for node in range(1, NODES + 1)
    ]
    with Workers("peers.replicated_dict", jobs) as workers:
        leader = workers.all_do({"do": "leader"})[0]["leader"]
        yield Group(workers, addresses.index(leader))


def pysyncobj_group(load: Load, directory: Path) -> Iterator[Group]:
    """Processes with a replicated dict, whose leader sends what it has collected for 2 ms."""
    return _pysyncobj(load, at_once=False)


def pysyncobj_at_once_group(load: Load, directory: Path) -> Iterator[Group]:
    """The same, but the leader sends each command at once."""
    return _pysyncobj(load, at_once=True)


def etcd_group(load: Load, directory: Path) -> Iterator[Group]:
    """Servers, and a client at each."""
    with etcd.servers(directory, NODES) as servers:
        jobs = [{"node": at + 1, "port": port, "size": load.size} for at, port in enumerate(servers.ports)]
        with Workers("peers.etcd", jobs) as workers:
            yield Group(workers, servers.leader)


SYSTEMS = {
    "ordercast": System(ordercast_group, (1000, 2000)),
    "pysyncobj": System(pysyncobj_group, (500, 6000)),
    "pysyncobj-at-once": System(pysyncobj_at_once_group, (500, 1500)),
    "etcd": System(etcd_group, (300, 1000)),
}


# --- a measurement ------------------------------------------------------------------------------


def measure(system: System, load: Load, directory: Path) -> Figures:
    """All figures of one system, once."""
    with contextmanager(system.begin)(load, directory) as (workers, leader):
        other = (leader + 1) % NODES
        all_send, one_sends = system.in_flight

        def many(in_flight: int, which: Sequence[int] | None, seconds: float) -> float:
            told = workers.all_do({"do": "many", "seconds": seconds, "in_flight": in_flight}, which)
            if any(each["failed"] for each in told):
                raise SystemExit(f"sets were refused: {told}")
            return sum(float(each["per_s"]) for each in told)

        def one_by_one(which: int) -> float:
            (told,) = workers.all_do({"do": "one by one", "count": ONE_BY_ONE}, [which])
            return float(told["p50_us"])

        many(100, None, WARM_UP_S)
        found = {LEADING: one_by_one(leader), FOLLOWING: one_by_one(other)}
        found[ALL] = many(all_send, None, load.seconds)
        found[ONE] = many(one_sends, [leader], load.seconds)
        states = workers.all_do({"do": "digest"})
        if any(each != states[0] for each in states):
            raise SystemExit(f"the replicas are not equal: {states}")
    return found


def main() -> None:
    """Measure, and print figures side by side."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4, help="of each load")
    parser.add_argument("--size", type=int, default=100, help="bytes a value")
    parser.add_argument("--level", choices=("memory", "disk", "majority-disk"), default="memory")
    parser.add_argument("--only", default=",".join(SYSTEMS), help="some of them, with commas between")
    given = parser.parse_args()
    load = Load(given.size, given.level, given.seconds)
    runs: dict[str, list[Figures]] = {}
    for repeat in range(given.repeat):
        for name in given.only.split(","):
            STDERR.print(f"{name}, {repeat + 1} of {given.repeat} …")
            with tempfile.TemporaryDirectory() as directory:
                try:
                    found = measure(SYSTEMS[name], load, Path(directory))
                except PeerMissing as missing:
                    STDERR.print(f"[yellow]![/] {missing}")
                    continue
            runs.setdefault(name, []).append(found)
    if given.json:
        json.dump(runs, sys.stdout)
        return
    table = Table("median (lowest to highest)", *runs)
    for figure in (LEADING, FOLLOWING, ALL, ONE):
        cells = []
        for found_runs in runs.values():
            values = [each[figure] for each in found_runs]
            cells.append(f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})")
        table.add_row(figure, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
