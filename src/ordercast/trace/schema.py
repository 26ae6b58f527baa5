"""The trace: one schema for simulated and real runs, one row an event.

Tools outside this project read these columns; names, order and types are fixed.
"""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("node", pa.int32()),
        ("incarnation", pa.int32()),
        ("step", pa.int64()),
        ("time_us", pa.int64()),
        ("event", pa.string()),
        ("config_seq", pa.int64()),
        ("config_rep", pa.int32()),
        ("config_kind", pa.string()),
        ("members", pa.list_(pa.int32())),
        ("origin", pa.int32()),
        ("origin_incarnation", pa.int32()),
        ("number", pa.int64()),
        ("origin_config_seq", pa.int64()),
        ("origin_config_rep", pa.int32()),
        ("seq", pa.int64()),
        ("slot", pa.int32()),
        ("guarantee", pa.string()),
        ("group", pa.string()),
        ("size", pa.int32()),
        ("packet", pa.string()),
    ]
)
"""The columns, in order."""

EVENTS = (
    "submit",
    "originate",
    "deliver",
    "stable",
    "install",
    "crash",
    "restart",
    "halt",
    "packet_sent",
    "packet_received",
    "packet_dropped",
)
"""What the column `event` holds; the last three only where packets are traced."""

Row: TypeAlias = tuple[
    int,  # node
    int,  # incarnation
    int,  # step
    int,  # time_us
    str,  # event
    int | None,  # config_seq
    int | None,  # config_rep
    str | None,  # config_kind
    tuple[int, ...] | None,  # members
    int | None,  # origin
    int | None,  # origin_incarnation
    int | None,  # number
    int | None,  # origin_config_seq
    int | None,  # origin_config_rep
    int | None,  # seq
    int | None,  # slot
    str | None,  # guarantee
    str | None,  # group
    int | None,  # size
    str | None,  # packet
]
"""One event in memory: the columns behind `run`, in order. The run is said once for all of them."""
