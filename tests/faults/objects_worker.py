"""A node with a map on disk in a process of its own, and clients of it that note what they were answered.

``python objects_worker.py JOB``: the job is a JSON object (`ObjectJob`). Orders come on stdin and answers go
to stdout, as with `worker.py`. What clients call and are answered goes to a file, a JSON array a line, before
the call and after the answer: the file holds it also if the process is killed (`objects_group.read_calls`).
Times are those of CLOCK_MONOTONIC, which is one for all processes of a machine.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from worker import Job, say

from ordercast import Node, NodeClosed, NoMajority, OrdercastError, Unanswered
from ordercast.directory import DiskDirectory
from ordercast.objects.map import Map
from ordercast.replicated import disk
from ordercast.replicated.durable.files import ObjectFiles
from ordercast.runtime.environment import Environment, system

NAME = "map"
EPOCH_S = 10
"""Clients that contend take other keys, and other locks, after so many seconds: short histories are judged
soon."""
HELD_S = 0.02
"""How often a client that holds a lock looks whether it still does."""


class ObjectJob(Job, kw_only=True):
    """What a worker is."""

    durable: str
    """The directory of the object."""
    calls: str
    """The file where clients note what they call."""
    clients: int = 4
    lockers: int = 0
    """Clients that contend for locks."""
    resource: str = ""
    """The socket of a resource that refuses smaller tokens (`objects_group.Resource`)."""
    timeout: float = 20.0
    """Seconds that calls wait."""
    ahead_s: float = 0.0
    """By how much the clock is wrong."""
    log_bytes: int = 20_000
    segment_bytes: int = 8_000
    """As `disk.LOG_BYTES` and `files.SEGMENT_BYTES`."""
    die_at: str = ""
    """The moment of the node at which the process kills itself,"""
    die_at_write: int = 0
    """or at which change of the object's directory."""


class FatalDirectory(DiskDirectory):
    """A directory whose process is killed at one of the changes that it makes."""

    def __init__(self, path: Path, die_at: int) -> None:
        super().__init__(path)
        self._left = die_at

    def _count(self) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, name: str, at: int, data: bytes) -> None:
        self._count()
        super().write(name, at, data)

    def sync(self, name: str) -> None:
        self._count()
        super().sync(name)

    def rename(self, name: str, to: str) -> None:
        self._count()
        super().rename(name, to)

    def remove(self, name: str) -> None:
        self._count()
        super().remove(name)

    def sync_names(self) -> None:
        self._count()
        super().sync_names()


