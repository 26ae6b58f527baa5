"""Both auditors say the same of process groups: the one on Spark hands such runs to the reference."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planting import write_runs

from ordercast.audit.files import audited_runs
from ordercast.audit.spark import audited_on_spark
from ordercast.catalogue import fuzzed_protocol
from ordercast.sim.fuzz import plan, run
from ordercast.trace.columns import EVENT, GROUP, MEMBERS, origin_configuration_of, place_of
from ordercast.trace.schema import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRANGER = 99
"""The number of a process that there is not."""


def _spoilt(rows: list[Row], event: str, members: tuple[int, ...]) -> list[Row]:
    """The same rows; in one of that event, of a view or message that several rows are about, there are more
    members than there were."""
    told = Counter(_about(row) for row in rows if row[EVENT] == event)
    at = max(place for place, row in enumerate(rows) if row[EVENT] == event and told[_about(row)] > 1)
    row: list[Any] = list(rows[at])
    row[MEMBERS] = (*row[MEMBERS], *members)
    spoilt: Any = tuple(row)
    return [*rows[:at], spoilt, *rows[at + 1 :]]


def _about(row: Row) -> tuple[object, ...]:
    return (row[GROUP], *origin_configuration_of(row), *place_of(row))


def test_both_auditors_report_the_same_of_process_groups(spark: SparkSession, tmp_path: Path) -> None:
    runs: list[tuple[str, str, list[Row]]] = []
    for name in ("totem+groups", "cm+groups"):
        protocol = fuzzed_protocol(name)
        _, world = run(protocol, plan(protocol, 1, (3, 3)))
        promises = protocol.heading["promises"]
        runs.append((f"{name} right", promises, world.rows))
        runs.append((f"{name} group-views", promises, _spoilt(world.rows, "group_view", (9, 0, STRANGER))))
        runs.append((f"{name} group-receivers", promises, _spoilt(world.rows, "group_deliver", (STRANGER,))))
    write_runs(tmp_path, runs)
    reference = {found.run: found.report for found in audited_runs(tmp_path)}
    on_spark = {found.run: found.report for found in audited_on_spark(spark, tmp_path)}
    assert on_spark == reference
    for name, _, _ in runs:
        report = on_spark[name]
        broken = {code for code, count in report.properties.items() if count}
        assert broken == {name.split()[1]} - {"right"}
        assert "group-views" not in report.unchecked
