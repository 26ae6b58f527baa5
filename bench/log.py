"""How quick an ordered log is: writes one, and reads it from its directory and over TCP, as Arrow batches.

    .venv/bin/python bench/log.py [--millions 5] [--size 100] [--keep DIR] [--sync]

Prints one JSON object: rows a second, and for writing the processor time a message, which says what a log
costs a node whatever else the machine does. The service runs in a process of its own, with and without a key.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from ordercast.core.addresses import address
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.keys import Keyring, generate
from ordercast.log import Replica
from ordercast.log.service import Service
from ordercast.log.store import Delivered, Installed, Store

PACKET = 600
"""Messages of a packet, as a saturated ring has them with 100 bytes."""
PACKETS = 15
"""Packets of a commit."""
HERE = ConfigurationId(8, 1)


def write(path: Path, rows: int, size: int, sync: bool) -> dict[str, float]:
    """A log of so many messages."""
    store = Store(path, 1, most_bytes=2**40, sync=sync)
    store.append([Installed(1, Configuration(HERE, Kind.REGULAR, (1,)), True)])
    front, fresh = address(0, ["bench"]), os.urandom(size * PACKET * 2)
    wall = processor = 0.0
    for commit in range(rows // (PACKET * PACKETS)):
        some = []
        for packet in range(commit * PACKETS + 1, (commit + 1) * PACKETS + 1):
            payloads = [front + fresh[at : at + size] for at in range(packet % 97, packet % 97 + PACKET)]
            batch = Batch(HERE, packet, 0, 1 + packet % 3, 0, packet, Guarantee.AGREED, payloads)
            some.append(Delivered(packet, batch))
        began, used = time.perf_counter(), _processor_s()
        store.append(some)
        wall += time.perf_counter() - began
        processor += _processor_s() - used
    entries = store.meta.entries
    found = {
        "rows": entries,
        "bytes": store.meta.bytes,
        "rows_per_s": entries / wall,
        "processor_us_per_row": processor / entries * 1e6,
    }
    store.close()
    return found


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def read(where: str, key: bytes | None = None) -> dict[str, float]:
    """All of a log, once."""
    with Replica(where, key, timeout=60.0) as replica:
        head = replica.bounds().head
        assert head is not None
        began, used = time.perf_counter(), _processor_s()
        rows = batches = payload = 0
        for batch in replica.read(None, head):
            rows += batch.num_rows
            payload += batch["payload"].nbytes
            batches += 1
        wall = time.perf_counter() - began
    return {
        "rows": rows,
        "batches": batches,
        "rows_per_s": rows / wall,
        "mb_per_s": payload / wall / 1e6,
        "processor_us_per_row": (_processor_s() - used) / rows * 1e6,
    }


def _serve(path: Path, key: bytes | None, told: Connection) -> None:
    keyring = None if key is None else Keyring((key,))

    async def serve() -> None:
        service = Service(path, lambda: keyring)
        await service.start("127.0.0.1", 0)
        told.send(service.address)
        began = _processor_s()
        await asyncio.to_thread(told.recv)
        told.send(_processor_s() - began)
        await service.close()

    asyncio.run(serve())


@contextmanager
def served(path: Path, key: bytes | None) -> Iterator[tuple[str, Connection]]:
    """The log's service, in another process; told something, it says how much processor time it used."""
    spawning = multiprocessing.get_context("spawn")
    mine, other = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(path, key, other))
    process.start()
    try:
        yield mine.recv(), mine
    finally:
        process.join()


def main() -> None:
    """Measure, and print what was measured."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--millions", type=float, default=5.0, help="messages")
    words.add_argument("--size", type=int, default=100, help="bytes a message")
    words.add_argument("--keep", type=Path, help="a log that is there already, or is to stay")
    words.add_argument("--sync", action="store_true", help="wait for the disk at each commit, as nodes do")
    told = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="ordercast-bench-log-") as scratch:
        path = told.keep or Path(scratch) / "log"
        found: dict[str, object] = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
        if not (path / "head").exists():
            found["write"] = write(path, int(told.millions * 1e6), told.size, told.sync)
        found["local"] = read(str(path))
        for name, key in (("tcp", None), ("tcp_sealed", generate())):
            with served(path, key) as (address, service):
                there = read(address, key)
                service.send("enough")
                found[name] = {**there, "service_us_per_row": service.recv() / there["rows"] * 1e6}
    print(json.dumps(found, default=float, indent=2))


if __name__ == "__main__":
    main()
