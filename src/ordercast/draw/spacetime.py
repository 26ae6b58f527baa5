"""What happened at whom and when: a run as lanes of lives and configurations.

The timeline is told by trace rows alone, in any order, so it can be drawn of a simulated run and of a
real one. A *lane* is a node; a lane holds the node's *lives*; a life is a chain of *segments*, one for
each configuration installed in it. A segment reaches from one install to the next thing that ends it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from ordercast.core.identity import Configuration, ConfigurationId, Ended, Kind, NodeId
from ordercast.draw.networks import Attached, Line, in_a_row, lines
from ordercast.trace.columns import (
    CONFIG_KIND,
    CONFIG_REP,
    CONFIG_SEQ,
    ENDED_CONFIG_REP,
    ENDED_CONFIG_SEQ,
    ENDED_PLACE,
    EVENT,
    GUARANTEE,
    INCARNATION,
    MEMBERS,
    NODE,
    STEP,
    TIME_US,
    life_of,
)
from ordercast.trace.schema import Row

Note: TypeAlias = tuple[int, str]
"""Something from outside the trace that belongs into the drawing: when, and what (a fault, mostly)."""

Where: TypeAlias = tuple[object, ...]
"""A stay as rows name it: node, incarnation, and the configuration's number, representative and kind."""

NEAR_US = 20_000
"""Nodes that do the same within this time do it together, as far as a reader is concerned."""


class Ending(StrEnum):
    """How a life ended."""

    CRASH = "crash"
    """The node was crashed from outside."""
    HALT = "halt"
    """By the node's own decision (a program-controlled crash)."""
    SILENCE = "silence"
    """Nothing says how; but the node restarted later. A killed process leaves no crash row."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A node's time in one configuration."""

    configuration: Configuration
    start_us: int
    end_us: int
    delivered: Mapping[str, int]
    """Messages delivered in it, by guarantee."""
    ended: Ended | None = None
    """The configuration that its install ended, and where in its order, if the trace says so."""

    @property
    def total(self) -> int:
        """Messages delivered in it, of whatever guarantee."""
        return sum(self.delivered.values())


@dataclass(frozen=True, slots=True)
class Life:
    """A node from its start or restart to its end, or to the end of the trace."""

    incarnation: int
    start_us: int
    end_us: int
    ending: Ending | None
    """None: it was alive when the trace ended."""
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Lane:
    """All lives of one node, in order."""

    node: NodeId
    lives: tuple[Life, ...]

    def segments(self) -> Iterator[Segment]:
        """The segments of all lives, in order."""
        for life in self.lives:
            yield from life.segments


@dataclass(frozen=True, slots=True)
class Timeline:
    """What happened at every node of a run, over its time."""

    lanes: tuple[Lane, ...]
    """By ascending node; where nodes are attached to several networks, network by network."""
    start_us: int
    end_us: int
    networks: tuple[Line, ...] = ()
    """The networks, with the places of their nodes among the lanes; none where there is only one."""

    def configurations(self) -> dict[Configuration, Configuration | None]:
        """Every configuration, in order of its first install.

        A transitional one comes with the regular one whose messages it finishes, others with None.
        """
        seen: list[tuple[int, NodeId, int, Configuration, Configuration | None]] = []
        for lane in self.lanes:
            for life in lane.lives:
                regular = None
                for place, segment in enumerate(life.segments):
                    configuration = segment.configuration
                    if configuration.kind == Kind.REGULAR:
                        regular = configuration
                    finishes = regular if configuration.kind == Kind.TRANSITIONAL else None
                    seen.append((segment.start_us, lane.node, place, configuration, finishes))
        seen.sort(key=lambda entry: entry[:3])
        order: dict[Configuration, Configuration | None] = {}
        for *_, configuration, finishes in seen:
            order.setdefault(configuration, finishes)
        return order


