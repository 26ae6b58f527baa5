"""Traces in a store: written, read and audited by URI, and damage there is noticed as here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ordercast.catalogue import LAB_TOTEM
from ordercast.cli import app
from ordercast.sim.fuzz import plan, run
from ordercast.storage import Location
from ordercast.trace.reader import read_runs
from ordercast.trace.schema import Row, TraceError
from ordercast.trace.writer import TraceWriter


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return run(LAB_TOTEM, plan(LAB_TOTEM, 3, (2, 3)))[1].rows


@pytest.fixture
def trace(store: str, rows: list[Row], tmp_path: Path) -> str:
    """The URI of a trace of two runs; one of them is in a directory of a table."""
    uri = store.format(tmp_path.name)
    for run_, place in (("a", ""), ("b", "/day=1")):
        with TraceWriter(store.format(tmp_path.name + place), run_, LAB_TOTEM.heading) as writer:
            writer.write(rows)
    return uri


def test_a_trace_is_read_as_it_was_written(trace: str, rows: list[Row]) -> None:
    assert dict(read_runs(trace)) == {"a": rows, "b": rows}


def test_a_longer_trace_of_the_same_name_is_replaced(trace: str, rows: list[Row]) -> None:
    from ordercast.trace import writer as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROW_GROUP", module.BATCH)
        with TraceWriter(trace, "a", LAB_TOTEM.heading, rows_per_file=1) as writer:
            writer.write(rows * 12)
    assert len(writer.files) > 1
    with TraceWriter(trace, "a", LAB_TOTEM.heading) as writer:
        writer.write(rows)
    assert dict(read_runs(trace))["a"] == rows


def test_the_command_audits_it_and_writes_its_page_there(trace: str, rows: list[Row]) -> None:
    page = trace.replace("?", "/pages/audit.html?", 1)
    said = CliRunner().invoke(app, ["audit", trace, "--json", "--report", page])
    assert said.exit_code == 0, said.output
    document = json.loads(said.stdout)
    assert (document["runs"], document["events"], document["clean"]) == (2, 2 * len(rows), True)
    text = Location.of(page).read().decode()
    assert "Clean: every property" in text
    assert "secret" not in text


def test_damage_in_a_store_is_no_verdict(trace: str) -> None:
    file = Location.of(trace) / "a.parquet"
    whole = file.read()
    for at in (len(whole) // 3, len(whole) // 2, len(whole) - 20):
        file.put(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert CliRunner().invoke(app, ["audit", trace]).exit_code == 2


def test_what_is_not_there_is_told(store: str) -> None:
    with pytest.raises(TraceError, match=r"s3://lake/nothing does not exist: give the directory"):
        list(read_runs(store.format("nothing")))
