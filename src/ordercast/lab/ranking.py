"""The candidates of ``ordercast lab run choose`` in their order, from what came of their runs.

They are ranked by the time from submission to delivery that a message takes on average, *failures included*:
a message that is submitted while the group delivers nothing waits for the rest of that outage. With failures
at random times, `f` a second, each an outage of `T`, that adds `f T²/2` to the mean. Who does not carry the
load comes behind everybody who does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ordercast.lab.candidates import Candidate
from ordercast.lab.profile import Profile

if TYPE_CHECKING:
    from ordercast.lab.frames import Frames

AGREED, SAFE, FLAT_OUT, CRASH, REPLAY = "agreed", "safe", "flat out", "crash", "replay"
"""What the runs of a candidate are about."""
CARRIED = 0.97
"""The share of what is submitted that is delivered meanwhile, at least, by who carries the load."""
GAIN = 0.05
"""Settings that gain less than this are not worth a line in a configuration."""
FIGURES = (
    *("ordered_per_s", "measured", "window_us", "refused", "overhead"),
    *("latency_agreed_us", "latency_agreed_p50_us", "latency_agreed_p99_us"),
    *("latency_safe_us", "latency_safe_p50_us", "latency_safe_p99_us"),
    *("crash_silence_us", "return_silence_us", "crash_recovered", "return_recovered"),
)
"""Figures of runs that the ranking needs."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """How long messages of one guarantee took, in microseconds."""

    mean_us: float
    p99_us: float


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A candidate, and what came of its runs."""

    candidate: Candidate
    latency: dict[str, Latency]
    """By guarantee; what was not measured is not there."""
    guarantee: str
    """The guarantee whose latency the ranking goes by."""
    offered_per_s: float
    """Messages submitted in a second."""
    ordered_per_s: float
    """Messages of these that were delivered, in a second."""
    capacity_per_s: float
    """The most that it delivers in a second."""
    overhead: float
    """Packets that carry no new messages, for each message."""
    crash_us: float
    """How long nothing is delivered after a crash, on average over who crashes,"""
    return_us: float
    """and when a node comes back."""
    recovered: bool
    """Whether the group went on after each of these."""
    failures_per_hour: float

    @property
    def carries(self) -> bool:
        """Whether it carries the load."""
        return self.ordered_per_s >= CARRIED * self.offered_per_s

    @property
    def mean_us(self) -> float:
        """The mean latency without failures; without end if nothing was delivered."""
        found = self.latency.get(self.guarantee)
        return math.inf if found is None else found.mean_us

    @property
    def expected_us(self) -> float:
        """The mean latency, failures included."""
        squares = (self.crash_us / 1e6) ** 2 + (self.return_us / 1e6) ** 2
        return self.mean_us + self.failures_per_hour / 3_600 * squares / 2 * 1e6

    @property
    def outage_s_per_hour(self) -> float:
        """Seconds without a delivery in an hour, because of failures."""
        return self.failures_per_hour * (self.crash_us + self.return_us) / 1e6

    @property
    def place(self) -> tuple[bool, bool, float]:
        """What comes first is better."""
        worth = self.expected_us if self.carries else -self.ordered_per_s
        return (not self.carries, not self.recovered, worth)

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "protocol": self.candidate.protocol,
            "settings": self.candidate.changes,
            "carries_the_load": self.carries,
            "latency_us": {
                name: {"mean": round(each.mean_us, 1), "p99": round(each.p99_us, 1)}
                for name, each in self.latency.items()
            },
            "latency_with_failures_us": round(self.expected_us, 1),
            "offered_per_s": round(self.offered_per_s, 1),
            "ordered_per_s": round(self.ordered_per_s, 1),
            "capacity_per_s": round(self.capacity_per_s, 1),
            "overhead": round(self.overhead, 3),
            "outage_ms": {"crash": round(self.crash_us / 1e3, 1), "return": round(self.return_us / 1e3, 1)},
            "outage_s_per_hour": self.outage_s_per_hour,
            "recovered": self.recovered,
        }


def ranked(frames: Frames, chosen: Sequence[Candidate], profile: Profile) -> list[Entry]:
    """All candidates whose runs were carried out, the best first."""
    table = frames.mean(["candidate", "what", "victim"], FIGURES).to_dict(orient="records")
    rows: dict[str, list[dict[Any, Any]]] = {}
    for row in table:
        rows.setdefault(row["candidate"], []).append(row)
    made = [_entry(each, rows.get(each.name, []), profile) for each in chosen]
    return sorted((entry for entry in made if entry is not None), key=lambda entry: entry.place)


def _entry(candidate: Candidate, rows: Sequence[dict[Any, Any]], profile: Profile) -> Entry | None:
    """What came of one candidate; None where a run that is needed failed."""
    by_what = {row["what"]: row for row in rows}
    load, flat_out = by_what.get(profile.guarantee, by_what.get(REPLAY)), by_what.get(FLAT_OUT)
    crashes = {int(row["victim"]): row for row in rows if row["what"] == CRASH}
    if load is None or flat_out is None or not crashes:
        return None
    shares = {victim: 1 / profile.nodes if victim == 1 else 1 - 1 / profile.nodes for victim in crashes}

    def over_victims(name: str) -> float:
        return sum(shares[victim] * float(row[name]) for victim, row in crashes.items()) / sum(
            shares.values()
        )

    return Entry(
        candidate=candidate,
        latency=_latencies(by_what),
        guarantee=profile.guarantee,
        offered_per_s=(float(load["measured"]) + float(load["refused"])) / float(load["window_us"]) * 1e6,
        ordered_per_s=float(load["ordered_per_s"]),
        capacity_per_s=float(flat_out["ordered_per_s"]),
        overhead=float(load["overhead"]),
        crash_us=over_victims("crash_silence_us"),
        return_us=over_victims("return_silence_us"),
        recovered=over_victims("crash_recovered") == 1 and over_victims("return_recovered") == 1,
        failures_per_hour=profile.failures_per_hour,
    )


def _latencies(by_what: Mapping[str, Mapping[Any, Any]]) -> dict[str, Latency]:
    """By guarantee; the messages of a trace may ask for both."""
    found = {}
    for name in (AGREED, SAFE):
        row = by_what.get(name, by_what.get(REPLAY))
        if row is not None and not math.isnan(mean_us := float(row[f"latency_{name}_us"])):
            found[name] = Latency(mean_us=mean_us, p99_us=float(row[f"latency_{name}_p99_us"]))
    return found


def recommended(entries: Sequence[Entry]) -> Entry:
    """The best one; but its protocol without changed settings, where these gain next to nothing."""
    best = entries[0]
    for entry in entries:
        usual = entry.candidate.protocol == best.candidate.protocol and not entry.candidate.changes
        near = entry.expected_us <= best.expected_us * (1 + GAIN)
        if usual and entry.carries == best.carries and entry.recovered and near:
            return entry
    return best
