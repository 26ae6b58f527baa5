"""One node of the demo, in a process of its own: ``python -m ordercast.demo.worker``.

It is told what to do on stdin, and reports on stdout (`ordercast.demo.messages`); its log is stderr. When
stdin ends, so does it: nobody is there any more to whom it could matter.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import BinaryIO

import msgspec

from ordercast.core.identity import Kind
from ordercast.demo.messages import (
    SAFE_EVERY,
    Close,
    Instruction,
    Job,
    Leave,
    Report,
    StartSending,
    StopSending,
)
from ordercast.groups.api import Group, Node
from ordercast.groups.events import ConfigurationChange, Delivery, Rejoined
from ordercast.measure.order import DeliveryDigests

GROUP = "demo"
EVERY_S = 0.15
"""Seconds from one report to the next."""
TICK_S = 0.02
"""Seconds from one burst of messages to the next."""


class Worker:
    """A member of the group: what it sends, and what it sees."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._digests = DeliveryDigests(job.early)
        self._life = 0
        """Which life the digests and the counts are of; the node itself may be further."""
        self._sent: Counter[int] = Counter()
        """Messages by the life that sent them; and how many of these came back."""
        self._own: Counter[int] = Counter()
        self._delivered = self._safe = 0
        self._installed_s = 0.0
        self._last_s = 0.0
        self._gap_s = 0.0
        self._sending: asyncio.Task[None] | None = None

    async def run(self, words: asyncio.Queue[Instruction]) -> None:
        """A life, until it is told to leave."""
        job = self._job
        node = Node(
            listen=None if job.rings else "127.0.0.1:0",
            seeds=() if job.rings else job.seeds,
            ring=tuple(place.settings(Path(job.key)) for place in job.rings),
            data=job.data,
            key=None if job.rings else job.key,
            trace=job.trace,
            protocol=job.protocol,
        )
        async with node:
            self._life = node.incarnation
            group = await node.join(GROUP)
            reading = asyncio.create_task(self._read(node, group))
            reporting = asyncio.create_task(self._report_on(node))
            obeying = asyncio.create_task(self._obey(node, group, words))
            await asyncio.wait((reading, reporting, obeying), return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, reporting, obeying):
                if task.done():
                    task.result()  # raises what went wrong
            reporting.cancel()

    async def _obey(self, node: Node, group: Group, words: asyncio.Queue[Instruction]) -> None:
        while True:
            match await words.get():
                case StartSending():
                    self._sending = asyncio.create_task(self._send(node, group))
                case StopSending():
                    if self._sending is not None:
                        self._sending.cancel()
                        self._sending = None
                        self._last_s = 0.0
                case Close():
                    self._digests.close()
                    self._report(node)
                case Leave():
                    return

    # --- sending and receiving ------------------------------------------------------------------

    async def _send(self, node: Node, group: Group) -> None:
        """At a steady rate; what could not be sent while the process was stopped is not made up for."""
        due, last = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            due += self._job.rate * min(now - last, 5 * TICK_S)
            last = now
            while due >= 1.0:
                due -= 1.0
                number = self._sent[node.incarnation] + 1
                payload = f"message {number} of node {node.id}, life {node.incarnation}".encode()
                await group.send(payload, safe=number % SAFE_EVERY == 0)
                self._sent[node.incarnation] += 1

    async def _read(self, node: Node, group: Group) -> None:
        async for entry in group.batches():
            if isinstance(entry, ConfigurationChange):
                if isinstance(entry, Rejoined):
                    self._begin_life(node)
                self._digests.install(entry)
                if entry.kind is Kind.REGULAR:
                    self._installed_s = time.monotonic()
            if not isinstance(entry, Delivery):
                continue
            now = time.monotonic()
            if self._last_s:
                self._gap_s = max(self._gap_s, now - self._last_s)
            self._last_s = now if self._sending is not None else 0.0
            self._digests.add(entry)
            self._delivered += len(entry.payloads)
            self._safe += len(entry.payloads) if entry.safe else 0
            if entry.sender == node.id:
                self._own[entry.incarnation] += len(entry.payloads)

    def _begin_life(self, node: Node) -> None:
        """The group had gone on without this node: what it delivered until then stands as it is."""
        closed = self._digests.closed
        self._digests.leave_behind()
        self._report(node)
        self._digests = DeliveryDigests(whole=False)
        self._digests.closed = closed
        self._life = node.incarnation
        self._delivered = self._safe = 0

    # --- reporting ------------------------------------------------------------------------------

    async def _report_on(self, node: Node) -> None:
        while True:
            self._report(node)
            await asyncio.sleep(EVERY_S)

    def _report(self, node: Node) -> None:
        status, configuration = node.status(), node.configuration
        slow = status["slow"] or {"node": None, "waits_us": 0.0}
        blocks, ends = self._digests.take()
        gap_s, self._gap_s = self._gap_s, 0.0
        say(
            Report(
                at_s=time.monotonic(),
                node=node.id,
                incarnation=self._life,
                address=node.address,
                configuration=configuration.id,
                members=configuration.members,
                regular=configuration.kind is Kind.REGULAR,
                installed_s=self._installed_s,
                flowing=self._sending is not None,
                sent=self._sent[self._life],
                own=self._own[self._life],
                place=self._digests.place,
                closed=self._digests.closed,
                delivered=self._delivered,
                safe=self._safe,
                rotation_us=status["rotation_us"],
                slow=slow["node"],
                waits_us=slow["waits_us"],
                gap_s=gap_s,
                blocks=blocks,
                ends=ends,
            )
        )


def say(report: Report) -> None:
    """Write a report to stdout, for the process that runs the demo."""
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


def listen(told: BinaryIO, loop: asyncio.AbstractEventLoop, words: asyncio.Queue[Instruction]) -> None:
    """Hand on what the director says; without one, end at once. Runs in a thread of its own."""
    while line := told.readline():
        loop.call_soon_threadsafe(words.put_nowait, msgspec.json.decode(line, type=Instruction))
    os._exit(0)


async def live(told: BinaryIO) -> None:
    """Read the job, and be a node until told to leave."""
    job = msgspec.json.decode(told.readline(), type=Job)
    words: asyncio.Queue[Instruction] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    threading.Thread(target=listen, args=(told, loop, words), daemon=True).start()
    await Worker(job).run(words)


def main() -> None:
    """Be a node, as stdin tells."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s.%(msecs)03d %(levelname)-7s %(message)s",
        datefmt="%F %T",
    )
    logging.getLogger("ordercast").setLevel(logging.DEBUG)  # each change of state, and why
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as told:  # a thread may be left waiting
        asyncio.run(live(told))


if __name__ == "__main__":
    main()
