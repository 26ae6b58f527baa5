"""PySyncObj, from PyPI: Raft in Python, one process a namespace, a replicated counter of messages.

    cd bench && sudo ../.venv/bin/python -m peers.pysyncobj --size 1024 --seconds 5

Prints one JSON object. Set for speed: the log in memory without a journal, batches every 10 ms instead of
every 100 (a tenth of the latency, no less throughput), each process ticks it in a loop of its own and keeps
many messages under way.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import importlib.util
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ordercast.core.percentiles import percentile
from ordercast.measure.netns import Namespaces
from peers.figures import PeerMissing, Row, arguments, summed_up

INSTALL = "pip install 'ordercast[bench]'"
UNDER_WAY = 2000
"""Messages a node has sent and not yet seen applied, when it sends flat out."""
TIMEOUT_S = 40.0
BENCH = Path(__file__).resolve().parent.parent


def missing() -> str | None:
    """Why PySyncObj cannot be measured here; None if it can."""
    if importlib.util.find_spec("pysyncobj") is None:
        return f"PySyncObj is not measured, it is not installed: {INSTALL}"
    return None


def measure(*, size: int, seconds: float, rate: float = 0, nodes: int = 3, under_way: int = UNDER_WAY) -> Row:
    """One run. `rate` is messages/s a node, 0 flat out."""
    reason = missing()
    if reason is not None:
        raise PeerMissing(reason)
    with Namespaces(nodes) as network:
        workers = []
        for node in network.nodes:
            job = {
                "node": node,
                "addresses": [f"{network.address(other)}:4321" for other in network.nodes],
                "size": size,
                "seconds": seconds,
                "rate": rate,
                "under_way": under_way,
            }
            command = [sys.executable, "-m", "peers.pysyncobj", "--worker", json.dumps(job)]
            workers.append(
                network.start(
                    node, command, cwd=BENCH, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
            )
        figures = []
        for worker in workers:
            out, err = worker.communicate(timeout=seconds + 2 * TIMEOUT_S)
            if worker.returncode != 0:
                raise RuntimeError(f"a process with PySyncObj failed: {err.strip()[-2000:]}")
            figures.append(json.loads(out))
    return {"system": "pysyncobj", "size": size, "mode": "rate" if rate else "flat", **summed_up(figures)}


# --- in the process of a node ------------------------------------------------------------------


def work(job: dict[str, Any]) -> dict[str, float]:
    """Send and count for the given time, once all are there."""
    library: Any = importlib.import_module("pysyncobj")  # it has no types

    class Counter(library.SyncObj):  # type: ignore[misc]
        def __init__(self, me: str, others: list[str]) -> None:
            tuned = library.SyncObjConf(autoTick=False, commandsQueueSize=100_000, appendEntriesPeriod=0.01)
            super().__init__(me, others, tuned)
            self.present = 0
            self.applied = 0
            self.last = 0.0
            self.longest_gap = 0.0

        @library.replicated  # type: ignore[untyped-decorator]
        def arrive(self) -> None:
            self.present += 1

        @library.replicated  # type: ignore[untyped-decorator]
        def append(self, payload: bytes) -> None:
            self.applied += 1
            now = time.monotonic()
            if self.last and now - self.last > self.longest_gap:
                self.longest_gap = now - self.last
            self.last = now

    addresses = list(job["addresses"])
    me = addresses.pop(job["node"] - 1)
    counter = Counter(me, addresses)
    _meet(counter, len(addresses) + 1)

    payload, rate, most = bytes(job["size"]), job["rate"], job["under_way"]
    latencies: list[float] = []
    sent = done = 0

    def sender(began: float) -> Any:
        def applied(_result: object, error: int) -> None:
            nonlocal done
            done += 1
            if error == 0:
                latencies.append(time.monotonic() - began)

        return applied

    start, before = time.monotonic(), counter.applied
    while (now := time.monotonic()) - start < job["seconds"]:
        due = math.floor((now - start) * rate) - sent if rate else most - (sent - done)
        for _ in range(min(due, most)):
            counter.append(payload, callback=sender(time.monotonic()))
            sent += 1
        counter.doTick(0.0 if not rate else 0.0005)
    elapsed = time.monotonic() - start
    delivered = counter.applied - before
    until = time.monotonic() + 1.0
    while time.monotonic() < until:  # the others may still need this one
        counter.doTick(0.01)
    took_us = collections.Counter(round(latency_s * 1e6) for latency_s in latencies)
    return {
        "node": job["node"],
        "sent_per_s": sent / elapsed,
        "delivered_per_s": delivered / elapsed,
        "p50_us": percentile(took_us, 50) or 0,
        "p99_us": percentile(took_us, 99) or 0,
        "longest_gap_ms": counter.longest_gap * 1e3,
    }


def _meet(counter: Any, members: int) -> None:
    until = time.monotonic() + TIMEOUT_S
    arrived = False
    while counter.present < members:
        counter.doTick(0.01)
        if counter.isReady() and not arrived:
            counter.arrive()
            arrived = True
        if time.monotonic() > until:
            raise SystemExit(f"only {counter.present} of {members} processes met")


def main() -> None:
    """One run, as JSON."""
    parser = arguments(__doc__)
    parser.add_argument("--under-way", type=int, default=UNDER_WAY, help="messages not yet applied, a node")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        print(json.dumps(work(json.loads(asked.worker))))
        return
    run = {"size": asked.size, "seconds": asked.seconds, "rate": asked.rate, "nodes": asked.nodes}
    print(json.dumps(measure(under_way=asked.under_way, **run)))


if __name__ == "__main__":
    main()
