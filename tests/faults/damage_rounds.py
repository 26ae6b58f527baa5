"""Damages files of one node of a group, again and again, and holds what is read of it against the others.

    .venv/bin/python tests/faults/damage_rounds.py DIR [--rounds 1000] [--seed 1]

Three nodes with logs, data directories and traces run in this process. In each round one file of node 3 is
damaged (`damage.py`), while it is stopped or while it runs. Then its log is read in its directory and over
TCP, and its trace. Whatever is read must be what the group delivered, without a hole that is not told; what
cannot be read is said in words. A signal ends this process, and an exception that nobody expects does, too.
Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "log"))

from damage import damage, files_in
from timed_rounds import timed_rounds

from ordercast import Node
from ordercast.errors import Damaged, LogError, NotThere, OrdercastError, Trimmed
from ordercast.log import Position, Replica
from ordercast.log.view import View
from ordercast.trace.reader import read_runs
from ordercast.trace.schema import TraceError

SOON_S = 8.0
TRACED = 0.1
"""How often node 3 writes a trace: making it Parquet at the end takes a second."""
ORDINARY = ("no key", "the trace keeps journals")
"""What nodes say in any case."""
Row = tuple[Any, ...]


class Told(logging.Handler):
    """Counts what nodes say is wrong."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.sentences: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.getMessage().startswith(ORDINARY):
            self.sentences.append(record.getMessage())
        if record.exc_info:
            raise AssertionError(f"a traceback was logged: {record.getMessage()}") from record.exc_info[1]


class Truth:
    """What the group has delivered, by the logs of nodes 1 and 2, which nobody damages."""

    def __init__(self, sources: list[Path]) -> None:
        self._sources = sources
        self.rows: dict[Position, Row] = {}
        self.order: dict[Position, int] = {}
        self._at: Position | None = None

    def follow(self) -> None:
        """Read on."""
        with Replica(str(self._sources[0])) as replica:
            while (end := replica.after(self._at, 100_000)) is not None:
                for batch in replica.read(self._at, end):
                    for row in batch.to_pylist():
                        place = position(row)
                        self.order[place] = len(self.order)
                        self.rows[place] = content(row)
                self._at = end

    @property
    def head(self) -> Position | None:
        """The last entry."""
        return self._at


def position(row: dict[str, Any]) -> Position:
    return Position(row["config_seq"], row["config_rep"], row["seq"], row["slot"])


def content(row: dict[str, Any]) -> Row:
    """What is the same at every replica."""
    members = None if row["members"] is None else tuple(row["members"])
    return row["kind"], row["sender"], row["group"], row["guarantee"], row["payload"], members


