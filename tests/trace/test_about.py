"""A trace says which protocol wrote it and what that promises: in every file, whatever form it has."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ordercast.trace.blocks import MAGIC, BlockEncoder
from ordercast.trace.journal import Journal
from ordercast.trace.reader import about_runs, read_runs
from ordercast.trace.schema import SCHEMA, Row, TraceError
from ordercast.trace.writer import TraceWriter

ABOUT = {"protocol": "total", "promises": "view-synchrony"}


def rows_of(count: int, node: int = 1) -> list[Row]:
    place, rest = (8, 1, "regular", None, 1, 0), ("agreed", None, 100, *(None,) * 7)
    return [(node, 0, step, step * 7, "deliver", *place, step, 8, 1, step, 0, *rest) for step in range(count)]


def write(directory: Path, run: str, about: dict[str, str], node: int = 1) -> Path:
    with TraceWriter(directory, run, about, stem=f"{run}-{node}") as writer:
        writer.write(rows_of(3, node))
    [path] = writer.paths
    return path


def test_a_file_says_it_and_its_columns_are_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, "r", ABOUT)
    assert pq.read_schema(path).equals(SCHEMA)
    metadata = pq.read_schema(path).metadata
    assert metadata[b"ordercast.protocol"] == b"total"
    assert metadata[b"ordercast.promises"] == b"view-synchrony"
    assert about_runs(path) == {"r": ABOUT}
    assert list(read_runs(path)) == [("r", rows_of(3))]


def test_every_run_has_its_own_and_one_that_says_nothing_has_none(tmp_path: Path) -> None:
    write(tmp_path, "r", ABOUT)
    write(tmp_path, "r", ABOUT, node=2)
    write(tmp_path, "s", {"promises": "extended-virtual-synchrony"})
    write(tmp_path, "silent", {})
    assert about_runs(tmp_path) == {"r": ABOUT, "s": {"promises": "extended-virtual-synchrony"}}


def test_the_same_rows_and_words_are_the_same_bytes(tmp_path: Path) -> None:
    one = write(tmp_path / "one", "r", ABOUT)
    other = write(tmp_path / "other", "r", dict(reversed(ABOUT.items())))
    assert one.read_bytes() == other.read_bytes()


def test_a_journal_says_it_and_goes_on_saying_it_as_parquet(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "r", 1, 0, ABOUT)
    journal.append(rows_of(3))
    assert about_runs(tmp_path) == {"r": ABOUT}
    journal.close()
    [path] = tmp_path.iterdir()
    assert path.suffix == ".parquet"
    assert about_runs(tmp_path) == {"r": ABOUT}
    assert list(read_runs(tmp_path)) == [("r", rows_of(3))]


def test_a_journal_of_an_older_version_says_nothing_and_can_be_read(tmp_path: Path) -> None:
    encoder = BlockEncoder()
    opening = MAGIC + bytes(encoder._block("r"))
    (tmp_path / "r.journal").write_bytes(opening + encoder.block(rows_of(3)))
    assert about_runs(tmp_path) == {}
    assert list(read_runs(tmp_path)) == [("r", rows_of(3))]


def test_files_of_one_run_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "r", ABOUT)
    write(tmp_path, "r", {"protocol": "totem", "promises": "extended-virtual-synchrony"}, node=2)
    with pytest.raises(
        TraceError, match=r"r-2.parquet: run 'r' is said to be .*totem.* and elsewhere .*total"
    ):
        about_runs(tmp_path)


def test_what_is_no_trace_says_nothing_either(tmp_path: Path) -> None:
    (tmp_path / "nonsense.parquet").write_text("no Parquet at all")
    with pytest.raises(TraceError, match="cannot be read as Parquet"):
        about_runs(tmp_path)
