"""Clients of three nodes beside those of three nats-servers: the same nats-py clients, the same load.

    .venv/bin/python bench/clients.py [--json] [--repeat 3] [--processes 1,2]

Three servers of each kind on loopback, JetStream in files with three replicas and nodes with a log. What is
measured, in turns, so that whatever else the machine does hits both alike (medians over the repeats):

* acknowledged one at a time: the median latency of a publish that waits for its acknowledgement
* acknowledged with 200 in flight: publishes a second, by one client process and by more
* plain: messages a second from a publisher to a subscriber in another process, through one server

Each process of clients is one event loop; `--processes` says how many there are where the rate is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nats
from rich.console import Console
from rich.table import Table
from server_groups import STREAM, SUBJECTS, Servers, nats_servers, nodes

from ordercast.measure.loopback import die_with_parent

PAYLOAD = bytes(100)
IN_FLIGHT = 200
ONE_BY_ONE, MANY, PLAIN = 2_000, 20_000, 200_000
"""Messages of each measurement."""


# --- one process of clients ---------------------------------------------------------------------


async def one_by_one(url: str, count: int) -> dict[str, float]:
    """Latency of publishes that wait for their acknowledgement, in µs."""
    client = await nats.connect(url)
    stream = client.jetstream(timeout=30)
    for _ in range(100):
        await stream.publish("bench.one", PAYLOAD)
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        await stream.publish("bench.one", PAYLOAD)
        took.append(time.perf_counter() - begun)
    await client.close()
    took.sort()
    return {"p50_us": took[count // 2] * 1e6, "p99_us": took[count * 99 // 100] * 1e6}


async def many(url: str, count: int) -> dict[str, float]:
    """Publishes a second with `IN_FLIGHT` of them under way."""
    client = await nats.connect(url)
    stream = client.jetstream(timeout=30, publish_async_max_pending=IN_FLIGHT)
    for _ in range(10):
        await stream.publish("bench.many", PAYLOAD)
    begun, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        await stream.publish_async("bench.many", PAYLOAD, wait_stall=30)
    await stream.publish_async_completed()
    took = time.perf_counter() - begun
    await client.close()
    return {"per_s": count / took, "cpu": (time.process_time() - cpu) / took}


async def publish(url: str, count: int) -> dict[str, float]:
    """Plain messages, as fast as they are taken."""
    client = await nats.connect(url)
    cpu, begun = time.process_time(), time.perf_counter()
    for number in range(count):
        await client.publish("plain", PAYLOAD)
        if number % 1_000 == 999:
            await client.flush(30)
    await client.flush(30)
    took = time.perf_counter() - begun
    await client.close()
    return {"per_s": count / took, "cpu": (time.process_time() - cpu) / took}


async def subscribe(url: str, count: int) -> dict[str, float]:
    """Their arrival."""
    client = await nats.connect(url, pending_size=64 * 1024 * 1024)
    seen = 0
    begun = ended = cpu = 0.0
    done = asyncio.Event()

    async def received(_: Any) -> None:
        nonlocal seen, begun, ended, cpu
        if not seen:
            begun, cpu = time.perf_counter(), time.process_time()
        seen += 1
        if seen == count:
            ended = time.perf_counter()
            done.set()

    await client.subscribe("plain", cb=received, pending_msgs_limit=-1, pending_bytes_limit=-1)
    await client.flush()
    await client.flush()
    print("ready", flush=True)
    await asyncio.wait_for(done.wait(), 120)
    await client.close()
    took = ended - begun
    return {"per_s": count / took, "cpu": (time.process_time() - cpu) / took}


JOBS = {"one_by_one": one_by_one, "many": many, "publish": publish, "subscribe": subscribe}


class ClientProcesses:
    """Processes of clients, each with a job."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[str]] = []

    def begin(self, job: str, url: str, count: int) -> subprocess.Popen[str]:
        """One more; it prints its figures at the end."""
        words = [sys.executable, os.path.abspath(__file__), "--job", job, "--url", url, "--count", str(count)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        self._running.append(process)
        return process

    def figures(self) -> list[dict[str, float]]:
        """Of all, when all are done."""
        found = []
        for process in self._running:
            out, _ = process.communicate(timeout=300)
            if process.returncode:
                raise SystemExit("a process of clients failed: what it said is above")
            found.append(json.loads(out.splitlines()[-1]))
        return found


# --- a measurement ------------------------------------------------------------------------------


def measure(servers: Servers, processes: Sequence[int], share: float) -> dict[str, float]:
    """All figures of one kind of server, once."""
    found: dict[str, float] = {}
    clients = ClientProcesses()
    clients.begin("one_by_one", servers.urls[0], round(ONE_BY_ONE * share))
    (alone,) = clients.figures()
    found["one at a time p50 µs"], found["one at a time p99 µs"] = alone["p50_us"], alone["p99_us"]
    for number in processes:
        clients, cpu, begun = ClientProcesses(), servers.cpu_s(), time.perf_counter()
        for which in range(number):
            clients.begin("many", servers.urls[which % 3], round(MANY * share / number))
        rates = clients.figures()
        took = time.perf_counter() - begun
        found[f"{IN_FLIGHT} in flight, {number} processes, /s"] = sum(each["per_s"] for each in rates)
        found[f"  processors of clients, {number}"] = sum(each["cpu"] for each in rates)
        found[f"  processors of servers, {number}"] = (servers.cpu_s() - cpu) / took
    clients, cpu, begun = ClientProcesses(), servers.cpu_s(), time.perf_counter()
    reader = clients.begin("subscribe", servers.urls[0], round(PLAIN * share))
    assert reader.stdout is not None
    assert reader.stdout.readline() == "ready\n"
    clients.begin("publish", servers.urls[0], round(PLAIN * share))
    received, sent = clients.figures()
    found["plain, received/s"], found["plain, sent/s"] = received["per_s"], sent["per_s"]
    found["  processors of clients, plain"] = received["cpu"] + sent["cpu"]
    found["  processors of servers, plain"] = (servers.cpu_s() - cpu) / (time.perf_counter() - begun)
    return found


async def add_stream(servers: Servers) -> None:
    """A stream with three replicas, in files, as nodes have it from the beginning."""
    client = await nats.connect(servers.urls[0])
    stream = client.jetstream(timeout=10)
    for attempt in range(50):
        try:
            await stream.add_stream(name=STREAM, subjects=[SUBJECTS], num_replicas=3)
            break
        except Exception:
            if attempt == 49:
                raise
            await asyncio.sleep(0.2)
    await client.close()


def main() -> None:
    """Measure both, and print them side by side."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--share", type=float, default=1.0, help="of the usual number of messages")
    parser.add_argument("--only", choices=("nats-server", "ordercast"))
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        print(json.dumps(asyncio.run(JOBS[given.job](given.url, given.count))))
        return
    processes = [int(number) for number in given.processes.split(",")]
    rows: dict[str, list[dict[str, float]]] = {}
    for _ in range(given.repeat):
        for name, start in (("nats-server", nats_servers), ("ordercast", nodes)):
            if given.only in (None, name):
                with tempfile.TemporaryDirectory() as directory, start(Path(directory)) as servers:
                    if name == "nats-server":
                        asyncio.run(add_stream(servers))
                    rows.setdefault(name, []).append(measure(servers, processes, given.share))
    medians = {
        name: {figure: statistics.median(each[figure] for each in found) for figure in found[0]}
        for name, found in rows.items()
    }
    if given.json:
        print(json.dumps(medians))
        return
    table = Table("", *medians, *(["ratio"] if len(medians) == 2 else []))
    for figure in next(iter(medians.values())):
        values = [found[figure] for found in medians.values()]
        ratio = [f"{values[1] / values[0]:.2f}"] if len(values) == 2 and values[0] else []
        table.add_row(
            figure, *(f"{value:,.2f}" if value < 100 else f"{value:,.0f}" for value in values), *ratio
        )
    Console().print(table)


if __name__ == "__main__":
    main()
