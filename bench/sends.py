"""`ordercast send` beside a group under load: what others notice of it, and what it costs.

    .venv/bin/python bench/sends.py [--json] [--rate 1000] [--in-a-row 100] [--at-once 10]

Three nodes on loopback, which serve clients. One client sends to a group all the time, another receives. The
longest time between two messages is measured for as long as the sends take, and as long again without any.
Told are the two gaps, whether the configuration stayed the same, and the processor time of a send. The sends
are started by a process of their own: who starts another one stands still meanwhile, and would measure that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from server_groups import Servers, nodes

from ordercast import Client
from ordercast.measure.loopback import die_with_parent

SEND = (sys.executable, "-c", "from ordercast.cli import main; main()", "send", "others")


class Load:
    """A client that sends and one that receives, and the gaps between what it receives."""

    def __init__(self, servers: Servers, rate: float) -> None:
        self._sender = Client(servers.urls[1])
        self._receiver = Client(servers.urls[2])
        self._rate = rate
        self._last = 0.0
        self._longest = 0.0
        self._count = 0

    async def run(self) -> None:
        """Until cancelled."""
        async with self._sender, self._receiver, asyncio.TaskGroup() as tasks:
            joined = await self._receiver.join("load", log=False)
            tasks.create_task(self._send())
            async for messages in joined.batches():
                now = time.perf_counter()
                self._longest = max(self._longest, now - self._last)
                self._last = now
                self._count += len(messages)

    async def _send(self) -> None:
        due = time.perf_counter()
        while True:
            await self._sender.send("load", bytes(100))
            due += 1 / self._rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))

    def begin(self) -> None:
        """Measure anew."""
        self._last, self._longest, self._count = time.perf_counter(), 0.0, 0

    def gap_s(self) -> float:
        """The longest time between two messages since then."""
        return max(self._longest, time.perf_counter() - self._last)


async def configuration(servers: Servers) -> Any:
    """The configuration that the first node is in."""
    async with Client(servers.urls[0]) as client:
        return json.loads((await client.request("$ORDERCAST.STATUS")).payload)["configuration"]


def send_all(urls: list[str]) -> None:
    """Start as many `ordercast send` as each line of stdin says, in a row or at once; tell what they took."""
    for line in sys.stdin:
        count, together = json.loads(line)
        used, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        running: list[subprocess.Popen[bytes]] = []
        codes: list[int] = []
        for number in range(count):
            words = [*SEND, f"message {number}", "--client", urls[number % len(urls)]]
            running.append(subprocess.Popen(words, stdout=subprocess.DEVNULL))
            if not together:
                codes.append(running.pop().wait())
        codes += [each.wait() for each in running]
        took, using = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = using.ru_utime + using.ru_stime - used.ru_utime - used.ru_stime
        if any(codes):
            raise SystemExit("a send failed: what it said is above")
        print(json.dumps([took, cpu / count]), flush=True)


async def measure(servers: Servers, rate: float, in_a_row: int, at_once: int) -> dict[str, Any]:
    """All figures."""
    load = Load(servers, rate)
    loading = asyncio.create_task(load.run())
    pipe = subprocess.PIPE
    sending = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "--send", *servers.urls),
        stdin=pipe,
        stdout=pipe,
        preexec_fn=die_with_parent,
    )
    assert sending.stdin is not None
    assert sending.stdout is not None
    await asyncio.sleep(3)
    found: dict[str, Any] = {}
    for name, count, together in (
        (f"{in_a_row} in a row", in_a_row, False),
        (f"{at_once} at once", at_once, True),
    ):
        before = await configuration(servers)
        load.begin()
        sending.stdin.write(json.dumps([count, together]).encode() + b"\n")
        took, cpu = json.loads(await sending.stdout.readline())
        gap = load.gap_s()
        load.begin()
        await asyncio.sleep(max(took, 5.0))
        found[name] = {
            "took_s": took,
            "processor_s_a_send": cpu,
            "longest_gap_ms": gap * 1_000,
            "longest_gap_without_ms": load.gap_s() * 1_000,
            "same_configuration": await configuration(servers) == before,
        }
    sending.stdin.close()
    await sending.wait()
    loading.cancel()
    await asyncio.wait([loading])
    return found


def main() -> None:
    """Measure, and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rate", type=float, default=1_000.0, help="messages/s of the load")
    parser.add_argument("--in-a-row", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=10)
    parser.add_argument("--send", nargs="+", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.send:
        send_all(given.send)
        return
    with tempfile.TemporaryDirectory() as directory, nodes(Path(directory)) as servers:
        found = asyncio.run(measure(servers, given.rate, given.in_a_row, given.at_once))
    if given.json:
        print(json.dumps(found))
        return
    table = Table("", *found)
    for figure in next(iter(found.values())):
        values = [each[figure] for each in found.values()]
        table.add_row(figure, *(str(v) if isinstance(v, bool) else f"{v:,.3f}" for v in values))
    Console().print(table)


if __name__ == "__main__":
    main()
