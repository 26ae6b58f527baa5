"""What happened at each node of a simulated run, as expectations of scenarios speak of it."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ordercast.core.identity import MessageId, NodeId
from ordercast.sim.world import Change
from ordercast.trace.columns import (
    CONFIG_KIND,
    EVENT,
    MEMBERS,
    NODE,
    NUMBER,
    ORIGIN,
    ORIGIN_INCARNATION,
    PACKET,
    TIME_US,
    TIMESTAMP,
)
from ordercast.trace.schema import Row


class Membership(NamedTuple):
    """A configuration as scenarios see it."""

    transitional: bool
    members: tuple[NodeId, ...]


RESTARTED = Membership(False, ())
"""Stands among a node's configurations where a life ended and another began."""


class Span(NamedTuple):
    """A stretch of time that an expectation is about."""

    after_us: int = 0
    before_us: int | None = None

    def __contains__(self, time_us: object) -> bool:
        assert isinstance(time_us, int)
        return self.after_us <= time_us and (self.before_us is None or time_us < self.before_us)


ALWAYS = Span()


class Installed(NamedTuple):
    """A configuration that a node was told of."""

    time_us: int
    what: Membership


class Delivered(NamedTuple):
    """A delivery as scenarios see it."""

    message: MessageId
    where: Membership
    time_us: int


class Entered(NamedTuple):
    """A change of state as scenarios see it."""

    since: str
    """The state before; empty for the first of a life."""
    state: str
    because: str


class RunRecord:
    """What a run's rows and changes of state say, node by node."""

    def __init__(
        self, rows: Iterable[Row], names: Mapping[MessageId, str], changes: Iterable[Change] = ()
    ) -> None:
        self.names = names
        self.installs: dict[NodeId, list[Installed]] = {}
        self.delivers: dict[NodeId, list[Delivered]] = {}
        self.entered: dict[NodeId, list[Entered]] = {}
        self.halted: Counter[NodeId] = Counter()
        self.crashed: dict[NodeId, list[str]] = {}
        """The states in which a node crashed."""
        self.packets: defaultdict[tuple[NodeId, str, str], list[int]] = defaultdict(list)
        """When a node sent and received packets of each kind, if that was traced."""
        self.timestamps: dict[MessageId, int] = {}
        """The timestamps that messages were originated with, where the protocol gives them any."""
        waiting = deque(changes)
        state: dict[NodeId, str] = {}
        for row in rows:
            while waiting and waiting[0].time_us <= row[TIME_US]:
                self._enter(waiting.popleft(), state)
            self._read(row, state)
        while waiting:
            self._enter(waiting.popleft(), state)

    def _enter(self, change: Change, state: dict[NodeId, str]) -> None:
        entered = Entered(state.get(change.node, ""), change.state, change.because)
        self.entered.setdefault(change.node, []).append(entered)
        state[change.node] = change.state

    def _read(self, row: Row, state: dict[NodeId, str]) -> None:
        node, time_us, event = row[NODE], row[TIME_US], row[EVENT]
        if event == "install":
            members = tuple(sorted(row[MEMBERS] or ()))
            what = Membership(row[CONFIG_KIND] == "transitional", members)
            self.installs.setdefault(node, []).append(Installed(time_us, what))
        elif event == "restart":
            self.installs.setdefault(node, []).append(Installed(time_us, RESTARTED))
        elif event == "halt":
            self.halted[node] += 1
            state.pop(node, None)
        elif event == "crash":
            self.crashed.setdefault(node, []).append(state.pop(node, "nothing"))
        elif event in ("packet_sent", "packet_received"):
            self.packets[node, event, str(row[PACKET])].append(time_us)
        elif event == "originate" and row[TIMESTAMP] is not None:
            self.timestamps[_message(row)] = row[TIMESTAMP]
        elif event == "deliver":
            where = self.installs[node][-1].what if node in self.installs else RESTARTED
            self.delivers.setdefault(node, []).append(Delivered(_message(row), where, time_us))

    def named(self, node: NodeId, span: Span | None = None) -> list[tuple[str, Membership]]:
        """The named messages a node delivered, in order, and where."""
        return [
            (self.names[message], where)
            for message, where, time_us in self.delivers.get(node, [])
            if message in self.names and (span is None or time_us in span)
        ]


def _message(row: Row) -> MessageId:
    origin, incarnation, number = row[ORIGIN], row[ORIGIN_INCARNATION], row[NUMBER]
    assert origin is not None
    assert incarnation is not None
    assert number is not None
    return MessageId(origin, incarnation, number)
