"""The names of a trace's files. A part of a run is one file: a journal first, and Parquet in the end.

A name is a stem and a suffix, and both forms of a part share the stem; so whoever sees both knows that they
hold the same rows.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from ordercast.core.identity import NodeId

JOURNAL = ".journal"
PARQUET = ".parquet"

_LIFE_AND_PART = re.compile(r"\d{10}-\d{6,}")


def file_stem(name: str) -> str:
    """A file name no other name shares; not hidden, which Spark would pass over."""
    stem = quote(name, safe=" +,=@")
    return f"%{ord(stem[0]):02X}{stem[1:]}" if stem[0] in "._" else stem


def partial(path: Path) -> Path:
    """The name of a file that is being written; no reader looks at it."""
    return path.with_name(f"{path.name}.partial")


def part_stem(run: str, node: NodeId, incarnation: int, part: int) -> str:
    """The stem of one part of a node's trace: sorted, they are by node, life and part."""
    return f"{_node_stem(run, node)}{incarnation:010}-{part:06}"


def _node_stem(run: str, node: NodeId) -> str:
    return file_stem(f"{run}-{node:010}-")


def parts_of(directory: Path, run: str, node: NodeId) -> dict[str, list[Path]]:
    """The parts of one node that a directory holds, oldest first: by stem, the one or two files of each."""
    beginning = _node_stem(run, node)
    parts: dict[str, list[Path]] = {}
    for path in sorted(directory.iterdir()):
        if path.suffix not in (JOURNAL, PARQUET) or not path.name.startswith(beginning):
            continue
        if _LIFE_AND_PART.fullmatch(path.stem[len(beginning) :]):
            parts.setdefault(path.stem, []).append(path)
    return parts
