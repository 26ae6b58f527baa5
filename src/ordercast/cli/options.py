"""Options that several commands take, and how their values are read."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from ordercast.core.settings import setting_of

if TYPE_CHECKING:
    from ordercast.core.identity import NodeId
    from ordercast.sim.faults import Fault

MOST_NODES = 128
"""No protocol forms larger groups with its default settings."""


def seeds(text: str) -> range:
    """``5`` is one seed, ``0:1000`` a thousand (the end is not part of it)."""
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    if match is None:
        raise ValueError(f"{text!r} is no range of seeds: write 0:1000, or 5 for one")
    first = int(match[1])
    end = first + 1 if match[2] is None else int(match[2])
    if end <= first:
        raise ValueError(f"{text!r} holds no seed: the second number is behind the last seed")
    return range(first, end)


def nodes(text: str | None, usual: tuple[int, int] = (2, 7)) -> tuple[int, int]:
    """``5`` is always five, ``2:7`` two to seven, as each seed decides; None is as `usual`."""
    if text is None:
        return usual
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    if match is None:
        raise ValueError(f"{text!r} is no number of nodes: write 2:7 for two to seven, or 5")
    fewest = int(match[1])
    most = fewest if match[2] is None else int(match[2])
    if not 1 <= fewest <= most <= MOST_NODES:
        raise ValueError(f"{text!r}: from the fewest nodes to the most, between 1 and {MOST_NODES}")
    return fewest, most


def sizes(text: str) -> tuple[int, int | None]:
    """``1000`` bytes, or ``100:3000`` uniformly distributed."""
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    if match is None:
        raise ValueError(f"{text!r} is no size: write 1000 for so many bytes, or 100:3000 for a range")
    return int(match[1]), None if match[2] is None else int(match[2])


def numbers(text: str) -> tuple[int, ...]:
    """``0,4,7``; ``none`` is none of them."""
    if text == "none":
        return ()
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise ValueError(f"{text!r}: write numbers with commas between them, as in 0,4,7, or none")
    return tuple(map(int, text.split(",")))


def some_of(text: str, there: Collection[int], what: str) -> tuple[int, ...]:
    """Some of the numbers that are there."""
    chosen = numbers(text)
    for number in chosen:
        if number not in there:
            known = f"they are {min(there)} to {max(there)}" if there else "it has none"
            raise ValueError(f"{number} is not among the {what} of this seed: {known}")
    if what == "nodes" and not chosen:
        raise ValueError("at least one node has to stay")
    return tuple(sorted(set(chosen)))


def fields(pairs: Iterable[str]) -> dict[str, object]:
    """Fields given as ``key=value`` each (`setting_of`)."""
    found: dict[str, object] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals and value):
            raise ValueError(f"{pair!r}: write key=value")
        found[key] = setting_of(value)
    return found


def faults(lines: Iterable[str], members: Iterable[NodeId], where: str = "") -> tuple[Fault, ...]:
    """Faults as in scenario files, a line each: ``at 2s crash 3``. `where` names the file."""
    from ordercast.sim.scenario import parse

    found: list[Fault] = []
    head = f"nodes {' '.join(map(str, members))}\nuntil 1s\n"
    for number, line in enumerate(lines, 1):
        statement = line.partition("#")[0].strip()
        if not statement:
            continue
        place = f"{where}, line {number}: " if where else ""
        if statement.split()[0] not in ("at", "when"):
            raise ValueError(f"{place}{statement!r}: a fault begins with a time, as in: at 2s crash 3")
        try:
            found += parse(head + statement).faults
        except ValueError as error:
            raise ValueError(place + str(error).removeprefix("line 3: ")) from error
    return tuple(found)


ProtocolName = Annotated[
    str, typer.Option("--protocol", help="Which protocol; see `ordercast protocols`.", metavar="NAME")
]
FuzzedName = Annotated[
    str,
    typer.Option(
        "--protocol",
        help="Which protocol; see `ordercast protocols`. NAME+groups has process groups above it.",
        metavar="NAME[+groups]",
    ),
]
ProfileName = Annotated[
    str,
    typer.Option(
        "--profile", metavar="NAME", help="How far nodes are apart: auto, lan or wan; see `ordercast config`."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout, and nothing else.")]
Seed = Annotated[int, typer.Option("--seed", help="Everything random follows from it.", min=0)]
NodeRange = Annotated[
    str | None,
    typer.Option(
        "--nodes",
        metavar="N|N:M",
        help="How many nodes; of a range each seed draws one. Left out: 2:7, with gateways 6:14.",
    ),
]
SeedRange = Annotated[
    str, typer.Option("--seeds", metavar="N|N:M", help="Which seeds: one, or from N up to but not M.")
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Processes that share the work.")]
Packets = Annotated[bool, typer.Option("--packets", help="Trace every packet, too.")]
TraceDirectory = Annotated[
    str | None,
    typer.Option("--trace", metavar="DIR|URI", help="Keep the trace, as Parquet, in DIR."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of the protocol; may be repeated."),
]
CORES = os.cpu_count() or 1
FEWEST_OF_A_VIEW = 3
"""Of two nodes one is no majority: a group that needs one would not go on without the other."""
