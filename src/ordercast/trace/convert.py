"""Turns finished journals into Parquet: ``python -m ordercast.trace.convert FILE…``

The Parquet file has its name only once it is whole, and the journal goes only then: at any moment the rows
are in one of them, and a reader that sees both takes the Parquet file.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from urllib.parse import unquote

from ordercast.trace.blocks import read_blocks
from ordercast.trace.files import PARQUET, partial
from ordercast.trace.schema import About, Row, TraceError


def convert(journal: Path) -> None:
    """Put a Parquet file in the journal's place, unless the journal is being written or converted by others.

    Raises `TraceError` or `OSError`, and leaves the journal as it was.
    """
    with journal.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if not journal.exists():
            return  # somebody else was quicker
        run, about, blocks = read_blocks(file, journal)
        first = next(blocks, None)
        if run is not None and first is not None:
            _write(journal, run, about, chain([first], blocks))
        journal.unlink()


def _write(journal: Path, run: str, about: About, blocks: Iterable[list[Row]]) -> None:
    from ordercast.trace.writer import TraceWriter

    writer = TraceWriter(journal.parent, run, about, stem=unquote(journal.stem))
    try:
        for rows in blocks:
            writer.write(rows)
        writer.close()
    except BaseException:
        # Not closed: a part of the rows must not get the name of the whole.
        partial(journal.with_suffix(PARQUET)).unlink(missing_ok=True)
        raise


def main(paths: list[str]) -> int:
    """Convert each; the number of those that could not be."""
    failed = 0
    os.umask(0o077)  # a trace tells what was said, and is its owner's, as the journal was
    for path in map(Path, paths):
        try:
            convert(path)
        except FileNotFoundError:
            continue  # converted by somebody else, or trimmed
        except (TraceError, OSError) as error:
            failed += 1
            print(error, file=sys.stderr)
    return failed


if __name__ == "__main__":
    # Arrow would load NumPy if it found it, which takes as long as all the rest, and is not used here.
    sys.modules["numpy"] = None  # type: ignore[assignment]
    sys.exit(min(main(sys.argv[1:]), 100))
