"""What a new replica of a large object costs the others, and how long it takes (loopback, real processes).

    .venv/bin/python bench/state_transfer.py [--json] [--protocol total] [--entries 1000000] [--size 1000]

Three voters replicate a dict of `--entries` values of `--size` bytes, and each of them calls `--rate`
commands a second. A fourth node, which is in the group already, then replicates it. The *gap* of a node is
the longest time for which none of its commands was answered. It is measured without anything else going on,
while the fourth node replicates an object of the same class that is empty, and while it replicates the large
one. Memory is that of the processes (VmRSS, and VmHWM for the peak).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from server_groups import free_ports

import ordercast
from ordercast import Node

VOTERS = (1, 2, 3)
NEW = 4
AT_ONCE = 1_000
"""Entries that a command writes when the state is made."""
MOST_PENDING = 3_000
"""Commands of a node that wait for their answers."""
STEADY_S = 10.0


class Store(ordercast.Replicated):
    """What is replicated."""

    values: dict[int, bytes]

    def __init__(self) -> None:
        self.values = {}

    @ordercast.command
    def fill(self, first: int, count: int, size: int) -> None:
        """Write many values at once; no two are the same."""
        for number in range(first, first + count):
            self.values[number] = number.to_bytes(8, "big") * (size // 8 or 1)

    @ordercast.command
    def write(self, number: int, value: bytes) -> int:
        """Write one value."""
        self.values[number] = value
        return len(self.values)


# --- a node, in a process of its own ------------------------------------------------------------


class Load:
    """Commands at a rate, whatever becomes of those before them."""

    def __init__(self, store: Store, rate: float, entries: int, size: int) -> None:
        self._store, self._rate, self._entries = store, rate, entries
        self._value = bytes(size)
        self._pending: set[asyncio.Task[None]] = set()
        self._count = 0
        self.begin()
        self._task = asyncio.create_task(self._run())

    def begin(self) -> None:
        """Measure from now on."""
        self._last = self._from = time.perf_counter()
        self._gap, self._skipped = 0.0, 0
        self._took: list[float] = []
        self.failed: Counter[str] = Counter()

    def end(self) -> dict[str, Any]:
        """What was measured."""
        now = time.perf_counter()
        took = sorted(self._took)
        return {
            "gap_ms": round(max(self._gap, now - self._last) * 1000, 1),
            "answered_per_s": round(len(took) / (now - self._from)),
            "p50_ms": round(took[len(took) // 2] * 1000, 2) if took else None,
            "p99_ms": round(took[len(took) * 99 // 100] * 1000, 2) if took else None,
            "not_asked": self._skipped,
            "failed": dict(self.failed),
        }

    async def _run(self) -> None:
        due = time.perf_counter()
        while True:
            due += 1 / self._rate
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            if len(self._pending) >= MOST_PENDING:
                self._skipped += 1
                continue
            self._count += 1
            task = asyncio.create_task(self._ask(self._count * 7919 % self._entries))
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)

    async def _ask(self, number: int) -> None:
        begun = time.perf_counter()
        try:
            await self._store.write(number, self._value)
        except ordercast.OrdercastError as error:
            self.failed[type(error).__name__] += 1
            return
        now = time.perf_counter()
        self._gap, self._last = max(self._gap, now - self._last), now
        self._took.append(now - begun)


def memory_mb(what: str) -> float:
    """Of this process: VmRSS, or VmHWM."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return round(int(line.split()[1]) / 1024, 1)
    raise RuntimeError(f"there is no {what} in /proc/self/status: this needs Linux")


