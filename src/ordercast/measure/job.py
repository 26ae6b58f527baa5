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
    """Its rings, instead of these two, where there are several."""
    data: str
    log: str | None
    """Directory of the ordered log, if there is to be one."""
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
    """From a worker: its time is over, and so many messages of it were taken."""

    messages: int


class Await(msgspec.Struct, tag="await"):
    """To a worker: so many messages, by sender, are to arrive before you end."""

    messages: dict[int, int]


class Figures(msgspec.Struct, kw_only=True):
    """What one node measured of itself; the names are those of `ordercast bench --json`."""

    node: int
    sent_per_s: float
    delivered_per_s: float
    p50_us: float
    """Latency from `send` to the sender's own delivery, of the sampled messages."""
    p99_us: float
    longest_gap_ms: float
    """The longest time without a delivery."""
    cpu: float
    """Processor time in use, as a share of one core."""
    rss_mb: tuple[float, float]
    """Memory in use, when the load began and when it ended."""
    samples: int
    """Latencies that were measured."""


class WorkerResult(msgspec.Struct, tag="result", kw_only=True):
    """From a worker, at its end: everything."""

    figures: Figures
    lives: list[tuple[list[Block], list[End]]]
    """What it delivered, in one life after the other."""
    configurations: list[list[int]]
    """Members of the regular configurations that it installed under load."""
    missing: dict[int, int]
    """Messages that never arrived, by sender."""
    status: dict[str, object]
    """The node's own account of itself, at the end of the load."""