def timeline_of(
    rows: Iterable[Row], networks: Attached | None = None, delivered: Mapping[Where, int] | None = None
) -> Timeline:
    """Put a run's rows together into its timeline. Rows may come in any order; one pass over them.

    `networks` says which nodes are attached to which, where there are several. `delivered` says how many
    messages were delivered where, if the rows of deliveries are not among those given.
    """
    changes: dict[NodeId, list[Row]] = defaultdict(list)
    counts: Counter[tuple[object, ...]] = Counter()
    last_us: dict[tuple[NodeId, int], int] = {}
    start_us, end_us = 2**63, 0
    for row in rows:
        time_us, event = row[TIME_US], row[EVENT]
        start_us, end_us = min(start_us, time_us), max(end_us, time_us)
        if event == "deliver":
            counts[
                row[NODE],
                row[INCARNATION],
                row[CONFIG_SEQ],
                row[CONFIG_REP],
                row[CONFIG_KIND],
                row[GUARANTEE],
            ] += 1
        elif event in ("install", "crash", "halt", "restart"):
            changes[row[NODE]].append(row)
        else:
            continue
        life = life_of(row)
        last_us[life] = max(last_us.get(life, 0), time_us)
    by_guarantee: dict[Where, dict[str, int]] = defaultdict(dict)
    for where, count in (delivered or {}).items():
        by_guarantee[where]["messages"] = count
    for (*place, guarantee), count in sorted(counts.items(), key=lambda item: str(item[0][-1])):
        by_guarantee[tuple(place)][str(guarantee or "agreed")] = count
    lanes = []
    row_of_nodes = in_a_row({node: (networks or {}).get(node, (0,)) for node in changes})
    for node in row_of_nodes:
        lane = _LaneBuilder(node, by_guarantee, last_us)
        for row in sorted(changes[node], key=lambda row: row[STEP]):
            lane.add(row)
        lanes.append(lane.finish(end_us))
    joined = tuple(lines(networks or {}, row_of_nodes))
    return Timeline(tuple(lanes), min(start_us, end_us), end_us, joined)


@dataclass(slots=True)
class _LaneBuilder:
    """Turns one node's changes, in its own order, into lives and segments."""

    node: NodeId
    delivered: Mapping[Where, Mapping[str, int]]
    last_us: Mapping[tuple[NodeId, int], int]
    lives: list[Life] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    current: Configuration | None = None
    ended: Ended | None = None
    """What the install of the current configuration ended."""
    incarnation: int | None = None
    """The incarnation of the life being built; None between lives."""
    start_us: int = 0
    since_us: int = 0
    """When the current configuration was installed."""
    now_us: int = 0
    """A node's own order is that of its steps: should its clock step back, time stands still here."""

    def add(self, row: Row) -> None:
        """Take the node's next change."""
        incarnation, event = row[INCARNATION], row[EVENT]
        if self.incarnation is not None and incarnation != self.incarnation:
            self.now_us = max(self.now_us, self.last_us[self.node, self.incarnation])
            self._end_life(Ending.SILENCE)
        self.now_us = max(self.now_us, row[TIME_US])
        if self.incarnation is None:
            self.incarnation, self.start_us = incarnation, self.now_us
        if event == "install":
            self._end_segment()
            self.current, self.ended = _installed(row), _ended(row)
            self.since_us = self.now_us
        elif event in ("crash", "halt"):
            self._end_life(Ending(event))

    def finish(self, end_us: int) -> Lane:
        """The lane, once nothing more happens."""
        if self.incarnation is not None:
            self.now_us = max(self.now_us, end_us)
            self._end_life(None)
        return Lane(self.node, tuple(self.lives))

    def _end_segment(self) -> None:
        if self.current is None:
            return
        (seq, rep), kind, _ = self.current
        counts = self.delivered.get((self.node, self.incarnation, seq, rep, kind), {})
        self.segments.append(Segment(self.current, self.since_us, self.now_us, counts, self.ended))
        self.current = None

    def _end_life(self, ending: Ending | None) -> None:
        self._end_segment()
        assert self.incarnation is not None
        life = Life(self.incarnation, self.start_us, self.now_us, ending, tuple(self.segments))
        self.lives.append(life)
        self.segments.clear()
        self.incarnation = None


def _installed(row: Row) -> Configuration:
    seq, rep, kind, members = row[CONFIG_SEQ], row[CONFIG_REP], row[CONFIG_KIND], row[MEMBERS]
    identifier = ConfigurationId(-1 if seq is None else seq, -1 if rep is None else rep)
    return Configuration(identifier, Kind(kind or Kind.REGULAR), tuple(members or ()))


