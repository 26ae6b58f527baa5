"""What the director of the demo and the processes of its nodes tell each other: one JSON object a line."""

from __future__ import annotations

import msgspec

from ordercast.core.identity import ConfigurationId
from ordercast.measure.order import Block, End, Place
from ordercast.measure.rings import RingPlace

SAFE_EVERY = 10
"""One message of so many is safe."""


class Job(msgspec.Struct, kw_only=True):
    """To a process, first of all: which node it is."""

    data: str
    seeds: tuple[str, ...]
    rings: tuple[RingPlace, ...]
    """The node's places on its rings, instead of `seeds`, where there are several rings."""
    key: str
    """File of the group key, or of that of each ring."""
    trace: str
    protocol: str
    rate: float
    """Messages/s that it sends while messages flow."""
    early: bool
    """Nothing is sent before all have joined, so that it misses nothing of its first configuration."""


class StartSending(msgspec.Struct, tag="start-sending"):
    """To a process: send, until told otherwise."""


class StopSending(msgspec.Struct, tag="stop-sending"):
    """To a process: send nothing more."""


class Close(msgspec.Struct, tag="close"):
    """To a process: all has arrived; tell how the last configuration stands."""


class Leave(msgspec.Struct, tag="leave"):
    """To a process: leave the group and end."""


Instruction = StartSending | StopSending | Close | Leave


class Report(msgspec.Struct, kw_only=True):
    """From a process, several times a second."""

    at_s: float
    """When, on the monotonic clock, which all processes share."""
    node: int
    incarnation: int
    address: str
    configuration: ConfigurationId
    """The configuration installed last."""
    members: tuple[int, ...]
    regular: bool
    installed_s: float
    """When it was installed."""
    flowing: bool
    """Whether it sends."""
    sent: int
    """Messages of this life."""
    own: int
    """How many of these it has delivered itself."""
    place: Place
    """The last message that it delivered."""
    closed: bool
    """Whether the process has told what it delivered in the last configuration."""
    delivered: int
    safe: int
    """How many of the delivered were safe."""
    rotation_us: float | None
    """How long the token takes to go round, on average over the last second."""
    slow: int | None
    """The node that keeps the token waiting, as this node sees it."""
    waits_us: float
    """For how long that node keeps the token waiting, in microseconds."""
    gap_s: float
    """The longest time without a delivery that has ended since the last report, while messages flow."""
    blocks: list[Block]
    """What was delivered since the last report."""
    ends: list[End]
    """Configurations that ended here since the last report."""
