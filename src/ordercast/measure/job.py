"""What the coordinator of a measurement and its workers tell each other: one JSON object a line."""

from __future__ import annotations

from typing import Literal

import msgspec

from ordercast.measure.order import Block, End
from ordercast.measure.rings import RingPlace


class Job(msgspec.Struct, kw_only=True):
    """What a worker is to do: be a member, and put load on the group."""

    node: int
    nodes: int
    listen: str
    seeds: tuple[str, ...]
    rings: tuple[RingPlace, ...]
    """The node's places on its rings, instead of these two, where there are several rings."""
    far: tuple[int, ...]
    """Nodes that it shares no ring with: how long their messages take to come here is measured apart."""
    local_group: str | None
    """The group of the nodes of its ring, beside that of all nodes, if there is one."""
    locality: float
    """The share of its messages that go there."""
    data: str
    log: str | None
    """Directory of the ordered log, if there is to be one."""
    trace: str | None
    """Directory of all traces, if there are to be any."""
    key: str | None
    """File of the group key."""
    size: int
    seconds: float
    rate: float | None
    """Messages/s; None: as many as there is room for."""
    safe: bool
    uvloop: bool
    protocol: str
    profile: Literal["auto", "lan", "wan"]
    settings: dict[str, object]


class Ready(msgspec.Struct, tag="ready"):
    """From a worker: it listens (`members` 1), and then, all are there."""

    address: str
    members: int


class Begin(msgspec.Struct, tag="begin"):
    """To a worker: the load begins at this instant of the monotonic clock, which all processes share."""

    at_ns: int


class Sent(msgspec.Struct, tag="sent"):
    """From a worker: its time is over, and so many messages of it were taken, by group."""

    messages: dict[str, int]


class Await(msgspec.Struct, tag="await"):
    """To a worker: so many messages, by group and sender, are to arrive before you end."""

    messages: dict[str, dict[int, int]]
    seconds: float
    """How long they may take; what has not come by then counts as missing."""


class Figures(msgspec.Struct, kw_only=True):
    """What one node measured of itself; the names are those of `ordercast bench --json`."""

    node: int
    sent_per_s: float
    ordered_per_s: float
    """Messages of its own that it delivered: each message counts at one node, its sender."""
    delivered_per_s: float
    p50_us: float
    """Latency from `send` to the sender's own delivery, of the sampled messages."""
    p99_us: float
    far_p50_us: float
    """Latency from `send` at a node that it shares no ring with to the delivery here, of sampled messages."""
    far_p99_us: float
    longest_gap_ms: float
    """The longest time without a delivery."""
    cpu: float
    """Processor time in use, as a share of one core."""
    rss_mb: tuple[float, float]
    """Memory in use, when the load began and when it ended."""
    samples: int
    """Latencies that were measured."""
    far_samples: int


class WorkerResult(msgspec.Struct, tag="result", kw_only=True):
    """From a worker, at its end: everything."""

    figures: Figures
    lives: dict[str, list[tuple[list[Block], list[End]]]]
    """By group: what it delivered, in one life after the other."""
    configurations: list[list[int]]
    """Members of the regular configurations that it installed under load."""
    missing: int
    """Messages that never arrived, or too often."""
    status: dict[str, object]
    """The node's own account of itself, at the end of the load."""
