"""Rows that a node handed over are not lost with it, become Parquet, and do not fill the disk."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import textwrap
import time
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from ordercast.core.identity import Configuration, ConfigurationId, Kind
from ordercast.storage import Location, Where
from ordercast.trace import contents, convert
from ordercast.trace.blocks import MAGIC
from ordercast.trace.journal import Journal
from ordercast.trace.reader import about_runs, read_runs
from ordercast.trace.recorder import Recorder
from ordercast.trace.schema import SCHEMA, Row, TraceError
from ordercast.trace.writer import TraceWriter


def rows_of(count: int, node: int = 1, start: int = 0) -> list[Row]:
    place, rest = (8, 1, "regular", None, 1, 0), ("agreed", "orders", 100, *(None,) * 7)
    return [
        (node, 0, step, step * 7, "deliver", *place, step, 8, 1, step, 0, *rest)
        for step in range(start, start + count)
    ]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def one_run(path: Path) -> list[Row]:
    [(run, rows)] = read_runs(path)
    assert run == "r"
    return rows


# --- while a node runs -------------------------------------------------------------------------


def test_rows_can_be_read_as_soon_as_they_were_handed_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "r", 1, 0)
    for start in range(0, 30, 10):
        journal.append(rows_of(10, start=start))
        assert one_run(tmp_path) == rows_of(start + 10)
    journal.append([])
    assert names(tmp_path) == ["r-0000000001-0000000000-000000.journal"]
    assert one_run(next(tmp_path.iterdir())) == rows_of(30)
    journal.close(convert=False)
    assert names(tmp_path) == ["r-0000000001-0000000000-000000.journal"]


def test_every_kind_of_row_comes_back_the_same(tmp_path: Path) -> None:
    rows: list[Row] = []
    record = Recorder(1, rows, packets=True)
    record.begin_life(1, 5, crashed=True)
    record.install(2, Configuration(ConfigurationId(8, 1), Kind.REGULAR, (1, 2)))
    record.packet(3, "packet_sent", b"xyz")
    rows += rows_of(3, start=2**40)
    journal = Journal(tmp_path, "r", 1, 5)
    journal.append(rows)
    assert one_run(tmp_path) == rows
    journal.close()
    assert names(tmp_path) == ["r-0000000001-0000000005-000000.parquet"]
    assert one_run(tmp_path) == rows
    assert pq.read_schema(tmp_path / names(tmp_path)[0]).equals(SCHEMA)


def test_full_files_become_parquet_one_by_one_and_the_rest_at_the_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "r", 1, 0, rows_per_file=25)
    for start in range(0, 100, 10):
        journal.append(rows_of(10, start=start))
        assert one_run(tmp_path) == rows_of(start + 10), "at any moment all of them, once"
    journal.close()
    journal.close()
    assert names(tmp_path) == [f"r-0000000001-0000000000-{part:06}.parquet" for part in range(4)]
    assert one_run(tmp_path) == rows_of(100)


def test_a_node_that_recorded_nothing_leaves_no_file(tmp_path: Path) -> None:
    Journal(tmp_path, "r", 1, 0).close()
    assert names(tmp_path) == []


def test_a_run_may_have_any_name(tmp_path: Path) -> None:
    for run in ("../up", ".hidden", "a*b?[c]", "r", "r-0000000001"):
        journal = Journal(tmp_path, run, 1, 0)
        journal.append(rows_of(3))
        journal.close()
    assert {run: len(rows) for run, rows in read_runs(tmp_path)} == dict.fromkeys(
        ("../up", ".hidden", "a*b?[c]", "r", "r-0000000001"), 3
    )


def test_a_journal_of_an_earlier_version_is_read_and_converted(tmp_path: Path) -> None:
    """Its rows end before the columns that came later."""
    rows = rows_of(20)
    older: list[Any] = [row[:20] for row in rows]
    between: list[Any] = [row[:23] for row in rows]
    journal = Journal(tmp_path, "r", 1, 0)
    journal.append(older[:10])
    journal.append(between[10:])
    assert one_run(tmp_path) == rows
    journal.close()
    assert [path.suffix for path in tmp_path.iterdir()] == [".parquet"]
    assert one_run(tmp_path) == rows


def test_misuse_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a name"):
        Journal(tmp_path, "", 1, 0)
    with pytest.raises(ValueError, match="at least one row"):
        Journal(tmp_path, "r", 1, 0, rows_per_file=0)
    with pytest.raises(ValueError, match="at least one more, not 1"):
        Journal(tmp_path, "r", 1, 0, keep_files=1)
    (tmp_path / "file").touch()
    with pytest.raises(TraceError, match="give a directory for the trace"):
        Journal(tmp_path / "file", "r", 1, 0)


def test_a_disk_that_fills_up_ends_the_trace_and_not_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, "r", 1, 0)
    journal.append(rows_of(10))
    write = os.write

    def fills_up(fd: int, data: bytes) -> int:
        if len(data) < 200:
            raise OSError(28, "No space left on device")
        return write(fd, data[: len(data) - 100])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fills_up)
        journal.append(rows_of(10, start=10))
    assert journal.problem is not None
    assert "No space left on device: the trace of node 1 ends here" in journal.problem
    journal.append(rows_of(10, start=20))
    assert one_run(tmp_path) == rows_of(10)
    journal.close()
    assert one_run(tmp_path) == rows_of(10)


# --- several nodes and several lives -----------------------------------------------------------


def test_the_files_of_a_run_are_put_together_by_node_and_step(tmp_path: Path) -> None:
    for node in (10, 9, 2):
        journal = Journal(tmp_path, "r", node, 0, rows_per_file=20)
        for start in range(0, 60, 20):
            journal.append(rows_of(20, node, start))
        journal.close(convert=node != 9)
    assert one_run(tmp_path) == rows_of(60, 2) + rows_of(60, 9) + rows_of(60, 10)


def test_a_journal_that_goes_away_while_the_trace_is_read_had_nothing_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without a row is not converted but deleted, and so is one that is too old to be kept."""
    journal = Journal(tmp_path, "r", 1, 0)
    journal.append(rows_of(10))
    journal.close()
    there = contents.trace_files(tmp_path)
    gone = Location.of(tmp_path / "r-0000000001-0000000000-000001.journal")
    monkeypatch.setattr(contents, "trace_files", lambda path: [*there, gone])
    assert one_run(tmp_path) == rows_of(10)
    assert about_runs(tmp_path) == {}