async def serve(job: dict[str, Any]) -> None:
    """Do what the parent process says, a line at a time."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    more: dict[str, Any] = {"primary": "majority", "voters": VOTERS} if job["protocol"] == "totem" else {}
    if job["key"]:
        more["key"] = job["key"]
    seeds = [] if job["id"] == 1 else [job["first"]]
    node = Node(id=job["id"], listen=job["listen"], seeds=seeds, protocol=job["protocol"], **more)
    stores: dict[str, Store] = {}
    load: Load | None = None
    await node.start()
    tell({"ready": True})
    while line := await reader.readline():
        what = json.loads(line)
        answer: Any = None
        match what["do"]:
            case "replicate":
                begun = time.perf_counter()
                stores[what["name"]] = await node.replicate(Store(), what["name"], timeout=600)
                answer = round(time.perf_counter() - begun, 2)
            case "fill":
                for first in range(0, what["entries"], AT_ONCE):
                    await stores["large"].fill(first, AT_ONCE, what["size"])
            case "sync":
                await stores["large"].sync()
                answer = len(stores["large"].values)
            case "load":
                load = Load(stores["large"], what["rate"], what["entries"], what["size"])
            case "begin":
                assert load is not None
                load.begin()
            case "end":
                assert load is not None
                answer = load.end()
            case "memory":
                if what["reset"]:
                    Path("/proc/self/clear_refs").write_text("5")
                answer = {"rss_mb": memory_mb("VmRSS"), "peak_mb": memory_mb("VmHWM")}
        tell({"answer": answer})
    await node.stop()


def tell(what: dict[str, Any]) -> None:
    """Say something to the parent process."""
    print(json.dumps(what), flush=True)


# --- all of them --------------------------------------------------------------------------------


class Worker:
    """A node's process, as the parent knows it."""

    def __init__(self, job: dict[str, Any]) -> None:
        command = [sys.executable, __file__, "--worker", json.dumps(job)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.id = job["id"]

    def hear(self) -> dict[str, Any]:
        """What it says next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"node {self.id} has ended: see what it wrote above")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def ask(self, do: str, **more: Any) -> None:
        """Have it do something."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()

    def do(self, do: str, **more: Any) -> Any:
        """Have it do something; what came of it."""
        self.ask(do, **more)
        return self.hear()["answer"]

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All of it."""
    key = None
    if options.sealed:
        from ordercast import keys

        key = keys.written(keys.generate())
    ids = (*VOTERS, NEW)
    addresses = {id: f"127.0.0.1:{port}" for id, port in zip(ids, free_ports(len(ids)), strict=True)}
    workers = {
        id: Worker(
            {
                "id": id,
                "listen": addresses[id],
                "first": addresses[1],
                "protocol": options.protocol,
                "key": key,
            }
        )
        for id in ids
    }
    try:
        for worker in workers.values():
            worker.hear()
        return measured(workers, options)
    finally:
        for worker in workers.values():
            worker.end()


def measured(workers: dict[int, Worker], options: argparse.Namespace) -> dict[str, Any]:
    """The same, of nodes that run."""
    voters = [workers[id] for id in VOTERS]
    for name in ("large", "empty"):
        for worker in voters:
            worker.do("replicate", name=name)
    voters[0].do("fill", entries=options.entries, size=options.size)
    for worker in voters:
        if worker.do("sync") != options.entries:
            raise RuntimeError(f"node {worker.id} has not all of the state")
        worker.do("load", rate=options.rate, entries=options.entries, size=options.size)
    time.sleep(3)

    def window(name: str | None) -> dict[str, Any]:
        for worker in voters:
            worker.do("begin")
        took = None
        if name is None:
            time.sleep(STEADY_S)
        else:
            took = workers[NEW].do("replicate", name=name)
            time.sleep(1)
        return {"took_s": took, "nodes": {worker.id: worker.do("end") for worker in voters}}

    found: dict[str, Any] = {"steady": window(None), "empty": window("empty")}
    before = {worker.id: worker.do("memory", reset=True) for worker in workers.values()}
    found["large"] = window("large")
    after = {worker.id: worker.do("memory", reset=False) for worker in workers.values()}
    gaps = {name: max(each["gap_ms"] for each in one["nodes"].values()) for name, one in found.items()}
    given = workers[NEW].do("sync")
    return {
        "protocol": options.protocol,
        "sealed": options.sealed,
        "entries": options.entries,
        "size": options.size,
        "rate": options.rate,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        **found,
        "gap_ms": gaps,
        "memory_mb": {
            id: {
                "before": before[id]["rss_mb"],
                "peak": after[id]["peak_mb"],
                "ratio": round(after[id]["peak_mb"] / before[id]["rss_mb"], 3),
            }
            for id in VOTERS
        },
        "receiver_mb": after[NEW]["rss_mb"],
        "took_s": found["large"]["took_s"],
        "entries_at_receiver": given,
    }


def show(told: dict[str, Any]) -> None:
    """For people."""
    console = Console()
    title = f"{told['entries']:,} × {told['size']:,} B, {told['protocol']}, {told['rate']:g}/s from each of 3"
    table = Table("", "took s", "longest gap ms", "p50 ms", "p99 ms", "answered/s of each", title=title)
    for name in ("steady", "empty", "large"):
        nodes = told[name]["nodes"].values()
        table.add_row(
            name,
            str(told[name]["took_s"] or ""),
            str(told["gap_ms"][name]),
            *(f"{statistics.median(each[what] for each in nodes):.1f}" for what in ("p50_ms", "p99_ms")),
            " ".join(str(each["answered_per_s"]) for each in nodes),
        )
    console.print(table)
    for id, memory in told["memory_mb"].items():
        console.print(f"memory of node {id}: {memory['before']} MB, at most {memory['peak']} MB meanwhile")


def main() -> None:
    """Measure, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--protocol", default="total")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=1_000.0)
    parser.add_argument("--sealed", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        asyncio.run(serve(json.loads(options.worker)))
        return
    told = measure(options)
    if options.json:
        print(json.dumps(told))
    else:
        show(told)


if __name__ == "__main__":
    main()
