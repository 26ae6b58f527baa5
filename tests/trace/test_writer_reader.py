"""What is written is read back, the same bytes each time, and a broken trace is refused in words."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from ordercast.trace.files import file_stem
from ordercast.trace.reader import read_runs
from ordercast.trace.schema import OPTIONAL, SCHEMA, Row, TraceError
from ordercast.trace.writer import ROW_GROUP, TraceWriter


def deliver(step: int, group: str | None = None) -> Row:
    place = (8, 1, "regular", None, 1, 0, step, 8, 1, step // 3, step % 3)
    return (1, 0, step, step * 7, "deliver", *place, "agreed", group, 100, *(None,) * 4, step, 2, step % 5)


def install(step: int) -> Row:
    nothing = (None,) * 9
    place = (8, 1, "regular", (1, 2, 3))
    return (1, 0, step, step * 7, "install", *place, *nothing, None, None, 4, 1, step, *(None,) * 3)


def rows_of(count: int) -> list[Row]:
    return [install(0), *map(deliver, range(1, count))]


def write(directory: Path, run: str, rows: list[Row], **options: int) -> TraceWriter:
    with TraceWriter(directory, run, **options) as writer:  # type: ignore[arg-type]
        writer.write(rows)
    return writer


def table(rows: list[Row], run: str = "r") -> pa.Table:
    return pa.table(
        [
            pa.array([run] * len(rows)),
            *(pa.array(c, t) for c, t in zip(zip(*rows, strict=True), SCHEMA.types[1:], strict=True)),
        ],
        schema=SCHEMA,
    )


def refusal(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        list(read_runs(path))
    return str(caught.value)


# --- there and back ----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4095, 4096, 4097, ROW_GROUP, ROW_GROUP + 1])
def test_rows_come_back_as_they_were_written(tmp_path: Path, count: int) -> None:
    rows = rows_of(count)
    write(tmp_path, "r", rows)
    assert list(read_runs(tmp_path)) == [("r", rows)]


def test_the_file_has_exactly_the_schema(tmp_path: Path) -> None:
    write(tmp_path, "r", rows_of(10))
    assert pq.read_schema(tmp_path / "r.parquet").equals(SCHEMA)


def test_columns_that_came_later_may_be_missing(tmp_path: Path) -> None:
    """A trace of an earlier version, or of another tool, reads as if they were null."""
    rows = rows_of(5)
    pq.write_table(table(rows, "r").drop_columns(list(OPTIONAL)), tmp_path / "r.parquet")
    nothing = (None,) * len(OPTIONAL)
    assert list(read_runs(tmp_path)) == [("r", [(*row[:20], *nothing) for row in rows])]
    pq.write_table(table(rows, "r").drop_columns(["ended_place"]), tmp_path / "r.parquet")
    [(_, found)] = read_runs(tmp_path)
    assert [row[20:] for row in found[:1]] == [(4, 1, *(None,) * 4)]


def test_a_single_file_is_a_trace_too(tmp_path: Path) -> None:
    write(tmp_path, "r", rows_of(10))
    assert list(read_runs(tmp_path / "r.parquet")) == [("r", rows_of(10))]


def test_how_the_rows_are_handed_over_leaves_no_mark(tmp_path: Path) -> None:
    rows = rows_of(ROW_GROUP + 5000)
    write(tmp_path / "at-once", "r", rows)
    with TraceWriter(tmp_path / "in-pieces", "r") as writer:
        for start in range(0, len(rows), 777):
            writer.write(rows[start : start + 777])
    one, other = (tmp_path / name / "r.parquet" for name in ("at-once", "in-pieces"))
    assert one.read_bytes() == other.read_bytes()
    assert pq.ParquetFile(one).metadata.num_row_groups == 2


def test_several_runs_in_a_directory(tmp_path: Path) -> None:
    write(tmp_path, "one", rows_of(5))
    write(tmp_path, "two", rows_of(9))
    assert dict(read_runs(tmp_path)) == {"one": rows_of(5), "two": rows_of(9)}


def test_several_runs_in_a_file(tmp_path: Path) -> None:
    a, b = rows_of(5), rows_of(3)
    mixed = pa.concat_tables([table(a[:2], "a"), table(b, "b"), table(a[2:], "a")])
    pq.write_table(mixed, tmp_path / "mixed.parquet")
    assert dict(read_runs(tmp_path)) == {"a": a, "b": b}


def test_a_run_over_several_files(tmp_path: Path) -> None:
    rows = rows_of(2 * ROW_GROUP + 10)
    writer = write(tmp_path, "r", rows, rows_per_file=ROW_GROUP)
    assert [path.name for path in writer.paths] == ["r.parquet", "r-00001.parquet", "r-00002.parquet"]
    [(run, found)] = read_runs(tmp_path)
    assert run == "r"
    assert sorted(found, key=lambda row: row[2]) == rows


def test_a_shorter_trace_leaves_nothing_of_the_longer_one_before_it(tmp_path: Path) -> None:
    write(tmp_path, "r", rows_of(2 * ROW_GROUP), rows_per_file=ROW_GROUP)
    write(tmp_path, "r", rows_of(3))
    assert list(read_runs(tmp_path)) == [("r", rows_of(3))]


def test_an_empty_run_is_a_file_without_rows(tmp_path: Path) -> None:
    write(tmp_path, "r", [])
    assert (tmp_path / "r.parquet").exists()
    assert list(read_runs(tmp_path)) == []


def test_a_file_has_its_name_only_once_it_is_whole(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "r") as writer:
        writer.write(rows_of(ROW_GROUP))
        assert not list(tmp_path.glob("*.parquet"))
        assert "unfinished" in refusal(tmp_path)
    assert list(read_runs(tmp_path)) == [("r", rows_of(ROW_GROUP))]


def test_a_run_that_goes_wrong_keeps_its_trace(tmp_path: Path) -> None:
    def go_wrong() -> None:
        with TraceWriter(tmp_path, "r") as writer:
            writer.write(rows_of(3))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        go_wrong()
    assert list(read_runs(tmp_path)) == [("r", rows_of(3))]


@hypothesis.given(st.lists(st.text(min_size=1, max_size=20), min_size=2, max_size=2, unique=True))
def test_no_two_runs_share_a_file(names: list[str]) -> None:
    one, other = map(file_stem, names)
    assert one != other
    assert not {"/", "\\", "\0"} & set(one + other)
    assert one[0] not in "._"


def test_misuse_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a name"):
        TraceWriter(tmp_path, "")
    writer = write(tmp_path, "r", [])
    with pytest.raises(ValueError, match="closed"):
        writer.write(rows_of(1))
    with pytest.raises(ValueError, match="26 columns"):
        write(tmp_path, "s", [install(0)[:-1]])  # type: ignore[list-item]


# --- traces that are none ----------------------------------------------------------------------


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nowhere")


def test_a_directory_without_parquet(tmp_path: Path) -> None:
    assert "holds no Parquet file" in refusal(tmp_path)


@pytest.mark.parametrize("content", [b"", b"run,node\nr,1\n", b"PAR1 but not really PAR1"])
def test_a_file_that_is_not_parquet(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "notes.parquet").write_bytes(content)
    sentence = refusal(tmp_path)
    assert "notes.parquet cannot be read as Parquet" in sentence
    assert "take it away" in sentence


def test_a_column_that_is_missing_is_named(tmp_path: Path) -> None:
    pq.write_table(table(rows_of(3)).drop_columns(["origin_config_rep"]), tmp_path / "r.parquet")
    assert "no column 'origin_config_rep'" in refusal(tmp_path)


def test_a_column_of_another_type_is_named_with_both_types(tmp_path: Path) -> None:
    rows = table(rows_of(3))
    odd = rows.set_column(rows.schema.get_field_index("seq"), "seq", rows.column("seq").cast(pa.float64()))
    pq.write_table(odd, tmp_path / "r.parquet")
    assert "column 'seq' should be int64 and is double" in refusal(tmp_path)


def test_a_value_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    rows = table(rows_of(3))
    wide = pa.array([1, 2, 2**40], pa.int64())
    pq.write_table(rows.set_column(rows.schema.get_field_index("size"), "size", wide), tmp_path / "r.parquet")
    assert "column 'size' should be int32 and is int64" in refusal(tmp_path)


def test_an_event_without_a_node_is_refused(tmp_path: Path) -> None:
    rows = table(rows_of(2))
    empty = pa.array([1, None], pa.int32())
    pq.write_table(
        rows.set_column(rows.schema.get_field_index("node"), "node", empty), tmp_path / "r.parquet"
    )
    assert "column 'node' has rows without a value" in refusal(tmp_path)


def test_an_event_that_no_trace_has_is_refused(tmp_path: Path) -> None:
    """Nothing would judge it, and a trace full of them would pass for clean."""
    rows = table(rows_of(2))
    odd = pa.array(["install", "reboot"])
    pq.write_table(
        rows.set_column(rows.schema.get_field_index("event"), "event", odd), tmp_path / "r.parquet"
    )
    assert "'reboot' is no event of a trace: they are submit, originate" in refusal(tmp_path)


def test_other_widths_encodings_and_columns_are_taken(tmp_path: Path) -> None:
    """A trace that went through another tool reads the same, if nothing was lost."""
    rows = rows_of(5)
    given = table(rows)
    other = {
        "run": pa.large_string(),
        "node": pa.int64(),
        "event": pa.dictionary(pa.int32(), pa.string()),
        "members": pa.large_list(pa.int64()),
    }
    for name, kind in other.items():
        column = given.column(name)
        column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
        given = given.set_column(given.schema.get_field_index(name), name, column)
    packet = given.schema.get_field_index("packet")
    given = given.set_column(packet, "packet", pa.nulls(len(rows)))
    given = given.append_column("remark", pa.array(["x"] * len(rows)))
    pq.write_table(given, tmp_path / "r.parquet")
    assert list(read_runs(tmp_path)) == [("r", rows)]


# --- directories of a table --------------------------------------------------------------------


def test_directories_of_a_partitioned_table_are_read_and_tell_columns(tmp_path: Path) -> None:
    one = table(rows_of(3)).drop_columns(["run"])
    for name, values in (("run=a%20b", one), ("bucket=1/run=c", one.drop_columns(["guarantee"]))):
        (tmp_path / name).mkdir(parents=True)
        pq.write_table(values, tmp_path / name / "part-0.parquet")
    with_level = tmp_path / "bucket=1/run=c/guarantee=safe"
    with_level.mkdir()
    (tmp_path / "bucket=1/run=c/part-0.parquet").rename(with_level / "part-0.parquet")
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log/1.parquet").write_text("no part of the trace")
    found = dict(read_runs(tmp_path))
    assert found.keys() == {"a b", "c"}
    assert found["a b"] == rows_of(3)
    assert found["c"] == [(*row[:16], "safe", *row[17:]) for row in rows_of(3)]
