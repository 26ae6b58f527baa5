"""The files of a trace are read as nodes write them, each row once, also over restarts; damage is told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from planting import deliver_again, edited, right_runs

from ordercast.audit.follow.checkpoint import load, save
from ordercast.audit.follow.follower import Follower
from ordercast.audit.properties import PROMISES, audit
from ordercast.storage import Location
from ordercast.trace.blocks import BlockEncoder
from ordercast.trace.convert import convert
from ordercast.trace.files import part_stem
from ordercast.trace.growing import GrowingTrace
from ordercast.trace.schema import Row, TraceError
from ordercast.trace.writer import TraceWriter


class Writing:
    """Nodes that write a run's rows into journals, some of which become Parquet."""

    def __init__(self, directory: Path, rows: list[Row], promises: str, rng: Random) -> None:
        self.between: Callable[[], object] = list
        """Called while a block is being written."""
        self._directory = directory
        self._about = {"promises": promises, "clock": "one"}
        self._rng = rng
        self._left: defaultdict[int, list[Row]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: (row[1], row[2])):
            self._left[row[0]].append(row)
        self._files: dict[int, Path] = {}
        self._parts: dict[int, int] = dict.fromkeys(self._left, 0)
        self._finished: list[Path] = []
        self._encoder = BlockEncoder()

    def go_on(self) -> bool:
        """Some nodes write some rows; whether there are more."""
        for node, left in self._left.items():
            for _ in range(self._rng.randint(0, 3)):
                if not left:
                    break
                size = self._rng.randint(1, 40)
                self._append(node, bytes(self._encoder.block(left[:size])))
                del left[:size]
            if self._rng.random() < 0.1 and node in self._files:
                self._finished.append(self._files.pop(node))
        while self._finished and self._rng.random() < 0.3:
            convert(self._finished.pop(0))
        return any(self._left.values())

    def _append(self, node: int, block: bytes) -> None:
        if node not in self._files:
            stem = part_stem("r", node, 0, self._parts[node])
            self._parts[node] += 1
            self._files[node] = self._directory / f"{stem}.journal"
            block = bytes(self._encoder.opening("r", self._about)) + block
        half = self._rng.randint(0, len(block))
        with self._files[node].open("ab", buffering=0) as file:
            file.write(block[:half])
            self.between()
            file.write(block[half:])


