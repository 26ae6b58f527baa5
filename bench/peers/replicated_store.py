"""A worker of `bench/replicated.py`: a map that is replicated by ordercast."""

from __future__ import annotations

import asyncio
import cProfile
import time
from typing import Literal
from zlib import crc32

import msgspec

from ordercast import Node, Replicated, command
from peers.workers import Words, each_order, keys_of, latency, run_worker, say

STARTING_S = 30.0


class Job(msgspec.Struct):
    """What a worker is to be."""

    node: int
    addresses: list[str]
    size: int
    level: Literal["memory", "disk", "majority-disk"]
    directory: str
    """For the disk, if the level needs one."""


class Store(Replicated):
    """Values by key."""

    values: dict[str, bytes]

    def __init__(self) -> None:
        self.values = {}

    @command
    def set(self, key: str, value: bytes) -> None:
        """Set one."""
        self.values[key] = value


class Setting:
    """Who sets."""

    def __init__(self, store: Store, job: Job) -> None:
        self._store = store
        self._keys = keys_of(job.node)
        self._value = bytes(job.size)

    async def one_by_one(self, count: int) -> Words:
        """Set, wait for it, set the next; how long each takes."""
        took = []
        for number in range(count):
            begun = time.perf_counter()
            await self._store.set(self._keys[number % len(self._keys)], self._value)
            took.append(time.perf_counter() - begun)
        return latency(took)

    async def many(self, seconds: float, in_flight: int) -> Words:
        """Set with many under way; how many a second were answered."""
        store, keys, value, sent, done = self._store, self._keys, self._value, 0, 0
        begun, cpu = time.perf_counter(), time.process_time()
        over = begun + seconds
        in_time, ended = 0, over

        async def set_on() -> None:
            nonlocal sent, done, in_time, ended
            while time.perf_counter() < over:
                sent += 1
                await store.set(keys[sent % len(keys)], value)
                done += 1
            if not in_time:
                in_time, ended = done, time.perf_counter()

        await asyncio.gather(*(set_on() for _ in range(in_flight)))
        return {"per_s": in_time / (ended - begun), "failed": 0, "cpu_s": time.process_time() - cpu}


async def work(job: Job) -> None:
    """One node, until its standard input says no more."""
    node = Node(
        id=job.node,
        listen=job.addresses[job.node - 1],
        seeds=job.addresses,
        primary="majority",
        voters=tuple(range(1, len(job.addresses) + 1)),
    )
    async with node:
        until = time.monotonic() + STARTING_S
        while len(node.configuration.members) < len(job.addresses):
            await asyncio.sleep(0.01)
            if time.monotonic() > until:
                raise SystemExit("the nodes did not meet")
        durable = None if job.level == "memory" else job.directory
        store = await node.replicate(Store(), "bench", timeout=STARTING_S, durable=durable, level=job.level)
        setting, profile = Setting(store, job), cProfile.Profile()
        async for words in each_order():
            match words["do"]:
                case "one by one":
                    say(await setting.one_by_one(words["count"]))
                case "many":
                    say(await setting.many(words["seconds"], words["in_flight"]))
                case "digest":
                    await store.sync()
                    say(
                        {
                            "digest": crc32(repr(sorted(store.values.items())).encode()),
                            "keys": len(store.values),
                        }
                    )
                case "profile":
                    profile.enable()
                    say({})
                case "write profile":
                    profile.disable()
                    profile.dump_stats(words["file"])
                    say({})


if __name__ == "__main__":
    run_worker(work, Job)