def _ended(row: Row) -> Ended | None:
    seq, rep, place = row[ENDED_CONFIG_SEQ], row[ENDED_CONFIG_REP], row[ENDED_PLACE]
    if seq is None or rep is None or place is None:
        return None
    return Ended(ConfigurationId(seq, rep), place)


# --- moments: what several nodes do together ---------------------------------------------------


class MomentKind(StrEnum):
    """What can happen at a moment."""

    RESTART = "restart"
    INSTALL = "install"
    CRASH = "crash"
    HALT = "halt"
    SILENCE = "silence"


@dataclass(slots=True)
class Moment:
    """One thing, done by one node or by several at nearly the same time."""

    what: MomentKind
    start_us: int
    end_us: int
    segments: dict[NodeId, Segment | None]
    """Who; for an install with the segment it begins."""
    alone: Kind | None = None
    """Set where each of the nodes installs a configuration of its own, with itself as only member."""

    @property
    def nodes(self) -> Sequence[NodeId]:
        """Who, in ascending order."""
        return sorted(self.segments)

    @property
    def configuration(self) -> Configuration | None:
        """What all of them install; None for other moments and where each installs its own."""
        if self.alone is not None and len(self.segments) > 1:
            return None
        segment = next(iter(self.segments.values()))
        return segment.configuration if segment else None

    @property
    def place(self) -> int | None:
        """The place at which all of them end the same configuration; None if they do not, or it is empty."""
        ends = {segment.ended if segment else None for segment in self.segments.values()}
        ended = ends.pop() if len(ends) == 1 else None
        return ended.place or None if ended else None


class _Happening(NamedTuple):
    time_us: int
    node: NodeId
    what: MomentKind
    segment: Segment | None


def moments(timeline: Timeline, near_us: int = NEAR_US) -> list[Moment]:
    """The timeline as a list of moments.

    What each node does keeps its order. Beyond that, moments are ordered by the time of their first
    node; so a moment may be listed a little after one that began later, if a node was in both.
    """
    queues = {lane.node: _happenings(lane) for lane in timeline.lanes}
    together: list[Moment] = []
    plans: dict[NodeId, list[int]] = {node: [] for node in queues}
    """For each node, the moments it takes part in, in its order, the next one last."""
    latest: dict[object, int] = {}
    for _, node, place in sorted((h.time_us, h.node, i) for q in queues.values() for i, h in enumerate(q)):
        time_us, _, what, segment = queues[node][place]
        configuration = segment.configuration if segment else None
        alone = configuration.kind if configuration and len(configuration.members) == 1 else None
        key = (what, alone or configuration)
        index = latest.get(key, -1)
        if index < 0 or node in together[index].segments or time_us - together[index].start_us > near_us:
            index = latest[key] = len(together)
            together.append(Moment(what, time_us, time_us, {}, alone))
        together[index].segments[node] = segment
        together[index].end_us = time_us
        plans[node].insert(0, index)
    return list(_in_order(together, plans))


def _in_order(together: list[Moment], plans: dict[NodeId, list[int]]) -> Iterator[Moment]:
    """Moments in an order that keeps every node's own; one that stands in its own way is told in parts."""
    while any(plans.values()):
        heads: dict[int, list[NodeId]] = defaultdict(list)
        for node, plan in plans.items():
            if plan:
                heads[plan[-1]].append(node)
        whole = [index for index, nodes in heads.items() if len(nodes) == len(together[index].segments)]
        index = min(whole or heads, key=lambda index: (together[index].start_us, index))
        moment, ready = together[index], heads[index]
        for node in ready:
            plans[node].pop()
        if len(ready) < len(moment.segments):
            part = {node: moment.segments.pop(node) for node in ready}
            moment = Moment(moment.what, moment.start_us, moment.end_us, part, moment.alone)
        yield moment


def _happenings(lane: Lane) -> list[_Happening]:
    told = []
    for life in lane.lives:
        if life.incarnation > 0:
            told.append(_Happening(life.start_us, lane.node, MomentKind.RESTART, None))
        for segment in life.segments:
            told.append(_Happening(segment.start_us, lane.node, MomentKind.INSTALL, segment))
        if life.ending:
            told.append(_Happening(life.end_us, lane.node, MomentKind(life.ending.value), None))
    return told
