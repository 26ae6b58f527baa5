"""Traces as they come: being written, of one file, without a beginning, too large to be looked at whole."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from planting import (
    Plant,
    broken,
    edited,
    ends_elsewhere_for_all,
    installs_late,
    right_runs,
    swap_deliveries,
    write_runs,
)
from typer.testing import CliRunner

from ordercast.audit import files
from ordercast.audit.files import audit_trace, audited_runs
from ordercast.audit.properties import VIEW_SYNCHRONY
from ordercast.audit.spark import audit_on_spark, audited_on_spark, engine, narrow, whole_runs
from ordercast.cli import app
from ordercast.trace.journal import Journal
from ordercast.trace.schema import OPTIONAL, Row, TraceError
from ordercast.trace.writer import TraceWriter, record_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run is so small that the reference is given it whole, in a task."""
    monkeypatch.setattr(whole_runs, "SMALL_RUN", 0)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    ((_, _, rows),) = right_runs([5], ["totem"])
    return rows


def test_journals_of_running_nodes_are_read_too(spark: SparkSession, tmp_path: Path, rows: list[Row]) -> None:
    for node in sorted({row[0] for row in rows}):
        journal = Journal(tmp_path, "live", node, 0)
        journal.append([row for row in rows if row[0] == node])
        journal.close(convert=node == 1)
    assert {file.suffix for file in tmp_path.iterdir()} == {".journal", ".parquet"}
    report = audit_on_spark(spark, tmp_path)
    assert report == audit_trace(tmp_path)
    assert report.clean
    assert report.events == len(rows)


