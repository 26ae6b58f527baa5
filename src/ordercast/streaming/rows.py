"""The rows of the source: entries of the log as Spark has them, without touching a row that has no headers.

``position`` sorts as the total order does. ``kind`` is ``message``; or ``configuration`` or ``transitional``,
for a change of the members, which has ``members`` and nothing else that a message has. With what guarantee
a message was sent is not here: all that the log hands out has reached every member. Nor is when the replica
that is read delivered it: all columns are the same, whichever replica that is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ordercast.core.headers import KEY, headers_of
from ordercast.errors import ConfigProblem

_POSITION = {
    "configuration": "config_seq",
    "representative": "config_rep",
    "seq": "seq",
    "slot": "slot",
}
_NUMBERS = {"configuration": pa.int64(), "representative": pa.int32(), "seq": pa.int64(), "slot": pa.int32()}
_FIELDS = [pa.field(name, kind) for name, kind in _NUMBERS.items()]
_HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
_MEMBERS = pa.list_(pa.field("element", pa.int32()))
_TIME = pa.timestamp("us", tz="UTC")
_TYPES: dict[str, pa.DataType] = {
    "position": pa.struct(_FIELDS),
    "kind": pa.string(),
    "sender": pa.int32(),
    "group": pa.string(),
    "key": pa.binary(),
    "headers": _HEADERS,
    "payload": pa.binary(),
    "timestamp": _TIME,
    "members": _MEMBERS,
    "topic": pa.string(),
    "value": pa.binary(),
}
_OF_HEADS = {"key", "headers"}


def schema_of(columns: Sequence[str]) -> StructType:
    """The schema of these columns."""
    return from_arrow_schema(_arrow(columns))


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema, if all are ours."""
    names = tuple(schema.fieldNames())
    for field in schema.fields:
        if field.name not in _TYPES or field.dataType != schema_of([field.name])[0].dataType:
            kinds = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in schema_of([*_TYPES]))
            raise ConfigProblem(
                f"{field.name} {field.dataType.simpleString()} is no column of ordercast: leave schema(…) "
                f"out, or choose among {kinds}"
            )
    return names


def needs_heads(columns: Sequence[str]) -> bool:
    """Whether what was said beside messages is wanted."""
    return not _OF_HEADS.isdisjoint(columns)


def rows(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """A batch of entries as rows of the source."""
    arrays = [_MADE[name](batch) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=_arrow(columns))


def _arrow(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, _TYPES[name]) for name in columns])


def _position(batch: pa.RecordBatch) -> pa.Array:
    return pa.StructArray.from_arrays([batch.column(name) for name in _POSITION.values()], fields=_FIELDS)


def _kind(batch: pa.RecordBatch) -> pa.Array:
    """A regular configuration is called that, as most readers need to know no other."""
    kinds = batch.column("kind")
    if kinds[0].as_py() == "message" and kinds[len(kinds) - 1].as_py() == "message":
        return kinds  # a batch is of messages, or of a change
    return pc.if_else(pc.equal(kinds, "regular"), "configuration", kinds)


def _timestamp(batch: pa.RecordBatch) -> pa.Array:
    sent = batch.column("sent_us")
    if pc.min(sent).as_py() == 0:  # not known
        sent = pc.if_else(pc.equal(sent, 0), pa.scalar(None, pa.int64()), sent)
    return sent.view(_TIME)


def _key(batch: pa.RecordBatch) -> pa.Array:
    heads = _heads(batch)
    if heads is None:
        return pa.nulls(batch.num_rows, pa.binary())
    keys = (headers_of(head).get(KEY) for head in heads)
    return pa.array([None if key is None else key.encode() for key in keys], pa.binary())


def _headers(batch: pa.RecordBatch) -> pa.Array:
    heads = _heads(batch)
    if heads is None:
        return pa.nulls(batch.num_rows, _HEADERS)
    told = (
        [{"key": name, "value": value.encode()} for name, value in headers_of(head).items() if name != KEY]
        for head in heads
    )
    return pa.array([each or None for each in told], _HEADERS)


def _heads(batch: pa.RecordBatch) -> list[bytes] | None:
    """What was said beside each message; None if nothing was beside any."""
    heads = batch.column("head")
    return heads.to_pylist() if pc.max(pc.binary_length(heads)).as_py() else None


def _same(name: str) -> Callable[[pa.RecordBatch], pa.Array]:
    return lambda batch: batch.column(name)


_MADE: dict[str, Callable[[pa.RecordBatch], pa.Array]] = {
    "position": _position,
    "kind": _kind,
    "sender": _same("sender"),
    "group": _same("group"),
    "key": _key,
    "headers": _headers,
    "payload": _same("payload"),
    "timestamp": _timestamp,
    "members": lambda batch: batch.column("members").cast(_MEMBERS),
    "topic": _same("group"),
    "value": _same("payload"),
}
