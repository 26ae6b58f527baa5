"""The rows of the source: entries of the log as Spark has them, without touching a row.

``position`` sorts as the total order does. ``kind`` is ``message``; or ``configuration`` or ``transitional``,
for a change of the members, which has ``members`` and nothing else that a message has. With what guarantee
a message was sent is not here: all that the log hands out has reached every member.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema

_POSITION = {
    "configuration": "config_seq",
    "representative": "config_rep",
    "seq": "seq",
    "slot": "slot",
}
_NUMBERS = {"configuration": pa.int64(), "representative": pa.int32(), "seq": pa.int64(), "slot": pa.int32()}
ARROW_SCHEMA = pa.schema(
    [
        ("position", pa.struct([pa.field(name, kind) for name, kind in _NUMBERS.items()])),
        ("kind", pa.string()),
        ("sender", pa.int32()),
        ("group", pa.string()),
        ("payload", pa.binary()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("members", pa.list_(pa.field("element", pa.int32()))),
    ]
)
SCHEMA = from_arrow_schema(ARROW_SCHEMA)
_FIELDS = [ARROW_SCHEMA.field("position").type.field(place) for place in range(len(_POSITION))]
_MEMBERS = ARROW_SCHEMA.field("members").type


def rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of entries as rows of the source."""
    position = pa.StructArray.from_arrays([batch.column(name) for name in _POSITION.values()], fields=_FIELDS)
    columns = [
        position,
        _kind(batch.column("kind")),
        batch.column("sender"),
        batch.column("group"),
        batch.column("payload"),
        batch.column("time_us").view(ARROW_SCHEMA.field("time").type),
        batch.column("members").cast(_MEMBERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def _kind(kinds: pa.Array) -> pa.Array:
    """A regular configuration is called that, as most readers need to know no other."""
    if kinds[0].as_py() == "message" and kinds[len(kinds) - 1].as_py() == "message":
        return kinds  # a batch is of messages, or of a change
    return pc.if_else(pc.equal(kinds, "regular"), "configuration", kinds)