class Campaign:
    """The group, and the rounds."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.chance = random.Random(f"damages/{seed}")
        self.told = Told()
        self.truth = Truth([directory / "1" / "log", directory / "2" / "log"])
        self.nodes: dict[int, Node] = {}
        self.readers: list[asyncio.Task[None]] = []
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.examples: list[str] = []
        self.sent = 0

    # --- nodes ----------------------------------------------------------------------------------

    def home(self, node: int) -> Path:
        return self.directory / str(node)

    async def start(self, node: int) -> None:
        home = self.home(node)
        others = [self.nodes[one] for one in self.nodes if one != node]
        given: dict[str, Any] = {}
        if node == 3:
            addresses = [one.status()["log"]["address"] for one in others]
            given = {"log_repair": addresses}
            if self.chance.random() < TRACED or not (home / "trace").exists():
                given |= {"trace": home / "trace", "trace_rows": 1000}
        made = Node(
            id=node,
            listen="127.0.0.1:0",
            seeds=[one.address for one in others],
            data=home / "data",
            log=home / "log",
            log_sync=False,
            log_bytes=1024 * 1024,
            **given,
        )
        await made.start()
        self.nodes[node] = made
        self.readers.append(asyncio.create_task(self._drain(made)))

    async def _drain(self, node: Node) -> None:
        try:
            async for _ in await node.join("g"):
                pass
        except OrdercastError:
            pass

    async def stop(self, node: int) -> None:
        made = self.nodes.pop(node)
        try:
            await made.stop()
        except OrdercastError as error:
            self.told.sentences.append(str(error))

    async def send(self, count: int) -> None:
        group = await self.nodes[1].join("g", receive=False)
        for _ in range(count):
            self.sent += 1
            await group.send(f"{self.sent} ".encode() + b"x" * self.chance.randrange(4000))

    # --- a round --------------------------------------------------------------------------------

    async def round(self, number: int) -> None:
        home = self.home(3)
        older = self.directory / "older"
        await self.send(self.chance.randrange(5, 30))
        await self.caught_up()
        if number % 7 == 1:
            await self.begin_anew_if_damaged()
            shutil.rmtree(older, ignore_errors=True)
            copied(home, older)
            await self.send(5)
            await self.caught_up()
        said = len(self.told.sentences)
        running = self.chance.random() < 0.5
        if not running:
            await self.stop(3)
        (area,) = self.chance.choices(("log", "data", "trace"), (6, 3, 1))
        area = area if files_in(home / area) else "log"
        done = damage(self.chance, home / area, older / area if (older / area).exists() else None)
        what = f"round {number}, {area}, {'running' if running else 'stopped'}: {done}"
        self.counts[done.split()[0]] += 1
        if running:
            await self.send(5)
            await asyncio.sleep(0.15)
        damaged = await asyncio.to_thread(self.read_all, str(home / "log"), what)
        if area == "trace":
            damaged += await asyncio.to_thread(self.read_trace, home / "trace", what)
        if running and 3 in self.nodes:
            address = (self.nodes[3].status()["log"] or {}).get("address")
            if address:
                damaged += await asyncio.to_thread(self.read_all, address, what)
        ended = await self.come_back(running, what)
        told = damaged + ended + len(self.told.sentences) - said
        self.counts["told" if told else "without effect"] += 1
        if told and len(self.examples) < 40:
            self.examples.append(f"{what} -> {(self.told.sentences[said:] or ['Damaged'])[-1]}")

    async def begin_anew_if_damaged(self) -> None:
        """What only node 3 had, when it was alone, nobody can repair: with that its log begins anew."""
        view = View(self.home(3) / "log")
        if view.check() or view.problems()[0]:
            self.counts["begun anew"] += 1
            await self.stop(3)
            shutil.rmtree(self.home(3) / "log")
            await self.start(3)
            await self.send(20)
            await self.caught_up()
        view.close()

    async def come_back(self, running: bool, what: str) -> int:
        """Node 3 runs again, after what it says; how often it had to be helped."""
        helped = 0
        if running:
            try:
                self.nodes[3]._member.check_open()  # type: ignore[union-attr]
                return 0
            except OrdercastError as error:
                self.told.sentences.append(str(error))
                await self.stop(3)
        for attempt in range(4):
            try:
                await self.start(3)
                return helped
            except OrdercastError as error:
                helped += 1
                self.counts[f"start refused: {type(error).__name__}"] += 1
                self.told.sentences.append(str(error))
                if ":" not in str(error):
                    self.failures.append(f"{what}: no advice in {error}")
                # As it says: with an empty directory, as a node that lost its disk.
                shutil.rmtree(self.home(3) / ("data" if attempt < 2 else "log"), ignore_errors=True)
        raise AssertionError(f"{what}: node 3 does not come back")

    async def caught_up(self) -> None:
        """All that was sent is in the log of node 1, and as far as node 3 is in the group, in its own."""
        deadline = time.monotonic() + SOON_S
        while time.monotonic() < deadline:
            heads = {node.status()["log"]["head"] for node in self.nodes.values()}
            if len(heads) == 1:
                break
            await asyncio.sleep(0.02)
        await asyncio.to_thread(self.truth.follow)

    # --- reading --------------------------------------------------------------------------------

    def read_all(self, where: str, what: str) -> int:
        """Read a log of node 3 as far as it can be; how often it said that something is damaged."""
        told, at = 0, None
        try:
            with Replica(where) as replica:
                for _ in range(10_000):
                    try:
                        end = replica.after(at, 50)
                        if end is None:
                            return told
                        rows = [row for batch in replica.read(at, end) for row in batch.to_pylist()]
                    except (Damaged, NotThere, Trimmed) as error:
                        told += isinstance(error, Damaged)
                        later = [place for place in places(error) if at is None or place > at]
                        if not later:
                            return told
                        at = max(later)
                        continue
                    self.check(rows, where, what)
                    at = end
        except LogError as error:
            self.told.sentences.append(str(error))
            return told + 1
        raise AssertionError(f"{what}: reading {where} does not end")

    def check(self, rows: list[dict[str, Any]], where: str, what: str) -> None:
        """Each row is what the group has there, and none is left out between two of a range."""
        self.truth.follow()
        before: Position | None = None
        for row in rows:
            place = position(row)
            if place not in self.truth.rows:
                alone = row["kind"] != "message"  # a configuration that node 3 went through by itself
                if not alone and place.configuration.seq <= (self.truth.head or place).configuration.seq:
                    self.failures.append(f"{what}: {where} has {place}, which the group has not")
                before = None
                continue
            if self.truth.rows[place] != content(row):
                self.failures.append(f"{what}: {where} has something else at {place}")
            if before is not None and self.truth.order[place] != self.truth.order[before] + 1:
                self.failures.append(f"{what}: {where} left something out between {before} and {place}")
            before = place

    def read_trace(self, trace: Path, what: str) -> int:
        """Read the trace: whole, or refused in words."""
        try:
            for _ in read_runs(trace):
                pass
        except TraceError:
            return 1
        return 0

    # --- all of it ------------------------------------------------------------------------------

    async def run(self, rounds: int, seconds: float) -> dict[str, Any]:
        logger = logging.getLogger("ordercast")
        logger.addHandler(self.told)
        logger.propagate = False
        for node in (1, 2, 3):
            await self.start(node)
        for one in self.nodes.values():
            await one.wait_for(3)
        begun = time.monotonic()
        done = 0
        for number in timed_rounds(rounds, seconds):
            await self.round(number)
            done += 1
        repaired = sum("repaired from" in sentence for sentence in self.told.sentences)
        for node in (3, 2, 1):
            await self.stop(node)
        return {
            "rounds": done,
            "seconds": round(time.monotonic() - begun),
            "failures": self.failures,
            "segments repaired": repaired,
            "entries": len(self.truth.rows),
            "examples": self.examples,
            **dict(sorted(self.counts.items())),
        }


def copied(home: Path, older: Path) -> None:
    """A copy of files, some of which may go meanwhile."""
    for path in home.rglob("*"):
        if path.is_file() and not path.is_symlink():
            target = older / path.relative_to(home)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copyfile(path, target)
            except FileNotFoundError:
                continue


def places(error: LogError) -> list[Position]:
    """The positions that a sentence names."""
    found = []
    for word in str(error).replace(",", " ").replace(":", " ").split():
        try:
            found.append(Position.parse(word.rstrip(".")))
        except ValueError:
            continue
    return found


def main() -> int:
    """Run it, and print what came of it."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("directory", type=Path)
    words.add_argument("--rounds", type=int, default=1000)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--seconds", type=float, default=1e9, help="no round begins after so long")
    given = words.parse_args()
    found = asyncio.run(Campaign(given.directory, given.seed).run(given.rounds, given.seconds))
    print(json.dumps(found, indent=2))
    return bool(found["failures"])


if __name__ == "__main__":
    sys.exit(main())
