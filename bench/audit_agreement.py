"""Do the reference and the auditor on Spark agree? Thousands of runs, most of them with something planted.

    .venv/bin/python bench/audit_agreement.py [--traces 2400] [--seeds 6] [--master local[2]] [--json]

Fuzzed runs of every protocol are broken in every way that `tests/audit/planting.py` knows, put into one
trace, and audited by both, on Spark as small runs and as if they were large: every run has to get the same
report each time, property by property and word by word.
Prints how often each property was broken, how the right runs were certified, and where the two differ.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "audit"))

from planting import PLANTS, broken, right_runs, write_runs

from ordercast.audit.files import audited_runs
from ordercast.audit.spark import audited_on_spark, whole_runs
from ordercast.spark.sessions import spark_session
from ordercast.trace.schema import Row


def make(traces: int, seeds: int) -> list[tuple[str, str, list[Row]]]:
    """So many runs; the right ones they were made of are among them."""
    right = list(right_runs(range(seeds)))
    runs = [(f"{name}-right", promises, rows) for name, promises, rows in right]
    of_totem = [each for each in right if each[0].startswith("totem")]  # it has twice the properties
    rng = Random("agreement")
    while len(runs) < traces:
        plant = PLANTS[len(runs) % len(PLANTS)]
        name, promises, rows = rng.choice(of_totem if rng.random() < 0.6 else right)
        made = broken(rng, rows, plant)
        if made is not None:
            runs.append((f"{name}-{plant.__name__}-{len(runs)}", promises, made))
    return runs


def compare(directory: Path, master: str) -> dict[str, Any]:
    """Audit by both, and say where they differ."""
    began = time.perf_counter()
    reference = {found.run: found.report for found in audited_runs(directory)}
    told = time.perf_counter()
    with spark_session("agreement", master) as spark:
        in_tasks = {found.run: found.report for found in audited_on_spark(spark, directory)}
        whole_runs.SMALL_RUN = 0  # so that the passes see them, which they would not, runs being small
        on_spark = {found.run: found for found in audited_on_spark(spark, directory)}
    ended = time.perf_counter()
    broken_by: Counter[str] = Counter()
    for report in reference.values():
        broken_by.update(code for code, count in report.properties.items() if count)
    differing = sorted(
        run
        for run in reference.keys() | on_spark.keys()
        if run not in on_spark or not reference.get(run) == on_spark[run].report == in_tasks.get(run)
    )
    clean = [run for run, report in reference.items() if report.clean]
    return {
        "traces": len(reference),
        "clean": len(clean),
        "broken": dict(sorted(broken_by.items())),
        "differing": differing,
        "right_runs": Counter(
            on_spark[run].how.partition(",")[0] for run in reference if run.endswith("-right")
        ),
        "clean_runs": Counter(on_spark[run].how.partition(",")[0] for run in clean),
        "reference_s": round(told - began, 1),
        "spark_s": round(ended - told, 1),
    }


def main() -> None:
    """Make, compare, tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", type=int, default=2_400)
    parser.add_argument("--seeds", type=int, default=6, help="right runs of each protocol")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        write_runs(Path(scratch), make(options.traces, options.seeds))
        found = compare(Path(scratch), options.master)
    print(json.dumps(found, indent=None if options.json else 2))
    sys.exit(bool(found["differing"]))


if __name__ == "__main__":
    main()
