"""What a user tells the source or the sink, checked at once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ordercast.core.subjects import is_pattern
from ordercast.errors import ConfigProblem
from ordercast.log import Position, Selection

EARLIEST, LATEST = "earliest", "latest"
COLUMNS = (
    *("position", "kind", "sender", "group", "key", "headers", "payload", "timestamp", "members"),
    *("topic", "value"),
)
"""Columns of the source: ours, and those that only readers of Kafka know, `topic` for `group` and `value` for
`payload`."""
_OURS = COLUMNS[:-2]
_KAFKA = ("key", "value", "topic", "position", "timestamp", "headers")
_BOTH = ("nodes", "group", "keyFile")
_SINK = (*_BOTH, "acceptUnknown", "ordered", "connectTimeout")
_SOURCE = (
    *_BOTH,
    *("subscribe", "subscribePattern", "failOnUnknownGroup", "membership", "columns"),
    *("startingPosition", "startingTimestamp", "endingPosition", "endingTimestamp"),
    *("maxRowsPerTrigger", "maxBytesPerTrigger", "minPartitions", "maxBytesPerPartition", "failOnDataLoss"),
)
_SECRET = "key"
_OF_SPARK = ("path", "checkpointLocation", "queryName", "outputMode")
"""Options that Spark itself puts among ours."""


class Access(NamedTuple):
    """How the group is reached: everything that an executor needs to know."""

    nodes: tuple[str, ...]
    key: str | None
    """A key as text, or the path of a key file, which is there on every machine that reads or writes."""


class SentAt(NamedTuple):
    """The first message that was sent then or later."""

    time_us: int


class Reading(NamedTuple):
    """What the source is to do."""

    access: Access
    selected: Selection
    start: str | Position | SentAt
    """`EARLIEST`, `LATEST`, the position that the first row comes after, or a time."""
    end: str | Position | SentAt
    """Of a table: `LATEST`, the position of the last row, or the time that rows come before."""
    columns: tuple[str, ...]
    most_rows: int | None
    most_bytes: int | None
    """How many rows, and how many bytes, one batch of a stream has at most."""
    least_partitions: int
    partition_bytes: int
    """Bytes of messages that one task reads, about."""
    fail_on_loss: bool
    fail_on_unknown: bool


class Writing(NamedTuple):
    """What the sink is to do."""

    access: Access
    group: str | None
    """None: a column says it."""
    accept_unknown: bool = False
    """Write though the group does not know the batches before."""
    ordered: bool = False
    """The rows of a batch keep their order, over all its tasks."""
    connect_s: float = 10.0
    """How long any node may take to be reached."""


PARTITION_BYTES = 256 * 1024 * 1024


def reading(options: Mapping[str, str]) -> Reading:
    """The options of the source."""
    _check_names(options, _SOURCE)
    return Reading(
        _access(options),
        _selected(options),
        _place(options, "starting", EARLIEST),
        _place(options, "ending", LATEST),
        _columns(options.get("columns", "")),
        _number(options, "maxRowsPerTrigger"),
        _number(options, "maxBytesPerTrigger"),
        _number(options, "minPartitions") or 1,
        _number(options, "maxBytesPerPartition") or PARTITION_BYTES,
        _truth(options, "failOnDataLoss", True),
        _truth(options, "failOnUnknownGroup", False),
    )


def writing(options: Mapping[str, str]) -> Writing:
    """The options of the sink."""
    _check_names(options, _SINK)
    access = _access(options)
    for node in access.nodes:
        if is_directory(node):
            raise ConfigProblem(
                f"nodes names {node!r}, a directory: a log can be read there, but rows are written through a "
                "node that runs; name the address of its log service, which `ordercast status` shows"
            )
    return Writing(
        access,
        options.get("group") or None,
        _truth(options, "acceptUnknown", False),
        _truth(options, "ordered", False),
        _number(options, "connectTimeout") or Writing._field_defaults["connect_s"],
    )


def is_directory(node: str) -> bool:
    """Whether a replica is named by its directory, and not by an address."""
    return "/" in node or ":" not in node


def _check_names(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    lower = {name.lower(): name for name in (*known, _SECRET, *_OF_SPARK)}
    for name in options:
        if name.lower() not in lower:
            near = difflib.get_close_matches(
                name.lower(), [known.lower() for known in known], n=1, cutoff=0.5
            )
            advice = f"did you mean {lower[near[0]]}?" if near else f"there are {', '.join(known)}"
            raise ConfigProblem(f"there is no option {name}: {advice}")


def _access(options: Mapping[str, str]) -> Access:
    nodes = _list(options.get("nodes") or options.get("path") or "")
    if not options:
        raise ConfigProblem(
            "there are no options: Spark hands a Python source none of those of a table in its catalogue, so "
            "use CREATE TEMPORARY VIEW … USING ordercast OPTIONS (nodes '…') in place of CREATE TABLE"
        )
    if not nodes:
        raise ConfigProblem(
            "the option nodes is missing: name the log services of some nodes, as in "
            '"10.0.0.1:4901,10.0.0.2:4901", or directories of logs'
        )
    key, key_file = options.get(_SECRET), options.get("keyFile")
    if key and key_file:
        raise ConfigProblem("key and keyFile are both given: keep keyFile, which keeps the key out of plans")
    if key_file:
        return Access(nodes, str(Path(key_file).expanduser()))
    return Access(nodes, key or None)


def _selected(options: Mapping[str, str]) -> Selection:
    group, several = options.get("group"), options.get("subscribe")
    patterns = _list(options.get("subscribePattern", ""))
    if sum(map(bool, (group, several, patterns))) > 1:
        raise ConfigProblem(
            "group, subscribe and subscribePattern are for one purpose: give one of them, as in "
            'subscribe "orders,billing" or subscribePattern "orders.*"'
        )
    for pattern in patterns:
        if not is_pattern(pattern):
            raise ConfigProblem(
                f"subscribePattern has {pattern!r}: write words with dots between, * for one word and > for "
                "all words behind, as in orders.* or orders.>"
            )
    names = (group,) if group else _list(several or "")
    changes = _truth(options, "membership", True)
    return Selection(names or None, patterns, changes)


def _columns(text: str) -> tuple[str, ...]:
    if text.strip().lower() == "kafka":
        return _KAFKA
    columns = _list(text) or _OURS
    for name in columns:
        if name not in COLUMNS:
            raise ConfigProblem(
                f"there is no column {name}: columns names some of {', '.join(COLUMNS)}, with commas "
                'between, or is "kafka" for those of Kafka\'s source'
            )
    return columns


def _list(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))


def _place(options: Mapping[str, str], which: str, otherwise: str) -> str | Position | SentAt:
    """Where rows start or end."""
    position, timestamp = options.get(f"{which}Position"), options.get(f"{which}Timestamp")
    if position and timestamp:
        raise ConfigProblem(f"{which}Position and {which}Timestamp are both given: give one")
    if timestamp:
        return SentAt(_time(f"{which}Timestamp", timestamp))
    if not position or position.strip().lower() == otherwise:
        return otherwise
    if which == "starting" and position.strip().lower() == LATEST:
        return LATEST
    try:
        return Position.parse(position)
    except ValueError as error:
        kinds = "earliest, latest, or the position that the first row comes after"
        kinds = kinds if which == "starting" else "latest, or the position of the last row"
        raise ConfigProblem(f"{which}Position is {position!r}: write {kinds}, as in 8.1/17/0") from error


def _time(name: str, text: str) -> int:
    """Microseconds since the epoch."""
    if text.strip().isdecimal():
        return int(text) * 1000
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ConfigProblem(
            f"{name} is {text!r}: write a time as in 2026-11-19T18:00:00Z, or milliseconds since the epoch"
        ) from error
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000_000)


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.strip().isdecimal() and int(text) > 0):
        raise ConfigProblem(f"{name} is {text!r}: write a number, as in 100000")
    return int(text)


def _truth(options: Mapping[str, str], name: str, otherwise: bool) -> bool:
    text = options.get(name)
    if text is None:
        return otherwise
    if text.strip().lower() not in ("true", "false"):
        raise ConfigProblem(f"{name} is {text!r}: write true or false")
    return text.strip().lower() == "true"
