"""What a run was like, by the definitions of 002 §1, from its rows as they come.

- *Delivery time* of a message: from its submission to its delivery at the last node.
- *Stability time*: from its submission until every node knows that all have it (`stable` at the last one).
- *Buffer*: messages that a node keeps because it does not know yet that all have them, averaged over nodes
  and over time. A message counts from its broadcast to the node's own `stable`, so that the time on the wire
  is part of it.
- *Overhead*: packets sent to order a message beside those that carry messages. What finds out who lives, and
  what forms groups, is counted apart (`membership`).
- *Load* of a node: overhead packets that it sends, for each message of the group; its *work* is these and the
  packets with its own messages. How even they are is told by their variation: deviation over mean, 0 is even.
- *Latency* counts every delivery at every node, by guarantee: from submission, and from broadcast, which is
  what 000 §9 measures. `known_us` is the same for the moment at which a node knows that all have the message.

All are of *measured* messages: those submitted while the measurement lasts. A message is forgotten as soon as
every node has said that it is stable, so that a run of any length is measured in little memory.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import TypeAlias

from ordercast.core.declared import PacketKind, Purpose
from ordercast.core.identity import NodeId
from ordercast.core.percentiles import percentile
from ordercast.trace.columns import EVENT, GROUP, GUARANTEE, NODE, SIZE, TIME_US, message_of
from ordercast.trace.schema import Row

_Message: TypeAlias = tuple[int | None, int | None, int | None]
Audience: TypeAlias = Callable[[str | None], frozenset[NodeId]]
"""From the groups that a message is addressed to, as a trace has them: the nodes that need it."""


class Window:
    """When the measurement begins and ends: by the number of messages, or by time."""

    def __init__(
        self,
        *,
        skip: int = 0,
        messages: int | None = None,
        begin_us: int = 0,
        end_us: int | None = None,
    ) -> None:
        """Measure `messages` messages after the first `skip`, or those between two times."""
        self.skip, self.messages = skip, messages
        self.begin_us, self.end_us = begin_us, end_us
        self.submitted = 0
        """Messages submitted so far."""

    def takes(self, time_us: int) -> bool:
        """A message is submitted: whether it is one of those that are measured."""
        self.submitted += 1
        if self.messages is None:
            return self.holds(time_us)
        if self.submitted == self.skip + 1:
            self.begin_us = time_us
        if self.submitted == self.skip + self.messages + 1:
            self.end_us = time_us
        return self.skip < self.submitted <= self.skip + self.messages

    def holds(self, time_us: int) -> bool:
        """Whether a time is within the measurement, as far as is known by now."""
        return self.begin_us <= time_us and (self.end_us is None or time_us < self.end_us)

    @property
    def length_us(self) -> int:
        """How long the measurement took."""
        return 0 if self.end_us is None else self.end_us - self.begin_us


class _Flight:
    """A measured message that not all nodes know to be stable."""

    __slots__ = ("delivered", "last_us", "originate_us", "stable", "submit_us", "to")

    def __init__(self, submit_us: int, to: frozenset[NodeId] | None) -> None:
        self.submit_us = submit_us
        self.to = to
        """The nodes that need it; None: all."""
        self.originate_us = submit_us
        self.delivered = 0
        """At how many nodes the message was delivered."""
        self.last_us = 0
        """When it was delivered last."""
        self.stable = 0


class Mean:
    """Count, mean and spread of values that come one by one (Welford)."""

    __slots__ = ("_squares", "count", "largest", "mean")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.largest = 0.0
        self._squares = 0.0

    def add(self, value: float) -> None:
        """Add a value."""
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self._squares += delta * (value - self.mean)
        if value > self.largest:
            self.largest = value

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return math.sqrt(self._squares / self.count) if self.count else 0.0


class Meter:
    """Measures a run while it goes on."""

    def __init__(
        self, nodes: int, window: Window, bucket_us: int = 100, audience: Audience | None = None
    ) -> None:
        """With an `audience`, deliveries are counted at the nodes that need a message."""
        self.nodes, self.window = nodes, window
        self._audience = audience
        self.delivery, self.stability, self.known = Mean(), Mean(), Mean()
        self.ordered = self.ordered_bytes = 0
        """Messages, measured or not, first delivered while the measurement lasted."""
        self.histograms: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._latency: defaultdict[str, Mean] = defaultdict(Mean)
        self._bucket_us = bucket_us
        self._flights: dict[_Message, _Flight] = {}
        self._fresh: dict[_Message, None] = {}
        """Messages that were submitted and not delivered anywhere yet."""
        self._measured = 0
        self._held_us = 0

    @property
    def unsettled(self) -> int:
        """Measured messages that not all nodes know to be stable."""
        return len(self._flights)

    @property
    def complete(self) -> bool:
        """Whether the measurement is over and everything that is measured is settled."""
        return self.window.end_us is not None and not self._flights

    def take(self, rows: Iterable[Row]) -> None:
        """Take the next rows of the run."""
        flights, fresh = self._flights, self._fresh
        for row in rows:
            event = row[EVENT]
            if event == "stable":
                flight = flights.get(message_of(row))
                if flight is not None:
                    self._stable(row, flight)
            elif event == "deliver":
                message = message_of(row)
                if message in fresh:
                    del fresh[message]
                    if self.window.holds(row[TIME_US]):
                        self.ordered += 1
                        self.ordered_bytes += row[SIZE] or 0
                flight = flights.get(message)
                if flight is not None:
                    self._delivered(row, flight)
            elif event == "submit":
                fresh[message_of(row)] = None
                if self.window.takes(row[TIME_US]):
                    self._measured += 1
                    to = None if self._audience is None else self._audience(row[GROUP])
                    flights[message_of(row)] = _Flight(row[TIME_US], to)
            elif event == "originate":
                flight = flights.get(message_of(row))
                if flight is not None:
                    flight.originate_us = row[TIME_US]

    def _delivered(self, row: Row, flight: _Flight) -> None:
        time_us, guarantee = row[TIME_US], row[GUARANTEE] or ""
        if flight.to is not None and row[NODE] not in flight.to:
            return
        flight.delivered += 1
        flight.last_us = time_us
        self._late(guarantee, time_us - flight.submit_us)
        self._late(f"{guarantee}/originate", time_us - flight.originate_us)
        if flight.delivered == (self.nodes if flight.to is None else len(flight.to)):
            self.delivery.add(time_us - flight.submit_us)

    def _late(self, name: str, latency_us: int) -> None:
        self._latency[name].add(latency_us)
        self.histograms[name][latency_us // self._bucket_us] += 1

    def _stable(self, row: Row, flight: _Flight) -> None:
        time_us = row[TIME_US]
        flight.stable += 1
        if flight.to is None or row[NODE] in flight.to:
            self.known.add(time_us - flight.submit_us)
        self._held_us += time_us - flight.originate_us
        if flight.stable == self.nodes:
            self.stability.add(time_us - flight.submit_us)
            del self._flights[message_of(row)]

    def figures(self) -> dict[str, float]:
        """All figures by name; times are microseconds and end in ``_us``."""
        length_us = self.window.length_us
        per_s = 1_000_000 / length_us if length_us else 0.0
        figures = {
            "measured": float(self._measured),
            "unsettled": float(self.unsettled),
            "window_us": float(length_us),
            "delivery_us": self.delivery.mean,
            "stability_us": self.stability.mean,
            "stability_sd_us": self.stability.deviation,
            "known_us": self.known.mean,
            "buffer": self._held_us / (self.nodes * length_us) if length_us else 0.0,
            "ordered_per_s": self.ordered * per_s,
            "bytes_per_s": self.ordered_bytes * per_s,
        }
        for name in sorted(self._latency):
            guarantee, _, since = name.partition("/")
            stem = f"latency_{guarantee}" + ("_from_originate" if since else "")
            figures[f"{stem}_us"] = self._latency[name].mean
            figures[f"{stem}_max_us"] = self._latency[name].largest
            for percent in (50, 99):
                bucket = percentile(self.histograms[name], percent)
                figures[f"{stem}_p{percent}_us"] = (
                    0.0 if bucket is None else float((bucket + 1) * self._bucket_us)
                )
        return figures


class Traffic:
    """Packets by node and kind, as they are sent while the measurement lasts."""

    def __init__(self, kinds: Iterable[PacketKind]) -> None:
        """`kinds` are those that the protocol declares."""
        self._purposes = {kind.name: kind.purpose for kind in kinds}
        self.sent: Counter[tuple[NodeId, str]] = Counter()

    def figures(self, nodes: int, messages: float) -> dict[str, float]:
        """Overhead and load, for each of so many messages."""
        overhead = dict.fromkeys(range(1, nodes + 1), 0)
        work = overhead.copy()
        kinds: Counter[str] = Counter()
        for (node, kind), count in self.sent.items():
            kinds[kind] += count
            purpose = self._purposes.get(kind)
            if purpose is not Purpose.MEMBERSHIP:
                work[node] += count
                if purpose is not Purpose.MESSAGES:
                    overhead[node] += count
        each = messages or 1.0
        return {
            "overhead": sum(overhead.values()) / each,
            "membership": sum(kinds[kind] for kind in kinds if self._purposes.get(kind) is Purpose.MEMBERSHIP)
            / each,
            "packets": kinds.total() / each,
            "load_mean": sum(overhead.values()) / nodes / each,
            "load_max": max(overhead.values()) / each,
            "load_variation": variation(overhead.values()),
            "work_variation": variation(work.values()),
            **{f"sent/{kind}": kinds[kind] / each for kind in sorted(kinds)},
        }


def variation(counts: Iterable[int]) -> float:
    """Standard deviation over mean."""
    values = list(counts)
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / mean if mean else 0.0