def test_a_trimmed_trace_is_judged_from_where_all_nodes_have_it(
    spark: SparkSession, tmp_path: Path, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = rows[0][0]
    beginning = sorted(row[2] for row in rows if row[0] == node)[: len(rows) // 20]
    with TraceWriter(tmp_path, "trimmed") as writer:
        writer.write([row for row in rows if row[0] != node or row[2] not in beginning])
    report = audit_on_spark(spark, tmp_path, trimmed=True)
    assert report == audit_trace(tmp_path, trimmed=True)
    assert 0 < report.events < len(rows)
    monkeypatch.setattr(engine, "MOST_ROWS", report.events)
    large = audit_on_spark(spark, tmp_path, trimmed=True)
    assert large.clean
    assert 0 < large.events <= report.events, "from the same configuration on, or from a later one"
    assert "every node still has all its rows" in large.notes[0]


def test_wider_types_and_odd_names_are_no_obstacle(
    spark: SparkSession, tmp_path: Path, rows: list[Row]
) -> None:
    with TraceWriter(tmp_path / "narrow", "plain") as writer:
        writer.write(rows)
    table = pq.read_table(writer.paths[0])
    place = table.schema.get_field_index("node")
    wide = table.set_column(place, "node", table.column("node").cast(pa.int64()))
    odd = tmp_path / "a [strange] {name}"
    odd.mkdir()
    pq.write_table(wide, odd / "one*.parquet")
    assert audit_on_spark(spark, odd) == audit_trace(odd)


def test_rows_may_lie_in_any_order(spark: SparkSession, tmp_path: Path, rows: list[Row]) -> None:
    made = broken(Random(3), rows, swap_deliveries)
    assert made is not None
    for name, its in (("right", rows), ("wrong", made)):
        shuffled = Random(1).sample(its, len(its))
        pq.write_table(
            pa.Table.from_batches([record_batch(name, shuffled)]), tmp_path / f"{name}.parquet", 100
        )
    right, wrong = audited_on_spark(spark, tmp_path)
    assert right.report.clean
    assert right.how.startswith("certified")
    assert not wrong.report.clean
    assert [right.report, wrong.report] == [found.report for found in audited_runs(tmp_path)]


def test_a_set_of_properties_can_be_chosen(spark: SparkSession, tmp_path: Path, rows: list[Row]) -> None:
    with TraceWriter(tmp_path, "run", {"promises": "eventual-bliss"}) as writer:
        writer.write(rows)
    with pytest.raises(TraceError, match="eventual-bliss"):
        audit_on_spark(spark, tmp_path)
    report = audit_on_spark(spark, tmp_path, VIEW_SYNCHRONY)
    assert report.promises == ("view-synchrony",)
    assert report == audit_trace(tmp_path, VIEW_SYNCHRONY)


def test_what_lacks_a_fact_is_refused_as_the_reference_refuses_it(
    spark: SparkSession, tmp_path: Path, rows: list[Row]
) -> None:
    at = next(place for place, row in enumerate(rows) if row[4] == "originate")
    with TraceWriter(tmp_path, "lacking") as writer:
        writer.write([*rows[:at], edited(rows[at], number=None), *rows[at + 1 :]])
    with pytest.raises(TraceError, match="without a value for its number"):
        audit_on_spark(spark, tmp_path)


def test_an_event_that_is_none_is_refused(spark: SparkSession, tmp_path: Path, rows: list[Row]) -> None:
    with TraceWriter(tmp_path, "odd") as writer:
        writer.write([*rows, edited(rows[0], event="levitate")])
    with pytest.raises(TraceError, match="unknown event"):
        audit_on_spark(spark, tmp_path)


def test_of_a_run_too_large_for_the_reference_the_messages_in_doubt_are_judged(
    spark: SparkSession, tmp_path: Path, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = broken(Random(2), rows, swap_deliveries)
    assert made is not None
    write_runs(tmp_path, [("large", "extended-virtual-synchrony", made)])
    for module in (engine, narrow):
        monkeypatch.setattr(module, "MOST_ROWS", len(made) - 1)
    by_configuration = audit_on_spark(spark, tmp_path)
    (note,) = by_configuration.notes
    assert "too large to be judged row by row" in note
    whole = audit_trace(tmp_path)
    assert not by_configuration.clean
    assert by_configuration.events == len(made)
    monkeypatch.setattr(narrow, "MOST_ROWS", 40)
    monkeypatch.setattr(narrow, "PIECES", 64)
    (found,) = audited_on_spark(spark, tmp_path)
    assert found.how == "judged in part"
    for report in (by_configuration, found.report):
        for code, count in report.properties.items():
            assert count <= whole.properties[code], "a restriction invents nothing"
    assert found.report.properties["total-order"] == whole.properties["total-order"] > 0


@pytest.mark.parametrize(
    ("plant", "code"), [(ends_elsewhere_for_all, "config-ends"), (installs_late, "safe")]
)
def test_of_a_run_too_large_for_the_reference_what_changes_say_is_judged(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plant: Plant,
    code: str,
) -> None:
    """What shows in installs and times alone, in a run and in configurations that are too large."""
    ((_, _, rows),) = right_runs([7], ["totem"])
    made = plant(Random(1), rows)
    assert made is not None
    write_runs(tmp_path, [("large", "extended-virtual-synchrony", made)])
    whole = audit_trace(tmp_path)
    assert whole.properties[code]
    monkeypatch.setattr(engine, "MOST_ROWS", len(made) - 1)
    monkeypatch.setattr(narrow, "MOST_ROWS", 40)
    (found,) = audited_on_spark(spark, tmp_path)
    assert found.how == "judged in part"
    assert found.report.properties[code] == whole.properties[code]
    assert set(found.report.violations) == set(whole.violations)


def test_a_trace_of_an_older_version_is_audited_without_the_columns_that_came_later(
    spark: SparkSession, tmp_path: Path, rows: list[Row]
) -> None:
    made = broken(Random(3), rows, swap_deliveries)
    assert made is not None
    for name, its in (("right", rows), ("wrong", made)):
        table = pa.Table.from_batches([record_batch(name, its)]).drop_columns(list(OPTIONAL))
        pq.write_table(table, tmp_path / f"{name}.parquet")
    right, wrong = audited_on_spark(spark, tmp_path)
    assert right.report.clean
    assert right.how.startswith("certified")
    assert not wrong.report.clean
    assert [right.report, wrong.report] == [found.report for found in audited_runs(tmp_path)]


def test_a_right_run_is_certified_though_ring_numbers_fall_at_a_node_that_lost_its_disk(
    spark: SparkSession, tmp_path: Path
) -> None:
    runs = list(right_runs([1, 8, 17], ["totem"]))
    for _, _, its in runs:
        assert any(falls(its, node) for node in {row[0] for row in its}), "what this is about"
    write_runs(tmp_path, runs)
    found = list(audited_on_spark(spark, tmp_path))
    assert len(found) == len(runs)
    for each in found:
        assert each.report.clean
        assert each.how.startswith("certified"), each.how


def falls(rows: list[Row], node: int) -> bool:
    """Whether a node installs a regular configuration of a lower number than the one before it."""
    numbers = [row[5] or 0 for row in rows if row[0] == node and row[4] == "install" and row[7] == "regular"]
    return numbers != sorted(numbers)


def test_the_command_takes_the_engine_for_the_size_of_the_trace(
    spark: SparkSession, tmp_path: Path, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_runs(tmp_path, [("run", "extended-virtual-synchrony", rows)])
    page = tmp_path / "page.html"
    for most, engine_ in ((len(rows), "reference"), (len(rows) - 1, "spark")):
        monkeypatch.setattr(files, "MOST_HERE", most)
        said = CliRunner().invoke(app, ["audit", str(tmp_path), "--json", "--report", str(page)])
        assert said.exit_code == 0
        document = json.loads(said.stdout)
        assert (document["engine"], document["events"], document["clean"]) == (engine_, len(rows), True)
    assert "certified" in page.read_text()


def test_small_runs_are_judged_whole_beside_a_large_one(
    spark: SparkSession, tmp_path: Path, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs in one file, and one run in several: whatever is small goes into tasks, in whole runs."""
    made = broken(Random(3), rows, swap_deliveries)
    assert made is not None
    runs = [(f"small {at}", "extended-virtual-synchrony", (rows, made)[at % 2]) for at in range(9)]
    write_runs(tmp_path, [*runs, ("large", "extended-virtual-synchrony", [*rows, *_others(rows)])])
    for node in sorted({row[0] for row in rows}):
        with TraceWriter(tmp_path, "parted", stem=f"parted-{node}") as writer:
            writer.write([row for row in rows if row[0] == node])
    monkeypatch.setattr(whole_runs, "SMALL_RUN", len(made))
    monkeypatch.setattr(whole_runs, "_FEWEST", 2 * len(made))
    found = list(audited_on_spark(spark, tmp_path))
    assert [each.run for each in found if each.how != "judged row by row"] == ["large"]
    assert [each.report for each in found] == [each.report for each in audited_runs(tmp_path)]


def _others(rows: list[Row]) -> list[Row]:
    """Rows that say nothing, as many as there are."""
    last = max(row[2] for row in rows)
    return [edited(row, event="packet_sent", step=last + 1 + at) for at, row in enumerate(rows)]
