"""What a trace shows of the protocol and settings that made it, beside what their simulation says.

Both are of the blocks that nothing was estimated from (`ordercast.lab.trace_model`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ordercast.lab.candidates import Candidate
from ordercast.lab.profile import Profile
from ordercast.lab.ranking import Entry, Latency
from ordercast.lab.traced_facts import Shown

WITHIN = 0.2
"""By how much a prediction may be off, to be worth something."""
COLUMNS = ("messages", "trace: mean [ms]", "predicted", "off by", "trace: p99 [ms]", "predicted", "off by")
NOTE = (
    "Of the protocol and settings that made the trace, in the blocks that nothing was estimated from; "
    "latencies from "
    "submission to delivery at every node."
)


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What a trace shows of one guarantee, and what is predicted for it."""

    name: str
    shown: Shown
    whole: Shown
    """What the whole window shows."""
    predicted: Latency

    @property
    def off(self) -> tuple[float, float]:
        """By what share of what is shown mean and 99th percentile are off."""
        return (
            self.predicted.mean_us / self.shown.mean_us - 1,
            self.predicted.p99_us / self.shown.p99_us - 1,
        )

    @property
    def close(self) -> bool:
        """Whether both are near enough."""
        return all(abs(each) <= WITHIN for each in self.off)

    @property
    def row(self) -> tuple[str, ...]:
        """For a table with `COLUMNS`."""
        mean, p99 = self.off
        return (
            self.name,
            _ms(self.shown.mean_us),
            _ms(self.predicted.mean_us),
            f"{mean:+.0%}",
            _ms(self.shown.p99_us),
            _ms(self.predicted.p99_us),
            f"{p99:+.0%}",
        )

    @property
    def text(self) -> str:
        """A sentence for people."""
        mean, p99 = self.off
        told = (
            f"How far to trust this: for {self.name} messages under what made the trace, the model predicts "
            f"{_ms(self.predicted.mean_us)} ms on average, and the trace shows {_ms(self.shown.mean_us)} ms "
            f"({mean:+.0%}); for the 99th percentile {_ms(self.predicted.p99_us)} against "
            f"{_ms(self.shown.p99_us)} ms ({p99:+.0%})."
        )
        far = " That is too far off: take the order from here, not the figures."
        return told + ("" if self.close else far)

    def as_dict(self) -> dict[str, Any]:
        """For programs."""

        def told(latency: Shown | Latency) -> dict[str, float]:
            return {"mean": round(latency.mean_us, 1), "p99": round(latency.p99_us, 1)}

        return {
            "guarantee": self.name,
            "trace_us": told(self.shown),
            "whole_trace_us": told(self.whole),
            "predicted_us": told(self.predicted),
            "off_by": {"mean": round(self.off[0], 4), "p99": round(self.off[1], 4)},
            "within_20_percent": self.close,
        }


def _ms(us: float) -> str:
    return f"{us / 1e3:.3f}"


def prediction(profile: Profile, entries: Sequence[Entry]) -> list[Predicted]:
    """By guarantee; nothing where no trace is repeated, or what made it was not run."""
    like = profile.like
    if like is None:
        return []
    name = Candidate(like.protocol, like.settings, "").name
    return [
        Predicted(name=each, shown=like.tested[each], whole=like.whole[each], predicted=entry.latency[each])
        for entry in entries
        if entry.candidate.name == name
        for each in sorted(entry.latency)
        if each in like.tested
    ]
