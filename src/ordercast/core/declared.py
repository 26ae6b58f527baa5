"""What a protocol declares of itself for people: its kinds of packets, reasons for drops and statistics.

Each is declared once, beside the machine that has it, with a help text. Status, Prometheus, log lines, the
laboratory's metrics and drawings read the declarations, so that a new one is known to all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple


class Purpose(StrEnum):
    """What packets of a kind are for."""

    MESSAGES = "messages"
    """They carry messages of the application for the first time."""
    ORDER = "order"
    """They order messages, acknowledge them, ask for them or carry them again."""
    MEMBERSHIP = "membership"
    """They find out who lives, and form groups."""


class PacketKind(NamedTuple):
    """A kind of packet of a protocol."""

    name: str
    purpose: Purpose
    help: str
    """What such a packet tells its receiver, in a sentence."""
    quiet: bool = False
    """Drawings leave it out: it is sent all the time, and tells nothing of the order."""


class DropReason(NamedTuple):
    """Why a packet was not used."""

    reason: str
    """The words that `Drop` names it by, and that it is counted under."""
    help: str
    """What has happened, in a sentence."""
    everyday: bool = False
    """Whether healthy groups have such drops, too: they are counted, and no warning is logged."""


class Sort(StrEnum):
    """How a statistic develops, and what that of several nodes is."""

    COUNT = "count"
    """It only rises during a life; those of several nodes are added."""
    LARGEST = "largest"
    """The largest value of a life; of several nodes, the largest."""
    LEVEL = "level"
    """What it is now; those of several nodes are added."""


class Statistic(NamedTuple):
    """A running figure of a machine: an entry of `Machine.stats`."""

    name: str
    """With ``_us`` in it, it is a time in microseconds; else a number of whatever the help text says."""
    help: str
    sort: Sort = Sort.COUNT


def zeros(statistics: Iterable[Statistic]) -> dict[str, float]:
    """The statistics of a machine that has done nothing yet, by name."""
    return {statistic.name: 0.0 for statistic in statistics}


def together(statistics: Sequence[Statistic], machines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The statistics of several machines as one: the largest, or the sum, as each is declared."""
    total = zeros(statistics)
    for statistic in statistics:
        values = [machine[statistic.name] for machine in machines]
        total[statistic.name] = max(values, default=0.0) if statistic.sort is Sort.LARGEST else sum(values)
    return total
