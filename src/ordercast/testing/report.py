"""What is told of a run that failed: its faults, its drawing, and how to repeat it."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Sequence

from ordercast.testing.faults import Chosen
from ordercast.testing.rows import KeptRows

MOST_ROWS = 60
"""Moments that are drawn."""
WIDTH = 110


def report(
    name: str,
    seed: int,
    some: Chosen,
    faults: Sequence[tuple[float, str]],
    rows: KeptRows,
    *,
    tried: int,
    repeated: bool,
) -> str:
    """All that is told of a run that failed, in lines."""
    text = ["", f"{name} failed with seed {seed}."]
    if not repeated:
        text.append(
            "It did not fail when it was run again: something in it does not follow from the seed, such as "
            "the time of day, threads, or what is kept from run to run in global variables."
        )
    if faults:
        text.append(f"What went wrong{f', after {tried} attempts with less' if tried else ''}:")
        text += [f"    {at_s:10.6f} s  {words}" for at_s, words in faults]
    else:
        text.append("Nothing had to go wrong for it: it fails without faults.")
    if rows.rows:
        text += ["", *_drawn(rows, faults)]
    text += ["", "Run it again:", f"    {command(seed, some)}"]
    return "\n".join(text)


def _drawn(rows: KeptRows, faults: Sequence[tuple[float, str]]) -> list[str]:
    from rich.console import Console

    from ordercast.draw.spacetime import timeline_of
    from ordercast.draw.terminal import Drawing

    file = io.StringIO()
    drawing = Drawing(timeline_of(rows.rows), (), most_rows=MOST_ROWS)
    Console(file=file, width=WIDTH, color_system=None).print(drawing)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def command(seed: int, some: Chosen) -> str:
    """What a person types to have this run again: pytest, or the script that is running."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if test:
        return f"pytest {_quoted(test)} --ordercast-seed {seed} --ordercast-faults {some}"
    script = sys.argv[0] or "SCRIPT"
    return f"ORDERCAST_SEED={seed} ORDERCAST_FAULTS={some} python {shlex.quote(script)}"


def _quoted(test: str) -> str:
    """The name of a test is quoted always: shells look for files where it has brackets."""
    return "'" + test.replace("'", "'\"'\"'") + "'"
