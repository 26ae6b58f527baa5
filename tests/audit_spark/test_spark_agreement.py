"""The auditor on Spark says what the reference says, of right runs and of broken ones."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest
from planting import OF_RINGS, PLANTS, broken, right_runs, write_runs

from ordercast.audit.files import audited_runs
from ordercast.audit.findings import Findings
from ordercast.audit.spark import audited_on_spark, whole_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Judged = dict[str, Findings]


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Judged, Judged]:
    """One trace of many runs, by the reference and on Spark."""
    directory = tmp_path_factory.mktemp("planted")
    right = [*right_runs([7], ["totem", "cm", "rbp", "total"]), *right_runs([11], ["rings"])]
    runs = [(f"{name}-right", promises, rows) for name, promises, rows in right]
    rng = Random("few")
    for plant in PLANTS:
        which = (right[-1],) if plant in OF_RINGS else (right[0], *rng.sample(right[1:-1], 2))
        for name, promises, rows in which:
            made = broken(rng, rows, plant)
            if made is not None:
                runs.append((f"{name}-{plant.__name__}", promises, made))
    write_runs(directory, runs)
    reference = {found.run: found for found in audited_runs(directory, shown=True)}
    assert list(audited_on_spark(spark, directory, shown=True)) == list(reference.values())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_runs, "SMALL_RUN", 0)
        return reference, {found.run: found for found in audited_on_spark(spark, directory, shown=True)}


def test_both_auditors_report_the_same_word_by_word(judged: tuple[Judged, Judged]) -> None:
    reference, on_spark = judged
    assert list(on_spark) == list(reference), "the same runs, in the same order"
    for run, found in reference.items():
        assert on_spark[run].report == found.report, run


def test_every_property_is_broken_in_some_run(judged: tuple[Judged, Judged]) -> None:
    reference, on_spark = judged
    properties: Counter[str] = Counter()
    for found in on_spark.values():
        properties.update(code for code, count in found.report.properties.items() if count)
    told = {code for found in reference.values() for code in found.report.properties}
    assert told - set(properties) == {"live-membership", "live-delivery"}, "which no trace tells about"


def test_right_runs_are_certified_without_looking_at_every_row(judged: tuple[Judged, Judged]) -> None:
    _, on_spark = judged
    right = [found for run, found in on_spark.items() if run.endswith("-right")]
    assert right
    for found in right:
        assert found.report.clean
        assert found.how.startswith("certified"), found.run


def test_what_there_is_to_show_of_a_broken_run_is_the_same(judged: tuple[Judged, Judged]) -> None:
    reference, on_spark = judged
    for run, found in reference.items():
        assert on_spark[run].control == found.control, run
        assert on_spark[run].windows == found.windows, run
        assert on_spark[run].delivered == found.delivered, run
