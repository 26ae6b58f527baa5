"""No byte of a trace can be another one without being noticed, in whatever form its files are."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ordercast.catalogue import LAB_TOTEM
from ordercast.sim.fuzz import plan, run
from ordercast.trace.journal import Journal
from ordercast.trace.reader import read_runs
from ordercast.trace.schema import Row, TraceError
from ordercast.trace.seal import MAGIC
from ordercast.trace.writer import TraceWriter


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return run(LAB_TOTEM, plan(LAB_TOTEM, 3, (2, 3)))[1].rows


def flipped_everywhere(file: Path, places: list[int]) -> None:
    """One bit of each of these bytes, one after the other."""
    whole = file.read_bytes()
    chance = random.Random(len(whole))
    for at in places:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << chance.randrange(8)
        file.write_bytes(damaged)
        with pytest.raises(TraceError):
            list(read_runs(file))
    file.write_bytes(whole)


def test_every_byte_of_a_parquet_file_counts(tmp_path: Path, rows: list[Row]) -> None:
    with TraceWriter(tmp_path, "r", LAB_TOTEM.heading) as writer:
        writer.write(rows)
    (file,) = writer.paths
    size = file.stat().st_size
    footer = int.from_bytes(file.read_bytes()[-8:-4], "little")
    seal = size - 8 - footer - 40  # with one row group it is 32 bytes; and the end of the last page
    places = [*range(4), *range(4, seal, 61), *range(seal, size - footer), *range(size - footer, size, 23)]
    flipped_everywhere(file, [*places, *range(size - 8, size)])
    assert [its for _, its in read_runs(file)] == [rows]


def test_every_byte_of_a_journal_counts(tmp_path: Path, rows: list[Row]) -> None:
    journal = Journal(tmp_path, "r", 1, 0)
    for at in range(0, 30, 10):
        journal.append(rows[at : at + 10])
    journal.close(convert=False)
    (file,) = tmp_path.iterdir()
    flipped_everywhere(file, list(range(file.stat().st_size)))


def test_a_sealed_file_is_parquet_for_everybody(tmp_path: Path, rows: list[Row]) -> None:
    with TraceWriter(tmp_path, "r") as writer:
        writer.write(rows)
    (file,) = writer.paths
    assert MAGIC in file.read_bytes()
    table = pq.read_table(file)
    assert table.num_rows == len(rows)
    assert table.schema.metadata == {b"ordercast.schema": b"1"}


def test_a_file_that_another_tool_wrote_has_no_seal_and_is_read(tmp_path: Path, rows: list[Row]) -> None:
    with TraceWriter(tmp_path / "ours", "r", LAB_TOTEM.heading) as writer:
        writer.write(rows)
    pq.write_table(pq.read_table(writer.paths[0]), tmp_path / "theirs.parquet")
    assert MAGIC not in (tmp_path / "theirs.parquet").read_bytes()
    assert list(read_runs(tmp_path / "theirs.parquet")) == [("r", rows)]


def test_a_newer_version_of_the_schema_is_refused(tmp_path: Path, rows: list[Row]) -> None:
    with TraceWriter(tmp_path, "r") as writer:
        writer.write(rows)
    newer = pq.read_table(writer.paths[0]).replace_schema_metadata({"ordercast.schema": "2"})
    pq.write_table(newer, writer.paths[0])
    with pytest.raises(TraceError, match=r"has version 2 of the schema, .* read it with a newer one"):
        list(read_runs(tmp_path))
