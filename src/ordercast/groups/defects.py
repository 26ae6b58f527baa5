"""What a machine failed on, kept for whoever is to find the defect."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ordercast.core.contract import Event, Packet
from ordercast.core.identity import NodeId

DIRECTORY = "defects"
MOST_KEPT = 16
"""Defects that are kept; of later ones only the log tells."""
_SHOWN = 64
"""Bytes of a packet that a log line shows."""


class Failed(NamedTuple):
    """A life of a node that ended with a defect."""

    node: NodeId
    incarnation: int
    protocol: str
    state: str


def keep_defect(data: Path | None, failed: Failed, event: Event, error: Exception) -> str:
    """Keep the event in the data directory, if there is one and there is room; what happened, in words."""
    told = f"the machine raised {type(error).__name__} on {_describe(event)}"
    if data is None:
        return told
    known: dict[str, Any] = {
        **failed._asdict(),
        "at": time.time(),
        "error": repr(error),
        "event": type(event).__name__,
        **{name: _plain(value) for name, value in event._asdict().items()},
    }
    path = data / DIRECTORY / f"{failed.incarnation}.json"
    problem = _write(path, msgspec.json.encode(known) + b"\n")
    return f"{told}, {problem}" if problem else f"{told}, kept in {path}"


def _write(path: Path, text: bytes) -> str:
    """What is in the way, or nothing. A full disk is no reason to end a node that could go on."""
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if sum(1 for _ in path.parent.iterdir()) >= MOST_KEPT:
            return f"which is not kept, since {path.parent} holds {MOST_KEPT} already"
        path.write_bytes(text)
        path.chmod(0o600)
    except OSError as problem:
        return f"which is not kept ({problem.strerror or problem})"
    return ""


def _describe(event: Event) -> str:
    if not isinstance(event, Packet):
        return f"a {type(event).__name__}"
    shown = event.data[:_SHOWN].hex()
    more = "…" if len(event.data) > _SHOWN else ""
    return f"a packet of {len(event.data)} bytes from node {event.sender} ({shown}{more})"


def _plain(value: Any) -> Any:
    """Bytes in hexadecimal digits; of what an application sent only how long it was."""
    if isinstance(value, bytes):
        return value.hex()
    return [len(payload) for payload in value] if isinstance(value, list | tuple) else value
