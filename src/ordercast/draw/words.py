"""How times, members and counts are written in a drawing: short, and the same everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ordercast.core.identity import Configuration, Kind, NodeId

WALL_CLOCK_US = 10**14
"""Later times are since the epoch (1973 and on), not virtual: they are shown from the run's start."""


def zero(start_us: int) -> int:
    """What a drawing counts time from: the start of a real run, 0 of a simulated one."""
    return start_us if start_us >= WALL_CLOCK_US else 0


def clock(time_us: int) -> str:
    """A time of day in a run: ``123.4 ms``, from ten seconds on ``12.345 s``."""
    if abs(time_us) < 10_000_000:
        return f"{time_us / 1000:,.1f} ms"
    return f"{time_us / 1_000_000:,.3f} s"


def duration(time_us: int) -> str:
    """How long something took, to two or three figures."""
    if time_us < 1000:
        return f"{time_us} µs"
    if time_us < 1_000_000:
        return f"{time_us / 1000:.3g} ms" if time_us < 100_000 else f"{time_us // 1000} ms"
    return f"{time_us / 1_000_000:.3g} s"


def count(number: int) -> str:
    """At most four characters: ``412``, ``9999``, ``12k``, ``3.4M``."""
    if number < 10_000:
        return str(number)
    for unit, size in (("k", 1000), ("M", 1000_000), ("G", 1000_000_000)):
        if number < 1000 * size:
            scaled = number / size
            return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{number // size}{unit}"
    return "lots"


def nodes(of: Iterable[NodeId], longest: int = 48) -> str:
    """Node identifiers; three or more in a row as a range, and no longer than asked for."""
    runs: list[list[NodeId]] = []
    everyone = sorted(of)
    for node in everyone:
        if runs and node == runs[-1][1] + 1:
            runs[-1][1] = node
        else:
            runs.append([node, node])
    plain = " ".join(map(str, everyone))
    if len(everyone) <= 6 and len(plain) <= longest:
        return plain
    words = [
        f"{first}–{last}" if last - first > 1 else " ".join(map(str, range(first, last + 1)))
        for first, last in runs
    ]
    text = " ".join(words)
    if len(text) <= longest:
        return text
    tail = f" … of {len(everyone)}"
    kept = text[: max(0, longest - len(tail)) + 1].rpartition(" ")[0]
    return f"{kept}{tail}".strip()


def members(configuration: Configuration, longest: int = 48) -> str:
    """A configuration by its members: ``{1 2 3}``."""
    return f"{{{nodes(configuration.members, longest - 2)}}}"


def deliveries(counts: Sequence[Mapping[str, int]]) -> str:
    """What several nodes delivered, by guarantee: one figure where they agree, else from–to."""
    parts = []
    for guarantee in sorted({name for each in counts for name in each}):
        figures = [each.get(guarantee, 0) for each in counts]
        low, high = min(figures), max(figures)
        parts.append(f"{low:,} {guarantee}" if low == high else f"{low:,}–{high:,} {guarantee}")
    return " + ".join(parts) or "nothing"


def kind(configuration: Configuration) -> str:
    """The kind and the identifier: ``regular 8.1``."""
    word = "transitional" if configuration.kind == Kind.TRANSITIONAL else "regular"
    return f"{word} {configuration.id}"
