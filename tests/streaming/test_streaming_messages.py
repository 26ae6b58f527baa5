"""Rows of a DataFrame as messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ordercast.core.headers import headers_of
from ordercast.errors import ConfigProblem, Unreachable
from ordercast.process_groups.notes import read_head
from ordercast.streaming.options import Access
from ordercast.streaming.producer import check_reachable

pytest.importorskip("pyspark")


from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from ordercast.streaming.messages import Form, rows_by_group

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


ENTRY = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
KINDS: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "array": ArrayType(ENTRY),
    "map": MapType(StringType(), StringType()),
}


def form(text: str) -> Form:
    """The form of columns that are named with their kinds."""
    columns = (column.split() for column in text.split(", "))
    return Form.of(StructType([StructField(name, KINDS[kind]) for name, kind in columns]))


def test_rows_go_to_the_groups_that_a_column_names_with_what_is_said_beside_them() -> None:
    rows: list[dict[str, Any]] = [
        {"value": b"1", "key": "a", "headers": [{"key": "h", "value": b"x"}], "topic": "one"},
        {"value": b"2", "key": None, "headers": None, "topic": "two"},
        {"value": b"3", "key": "ü", "headers": [], "topic": "one"},
    ]
    schema = pa.schema(
        [("value", pa.binary()), ("key", pa.string()), ("headers", HEADERS), ("topic", pa.string())]
    )
    batch = pa.RecordBatch.from_pylist(rows, schema)
    there = form("value binary, key string, headers array, topic string")
    told = {
        group: [(dict(headers_of(words)), body) for words, body in map(read_head, messages)]
        for group, messages in rows_by_group(batch, there, None)
    }
    assert told == {
        "one": [({"Key": "a", "h": "x"}, b"1"), ({"Key": "ü"}, b"3")],
        "two": [({}, b"2")],
    }


def test_rows_without_such_columns_are_their_payloads() -> None:
    batch = pa.RecordBatch.from_pylist([{"payload": "a"}, {"payload": "b"}])
    assert list(rows_by_group(batch, form("payload string"), "g")) == [("g", [b"a", b"b"])]
    assert list(rows_by_group(batch.slice(2), form("payload string"), "g")) == []


def test_headers_may_be_a_map() -> None:
    kind = pa.map_(pa.string(), pa.string())
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"p"]), pa.array([[("a", "b")]], kind)], names=["payload", "headers"]
    )
    ((_, (message,)),) = rows_by_group(batch, form("payload binary, headers map"), "g")
    words, body = read_head(message)
    assert (dict(headers_of(words)), body) == ({"a": "b"}, b"p")


@pytest.mark.parametrize(
    "columns",
    ["n int", "payload int", "payload string, value string", "payload string, headers string", "key string"],
)
def test_columns_that_are_no_messages_are_explained(columns: str) -> None:
    with pytest.raises(ConfigProblem, match="a row is a message"):
        form(columns)


def test_rows_without_a_payload_or_a_group_are_explained() -> None:
    batch = pa.RecordBatch.from_pylist([{"payload": b"1", "group": None}, {"payload": None, "group": "g"}])
    batch = batch.cast(pa.schema([("payload", pa.binary()), ("group", pa.string())]))
    for some, name in ((batch.slice(0, 1), "group"), (batch.slice(1), "payload")):
        with pytest.raises(ConfigProblem, match=f"1 rows have no {name}"):
            list(rows_by_group(some, form("payload binary, group string"), None))


def test_what_cannot_be_said_beside_a_row_is_explained() -> None:
    batch = pa.RecordBatch.from_pylist([{"payload": b"1", "key": b"\xff"}])
    with pytest.raises(ConfigProblem, match="beside its message cannot be sent"):
        list(rows_by_group(batch, form("payload binary, key binary"), "g"))


def test_addresses_at_which_nobody_is_are_told_with_a_sentence_of_each() -> None:
    def connect(where: str) -> Any:
        raise Unreachable(f"{where} is away")

    with pytest.raises(Unreachable, match=r"(?s)no node that nodes names.*- a:1: a:1 is away.*- b:2"):
        check_reachable(connect, Access(("a:1", "b:2"), None), 0.0)