@pytest.mark.parametrize("seed", range(4))
def test_every_row_is_read_once_whatever_becomes_of_files_and_of_the_reader(
    tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    [(_, promises, rows)] = right_runs([seed + 1], ["totem"])
    rows = deliver_again(rng, list(rows)) or rows if seed % 2 else rows
    trace, checkpoint = tmp_path / "trace", tmp_path / "checkpoint"
    trace.mkdir()
    writing = Writing(trace, rows, promises, rng)
    follower = Follower(trace, 1e9)
    writing.between = lambda: rng.random() < 0.1 and follower.read()
    now, goes_on = 0.0, True
    told: list[str] = []
    while goes_on or follower.read():
        goes_on = writing.go_on()
        if rng.random() < 0.5:
            follower.read()
            told += [each.property for each in follower.judge(now)]
            now += 1
        if rng.random() < 0.2:
            save(follower, checkpoint)
            if rng.random() < 0.5:
                follower.close()
                follower = load(trace, 1e9, None, checkpoint)
    told += [each.property for each in follower.judge(now, ended=True)]
    assert follower.events == len(rows)
    wrong = audit(rows, None, PROMISES[promises], one_clock=True)
    assert bool(told) == (not wrong.clean) == bool(seed % 2)
    assert {each.run for each in follower.report().violations} <= {"r"}
    follower.close()


def test_parts_that_appear_in_a_store_are_read_once(store: str, tmp_path: Path) -> None:
    [(_, promises, rows)] = right_runs([2], ["totem"])
    where = store.format(tmp_path.name)
    checkpoint = store.format(f"{tmp_path.name}-checkpoint/file")
    about = {"promises": promises, "clock": "one"}
    follower = Follower(where, 60.0)
    assert follower.read() == 0, "nothing is there yet"
    for node in sorted({row[0] for row in rows}):
        its = [row for row in rows if row[0] == node]
        for part, start in enumerate(range(0, len(its), 200)):
            with TraceWriter(where, "r", about, stem=part_stem("r", node, 0, part)) as writer:
                writer.write(its[start : start + 200])
            follower.read()
            assert follower.judge(0.0) == []
            save(follower, checkpoint)
            follower = load(where, 60.0, None, checkpoint)
    while follower.read():
        pass
    assert follower.judge(0.0, ended=True) == []
    assert follower.events == len(rows)
    assert follower.held < len(rows) / 4


def written(directory: Path) -> Path:
    """A journal of one node, with a block of rows."""
    [(_, promises, rows)] = right_runs([1], ["totem"])
    its = [edited(row, incarnation=0) for row in rows if row[0] == 1]
    encoder = BlockEncoder()
    file = directory / f"{part_stem('r', 1, 0, 0)}.journal"
    file.write_bytes(bytes(encoder.opening("r", {"promises": promises})) + bytes(encoder.block(its)))
    return file


def test_damage_in_a_journal_is_told_when_it_is_still_there_at_the_next_look(tmp_path: Path) -> None:
    file = written(tmp_path)
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    follower = Follower(tmp_path, 1.0)
    assert follower.read() == 0
    with pytest.raises(TraceError, match="damaged at byte"):
        follower.read()


def test_what_a_killed_node_did_not_write_whole_is_waited_for_until_its_next_life(tmp_path: Path) -> None:
    file = written(tmp_path)
    data = file.read_bytes()
    file.write_bytes(data[:-5])
    trace = GrowingTrace(tmp_path)
    trace.look()
    [stream] = trace.streams.values()
    assert trace.take(stream, 1000) == []
    encoder = BlockEncoder()
    next_life = tmp_path / f"{part_stem('r', 1, 1, 0)}.journal"
    [(_, _, rows)] = right_runs([1], ["totem"])
    next_life.write_bytes(bytes(encoder.opening("r", {})) + bytes(encoder.block(rows[:7])))
    trace.look()
    assert [len(taken.rows) for taken in trace.take(stream, 1000)] == [7]


@pytest.mark.parametrize("missing", ["the beginning", "the middle"])
def test_rows_that_were_deleted_before_they_were_read_are_missed(tmp_path: Path, missing: str) -> None:
    first = written(tmp_path)
    third = tmp_path / f"{part_stem('r', 1, 0, 2)}.journal"
    third.write_bytes(first.read_bytes())
    follower = Follower(tmp_path, 1.0)
    if missing == "the beginning":
        first.unlink()
    else:
        follower.read()
        save(follower, tmp_path / "checkpoint")
        first.unlink()
        follower = load(tmp_path, 1.0, None, tmp_path / "checkpoint")
    with pytest.raises(TraceError, match="was deleted before it was read"):
        follower.read()


@pytest.mark.parametrize("spoil", ["bytes", "trace", "none"])
def test_a_checkpoint_that_is_none_is_refused(tmp_path: Path, spoil: str) -> None:
    written(tmp_path)
    follower = Follower(tmp_path, 1.0)
    follower.read()
    checkpoint = tmp_path / "checkpoint"
    save(follower, checkpoint)
    data = bytearray(checkpoint.read_bytes())
    if spoil == "bytes":
        data[len(data) // 2] ^= 1
    checkpoint.write_bytes(b"something else" if spoil == "none" else data)
    elsewhere = Location.of(tmp_path) / "elsewhere" if spoil == "trace" else tmp_path
    with pytest.raises(TraceError, match="is no checkpoint of this audit"):
        load(elsewhere, 1.0, None, checkpoint)
