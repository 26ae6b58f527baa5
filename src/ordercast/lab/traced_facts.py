"""What is known of a trace whose messages are sent again: what it shows, and the model of what made it."""

from __future__ import annotations

from typing import Any

import msgspec

from ordercast.lab.traced import Stretch


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies that a trace shows, from submission to delivery at every node, in microseconds."""

    deliveries: int
    mean_us: float
    p99_us: float
    quantiles_us: list[int]
    """Quantiles of the latency, at equal distances."""


class Traced(msgspec.Struct, frozen=True, kw_only=True):
    """A trace, and the model of what made it."""

    path: str
    run: str
    protocol: str
    settings: dict[str, Any]
    """Settings of its nodes that are not the defaults of a node, as the user says."""
    from_us: int
    to_us: int
    nodes: int
    messages: int
    rate: float
    size: int
    """Bytes of a message, on average."""
    safe: bool
    """Whether most messages ask for safe delivery."""
    net: dict[str, Any]
    """The tables of the measured network."""
    late: float
    """The share of messages whose application has to wait for its node."""
    tested: dict[str, Shown]
    """By guarantee: what the blocks show that are predicted."""
    whole: dict[str, Shown]
    """What the window shows."""

    @property
    def text(self) -> str:
        """What it is, in a few words."""
        kind = "safe" if self.safe else "agreed"
        return (
            f"the {self.messages:,} messages of {self.path} ({self.protocol}, {self.nodes} nodes, "
            f"{self.rate:,.0f}/s of "
            f"{self.size:,} bytes on average, {kind})"
        )

    @property
    def stretch(self) -> Stretch:
        """The window of the trace whose messages are sent again."""
        return Stretch(self.path, self.run, self.from_us, self.to_us)

    @property
    def labels(self) -> dict[str, int | float | str]:
        """What runs that repeat it have to say."""
        return labels_of(self.stretch, self.late, "tested")


def labels_of(stretch: Stretch, late: float, part: str) -> dict[str, int | float | str]:
    """The labels of a run that repeats a part of a trace."""
    return {
        "like": stretch.path,
        "of": stretch.run,
        "begins_us": stretch.from_us,
        "ends_us": stretch.to_us,
        "late": late,
        "part": part,
    }
