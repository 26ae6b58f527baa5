"""How fast a run was: throughput, latency and counts, from its trace alone, in one pass.

*Throughput* counts a message once, however many nodes deliver it, over the time from the first delivery
to the last. *Latency* counts every delivery at every node: from `submit`, which is what an application
feels, and from `originate`, which is what the protocol costs once it had its turn (000 §9 measures
that). A delivery whose submission the trace does not hold (a part of a run was read) has no latency and
is counted nevertheless. On a real network latencies between nodes are as good as their clocks agree.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ordercast.core.identity import NodeId
from ordercast.core.percentiles import percentile
from ordercast.trace.columns import (
    CONFIG_KIND,
    CONFIG_REP,
    CONFIG_SEQ,
    EVENT,
    GUARANTEE,
    NODE,
    SIZE,
    TIME_US,
    message_of,
)
from ordercast.trace.schema import Row

_Message: TypeAlias = tuple[int | None, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Latency:
    """How long messages took, in microseconds. Percentiles are values that occurred (nearest rank)."""

    count: int
    mean_us: float
    p50_us: int
    p99_us: int
    max_us: int


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """What one node did, over all its lives."""

    submitted: int = 0
    originated: int = 0
    delivered: int = 0
    stable: int = 0
    regular: int = 0
    """Regular configurations installed."""
    transitional: int = 0
    """Transitional configurations installed."""
    crashes: int = 0
    halts: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Metrics:
    """The figures of a run."""

    events: int
    submitted: int
    """Messages accepted, at all nodes."""
    originated: int
    """Messages broadcast, at all nodes."""
    delivered: int
    """Deliveries, at all nodes."""
    ordered: int
    """Messages delivered somewhere: each counts once."""
    ordered_bytes: int
    delivering_us: int
    """From the first delivery to the last."""
    messages_per_s: float
    bytes_per_s: float
    from_submit: Mapping[str, Latency]
    """Submit to deliver, by guarantee; only guarantees that were delivered appear."""
    from_originate: Mapping[str, Latency]
    """Originate to deliver, by guarantee."""
    nodes: Mapping[NodeId, NodeCounts]
    regular: int
    """Different regular configurations installed by anyone."""
    transitional: int


_COUNTED = {
    "submit": "submitted",
    "originate": "originated",
    "deliver": "delivered",
    "stable": "stable",
    "crash": "crashes",
    "halt": "halts",
    "restart": "restarts",
}
"""Event by event, the field of `NodeCounts` that counts it."""


class _Clock:
    """Latencies from one kind of event to delivery, gathered while rows come in any order."""

    def __init__(self) -> None:
        self.begun_us: dict[_Message, int] = {}
        self.took_us: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
        self.early: list[tuple[_Message, str, int]] = []
        """Deliveries read before the row that says when their message began."""

    def delivered(self, message: _Message, guarantee: str, time_us: int) -> None:
        begun_us = self.begun_us.get(message)
        if begun_us is None:
            self.early.append((message, guarantee, time_us))
        else:
            self.took_us[guarantee].append(time_us - begun_us)

    def finish(self) -> dict[str, Latency]:
        for message, guarantee, time_us in self.early:
            if message in self.begun_us:
                self.took_us[guarantee].append(time_us - self.begun_us[message])
        return {guarantee: _latency(self.took_us[guarantee]) for guarantee in sorted(self.took_us)}


def measure(rows: Iterable[Row]) -> Metrics:
    """The figures of the run these rows tell of. The rows may come in any order."""
    counts: defaultdict[tuple[NodeId, str], int] = defaultdict(int)
    installs: defaultdict[tuple[NodeId, str | None], int] = defaultdict(int)
    configurations: set[tuple[str | None, int | None, int | None]] = set()
    from_submit, from_originate = _Clock(), _Clock()
    ordered: set[_Message] = set()
    ordered_bytes = 0
    first_us, last_us = 2**63, 0
    for row in rows:
        event = row[EVENT]
        counts[row[NODE], event] += 1
        if event == "deliver":
            time_us, message, guarantee = row[TIME_US], message_of(row), row[GUARANTEE] or ""
            if time_us < first_us:
                first_us = time_us
            if time_us > last_us:
                last_us = time_us
            if message not in ordered:
                ordered.add(message)
                ordered_bytes += row[SIZE] or 0
            from_submit.delivered(message, guarantee, time_us)
            from_originate.delivered(message, guarantee, time_us)
        elif event == "submit":
            from_submit.begun_us[message_of(row)] = row[TIME_US]
        elif event == "originate":
            from_originate.begun_us[message_of(row)] = row[TIME_US]
        elif event == "install":
            installs[row[NODE], row[CONFIG_KIND]] += 1
            configurations.add((row[CONFIG_KIND], row[CONFIG_SEQ], row[CONFIG_REP]))
    nodes = _by_node(counts, installs)
    delivering_us = max(0, last_us - first_us)
    per_s = 1_000_000 / delivering_us if delivering_us else 0.0
    transitional = sum(kind == "transitional" for kind, *_ in configurations)
    return Metrics(
        events=sum(counts.values()),
        submitted=sum(each.submitted for each in nodes.values()),
        originated=sum(each.originated for each in nodes.values()),
        delivered=sum(each.delivered for each in nodes.values()),
        ordered=len(ordered),
        ordered_bytes=ordered_bytes,
        delivering_us=delivering_us,
        messages_per_s=len(ordered) * per_s,
        bytes_per_s=ordered_bytes * per_s,
        from_submit=from_submit.finish(),
        from_originate=from_originate.finish(),
        nodes=nodes,
        regular=len(configurations) - transitional,
        transitional=transitional,
    )


def _by_node(
    counts: Mapping[tuple[NodeId, str], int], installs: Mapping[tuple[NodeId, str | None], int]
) -> dict[NodeId, NodeCounts]:
    return {
        node: NodeCounts(
            regular=installs.get((node, "regular"), 0),
            transitional=installs.get((node, "transitional"), 0),
            **{name: counts.get((node, event), 0) for event, name in _COUNTED.items()},
        )
        for node in sorted({node for node, _ in counts})
    }


def _latency(figures: array[int]) -> Latency:
    counts, count = Counter(figures), len(figures)
    return Latency(
        count=count,
        mean_us=sum(figures) / count,
        p50_us=percentile(counts, 50) or 0,
        p99_us=percentile(counts, 99) or 0,
        max_us=max(counts),
    )
