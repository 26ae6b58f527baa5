"""What a user tells the source or the sink, checked at once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ordercast.errors import ConfigProblem
from ordercast.log import Position

EARLIEST, LATEST = "earliest", "latest"
_BOTH = ("nodes", "group", "key", "keyFile")
_SINK = (*_BOTH, "acceptUnknown")
_SOURCE = (*_BOTH, "startingPosition", "maxRowsPerTrigger", "failOnDataLoss")
_OF_SPARK = ("path", "checkpointLocation", "queryName", "outputMode")
"""Options that Spark itself puts among ours."""


class Access(NamedTuple):
    """How the group is reached: everything that an executor needs to know."""

    nodes: tuple[str, ...]
    key: str | None
    """A key as text, or the path of a key file, which is there on every machine that reads or writes."""


class Reading(NamedTuple):
    """What the source is to do."""

    access: Access
    group: str | None
    start: str | Position
    """`EARLIEST`, `LATEST`, or the position that the first row comes after."""
    most_rows: int | None
    fail_on_loss: bool


class Writing(NamedTuple):
    """What the sink is to do."""

    access: Access
    group: str
    accept_unknown: bool = False
    """Write though the group does not know the batches before."""


def reading(options: Mapping[str, str]) -> Reading:
    """The options of the source."""
    _check_names(options, _SOURCE)
    most = options.get("maxRowsPerTrigger")
    if most is not None and not (most.strip().isdecimal() and int(most) > 0):
        raise ConfigProblem(f"maxRowsPerTrigger is {most!r}: write a number of rows, as in 100000")
    return Reading(
        _access(options),
        options.get("group") or None,
        _start(options.get("startingPosition", EARLIEST)),
        None if most is None else int(most),
        _truth("failOnDataLoss", options.get("failOnDataLoss", "true")),
    )


def writing(options: Mapping[str, str]) -> Writing:
    """The options of the sink."""
    _check_names(options, _SINK)
    group = options.get("group")
    if not group:
        raise ConfigProblem('the option group is missing: name the group to write to, as in "orders"')
    access = _access(options)
    for node in access.nodes:
        if is_directory(node):
            raise ConfigProblem(
                f"nodes names {node!r}, a directory: a log can be read there, but rows are written through a "
                "node that runs; name the address of its log service, which `ordercast status` shows"
            )
    return Writing(access, group, _truth("acceptUnknown", options.get("acceptUnknown", "false")))


def is_directory(node: str) -> bool:
    """Whether a replica is named by its directory, and not by an address."""
    return "/" in node or ":" not in node


def _check_names(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    lower = {name.lower(): name for name in (*known, *_OF_SPARK)}
    for name in options:
        if name.lower() not in lower:
            near = difflib.get_close_matches(
                name.lower(), [known.lower() for known in known], n=1, cutoff=0.5
            )
            advice = f"did you mean {lower[near[0]]}?" if near else f"there are {', '.join(known)}"
            raise ConfigProblem(f"there is no option {name}: {advice}")


def _access(options: Mapping[str, str]) -> Access:
    named = options.get("nodes") or options.get("path") or ""
    nodes = tuple(dict.fromkeys(node.strip() for node in named.split(",") if node.strip()))
    if not nodes:
        raise ConfigProblem(
            "the option nodes is missing: name the log services of some nodes, as in "
            '"10.0.0.1:4901,10.0.0.2:4901", or directories of logs'
        )
    key, key_file = options.get("key"), options.get("keyFile")
    if key and key_file:
        raise ConfigProblem("key and keyFile are both given: keep keyFile, which keeps the key out of plans")
    if key_file:
        return Access(nodes, str(Path(key_file).expanduser()))
    return Access(nodes, key or None)


def _start(text: str) -> str | Position:
    if text.strip().lower() in (EARLIEST, LATEST):
        return text.strip().lower()
    try:
        return Position.parse(text)
    except ValueError as error:
        raise ConfigProblem(
            f"startingPosition is {text!r}: write earliest, latest, or the position that the first row comes "
            "after, as in 8.1/17/0"
        ) from error


def _truth(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ConfigProblem(f"{name} is {text!r}: write true or false")
    return text.strip().lower() == "true"
