from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cli_parts import ordercast, process

from ordercast.protocols import TOTEM
from ordercast.sim.fuzz import plan, run
from ordercast.trace.schema import Row
from ordercast.trace.writer import TraceWriter


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return run(TOTEM, plan(TOTEM, 3, (2, 3)))[1].rows


def written(directory: Path, rows: list[Row]) -> Path:
    with TraceWriter(directory, "spoiled") as writer:
        writer.write(rows)
    return directory


def test_a_clean_trace(tmp_path: Path, rows: list[Row]) -> None:
    directory = written(tmp_path, rows)
    said = ordercast("audit", directory, "--engine", "reference", "--json")
    assert said.code == 0
    document = said.document
    assert document["events"] == len(rows)
    assert document["violations"] == []
    assert set(document["properties"].values()) == {0}
    assert {"total-order", "virtual-synchrony", "safe"} <= set(document["properties"])
    told = ordercast("audit", directory)
    assert told.code == 0
    assert f"✓ clean: {len(rows):,} events of 1 run" in told.out


def test_a_violated_one(tmp_path: Path, rows: list[Row]) -> None:
    delivery = next(row for row in rows if row[4] == "deliver")
    again = (*delivery[:2], 10**6, *delivery[3:])
    directory = written(tmp_path, [*rows, again])
    said = ordercast("audit", directory, "--json")
    assert said.code == 1
    document = said.document
    assert document["properties"]["deliver-once"] == 1
    assert document["violations"][0]["run"] == "spoiled"
    assert document["violations"][0]["sentence"]
    told = ordercast("audit", directory)
    assert told.code == 1
    assert "deliver-once in spoiled: " in told.out
    assert "✗ violated: " in told.out


def test_one_file_will_do(tmp_path: Path, rows: list[Row]) -> None:
    (file,) = written(tmp_path, rows).iterdir()
    assert ordercast("audit", file).code == 0


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_what_is_no_trace_is_refused_in_words(tmp_path: Path, rows: list[Row], json: tuple[str, ...]) -> None:
    (file,) = written(tmp_path / "trace", rows).iterdir()
    lacking = tmp_path / "lacking.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["origin"]), lacking)
    nonsense = tmp_path / "nonsense.parquet"
    nonsense.write_text("no Parquet at all")
    empty = tmp_path / "empty"
    empty.mkdir()
    silent = tmp_path / "silent.parquet"
    pq.write_table(pq.read_table(file).slice(0, 0), silent)
    for path, complaint in (
        (silent, "holds no event: there is nothing to audit"),
        (tmp_path / "nowhere", "does not exist: give the directory"),
        (empty, "holds no Parquet file"),
        (nonsense, "cannot be read as Parquet"),
        (lacking, "has no column 'origin'"),
    ):
        said = ordercast("audit", path, *json)
        assert said.code == 2
        assert complaint in said.sentence
        assert not said.out


def test_exit_codes_of_a_real_process(tmp_path: Path, rows: list[Row]) -> None:
    said = process("audit", written(tmp_path / "trace", rows), "--json")
    assert said.code == 0
    assert said.document["events"] == len(rows)
    refused = process("audit", tmp_path / "nowhere")
    assert refused.code == 2
    assert refused.err.startswith("error: ")
    assert "Traceback" not in refused.err


def test_an_engine_that_is_not_there(tmp_path: Path) -> None:
    said = ordercast("audit", tmp_path, "--engine", "oracle")
    assert said.code == 2
    assert "reference" in said.sentence


def test_of_a_trimmed_trace_what_all_nodes_still_have_is_judged(tmp_path: Path, rows: list[Row]) -> None:
    node = rows[0][0]
    beginning = sorted(row[2] for row in rows if row[0] == node)[: len(rows) // 20]
    directory = written(tmp_path, [row for row in rows if row[0] != node or row[2] not in beginning])
    assert ordercast("audit", directory, "--json").code == 1, "as a whole, its beginning is missing"
    said = ordercast("audit", directory, "--trimmed", "--json")
    assert said.code == 0
    assert 0 < said.document["events"] < len(rows)
