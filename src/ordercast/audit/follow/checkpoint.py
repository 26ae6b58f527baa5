"""What a follower of a trace knows, in one file, so that another one goes on where it ended."""

from __future__ import annotations

import zlib
from typing import TypeAlias

import msgspec

from ordercast.audit.explain import Violation
from ordercast.audit.follow.follower import Follower
from ordercast.audit.follow.window import Sign, Window
from ordercast.audit.properties import Promises
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.core.wire import UNREADABLE
from ordercast.storage import Location, Where
from ordercast.trace.growing import Position
from ordercast.trace.schema import Row, TraceError

_MAGIC = b"OCF1"
_SUM = 4

Two: TypeAlias = tuple[int, int]


class WindowState(msgspec.Struct, array_like=True):
    """A `Window`, as it is stored. Times are not: all that is waited for is waited for anew."""

    run: str
    about: dict[str, str]
    events: int
    counts: dict[str, int]
    rows: list[Row]
    cuts: list[tuple[ConfigurationId, Two]]
    over: list[tuple[ConfigurationId, list[NodeId]]]
    messages: list[tuple[int, int, int]]
    numbers: list[tuple[Two, int]]
    nodes: list[NodeId]
    followers: list[NodeId]
    naming: list[Two]
    silent: list[tuple[Two, ConfigurationId]]
    told: list[Violation]
    signs: list[Sign]
    """The signs of violations that were told and are still present."""
    spoilt: list[ConfigurationId]
    left_behind: list[NodeId]
    begun: list[Two]
    last_us: int


class State(msgspec.Struct, array_like=True):
    """A `Follower`, as it is stored."""

    trace: str
    positions: dict[str, Position]
    windows: list[WindowState]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(State)


def save(follower: Follower, where: Where) -> None:
    """Write what is known into a file, whole or not at all. Raises `OSError`."""
    state = State(
        follower.trace.root.uri, follower.trace.positions, list(map(state_of, follower.windows.values()))
    )
    data = _ENCODER.encode(state)
    Location.of(where).put(_MAGIC + zlib.crc32(data).to_bytes(_SUM, "big") + data)


def load(trace: Where, patience: float, checks: Promises | None, where: Where) -> Follower:
    """Go on where the file says; at the beginning if there is none. Raises `TraceError`."""
    file = Location.of(where)
    try:
        data = file.read()
    except FileNotFoundError:
        return Follower(trace, patience, checks)
    except OSError as error:
        raise TraceError(f"{file} cannot be read ({error.strerror or error}): see that it may be.") from error
    front = len(_MAGIC) + _SUM
    checksum = zlib.crc32(data[front:]).to_bytes(_SUM, "big")
    if data[:front] != _MAGIC + checksum:
        raise _unusable(file, "it is none, or damaged")
    try:
        state = _DECODER.decode(data[front:])
    except UNREADABLE as error:
        raise _unusable(file, "another version wrote it") from error
    here = Location.of(trace).uri
    if state.trace != here:
        raise _unusable(file, f"it is of {state.trace}")
    windows = (window_of(each, patience, checks) for each in state.windows)
    return Follower(trace, patience, checks, positions=state.positions, windows=windows)


def _unusable(file: Location, why: str) -> TraceError:
    return TraceError(
        f"{file} is no checkpoint of this audit ({why}): give another file, or delete it to begin anew."
    )


def state_of(window: Window) -> WindowState:
    """What is stored of a window."""
    forgotten = window.forgotten
    return WindowState(
        window.run,
        dict(window.about),
        window.events,
        dict(window.counts),
        [row for its in window.rows.values() for row in its],
        list(forgotten.cuts.items()),
        [(each, sorted(nodes)) for each, nodes in forgotten.over.items()],
        list(forgotten.messages),
        list(forgotten.numbers.items()),
        sorted(forgotten.nodes),
        sorted(forgotten.followers),
        sorted(window.ends.naming),
        list(window.ends.silent.items()),
        list(window.told.values()),
        window.told_signs,
        sorted(window.spoilt),
        sorted(window.left_behind),
        list(window.begun.items()),
        window.last_us,
    )


def window_of(state: WindowState, patience: float, checks: Promises | None) -> Window:
    """The window that was stored."""
    window = Window(state.run, state.about, patience, checks)
    forgotten = window.forgotten
    forgotten.cuts.update(state.cuts)
    forgotten.over.update((each, frozenset(nodes)) for each, nodes in state.over)
    forgotten.messages.update(dict.fromkeys(state.messages))
    forgotten.numbers.update(state.numbers)
    forgotten.nodes.update(state.nodes)
    forgotten.followers.update(state.followers)
    window.ends.naming.update(state.naming)
    window.ends.silent.update(state.silent)
    window.left_behind.update(state.left_behind)
    window.begun.update(state.begun)
    window.spoilt.update(state.spoilt)
    window.told.update(((each.property, each.culprit), each) for each in state.told)
    window.hold(state.rows)
    window.remember(state.signs)
    window.events = state.events
    window.counts.update(state.counts)
    window.last_us = state.last_us
    return window
