"""``ordercast sim fuzz``: groups under faults drawn from seeds, each run judged."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ordercast.catalogue import LAB_PROTOCOLS, OVER_NETWORKS
from ordercast.catalogue import fuzzed_protocol as protocol_called
from ordercast.cli import options
from ordercast.cli.options import CORES, FuzzedName, Jobs, Json, NodeRange, SeedRange, TraceDirectory
from ordercast.cli.screen import STDERR, STDOUT, Code, answer, blaming, counting, facts, verdict
from ordercast.sim.campaign import Campaign, Failure, Totals, explore, failure_of
from ordercast.sim.coverage import ARROW, grouped, with_sums
from ordercast.sim.network_coverage import REMERGE
from ordercast.sim.shrink import MOST_RUNS, shrink
from ordercast.storage import Location

MOST_SHRUNK = 3
"""Failures that are made smaller: the others are most likely more of the same."""
MOST_SHOWN = 10
"""Failures told to people as they come; all are in the JSON."""


def fuzz(
    protocol: FuzzedName = "totem",
    seeds: SeedRange = "0:1000",
    nodes: NodeRange = None,
    jobs: Jobs = CORES,
    trace: TraceDirectory = None,
    shrinking: Annotated[
        bool, typer.Option("--shrink/--no-shrink", help=f"Make the first {MOST_SHRUNK} failures smaller.")
    ] = True,
    json: Json = False,
) -> None:
    """Fuzz groups: each seed draws a network, settings, a load and faults; the run is audited.

    Safety is judged over the whole run. Then faults stop, and the nodes that are up have to become one
    configuration and deliver everything. A seed that fails is made smaller and printed as the command
    that replays it. Exit code 1 if any fails.
    """
    with blaming("--protocol"):
        of = protocol_called(protocol)
    with blaming("--seeds"):
        chosen = options.seeds(seeds)
    with blaming("--nodes"):
        between = options.nodes(nodes, of.nodes)
    if trace is not None:
        with blaming("--trace"):
            Location.of(trace).make()
    campaign = Campaign(protocol=protocol, nodes=between, seeds=chosen, traces=trace)
    began = time.perf_counter()
    totals = Totals()
    whole = _explore(campaign, jobs, totals)
    wall_s = time.perf_counter() - began
    replays = {seed: campaign.replay(seed) for seed in sorted(totals.failures)}
    if shrinking and whole:
        replays |= _shrink(campaign, totals)
    if json:
        answer(_document(totals, wall_s, replays))
    else:
        _show(totals, wall_s, jobs, replays)
    if not whole:
        STDERR.print(f"interrupted after {totals.runs:,} of {len(chosen):,} seeds")
        raise typer.Exit(Code.INTERRUPTED)
    raise typer.Exit(Code.FAILED if totals.failures else Code.OK)


def _explore(campaign: Campaign, jobs: int, totals: Totals) -> bool:
    """Add up all seeds; False if that was interrupted, and the totals are of the seeds until then."""
    runs = explore(campaign, protocol_called, min(jobs, len(campaign.seeds)))
    try:
        with closing(runs), counting("seeds", len(campaign.seeds)) as bar:
            for done in runs:
                totals.add(done)
                bar.step()
                failure = failure_of(done.result)
                if failure is not None and len(totals.failures) <= MOST_SHOWN:
                    bar.say(_line(failure))
    except KeyboardInterrupt:
        return False
    return True


def _shrink(campaign: Campaign, totals: Totals) -> dict[int, str]:
    """Smaller commands for the first failures."""
    protocol = protocol_called(campaign.protocol)
    smaller = {}
    for seed in sorted(totals.failures)[:MOST_SHRUNK]:
        with counting(f"shrinking seed {seed}", MOST_RUNS) as bar:
            found = shrink(protocol, seed, campaign.nodes, totals.failures[seed].property, step=bar.at)
        smaller[seed] = campaign.replay(seed, found.cuts)
    return smaller


def _document(totals: Totals, wall_s: float, replays: dict[int, str]) -> dict[str, Any]:
    cpu_s = totals.cpu_s or wall_s
    return {
        "runs": totals.runs,
        "violations": totals.violations,
        "not_converged": totals.not_converged,
        "properties": dict(sorted(totals.properties.items())),
        "events": totals.events,
        "events_per_s": totals.events / wall_s,
        "events_per_cpu_s": totals.events / cpu_s,
        "receptions": totals.receptions,
        "receptions_per_s": totals.receptions / wall_s,
        "receptions_per_cpu_s": totals.receptions / cpu_s,
        "rows": totals.rows,
        "wall_s": wall_s,
        "cpu_s": totals.cpu_s,
        "coverage": with_sums(totals.coverage),
        "failures": [
            {
                "seed": seed,
                "property": totals.failures[seed].property,
                "sentence": totals.failures[seed].sentence,
                "replay": replay,
            }
            for seed, replay in replays.items()
        ],
    }


def _line(failure: Failure) -> str:
    return (
        f"[bold red]✗[/] seed {failure.seed}: [bold]{failure.property}[/]: "
        f"[bright_black]{escape(failure.sentence)}[/]"
    )


def _show(totals: Totals, wall_s: float, jobs: int, replays: dict[int, str]) -> None:
    STDOUT.print(coverage_table(totals.coverage))
    STDOUT.print()
    cpu_s = totals.cpu_s or wall_s
    processes = "1 process" if jobs == 1 else f"{jobs} processes"
    STDOUT.print(
        facts(
            {
                "runs": f"{totals.runs:,} in {wall_s:.1f} s, {processes}",
                "events": f"{totals.events:,}: {totals.events / wall_s:,.0f}/s, "
                f"{totals.events / cpu_s:,.0f} per second of processor time",
                "receptions": f"{totals.receptions:,}: {totals.receptions / wall_s:,.0f}/s, "
                f"{totals.receptions / cpu_s:,.0f} per second of processor time",
            }
        )
    )
    STDOUT.print()
    for seed, replay in list(replays.items())[:MOST_SHOWN]:
        STDOUT.print(f"[bold red]✗[/] seed {seed}: [bold]{totals.failures[seed].property}[/]")
        STDOUT.print(f"  {replay}", soft_wrap=True)
    if len(replays) > MOST_SHOWN:
        STDOUT.print(f"[bright_black]… and {len(replays) - MOST_SHOWN:,} more: --json names them all[/]")
    if totals.failures:
        properties = ", ".join(f"{code} {runs:,}" for code, runs in sorted(totals.properties.items()))
        failed = f"{len(totals.failures):,} of {totals.runs:,} runs failed"
        apart = f"; {totals.not_converged:,} did not converge" if totals.not_converged else ""
        STDOUT.print(verdict(False, f"{failed}{f' ({properties})' if properties else ''}{apart}"))
    else:
        STDOUT.print(verdict(True, f"{totals.runs:,} runs: no violation, and all converged"))


def coverage_table(counts: Mapping[str, int]) -> Table:
    """How often the fuzzer made what happen, by groups."""
    hits = {hit for protocol in (*LAB_PROTOCOLS.values(), *OVER_NETWORKS.values()) for hit in protocol.hits}
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    for group, members in grouped(counts, hits - {REMERGE}).items():
        table.add_row(f"[bold]{group}[/]", "")
        for name, count in members.items():
            table.add_row(f"  {name.replace(ARROW, ' → ')}", f"{count:,}" if count else "[red]never[/]")
    return table