class Notes:
    """What clients call, and what they are answered."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._numbers = 0
        self.answered = 0

    def _write(self, *row: Any) -> None:
        os.write(self._file, msgspec.json.encode(row) + b"\n")

    def begin(self, client: str, part: str, name: str, *args: Any) -> int:
        """A client calls something of a part, as a key or a lock."""
        self._numbers += 1
        self._write("begin", self._numbers, client, part, name, args, time.monotonic())
        return self._numbers

    def end(self, number: int, result: Any) -> None:
        """It was answered."""
        self.answered += 1
        self._write("end", number, result, time.monotonic())

    def refused(self, number: int) -> None:
        """It was not carried out."""
        self._write("refused", number)

    def held(self, number: int, at: float) -> None:
        """The lock that was acquired by this call was still held then."""
        self._write("held", number, at)


class Worker:
    """The node, and its clients."""

    def __init__(self, job: ObjectJob) -> None:
        self.job = job
        self.notes = Notes(job.calls)
        self.load = asyncio.Event()
        """Clients call."""
        self.rate = 0.0
        """Calls a second, of each client."""
        self._busy = 0
        self._values = 0
        self._refused: list[dict[str, Any]] = []
        self._chance = random.Random(f"{job.node}/{os.getpid()}")
        self.map: Map[str] = Map(str)

    def environment(self) -> Environment:
        job, real = self.job, system()

        def at_moment(moment: str) -> None:
            if moment == job.die_at:
                os.kill(os.getpid(), signal.SIGKILL)

        return real._replace(
            now_us=lambda: real.now_us() + round(job.ahead_s * 1_000_000),
            at_moment=at_moment,
            open_directory=lambda path: FatalDirectory(path, job.die_at_write),
        )

    async def run(self) -> int:
        job = self.job
        node = Node(
            id=job.node,
            listen=job.listen,
            seeds=job.seeds,
            data=job.data,
            insecure=True,
            environment=self.environment(),
            **job.options,
        )
        try:
            await node.start()
            await self._replicate(node)
        except OrdercastError as error:
            say("failed", error=type(error).__name__, message=str(error))
            logging.error("%s", error)
            await node.stop()
            return 3
        say("ready", node=node.id, incarnation=node.incarnation, address=node.address)
        tasks = [asyncio.create_task(self._obey(node))]
        for number in range(job.clients):
            client = self._contend if job.lockers else self._own
            tasks.append(asyncio.create_task(client(f"{job.node}.{number}")))
        for number in range(job.lockers):
            tasks.append(asyncio.create_task(self._lock(node, f"{job.node}.{node.incarnation}.{number}")))
        ending = asyncio.create_task(node.closed())
        done, _ = await asyncio.wait([*tasks, ending], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for task in done:
            problem = task.exception()
            if problem is not None:
                say("ended", error=type(problem).__name__, message=str(problem))
                if not isinstance(problem, OrdercastError):
                    raise problem
                await node.stop()
                return 3
        await node.stop()
        say("left")
        return 0

    async def _replicate(self, node: Node) -> None:
        """Until it is possible: a majority may be long in coming."""
        while True:
            try:
                durable, timeout = self.job.durable, self.job.timeout
                self.map = await node.replicate(Map[str](str), NAME, durable=durable, timeout=timeout)
                return
            except (NoMajority, TimeoutError) as error:
                logging.info("%s; it is tried again", error)
                await asyncio.sleep(0.1)

    # --- clients --------------------------------------------------------------------------------

    async def _pace(self) -> None:
        await self.load.wait()
        await asyncio.sleep(self._chance.uniform(0, 2 / self.rate))
        await self.load.wait()

    def _value(self, client: str) -> str:
        """One that nobody else ever writes."""
        self._values += 1
        return f"{client}.{os.getpid()}.{self._values}|".ljust(self._chance.randrange(200), "x")

    async def _own(self, client: str) -> None:
        """Writes keys that nobody else writes."""
        while True:
            await self._pace()
            key = f"{client}/{self._chance.randrange(20)}"
            if self._chance.random() < 0.1:
                await self._call(client, key, "delete")
            else:
                await self._call(client, key, "put", self._value(client))

    async def _contend(self, client: str) -> None:
        """Reads and writes what the others do."""
        seen: dict[str, str | None] = {}
        while True:
            await self._pace()
            key = f"{int(time.monotonic() / EPOCH_S)}/{self._chance.randrange(4)}"
            kind = self._chance.random()
            if kind < 0.4:
                seen = {key: await self._call(client, key, "get")}
            elif kind < 0.65:
                await self._call(client, key, "put", self._value(client))
            elif kind < 0.9:
                await self._call(client, key, "compare_and_set", seen.get(key), self._value(client))
            else:
                await self._call(client, key, "delete")

    async def _call(self, client: str, key: str, name: str, *args: Any) -> Any:
        """Call something of the map; its result, or None if there is none."""
        number = self.notes.begin(client, key, name, key, *args)
        self._busy += 1
        try:
            result = await getattr(self.map, name)(key, *args)
        except Unanswered:
            return None
        except NodeClosed:
            self.notes.refused(number)
            raise
        except OrdercastError:
            self.notes.refused(number)
            return None
        finally:
            self._busy -= 1
        self.notes.end(number, result)
        return result

    async def _lock(self, node: Node, client: str) -> None:
        """Holds locks for a while, and does a job under them."""
        turn = 0
        while True:
            await self._pace()
            turn += 1
            who = f"{client}.{turn}"
            name = f"lock-{int(time.monotonic() / EPOCH_S)}"
            lock = node.lock(name, ttl=2.0)
            number = self.notes.begin(who, name, "acquire", who)
            try:
                async with asyncio.timeout(8):
                    held = await (lock.acquire() if self._chance.random() < 0.7 else lock.try_acquire())
            except (OrdercastError, TimeoutError):
                await asyncio.sleep(0.1)
                continue
            if held is None:
                self.notes.refused(number)
                continue
            self.notes.end(number, held.token)
            until = time.monotonic() + self._chance.uniform(0, 0.2)
            if self._chance.random() < 0.1:
                until += 3  # longer than a lease
            while (now := time.monotonic()) < until and not held.lost.is_set():
                self.notes.held(number, now)
                if self.job.resource and not await self._use(name, held.token) and not held.lost.is_set():
                    self._refused.append({"lock": name, "token": held.token, "at": now})
                await asyncio.sleep(HELD_S)
            await held.release()

    async def _use(self, lock: str, token: int) -> bool:
        """Use the resource that the lock protects; whether it accepts the token."""
        ask = msgspec.json.encode([lock, token, self.job.node])
        return await asyncio.to_thread(_asked, self.job.resource, ask) == b"accepted"

    # --- orders ---------------------------------------------------------------------------------

    async def _obey(self, node: Node) -> None:
        reader = asyncio.StreamReader(limit=2**24)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), sys.stdin)
        while line := await reader.readline():
            order = msgspec.json.decode(line)
            if order["do"] == "leave":
                return
            answer = await self._do(node, order)
            say("answer", to=order["number"], **answer)

    async def _do(self, node: Node, order: dict[str, Any]) -> dict[str, Any]:
        match order["do"]:
            case "load":
                self.rate = order["rate"]
                self.load.set()
            case "quiet":
                self.load.clear()
                while self._busy:
                    await asyncio.sleep(0.02)
            case "dump":
                await _until_answered(self.map.sync)
                local = self.map.local
                return {"rows": {key: [local[key], self.map.entries[key].revision] for key in local}}
            case "write":
                rows: dict[str, str | None] = order["rows"]
                calls: list[Callable[[], Awaitable[Any]]] = [
                    partial(self.map.delete, key) if value is None else partial(self.map.put, key, value)
                    for key, value in rows.items()
                ]
                await asyncio.gather(*map(_until_answered, calls))
            case "report":
                answered, refused = self.notes.answered, self._refused
                return {"answered": answered, "refused": refused, "members": node.members}
        return {}


def _asked(resource: str, ask: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(resource)
        asking.send(ask)
        return asking.recv(100)


async def _until_answered(call: Callable[[], Awaitable[Any]]) -> None:
    """Call it until it is answered: what is called may be carried out more than once."""
    while True:
        with suppress(Unanswered, NoMajority):
            await call()
            return
        await asyncio.sleep(0.1)


def main(told: str) -> int:
    """The life of a node; `told` is an `ObjectJob`."""
    job = msgspec.json.decode(told, type=ObjectJob)
    logging.basicConfig(
        level=os.environ.get("ORDERCAST_LOG", "INFO"),
        format=f"%(asctime)s.%(msecs)03d {job.node} %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    disk.LOG_BYTES = job.log_bytes
    defaults = ObjectFiles.__init__.__kwdefaults__
    assert defaults is not None
    defaults["segment_bytes"] = job.segment_bytes
    return asyncio.run(Worker(job).run())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
