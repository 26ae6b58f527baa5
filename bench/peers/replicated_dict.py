"""A worker of `bench/replicated.py`: PySyncObj's replicated dict, Raft in Python, from PyPI.

Set for speed: the log in memory and never compacted, each process ticks it in a loop of its own, so that no
thread takes the interpreter from another. Its period of appending decides on throughput and latency: the
bench says which one, and its defaults are the best that were found (`docs/performance.md`).
"""

from __future__ import annotations

import importlib
import queue
import sys
import time
from typing import Any

import msgspec

from peers.workers import Words, keys_of, latency, orders, say

TIMEOUT_S = 40.0


class Job(msgspec.Struct):
    """What a worker is to be."""

    node: int
    addresses: list[str]
    period_s: float
    """Between two messages of the leader to the others, unless"""
    at_once: bool
    """it sends each command as it comes."""
    size: int


class Store:
    """A process that has the dict."""

    def __init__(self, job: Job) -> None:
        library: Any = importlib.import_module("pysyncobj")  # it has no types
        batteries: Any = importlib.import_module("pysyncobj.batteries")
        self.dict: Any = batteries.ReplDict()
        others = [each for each in job.addresses if each != job.addresses[job.node - 1]]
        tuned = library.SyncObjConf(
            autoTick=False,
            appendEntriesPeriod=job.period_s,
            appendEntriesUseBatch=not job.at_once,
            connectionRetryTime=0.2,
            logCompactionMinEntries=1 << 40,
            logCompactionMinTime=1 << 40,
        )
        self.raft: Any = library.SyncObj(job.addresses[job.node - 1], others, tuned, consumers=[self.dict])
        self._keys = keys_of(job.node)
        self._value = bytes(job.size)

    def meet(self) -> None:
        """Until there is a leader, and this process follows it."""
        until = time.monotonic() + TIMEOUT_S
        while not self.raft.isReady():
            self.raft.doTick(0.01)
            if time.monotonic() > until:
                raise SystemExit("the processes with PySyncObj did not meet")

    def set_one_by_one(self, count: int) -> Words:
        """Set, wait for it, set the next; how long each takes."""
        took: list[float] = []
        keys = self._keys
        for number in range(count):
            done: list[int] = []
            begun = time.perf_counter()
            self.dict.set(
                keys[number % len(keys)], self._value, callback=lambda _, e, done=done: done.append(e)
            )
            while not done:
                self.raft.doTick(0.001)
            took.append(time.perf_counter() - begun)
            if done[0]:
                raise SystemExit(f"PySyncObj refused to set: reason {done[0]}")
        return latency(took)

    def set_many(self, seconds: float, in_flight: int) -> Words:
        """Set with many under way; how many a second were acknowledged."""
        sent = done = failed = 0
        keys, value = self._keys, self._value

        def answered(_: object, error: int) -> None:
            nonlocal done, failed
            done += 1
            failed += bool(error)

        begun = time.perf_counter()
        while (now := time.perf_counter()) - begun < seconds:
            for _ in range(in_flight - (sent - done)):
                self.dict.set(keys[sent % len(keys)], value, callback=answered)
                sent += 1
            self.raft.doTick(0.0)
        in_time, until = done - failed, now + TIMEOUT_S
        while done < sent and time.perf_counter() < until:
            self.raft.doTick(0.001)
        return {"per_s": in_time / (now - begun), "failed": failed}


def main() -> None:
    """One process, until its standard input says no more."""
    job = msgspec.json.decode(sys.argv[sys.argv.index("--worker") + 1], type=Job)
    store, told = Store(job), orders()
    store.meet()
    say({"ready": True})
    while True:
        try:
            words = told.get_nowait()
        except queue.Empty:
            store.raft.doTick(0.001)
            continue
        match words["do"]:
            case "leader":
                leader = store.raft.getStatus()["leader"]
                say({"leader": str(leader)})
            case "one by one":
                say(store.set_one_by_one(words["count"]))
            case "many":
                say(store.set_many(words["seconds"], words["in_flight"]))
            case "digest":
                say({"digest": ""})  # it answers for itself


if __name__ == "__main__":
    main()
