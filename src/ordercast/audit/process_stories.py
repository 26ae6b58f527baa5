"""What a trace tells of process groups: each process's views and messages, in order.

The rows are those of `ordercast.trace.schema.GROUP_EVENTS`. A trace without them has no processes, and keeps
every property of process groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ordercast.core.identity import GROUPS_BETWEEN, ConfigurationId, MessageId, NodeId
from ordercast.core.subjects import described
from ordercast.trace.columns import (
    EVENT,
    GROUP,
    INCARNATION,
    MEMBERS,
    NODE,
    NUMBER,
    ORIGIN,
    ORIGIN_CONFIG_REP,
    ORIGIN_CONFIG_SEQ,
    ORIGIN_INCARNATION,
    PACKET,
    SEQ,
    STEP,
    message_of,
)
from ordercast.trace.schema import Row, TraceError

if TYPE_CHECKING:
    from ordercast.audit.history import History

Process: TypeAlias = tuple[int, int, int]
"""Node, incarnation, number."""


class ViewKey(NamedTuple):
    """What identifies a view of a group."""

    group: str
    configuration: ConfigurationId
    number: int
    part: tuple[int, int] | None
    """None: it is a regular view."""

    def __str__(self) -> str:
        part = "" if self.part is None else f"~{self.part[0]}.{self.part[1]}"
        return f"{self.configuration}/{self.number}{part} of {described(self.group)}"


class ViewEvent(NamedTuple):
    """A process is told of a view."""

    process: Process
    key: ViewKey
    members: tuple[Process, ...]


class GoneEvent(NamedTuple):
    """A process is no longer in a group; or has ended, if `group` is None."""

    process: Process
    group: str | None


class AskedEvent(NamedTuple):
    """A process asks to join a group, or to leave it."""

    process: Process
    group: str
    joins: bool


class OrderedEvent(NamedTuple):
    """The ordering machine of a node delivers a message to these groups."""

    life: tuple[NodeId, int]
    message: MessageId
    groups: tuple[str, ...]


class ReceivedEvent(NamedTuple):
    """Processes of one node receive a message to these groups."""

    message: MessageId
    groups: tuple[str, ...]
    to: tuple[Process, ...]
    queue: str | None = None
    """The queue of which one process gets it."""
    repeats: MessageId | None = None
    """The message of which it is another copy, for another member of the queue."""


GroupEvent: TypeAlias = ViewEvent | GoneEvent | AskedEvent | OrderedEvent | ReceivedEvent


class ProcessStories:
    """The processes of a run."""

    def __init__(self, history: History) -> None:
        self.events: dict[NodeId, list[GroupEvent]] = {}
        """What happened at each node, over all its lives, in order."""
        if not history.group_rows or not history.whole:
            return
        by_node: defaultdict[NodeId, list[Row]] = defaultdict(list)
        for row in history.group_rows:
            by_node[row[NODE]].append(row)
        for stay in history.all_stays():
            by_node[stay.node] += stay.deliveries
        for node in sorted(by_node):
            rows = sorted(by_node[node], key=itemgetter(INCARNATION, STEP))
            self.events[node] = [event for row in rows if (event := _read(row)) is not None]

    def all_events(self) -> Iterator[GroupEvent]:
        """Node by node, in the order in which they happened there."""
        for events in self.events.values():
            yield from events


def _read(row: Row) -> GroupEvent | None:
    event = row[EVENT]
    life = (row[NODE], row[INCARNATION])
    if event == "deliver":
        return OrderedEvent(life, _message(row), _groups(row) if row[GROUP] is not None else ())
    if event == "group_deliver":
        queue, _, repeats = (row[PACKET] or "").partition(GROUPS_BETWEEN)
        return ReceivedEvent(
            _message(row),
            _groups(row),
            tuple((*life, number) for number in row[MEMBERS] or ()),
            queue or None,
            _repeated(row, repeats) if repeats else None,
        )
    number = row[NUMBER]
    if number is None:
        raise _lacking(row, "number")
    process = (*life, number)
    if event == "process_end":
        return GoneEvent(process, None)
    group = row[GROUP]
    if group is None:
        raise _lacking(row, "group")
    if event == "group_left":
        return GoneEvent(process, group)
    if event == "group_view":
        return ViewEvent(process, _key(row, group), _members(row))
    return AskedEvent(process, group, event == "group_join")


def _key(row: Row, group: str) -> ViewKey:
    seq, rep, number = row[ORIGIN_CONFIG_SEQ], row[ORIGIN_CONFIG_REP], row[SEQ]
    if seq is None or rep is None or number is None:
        raise _lacking(row, "origin_config_seq, origin_config_rep and seq")
    node, incarnation = row[ORIGIN], row[ORIGIN_INCARNATION]
    part = None if node is None or incarnation is None else (node, incarnation)
    return ViewKey(group, ConfigurationId(seq, rep), number, part)


def _members(row: Row) -> tuple[Process, ...]:
    flat = row[MEMBERS] or ()
    return tuple(zip(flat[::3], flat[1::3], flat[2::3], strict=True))


def _message(row: Row) -> MessageId:
    origin, incarnation, number = message_of(row)
    if origin is None or incarnation is None or number is None:
        raise _lacking(row, "origin, origin_incarnation and number")
    return MessageId(origin, incarnation, number)


def _repeated(row: Row, words: str) -> MessageId:
    numbers = words.split(".")
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        raise _lacking(row, "the message that it repeats as ORIGIN.INCARNATION.NUMBER")
    return MessageId(*map(int, numbers))


def _groups(row: Row) -> tuple[str, ...]:
    return tuple((row[GROUP] or "").split(GROUPS_BETWEEN))


def _lacking(row: Row, what: str) -> TraceError:
    return TraceError(
        f"node {row[NODE]}, step {row[STEP]}: a {row[EVENT]} needs {what}: "
        "write the trace with ordercast.trace."
    )
