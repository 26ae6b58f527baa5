"""Require a share of covered branches: of branches alone, which lines would only flatter.

Reads coverage's JSON report and prints one line for each directory named, then fails if one of them
falls short. A directory without a branch falls short too: nothing was measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

MOST_NAMED = 12
"""Branches named for a file."""


def main() -> int:
    """Print the shares; 1 if one is below what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="output of `coverage json`")
    parser.add_argument("directories", nargs="+", help="as paths from the project's root")
    parser.add_argument("--at-least", type=float, required=True, help="percent")
    arguments = parser.parse_args()

    files = json.loads(arguments.report.read_text())["files"]
    short = False
    for directory in arguments.directories:
        inside = {name: entry for name, entry in files.items() if name.startswith(f"{directory}/")}
        covered = sum(entry["summary"]["covered_branches"] for entry in inside.values())
        total = sum(entry["summary"]["num_branches"] for entry in inside.values())
        percent = 100 * covered / total if total else 0.0
        enough = percent >= arguments.at_least
        short = short or not enough
        print(f"{directory}: {covered} of {total} branches covered, {percent:.1f}%")
        if not enough:
            print(f"  less than the {arguments.at_least:g}% asked for; the branches never taken:")
            for name, entry in sorted(inside.items()):
                missing = [f"{start}->{end}" for start, end in entry["missing_branches"]]
                if missing:
                    more = ", …" if len(missing) > MOST_NAMED else ""
                    print(f"  {name}: {len(missing)}: {', '.join(missing[:MOST_NAMED])}{more}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
