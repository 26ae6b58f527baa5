"""One node of a measurement, in a process of its own: ``python -m ordercast.measure.worker``.

The coordinator (`ordercast.measure.bench`) talks to it over stdin and stdout, a JSON object a line: see
`ordercast.measure.job`.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ordercast.core.identity import Kind, NodeId
from ordercast.groups.api import Group, Node
from ordercast.groups.events import ConfigurationChange, Delivery
from ordercast.measure.alarm import Alarm
from ordercast.measure.job import Await, Begin, Figures, Job, Ready, Sent, WorkerResult
from ordercast.measure.latency import Latencies
from ordercast.measure.loads import GROUP, GroupLoad, Turns, random_payload, sent_ns, timed
from ordercast.runtime.storage import DataDirectory

MEETING_S = 30.0
"""How long the nodes have to find each other."""
BATCH_BYTES = 50_000
"""Flat out, about how many bytes are handed over at a time."""
LARGEST_BATCH = 500
"""Flat out, the most messages that are handed over at a time."""
SAMPLE = 16
"""Flat out, the bytes of the messages count in one packet of so many; at a given rate, in each."""
TICK_NS = 200_000
"""At a given rate a node wakes for the next message no sooner than this after the last one: what is due
meanwhile goes together."""

Told = TypeVar("Told")


class Worker:
    """A node, its load, and what it sees."""

    def __init__(self, job: Job) -> None:
        self.job = job
        sample = SAMPLE if job.rate is None else 1
        names = [GROUP] if job.local_group is None else [GROUP, job.local_group]
        self.loads = [GroupLoad(name, sample) for name in names]
        self.delivered = 0
        """Messages, in all groups and configurations."""
        self._configurations: list[list[NodeId]] = []
        self._own_latencies, self._far_latencies = Latencies(), Latencies()
        self._life = 0
        """The life that is sent in."""
        self._last_ns = 0
        self._gap_ns = 0
        self._under_load = False

    async def run(self) -> None:
        """Start the node, put load on the groups, and tell what was measured."""
        job = self.job
        key = None if job.key is None else Path(job.key)
        DataDirectory.initialise(Path(job.data), job.node)  # it is new, and waits for no second to be over
        node = Node(
            id=job.node,
            listen=None if job.rings else job.listen,
            seeds=() if job.rings else job.seeds,
            ring=tuple(place.settings(key) for place in job.rings),
            data=job.data,
            log=job.log,
            trace=job.trace,
            key=None if job.rings else key,
            insecure=job.key is None,
            protocol=job.protocol,
            profile=job.profile,
            settings=job.settings,
        )
        async with node:
            say(Ready(node.address, 1))
            groups = [await node.join(load.name) for load in self.loads]
            reading = [
                asyncio.create_task(self._read(*each)) for each in zip(groups, self.loads, strict=True)
            ]
            await node.wait_for(job.nodes, MEETING_S)
            say(Ready(node.address, job.nodes))
            begin = await hear(Begin)
            self._configurations.clear()  # how the group was formed
            load = asyncio.create_task(self._load(node, groups, begin.at_ns))
            done, _ = await asyncio.wait((load, *reading), return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                await ended  # raises what ended the node
            figures, status = await load
            say(Sent({each.name: each.sent for each in self.loads}))
            missing = await self._arrival(await hear(Await))
            say(
                WorkerResult(
                    figures=figures,
                    lives={each.name: each.lives() for each in self.loads},
                    configurations=self._configurations,
                    missing=missing,
                    status=status,
                )
            )
            await asyncio.to_thread(sys.stdin.readline)  # the others may still need this node

    # --- receiving -----------------------------------------------------------------------------

    async def _read(self, group: Group, load: GroupLoad) -> None:
        me, far = self.job.node, frozenset(self.job.far)
        own_took, far_took = self._own_latencies.add, self._far_latencies.add
        async for entry in group.batches():
            if isinstance(entry, Delivery):
                now = time.monotonic_ns()
                if now - self._last_ns > self._gap_ns and self._under_load:
                    self._gap_ns = now - self._last_ns
                self._last_ns = now
                load.add(entry)
                self.delivered += len(entry.payloads)
                if entry.sender == me:
                    if entry.incarnation == self._life:
                        for stamp_ns in load.returned(len(entry.payloads)):
                            own_took(now - stamp_ns)
                elif entry.sender in far and (stamp_ns := sent_ns(entry.payloads[0])):
                    far_took(now - stamp_ns)
            elif isinstance(entry, ConfigurationChange):
                load.install(entry)
                if load is self.loads[0] and entry.kind is Kind.REGULAR:
                    self._configurations.append(list(entry.members))

    async def _arrival(self, expected: Await) -> int:
        """Wait for so many messages, by group and sender; how many never came."""
        until = time.monotonic() + expected.seconds
        while True:
            missing = [load.missing(expected.messages[load.name]) for load in self.loads]
            if not any(missing) or time.monotonic() > until:
                return sum(abs(count) for each in missing for count in each.values())
            await asyncio.sleep(0.01)

    # --- sending -------------------------------------------------------------------------------

    async def _load(
        self, node: Node, groups: Sequence[Group], begin_ns: int
    ) -> tuple[Figures, dict[str, object]]:
        job = self.job
        await asyncio.sleep((begin_ns - time.monotonic_ns()) / 1e9)
        before = (time.monotonic_ns(), time.process_time(), self.delivered, _memory_mb())
        self._last_ns, self._under_load = before[0], True
        end_ns = begin_ns + int(job.seconds * 1e9)
        sending = asyncio.create_task(
            self._send_flat_out(node, groups, end_ns)
            if job.rate is None
            else self._send_paced(node, groups, begin_ns, end_ns)
        )
        await asyncio.sleep((end_ns - time.monotonic_ns()) / 1e9)
        now, cpu_s, count, memory = time.monotonic_ns(), time.process_time(), self.delivered, _memory_mb()
        self._under_load = False
        gap_ns = max(self._gap_ns, now - self._last_ns) if job.rate != 0 else 0
        sent, own, status = self._sent, sum(load.own for load in self.loads), node.status()
        latencies, far = self._own_latencies.frozen(), self._far_latencies.frozen()
        await sending
        elapsed = (now - before[0]) / 1e9
        figures = Figures(
            node=job.node,
            sent_per_s=round(sent / elapsed, 1),
            ordered_per_s=round(own / elapsed, 1),
            delivered_per_s=round((count - before[2]) / elapsed, 1),
            p50_us=latencies.percentile_us(50),
            p99_us=latencies.percentile_us(99),
            far_p50_us=far.percentile_us(50),
            far_p99_us=far.percentile_us(99),
            longest_gap_ms=round(gap_ns / 1e6, 3),
            cpu=round((cpu_s - before[1]) / elapsed, 4),
            rss_mb=(before[3], memory),
            samples=latencies.count,
            far_samples=far.count,
        )
        return figures, status

    @property
    def _sent(self) -> int:
        return sum(load.sent for load in self.loads)

    def _stamp(self, node: Node, load: GroupLoad, now_ns: int) -> None:
        """The next message is timed. A node may have begun another life meanwhile."""
        if node.incarnation != self._life:
            self._life = node.incarnation
            for each in self.loads:
                each.begin_life()
        load.stamp(now_ns)

    async def _send_flat_out(self, node: Node, groups: Sequence[Group], end_ns: int) -> None:
        """As much as is taken. The first message of each batch is timed."""
        size, safe = self.job.size, self.job.safe
        payloads = [random_payload(size)] * max(1, min(LARGEST_BATCH, BATCH_BYTES // max(1, size)))
        turns = Turns(self.loads, self.job.locality)
        now = time.monotonic_ns
        while (begun := now()) < end_ns:
            turn = turns.next()
            load = self.loads[turn]
            self._stamp(node, load, begun)
            payloads[0] = timed(payloads[0], begun)
            await groups[turn].send_many(payloads, safe=safe)
            load.sent += len(payloads)

    async def _send_paced(self, node: Node, groups: Sequence[Group], begin_ns: int, end_ns: int) -> None:
        """On a schedule that does not drift: each message at a random moment of its own interval, as of
        applications that do not know of each other. Every message is timed from its own `send`."""
        rate, size, safe = self.job.rate, self.job.size, self.job.safe
        if not rate:
            return
        payload, every_ns = random_payload(size), 1e9 / rate
        turns = Turns(self.loads, self.job.locality)
        now = time.monotonic_ns
        with Alarm() as alarm:
            while (due_ns := begin_ns + int((self._sent + random.random()) * every_ns)) < end_ns:
                if due_ns > (begun := now()):
                    await alarm.until(max(due_ns, begun + TICK_NS))
                    begun = now()
                turn = turns.next()
                load = self.loads[turn]
                self._stamp(node, load, begun)
                await groups[turn].send(timed(payload, begun), safe=safe)
                load.sent += 1


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
