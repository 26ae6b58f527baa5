"""What the source plans and reads, as Spark asks for it, without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from log_files import TIME_US, Writer, configuration

from ordercast.errors import ConfigProblem

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, IsNotNull, LessThan

from ordercast.streaming.options import reading
from ordercast.streaming.replicas import Replicas
from ordercast.streaming.rows import columns_of
from ordercast.streaming.source import FilteringReader, OrdercastSource, Range, StreamReader, TableReader

ALL = [*range(30), *range(100, 120), *range(200, 220), *range(300, 320)]


def a_log(path: Path, node: int = 1) -> str:
    """Messages to three groups, of which one has keys; a change of the members; more to the first."""
    log = Writer(path / str(node), node).install(configuration(4, 1, 1, 2)).packets(3)
    log.packets(2, 100, "orders.eu", key="k 1").packets(2, 200, "orders.us")
    return log.install(configuration(8, 1, 1)).packets(2, 300).done()


def parts(nodes: str, filters: Iterable[Filter] = (), **options: str) -> list[pa.Table]:
    """What each task of a table reads."""
    source = OrdercastSource({"nodes": nodes, **options})
    told = reading(source.options)._replace(columns=columns_of(source.schema()))
    reader = FilteringReader(told)
    assert list(reader.pushFilters(list(filters))) == list(filters), "Spark looks at each row all the same"
    return [pa.Table.from_batches(reader.read(part)) for part in reader.partitions()]


def table(nodes: str, filters: Iterable[Filter] = (), **options: str) -> pa.Table:
    return pa.concat_tables(parts(nodes, filters, **options))


def numbers(found: pa.Table) -> list[int]:
    payloads = found.column("payload" if "payload" in found.column_names else "value").to_pylist()
    return [int(payload) for payload in payloads if payload is not None]


def test_the_same_rows_are_read_from_any_replica(tmp_path: Path) -> None:
    one, other = (table(a_log(tmp_path, node)) for node in (1, 2))
    assert one.equals(other)
    assert numbers(one) == ALL
    assert one.column("timestamp")[1].as_py() == datetime.fromtimestamp(TIME_US / 1e6, UTC)
    assert one.column("timestamp")[0].as_py() is None


def test_columns_are_ours_or_those_of_kafka(tmp_path: Path) -> None:
    found = table(a_log(tmp_path), subscribePattern="orders.*", columns="kafka", membership="false")
    assert found.column_names == ["key", "value", "topic", "position", "timestamp", "headers"]
    assert numbers(found) == [*range(100, 120), *range(200, 220)]
    first, last = found.slice(0, 1).to_pylist()[0], found.slice(39).to_pylist()[0]
    assert (first["key"], first["topic"]) == (b"k 1", "orders.eu")
    assert first["headers"] == [{"key": "about", "value": b"a test"}]
    assert (last["key"], last["headers"]) == (None, None)


def test_a_table_is_of_some_groups_and_of_some_time(tmp_path: Path) -> None:
    where, time_ms = a_log(tmp_path), TIME_US // 1000
    some = table(where, subscribe="ledger,orders.us", membership="false")
    assert numbers(some) == [*range(30), *range(200, 220), *range(300, 320)]
    assert set(some.column("kind").to_pylist()) == {"message"}
    later = {"startingTimestamp": str(time_ms + 105), "endingTimestamp": str(time_ms + 300)}
    assert numbers(table(where, (), **later)) == [*range(110, 120), *range(200, 220)]
    assert numbers(table(where, endingPosition="4.1/2/4")) == list(range(15))
    assert numbers(table(where, startingPosition="4.1/2/4", endingPosition="4.1/3/0")) == list(range(15, 21))
    assert parts(where, startingTimestamp=str(time_ms + 10_000)) == []
    assert parts(where, startingPosition="4.1/2/4", endingPosition="4.1/1/0") == []


def test_a_table_is_read_by_as_many_tasks_as_are_wanted(tmp_path: Path) -> None:
    where = a_log(tmp_path)
    several = parts(where, minPartitions="4")
    assert len(several) >= 4
    assert numbers(pa.concat_tables(several)) == ALL
    small = parts(where, maxBytesPerPartition="60")
    assert numbers(pa.concat_tables(small)) == ALL
    assert max(sum(map(len, filter(None, part.column("payload").to_pylist()))) for part in small) <= 60


def test_all_replicas_are_read_side_by_side(tmp_path: Path) -> None:
    where = [a_log(tmp_path, node) for node in (1, 2, 3)]
    reader = TableReader(reading({"nodes": ",".join(where), "minPartitions": "6"}))
    asked = []
    for part in reader.partitions():
        assert isinstance(part, Range)
        asked.append(Replicas(part.access, part.first).first)
    assert len(asked) >= 6
    assert asked == [where[(where.index(asked[0]) + at) % 3] for at in range(len(asked))]


def test_an_unknown_group_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    where = a_log(tmp_path)
    with pytest.raises(ConfigProblem, match="no replica has a message to ledgers: did you mean ledger"):
        parts(where, group="ledgers", failOnUnknownGroup="true")
    assert table(where, group="ledgers").num_rows == 2
    assert "no replica has a message to ledgers" in caplog.text
    with pytest.raises(ConfigProblem, match=r"invoices\.\*: there are ledger, orders\.eu, orders\.us"):
        parts(where, subscribePattern="invoices.*", failOnUnknownGroup="true")


def test_filters_leave_out_whole_blocks(tmp_path: Path) -> None:
    where = a_log(tmp_path)
    at = datetime.fromtimestamp(TIME_US / 1e6 + 0.15, UTC)
    given: list[tuple[list[Filter], list[int]]] = [
        ([EqualTo(("group",), "orders.us")], list(range(200, 220))),
        ([In(("topic",), ("orders.us", "nobody"))], list(range(200, 220))),
        ([GreaterThanOrEqual(("position", "configuration"), 8)], list(range(300, 320))),
        ([LessThan(("timestamp",), at)], [*range(30), *range(100, 120)]),
        ([IsNotNull(("sender",))], ALL),
    ]
    for filters, wanted in given:
        assert numbers(table(where, filters)) == wanted
    assert table(where, [IsNotNull(("sender",))]).num_rows == len(ALL)


def batches(nodes: str, **options: str) -> list[tuple[int, dict[str, Any]]]:
    """The batches of a stream over what there is now: how many rows each has, and what is told with it."""
    source = OrdercastSource({"nodes": nodes, **options})
    stream = source.streamReader(source.schema())
    assert isinstance(stream, StreamReader)
    stream.prepareForTriggerAvailableNow()
    found, at = [], stream.initialOffset()
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        told = stream.reportLatestOffset()
        assert told is not None
        rows = (batch.num_rows for part in stream.partitions(at, end) for batch in stream.read(part))
        found.append((sum(rows), told))
        at = end
    stream.stop()
    return found


def test_limits_of_a_stream_count_what_is_for_it(tmp_path: Path) -> None:
    """Few messages among thousands are one batch, not one for each thousand; and the lag is theirs, too."""
    log = Writer(tmp_path / "log", 1).install(configuration(4, 1, 1))
    for turn in range(5):
        log.packets(100, turn * 1000, "busy").packets(1, 10 * turn, "rare")
    where = log.packets(100, 9000, "busy").done()
    rare = {"group": "rare", "membership": "false"}
    assert [rows for rows, _ in batches(where, **rare, maxRowsPerTrigger="100")] == [50]
    bounded = batches(where, **rare, maxBytesPerTrigger="40")
    assert sum(rows for rows, _ in bounded) == 50
    assert len(bounded) < 6
    assert [told["rowsBehind"] for _, told in bounded] == sorted(
        (told["rowsBehind"] for _, told in bounded), reverse=True
    )
    assert (bounded[-1][1]["rowsBehind"], bounded[-1][1]["bytesBehind"]) == (0, 0)


def test_what_is_not_for_a_stream_is_passed_over_up_to_its_configuration(tmp_path: Path) -> None:
    log = Writer(tmp_path / "log", 1).install(configuration(4, 1, 1)).packets(1, 0, "rare").packets(9, 50)
    log.install(configuration(8, 1, 1)).packets(9, 500).packets(1, 10, "rare")
    found = [rows for rows, _ in batches(log.done(), group="rare", membership="false")]
    assert sum(found) == 20
    assert len(found) <= 3


def test_a_stream_has_no_end(tmp_path: Path) -> None:
    source = OrdercastSource({"nodes": a_log(tmp_path), "endingPosition": "4.1/3/0"})
    with pytest.raises(ConfigProblem, match="a stream has no end"):
        source.streamReader(source.schema())
