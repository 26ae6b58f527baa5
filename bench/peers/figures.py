"""What a run of any system is summed up to, so that systems can be put side by side."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

Row = dict[str, Any]
"""Figures of one run: ``delivered_per_s``, ``p50_us``, ``p99_us``, ``longest_gap_ms``, and what was run."""


class PeerMissing(Exception):
    """A system is not installed here; the message says how to install it."""


def summed_up(nodes: Sequence[Mapping[str, float]]) -> Row:
    """One run's figures over its nodes: the median, and of the worst (latency tail, gap) the worst."""
    if not nodes:
        raise ValueError("a run without nodes has no figures")
    return {
        "delivered_per_s": median(node["delivered_per_s"] for node in nodes),
        "sent_per_s": median(node["sent_per_s"] for node in nodes),
        "p50_us": median(node["p50_us"] for node in nodes),
        "p99_us": max(node["p99_us"] for node in nodes),
        "longest_gap_ms": max(node["longest_gap_ms"] for node in nodes),
    }


def median_row(rows: Iterable[Row]) -> Row:
    """Repeats of the same run as one: the median of each figure."""
    rows = list(rows)
    middle = {
        name: median(row[name] for row in rows)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else value
        for name, value in rows[0].items()
    }
    low, high = (f(row["delivered_per_s"] for row in rows) for f in (min, max))
    return middle | {"repeats": len(rows), "delivered_per_s_range": [low, high]}


def arguments(about: str | None) -> argparse.ArgumentParser:
    """The options of one run that all systems have."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--size", type=int, default=100, help="bytes a message")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rate", type=float, default=0, help="messages/s a node; 0: flat out")
    return parser
