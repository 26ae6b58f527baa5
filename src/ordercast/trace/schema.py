"""The trace: one schema for simulated and real runs, one row an event.

Tools outside this project read these columns; names, order and types are fixed. A running node makes
rows and writes no Parquet, so that Arrow, which takes a quarter of a second to load, waits until
somebody asks for `SCHEMA`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    SCHEMA: pa.Schema
    """The columns as Arrow has them. Made when it is first asked for: see `__getattr__`."""

COLUMNS = {
    "run": "string",
    "node": "int32",
    "incarnation": "int32",
    "step": "int64",
    "time_us": "int64",
    "event": "string",
    "config_seq": "int64",
    "config_rep": "int32",
    "config_kind": "string",
    "members": "list of int32",
    "origin": "int32",
    "origin_incarnation": "int32",
    "number": "int64",
    "origin_config_seq": "int64",
    "origin_config_rep": "int32",
    "seq": "int64",
    "slot": "int32",
    "guarantee": "string",
    "group": "string",
    "size": "int32",
    "packet": "string",
    "ended_config_seq": "int64",
    "ended_config_rep": "int32",
    "ended_place": "int64",
    "timestamp": "int64",
    "ring": "int32",
    "checksum": "int64",
}
"""The columns, in order, and what each holds."""

OPTIONAL = ("ended_config_seq", "ended_config_rep", "ended_place", "timestamp", "ring", "checksum")
"""Columns that came later: a trace without them is one, too, and reads as if they were null everywhere.

``ended_config_seq`` to ``ended_place``: on an `install` that follows another in the same life they name the
configuration that it ends, and the ``seq`` of the last message that was delivered before it in that one's
order, 0 if there was none (`ordercast.core.identity.Ended`). They are null on every other row.

``timestamp`` and ``ring``: where a protocol joins several rings, an ``originate``, ``deliver`` or ``stable``
row has the message's Lamport timestamp, and the number of the network that its source ring is on (001). They
are null on every other row, and in other protocols.

``checksum``: an ``originate`` or ``deliver`` row has the CRC-32 of the message's payload, address included.
It is null on every other row, and where a node got the message without its contents, because none of its
processes needs them (`ordercast.rings.interests`).
"""

GROUP_EVENTS = ("group_join", "group_leave", "process_end", "group_view", "group_left", "group_deliver")
"""Events of processes, where there are process groups; ``number`` is the process's at its node.

``group_join``, ``group_leave`` and ``process_end`` are what a process does. ``group_view`` tells it of a view
of ``group``: ``members`` are its processes, three numbers each (node, incarnation, number);
``origin_config_seq`` and ``origin_config_rep`` are the configuration that it was made in, ``seq`` is its
number there, ``origin`` and ``origin_incarnation`` are the part of that configuration (null if the view is a
regular one), and ``packet`` is its cause.
``group_left`` tells a process that it is no longer in ``group``. ``group_deliver`` has the columns of a
``deliver``; ``members`` are the processes of the node that received the message, by number. Where one
received it as the member of a queue, ``packet`` is the group of the queue's members
(`ordercast.core.subjects`); and if it was sent again because the member that was to get it has ended, behind
`GROUPS_BETWEEN`, the message that it repeats: origin, incarnation and number.
Where a message is addressed to several groups, `ordercast.core.identity.GROUPS_BETWEEN` stands between them.
"""

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
    *GROUP_EVENTS,
)
"""What the column `event` holds; those of packets only where packets are traced."""

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
    int | None,  # ended_config_seq
    int | None,  # ended_config_rep
    int | None,  # ended_place
    int | None,  # timestamp
    int | None,  # ring
    int | None,  # checksum
]
"""One event in memory: the columns behind `run`, in order. The run is said once for all of them."""


About: TypeAlias = Mapping[str, str]
"""What a file says of all its rows: ``protocol``, its name; ``promises``, the name of the set of properties
that it promises; and ``clock``, `ONE_CLOCK` if one clock told ``time_us`` at all nodes, as in a simulation:
then times of different nodes may be compared. In Parquet it is metadata of the file, each key behind `ABOUT`.
A file without it is one of a trace, too; each node may have had a clock of its own."""

ABOUT = "ordercast."
ONE_CLOCK = "one"

VERSION = 1
"""Of the schema: raised when a file cannot be read any more as older versions of this project read it. An
optional column at the end is none."""
VERSION_KEY = "schema"
"""Behind `ABOUT`, where a file says the version; one that says none is of version 1."""


class TraceError(Exception):
    """What was given is not a trace of this schema. The message says what to do."""


def __getattr__(name: str) -> Any:
    if name != "SCHEMA":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "list of int32": pa.list_(pa.int32()),
    }
    globals()["SCHEMA"] = schema = pa.schema([(column, types[kind]) for column, kind in COLUMNS.items()])
    return schema
