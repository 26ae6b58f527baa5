"""The audit on Spark of traces in a store, of which Spark itself can read nothing: it has no jar for it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from planting import broken, right_runs, safe_and_not_delivered_by_one, swap_deliveries, write_runs

from ordercast.audit.files import audited_runs
from ordercast.audit.spark import audited_on_spark, engine, whole_runs
from ordercast.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def trace(store: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Runs of both families, right and broken, in a bucket."""
    here = tmp_path_factory.mktemp("to_be_stored")
    right = list(right_runs([5], ["totem", "cm"]))
    runs = [(f"{name}-right", promises, rows) for name, promises, rows in right]
    rng = Random("stored")
    for name, promises, rows in right:
        for plant in (swap_deliveries, safe_and_not_delivered_by_one):
            runs.append((f"{name}-{plant.__name__}", promises, broken(rng, rows, plant) or rows))
    write_runs(here, runs)
    uri = store.format(here.name)
    for file in here.iterdir():
        (Location.of(uri) / file.name).put(file.read_bytes())
    return uri


@pytest.mark.parametrize("small", [0, 10**9], ids=["by passes", "whole"])
def test_both_auditors_agree_on_what_is_in_a_store(
    spark: SparkSession, trace: str, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(whole_runs, "SMALL_RUN", small)
    reference = [found.report for found in audited_runs(trace)]
    assert any(report.clean for report in reference)
    assert not all(report.clean for report in reference)
    assert [found.report for found in audited_on_spark(spark, trace)] == reference


def test_of_a_large_run_in_a_store_the_messages_in_doubt_are_judged(
    spark: SparkSession, trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_runs, "SMALL_RUN", 0)
    monkeypatch.setattr(engine, "MOST_ROWS", 100)  # more than lies beyond the cuts of a right run
    found = {each.run: each for each in audited_on_spark(spark, trace)}
    for reference in audited_runs(trace):
        its = found[reference.run]
        assert its.report.clean == reference.report.clean
        assert its.how == "judged in part" or its.report.clean


def test_a_file_of_a_store_here_and_there(spark: SparkSession, trace: str, tmp_path: Path) -> None:
    (tmp_path / "copy.parquet").write_bytes((Location.of(trace) / "view-synchrony.parquet").read())
    assert [each.report for each in audited_on_spark(spark, tmp_path)] == [
        each.report for each in audited_runs(trace) if each.run.startswith("cm")
    ]
