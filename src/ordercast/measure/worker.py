"""One node of a measurement, in a process of its own: ``python -m ordercast.measure.worker``.

The coordinator (`ordercast.measure.bench`) talks to it over stdin and stdout, a JSON object a line: see
`ordercast.measure.job`.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ordercast.core.identity import Kind, NodeId
from ordercast.groups.api import Group, Node
from ordercast.groups.events import ConfigurationChange, Delivery, Rejoined
from ordercast.measure.job import Await, Begin, Figures, Job, Ready, Sent, WorkerResult
from ordercast.measure.latency import Latencies
from ordercast.measure.order import Block, DeliveryDigests, End

GROUP = "bench"
MEETING_S = 30.0
"""How long the nodes have to find each other."""
DRAINING_S = 20.0
"""How long messages may take to arrive after the last was sent."""
BATCH_BYTES = 50_000
"""Flat out, about how many bytes are handed over at a time."""
LARGEST_BATCH = 500
"""Flat out, the most messages that are handed over at a time."""
SAMPLE = 16
"""Flat out, the bytes of the messages count in one packet of so many; at a given rate, in each."""
TICK_S = 0.001
"""An event loop's clock: for less than this it does not sleep, it spins. What is due then goes together."""

Told = TypeVar("Told")


class Worker:
    """A member of the group, its load, and what it sees."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.digests = self._new_digests()
        self.delivered = 0
        """Messages, in all configurations; and by who sent them."""
        self.by_sender: Counter[NodeId] = Counter()
        self._lives: list[tuple[list[Block], list[End]]] = []
        self._configurations: list[list[NodeId]] = []
        self.latencies = Latencies()
        self.sent = 0
        self._own = 0
        """Own messages that were delivered, of this life."""
        self._stamps: deque[tuple[int, int]] = deque()
        """Numbers of own messages under way, and when they were sent; in order."""
        self._life = self._sent_before = 0
        """The life that these are of, and how many messages earlier ones had sent."""
        self._last_ns = 0
        self._gap_ns = 0
        self._under_load = False

    async def run(self) -> None:
        """Start the node, put load on the group, and tell what was measured."""
        job = self.job
        key = None if job.key is None else Path(job.key)
        node = Node(
            id=job.node,
            listen=None if job.rings else job.listen,
            seeds=() if job.rings else job.seeds,
            ring=tuple(place.settings(key) for place in job.rings),
            data=job.data,
            log=job.log,
            key=None if job.rings else key,
            insecure=job.key is None,
            protocol=job.protocol,
            profile=job.profile,
            settings=job.settings,
        )
        async with node:
            say(Ready(node.address, 1))
            group = await node.join(GROUP)
            reading = asyncio.create_task(self._read(group))
            await node.wait_for(job.nodes, MEETING_S)
            say(Ready(node.address, job.nodes))
            begin = await hear(Begin)
            self._configurations.clear()  # how the group was formed
            load = asyncio.create_task(self._load(node, group, begin.at_ns))
            await asyncio.wait((load, reading), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                await reading  # raises what ended the node
            figures, status = await load
            say(Sent(self.sent))
            missing = await self._arrival((await hear(Await)).messages)
            self.digests.close()
            self._lives.append(self.digests.take())
            say(
                WorkerResult(
                    figures=figures,
                    lives=self._lives,
                    configurations=self._configurations,
                    missing=missing,
                    status=status,
                )
            )
            await asyncio.to_thread(sys.stdin.readline)  # the others may still need this node

    # --- receiving -----------------------------------------------------------------------------

    async def _read(self, group: Group) -> None:
        me, stamps, took = self.job.node, self._stamps, self.latencies.add
        async for entry in group.batches():
            if isinstance(entry, Delivery):
                now = time.monotonic_ns()
                if now - self._last_ns > self._gap_ns and self._under_load:
                    self._gap_ns = now - self._last_ns
                self._last_ns = now
                self.digests.add(entry)
                count = len(entry.payloads)
                self.delivered += count
                self.by_sender[entry.sender] += count
                if entry.sender == me and entry.incarnation == self._life:
                    self._own += count
                    while stamps and stamps[0][0] <= self._own:
                        took(now - stamps.popleft()[1])
            elif isinstance(entry, ConfigurationChange):
                self._install(entry)

    def _install(self, configuration: ConfigurationChange) -> None:
        if isinstance(configuration, Rejoined):
            self.digests.leave_behind()
            self._lives.append(self.digests.take())
            self.digests = self._new_digests()
        self.digests.install(configuration)
        if configuration.kind is Kind.REGULAR:
            self._configurations.append(list(configuration.members))

    def _new_digests(self) -> DeliveryDigests:
        return DeliveryDigests(sample=SAMPLE if self.job.rate is None else 1)

    async def _arrival(self, expected: dict[int, int]) -> dict[int, int]:
        """Wait for so many messages of each sender; how many never came."""
        until = time.monotonic() + DRAINING_S
        while True:
            there = self.by_sender
            missing = {
                sender: count - there[sender] for sender, count in expected.items() if there[sender] != count
            }
            if not missing or time.monotonic() > until:
                return missing
            await asyncio.sleep(0.01)

    # --- sending -------------------------------------------------------------------------------

    async def _load(self, node: Node, group: Group, begin_ns: int) -> tuple[Figures, dict[str, object]]:
        job = self.job
        await asyncio.sleep((begin_ns - time.monotonic_ns()) / 1e9)
        before = (time.monotonic_ns(), time.process_time(), self.delivered, _memory_mb())
        self._last_ns, self._under_load = before[0], True
        end_ns = begin_ns + int(job.seconds * 1e9)
        sending = asyncio.create_task(
            self._send_flat_out(node, group, end_ns)
            if job.rate is None
            else self._send_paced(node, group, begin_ns, end_ns)
        )
        await asyncio.sleep((end_ns - time.monotonic_ns()) / 1e9)
        now, cpu_s, count, memory = time.monotonic_ns(), time.process_time(), self.delivered, _memory_mb()
        self._under_load = False
        gap_ns = max(self._gap_ns, now - self._last_ns) if job.rate != 0 else 0
        sent, status = self.sent, node.status()
        latencies = self.latencies.frozen()
        await sending
        elapsed = (now - before[0]) / 1e9
        figures = Figures(
            node=job.node,
            sent_per_s=round(sent / elapsed, 1),
            delivered_per_s=round((count - before[2]) / elapsed, 1),
            p50_us=latencies.percentile_us(50),
            p99_us=latencies.percentile_us(99),
            longest_gap_ms=round(gap_ns / 1e6, 3),
            cpu=round((cpu_s - before[1]) / elapsed, 4),
            rss_mb=(before[3], memory),
            samples=latencies.count,
        )
        return figures, status

    def _stamp(self, node: Node, now_ns: int) -> None:
        """The next message is timed. Its number is that of a life: a node may begin another meanwhile."""
        if node.incarnation != self._life:
            self._life, self._sent_before = node.incarnation, self.sent
            self._stamps.clear()
            self._own = 0
        self._stamps.append((self.sent - self._sent_before + 1, now_ns))

    async def _send_flat_out(self, node: Node, group: Group, end_ns: int) -> None:
        """As much as is taken. The first message of each batch is timed."""
        size, safe = self.job.size, self.job.safe
        payloads = [os.urandom(size)] * max(1, min(LARGEST_BATCH, BATCH_BYTES // max(1, size)))
        now = time.monotonic_ns
        while (begun := now()) < end_ns:
            self._stamp(node, begun)
            await group.send_many(payloads, safe=safe)
            self.sent += len(payloads)

    async def _send_paced(self, node: Node, group: Group, begin_ns: int, end_ns: int) -> None:
        """On a schedule that does not drift; every message is timed from its own `send`."""
        rate, size, safe = self.job.rate, self.job.size, self.job.safe
        if not rate:
            return
        payload, every_ns = os.urandom(size), 1e9 / rate
        now = time.monotonic_ns
        while (due_ns := begin_ns + int(self.sent * every_ns)) < end_ns:
            if (early_ns := due_ns - now()) > 0:
                await asyncio.sleep(max(TICK_S, early_ns / 1e9))
                continue
            self._stamp(node, now())
            await group.send(payload, safe=safe)
            self.sent += 1


def _memory_mb() -> float:
    """Memory that the process has in use now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


# --- words with the coordinator ----------------------------------------------------------------


def say(what: msgspec.Struct) -> None:
    """Write an object to stdout, for the coordinator."""
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


async def hear(kind: type[Told]) -> Told:
    """From the coordinator; without one there is nothing left to do."""
    line = await asyncio.to_thread(sys.stdin.readline)
    if not line:
        raise SystemExit("the coordinator is gone")
    return msgspec.json.decode(line, type=kind)


def main() -> None:
    """Read the job, do it."""
    job = msgspec.json.decode(sys.stdin.readline(), type=Job)
    factory: Any = None
    if job.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(Worker(job).run())


if __name__ == "__main__":
    main()