def test_a_trace_that_is_closed_unconverted_keeps_its_last_journal(tmp_path: Path) -> None:
    """The conversion of what is full goes on in its thread, and used to take the rest with it."""
    journal = Journal(tmp_path, "r", 1, 0, rows_per_file=20)
    for start in range(0, 60, 20):
        journal.append(rows_of(20, start=start))
    worker = journal._worker
    assert worker is not None
    journal.close(convert=False)
    worker.join()
    assert "r-0000000001-0000000000-000003.journal" in names(tmp_path)


def test_what_a_killed_life_left_is_converted_in_the_next_one_and_nothing_collides(tmp_path: Path) -> None:
    for life, incarnation in enumerate((0, 1, 1, 200_000_000)):  # twice the same: one must not harm the other
        journal = Journal(tmp_path, "r", 1, incarnation)
        journal.append(rows_of(10, start=10 * life))
        if life < 3:
            journal.close(convert=False)
    others = Journal(tmp_path, "r", 2, 0)
    others.append(rows_of(5, 2))
    journal.close()
    assert names(tmp_path) == [
        "r-0000000001-0000000000-000000.parquet",
        "r-0000000001-0000000001-000000.parquet",
        "r-0000000001-0000000001-000001.parquet",
        "r-0000000001-0200000000-000000.parquet",
        "r-0000000002-0000000000-000000.journal",
    ]
    assert one_run(tmp_path) == rows_of(40) + rows_of(5, 2)
    others.close()


def test_kill_loses_nothing_that_was_handed_over(tmp_path: Path) -> None:
    """SIGKILL at any moment: every turn that was told of is there, and no turn in part."""
    stream = random.Random("kill loses nothing")
    for life in range(4):
        script = """
            import sys, pathlib
            from ordercast.trace.journal import Journal
            life = int(sys.argv[2])
            journal = Journal(pathlib.Path(sys.argv[1]), "r", 1, life, rows_per_file=9000, keep_files=None)
            at = life * 2**32
            while True:
                rest = (8, 1, "regular", None, 1, 0, 7, 8, 1, 7, 0, "agreed", None, 9, None)
                journal.append([(1, life, at + i, 5, "deliver", *rest) for i in range(100)])
                at += 100
                print(at, flush=True)
            """
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), tmp_path, str(life)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        said = [int(child.stdout.readline())]
        time.sleep(stream.random() / 20)
        child.send_signal(signal.SIGKILL)
        said += [int(line) for line in child.communicate()[0].split("\n")[:-1]]
        steps = [row[2] for row in one_run(tmp_path) if row[1] == life]
        assert len(steps) % 100 == 0
        assert steps == list(range(life * 2**32, life * 2**32 + len(steps)))
        assert life * 2**32 + len(steps) - said[-1] in (0, 100)
    before = one_run(tmp_path)
    Journal(tmp_path, "r", 1, 4, keep_files=None).close()
    assert one_run(tmp_path) == before


