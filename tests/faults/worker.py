"""A member of a group in a process of its own: it sends, reads, keeps books, and does what it is told.

``python worker.py JOB``: the job is a JSON object (`Job`). Orders come on stdin and answers go to stdout,
a JSON object a line. The log goes to stderr. Messages say who sent them, in which life and which of its
messages each is, so that what the library tells of a message can be compared with the message itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
import resource
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from ordercast import (
    Configuration,
    ConfigurationChange,
    Delivery,
    Evicted,
    Group,
    Kind,
    Node,
    NodeConfig,
    OrdercastError,
    SendTimeout,
)
from ordercast.runtime.storage import DataDirectory

GROUP = "faults"
MOST_PROBLEMS = 20


class Job(msgspec.Struct):
    """What a worker is."""

    node: int
    listen: str
    seeds: list[str]
    data: str | None
    trace: str | None
    rate: float = 0.0
    """Messages a second; can be changed later."""
    size: int = 60
    safe: float = 0.0
    """This share of the messages asks for the safe guarantee."""
    key: str | None = None
    options: dict[str, Any] = {}
    """More of what a `Node` can be told."""
    descriptors: int = 0
    """How many the process may have open (`ulimit -n`); 0 leaves that as it is."""


class Books:
    """What was delivered, summed up so that members can be compared.

    A *span* goes from one regular configuration to the next. Members that go through the same two
    configurations must have delivered the same between them, in the same order.
    """

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.count = 0
        self.last: dict[str, int] = {}
        """By sender and life, which of its messages came last, as it counts them itself."""
        self._places: dict[str, int] = {}
        """The same, by the numbers that the group gives."""
        self.problems: list[str] = []
        self._digest = hashlib.sha256()
        self._in_span = 0
        self._fresh: set[str] = set()
        """Lives heard since the last configuration: only before that can messages have passed us by."""

    def configuration(self, configuration: Configuration) -> None:
        self._fresh.clear()
        if configuration.kind is not Kind.REGULAR:
            return
        if self.spans:
            self.spans[-1] |= self.now()
        self._digest = hashlib.sha256()
        self._in_span = 0
        self.spans.append({"id": str(configuration.id), "members": configuration.members})

    def now(self) -> dict[str, Any]:
        """The open span as it stands."""
        return {"count": self._in_span, "digest": self._digest.hexdigest()}

    def delivery(self, delivery: Delivery) -> None:
        for message in delivery.messages():
            told = ".".join(map(str, message.id))
            said = message.payload.partition(b"|")[0].decode(errors="replace")
            origin, incarnation, place = message.id
            life = f"{origin}.{incarnation}"
            whose, _, counted = said.rpartition(".")
            number = int(counted) if counted.isdecimal() else -1
            if whose != life or not 0 < number <= place:  # a node's own notes have numbers, too
                self._problem(f"message {told} says that it is {said[:60]}")
            if place <= self._places.get(life, 0):
                self._problem(f"message {told} came after {self._places[life]} of that life")
            self._places[life] = place
            before = self.last.get(life)
            if before is not None and (number <= before or (number > before + 1 and life in self._fresh)):
                self._problem(f"message {told} came after {before} of that life")
            self.last[life] = number
            self._fresh.add(life)
            self._digest.update(b"%d.%d.%d|" % message.id)
        self.count += len(delivery.payloads)
        self._in_span += len(delivery.payloads)

    def _problem(self, sentence: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(sentence)


class Worker:
    """The member."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.books = Books()
        self.sent = 0
        self.rate = job.rate
        self.reads = asyncio.Event()
        self.reads.set()
        self.blocked_ms = (0, 0)
        self.stamps: dict[str, float] = {"begun": time.monotonic()}
        self._chance = random.Random(f"{job.node}/{os.getpid()}")

    async def run(self) -> int:
        job = self.job
        if job.data is not None and not (Path(job.data) / "node.json").exists():
            DataDirectory.initialise(Path(job.data), job.node)
        options: dict[str, Any] = dict(job.options)
        if job.trace is not None:
            options |= {"trace": job.trace, "trace_files": 10_000}
        if job.key is not None:
            options["config"] = NodeConfig(key=Path(job.key))
        if "ring" not in options:  # else each ring has addresses of its own
            options |= {"listen": job.listen, "seeds": job.seeds}
        node = Node(id=job.node, data=job.data, insecure=True, **options)
        try:
            await node.start()
        except OrdercastError as error:
            say("failed", error=type(error).__name__, message=str(error))
            return 3
        group = await node.join(GROUP)
        say("ready", node=node.id, incarnation=node.incarnation, address=node.address, **self.stamps)
        tasks = [
            asyncio.create_task(work)
            for work in (self._read(group), self._send(node, group), self._block(), self._obey(node, group))
        ]
        try:
            await asyncio.wait(
                [*tasks, ending := asyncio.create_task(node.closed())], return_when="FIRST_COMPLETED"
            )
        finally:
            for task in tasks[1:]:
                task.cancel()
        outcome = 0
        ended_by = ending.exception() if ending.done() else None
        if ended_by is not None:
            say(
                "ended",
                error=type(ended_by).__name__,
                message=str(ended_by),
                status=node.status(),
                **self._figures(),
            )
            outcome = 3
        for task in tasks:
            if (
                task.done()
                and not task.cancelled()
                and not isinstance(task.exception(), OrdercastError | None)
            ):
                task.result()
        await node.stop()
        say("left", **self._figures())
        return outcome

    # --- receiving --------------------------------------------------------------------------------

    async def _read(self, group: Group) -> None:
        try:
            async for entry in group.batches():
                await self.reads.wait()
                if isinstance(entry, Delivery):
                    self.books.delivery(entry)
                elif isinstance(entry, ConfigurationChange):
                    self.books.configuration(entry)
                    say("configuration", id=str(entry.id), kind=str(entry.kind), members=entry.members)
        except Evicted as error:
            say("evicted", message=str(error), messages=error.messages, count=self.books.count)
            await asyncio.Event().wait()  # its node lives on

    # --- sending ----------------------------------------------------------------------------------

    def _payload(self, node: Node, size: int | None = None) -> bytes:
        self.sent += 1
        front = b"%d.%d.%d|" % (node.id, node.incarnation, self.sent)
        return front.ljust(size or self.job.size, b"x")

    async def _send(self, node: Node, group: Group) -> None:
        due = time.monotonic()
        while True:
            now = time.monotonic()
            if not self.rate or now - due > 1:
                due = now
            if not self.rate or now < due:
                await asyncio.sleep(min(0.02, due - now) if self.rate else 0.02)
                continue
            due += 1 / self.rate
            await group.send(self._payload(node), safe=self._chance.random() < self.job.safe)

    async def _send_some(self, node: Node, group: Group, order: dict[str, Any]) -> dict[str, Any]:
        begun = time.monotonic()
        sent = 0
        for _ in range(order["count"]):
            payload = self._payload(node, order.get("size"))
            try:
                await group.send(payload, safe=order.get("safe", False), timeout=order.get("timeout"))
            except SendTimeout as error:
                self.sent -= 1
                return {"sent": sent, "holder": error.holder, "message": str(error), "error": "SendTimeout"}
            except OrdercastError as error:
                return {"sent": sent, "message": str(error), "error": type(error).__name__}
            sent += 1
        return {"sent": sent, "took": time.monotonic() - begun}

    async def _block(self) -> None:
        """Keep the event loop from running, as an application does that computes in it."""
        while True:
            low, high = self.blocked_ms
            if high:
                time.sleep(self._chance.uniform(low, high) / 1000)
            await asyncio.sleep(self._chance.uniform(0.05, 0.4))

    # --- orders -----------------------------------------------------------------------------------

    async def _obey(self, node: Node, group: Group) -> None:
        reader = asyncio.StreamReader(limit=2**20)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        running: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            order = msgspec.json.decode(line)
            if order["do"] == "leave":
                return
            task = asyncio.create_task(self._do(node, group, order))
            running.add(task)
            task.add_done_callback(running.discard)

    async def _do(self, node: Node, group: Group, order: dict[str, Any]) -> None:
        answer: dict[str, Any] = {}
        match order["do"]:
            case "send":
                answer = await self._send_some(node, group, order)
            case "rate":
                self.rate = order["rate"]
            case "stop reading":
                self.reads.clear()
            case "go on":
                self.reads.set()
            case "block":
                self.blocked_ms = (order["low_ms"], order["high_ms"])
            case "report":
                answer = {"status": node.status(), **self._figures()}
        say("answer", to=order["number"], **answer)

    def _figures(self) -> dict[str, Any]:
        books = self.books
        return {
            "sent": self.sent,
            "count": books.count,
            "spans": books.spans,
            "now": books.now(),
            "last": books.last,
            "problems": books.problems,
            "rss_mb": _rss_mb(),
        }


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def say(event: str, **more: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode({"event": event, "at": time.monotonic(), **more}) + b"\n")
    sys.stdout.buffer.flush()


def main(told: str) -> int:
    """The life of a member; `told` is a `Job`."""
    job = msgspec.json.decode(told, type=Job)
    if job.descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (job.descriptors, job.descriptors))
    logging.basicConfig(
        level=os.environ.get("ORDERCAST_LOG", "DEBUG"),
        format=f"%(asctime)s.%(msecs)03d {job.node} %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    return asyncio.run(Worker(job).run())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