def test_the_oldest_parts_of_this_node_are_deleted_and_no_others(tmp_path: Path) -> None:
    for node, incarnation in ((1, 0), (2, 0), (1, 1)):
        journal = Journal(tmp_path, "r", node, incarnation, rows_per_file=10, keep_files=3)
        for start in range(0, 40, 10):
            journal.append(rows_of(10, node, 100 * incarnation + start))
        journal.close()
    with TraceWriter(tmp_path, "other") as writer:
        writer.write(rows_of(3))
    kept = dict(read_runs(tmp_path))
    assert kept["r"] == rows_of(20, 1, 120) + rows_of(20, 2, 20), "and the one that was begun"
    assert kept["other"] == rows_of(3)


# --- journals that are not as they were written ------------------------------------------------


@pytest.fixture
def journal_file(tmp_path: Path) -> Path:
    journal = Journal(tmp_path, "r", 1, 0)
    for start in range(0, 30, 10):
        journal.append(rows_of(10, start=start))
    journal.close(convert=False)
    return tmp_path / "r-0000000001-0000000000-000000.journal"


def test_a_block_cut_off_at_any_byte_is_dropped(journal_file: Path) -> None:
    whole = journal_file.read_bytes()
    seen = set()
    for length in [*range(0, len(whole), 7), len(whole)]:
        journal_file.write_bytes(whole[:length])
        found = [rows for _, rows in read_runs(journal_file)]
        rows = found[0] if found else []
        assert rows == rows_of(len(rows))
        seen.add(len(rows))
    assert seen == {0, 10, 20, 30}


def test_room_that_was_reserved_and_never_filled_is_no_damage(journal_file: Path) -> None:
    with journal_file.open("ab") as file:
        file.write(bytes(5000))
    assert one_run(journal_file) == rows_of(30)


def test_damage_in_the_middle_is_refused_and_the_journal_kept(
    journal_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = bytearray(journal_file.read_bytes())
    whole[len(whole) // 2] ^= 1
    journal_file.write_bytes(whole)
    with pytest.raises(TraceError, match=r"damaged at byte \d+: restore it"):
        list(read_runs(journal_file.parent))
    assert convert.main([str(journal_file)]) == 1
    assert "damaged" in capsys.readouterr().err
    assert names(journal_file.parent) == [journal_file.name]


def test_a_journal_that_stays_spoilt_holds_up_no_other(
    journal_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal_file.write_bytes(b"something else entirely")
    journal = Journal(journal_file.parent, "r", 1, 1, rows_per_file=10)
    journal.append(rows_of(10))
    journal.append(rows_of(10))
    journal.close()
    assert names(journal_file.parent) == [
        journal_file.name,
        "r-0000000001-0000000001-000000.parquet",
        "r-0000000001-0000000001-000001.parquet",
    ]
    assert "is no journal of ordercast" in caplog.text


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    not_a_name = struct.pack("<II", 1, zlib.crc32(b"\x07")) + b"\x07"
    for content in (b"x", b"something else entirely", MAGIC + not_a_name):
        (tmp_path / "x.journal").write_bytes(content)
        with pytest.raises(TraceError, match="is no journal of ordercast"):
            list(read_runs(tmp_path))


def test_rows_of_another_form_are_refused(journal_file: Path) -> None:
    block = msgspec.msgpack.encode([[1, 2, 3]])
    with journal_file.open("ab") as file:
        file.write(struct.pack("<II", len(block), zlib.crc32(block)) + block)
    with pytest.raises(TraceError, match="read it with the version that wrote it"):
        list(read_runs(journal_file))


# --- journals and Parquet side by side ---------------------------------------------------------


def test_of_both_forms_of_a_part_the_reader_takes_parquet(journal_file: Path) -> None:
    before = journal_file.read_bytes()
    assert convert.main([str(journal_file)]) == 0
    journal_file.write_bytes(before)
    assert one_run(journal_file.parent) == rows_of(30)


def test_a_part_that_is_converted_while_it_is_read_is_read_once(
    journal_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = contents.trace_files

    def convert_after_looking(path: Where) -> list[Location]:
        files = listed(path)
        convert.convert(journal_file)
        return files

    monkeypatch.setattr(contents, "trace_files", convert_after_looking)
    assert one_run(journal_file.parent) == rows_of(30)
    assert not journal_file.exists()


def test_a_journal_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "r", 1, 0)
    journal.append(rows_of(10))
    [path] = tmp_path.iterdir()
    convert.convert(path)
    journal.append(rows_of(10, start=10))
    assert one_run(tmp_path) == rows_of(20)
    assert names(tmp_path) == [path.name]
    journal.close(convert=False)


def test_who_comes_late_to_a_conversion_has_nothing_to_do(journal_file: Path) -> None:
    assert convert.main([str(journal_file), str(journal_file)]) == 0
    assert one_run(journal_file.parent) == rows_of(30)
