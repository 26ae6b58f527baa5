"""``ordercast sim inject``: wrong packets at machines in every state."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape

from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.catalogue import lab_protocol as protocol_called
from ordercast.cli import options
from ordercast.cli.options import Json, NodeRange, Seed
from ordercast.cli.screen import STDERR, STDOUT, Code, answer, blaming, counting, facts, verdict
from ordercast.sim.injection import Failure, Injections, campaign

ALL = "all"
MOST_SHOWN = 10
"""Findings told to people as they come; all are in the JSON."""


def inject(
    protocol: Annotated[
        str, typer.Option("--protocol", help=f"Which protocol, or {ALL}.", metavar="NAME")
    ] = ALL,
    count: Annotated[
        int, typer.Option("--count", min=1, help="How many wrong packets, at each protocol.")
    ] = 20_000,
    seed: Seed = 0,
    nodes: NodeRange = None,
    json: Json = False,
) -> None:
    """Give machines wrong packets in every state: none may raise, and groups have to come together again.

    The packets are real ones with fields or bytes changed. Groups are fuzzed as by `sim fuzz`, seed after
    seed; each finding names the seed that shows it again. Exit code 1 if there is any.
    """
    with blaming("--protocol"):
        chosen = list(LAB_PROTOCOLS.values()) if protocol == ALL else [protocol_called(protocol)]
    with blaming("--nodes"):
        between = {each.name: options.nodes(nodes, each.nodes) for each in chosen}
    began = time.perf_counter()
    totals = {each.name: Injections(protocol=each.name) for each in chosen}
    whole = True
    try:
        for each in chosen:
            total = totals[each.name]
            with counting(f"packets at {each.name}", count) as bar:
                for found in campaign(each, seed, between[each.name], count):
                    total.add(found)
                    bar.step(found.count)
                    for failure in found.failures[: MOST_SHOWN - len(total.failures) + 1]:
                        bar.say(_line(each.name, failure))
    except KeyboardInterrupt:
        whole = False
    wall_s = time.perf_counter() - began
    if json:
        answer({"wall_s": wall_s, "protocols": [_document(total, between) for total in totals.values()]})
    else:
        _show(list(totals.values()), between, wall_s)
    if not whole:
        STDERR.print(f"interrupted after {sum(total.count for total in totals.values()):,} packets")
        raise typer.Exit(Code.INTERRUPTED)
    failed = any(total.failures or total.apart for total in totals.values())
    raise typer.Exit(Code.FAILED if failed else Code.OK)


def _again(protocol: str, seed: int, between: Mapping[str, tuple[int, int]]) -> str:
    fewest, most = between[protocol]
    return f"ordercast sim inject --protocol {protocol} --seed {seed} --count 1 --nodes {fewest}:{most}"


def _document(total: Injections, between: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    seeds = sorted({failure.seed for failure in total.failures} | set(total.apart))
    return {
        **msgspec.to_builtins(total),
        "replays": [_again(total.protocol, seed, between) for seed in seeds],
    }


def _line(protocol: str, failure: Failure) -> str:
    return (
        f"[bold red]✗[/] {protocol}, seed {failure.seed}, {failure.state or 'afterwards'}: "
        f"[bright_black]{escape(failure.what)} {escape(failure.where)}[/]"
    )


def _show(totals: list[Injections], between: Mapping[str, tuple[int, int]], wall_s: float) -> None:
    for total in totals:
        states = ", ".join(f"{state} {count:,}" for state, count in sorted(total.states.items()))
        reasons = sorted(total.reasons.items(), key=lambda item: -item[1])[:5]
        STDOUT.print(f"[bold]{total.protocol}[/]")
        STDOUT.print(
            facts(
                {
                    "packets": f"{total.count:,} in {total.runs:,} groups; {total.dropped:,} not used",
                    "states": states,
                    "not used": ", ".join(f"{escape(why)} {count:,}" for why, count in reasons),
                    "lives ended": f"{total.halted:,}",
                    "held on to": f"{total.most_retained:,} bytes at the most",
                    "longest": f"{total.longest_s * 1000:.1f} ms for one packet",
                }
            )
        )
        for failure in total.failures[:MOST_SHOWN]:
            STDOUT.print(_line(total.protocol, failure))
            STDOUT.print(f"  {_again(total.protocol, failure.seed, between)}", soft_wrap=True)
        for seed in total.apart[:MOST_SHOWN]:
            STDOUT.print(f"[bold red]✗[/] {total.protocol}, seed {seed}: did not come together again")
            STDOUT.print(f"  {_again(total.protocol, seed, between)}", soft_wrap=True)
    every = sum(total.count for total in totals)
    raised = sum(len(total.failures) for total in totals)
    apart = sum(len(total.apart) for total in totals)
    said = f"{every:,} wrong packets in {wall_s:.1f} s: "
    if raised or apart:
        STDOUT.print(verdict(False, f"{said}{raised:,} were not stood, {apart:,} groups stayed apart"))
    else:
        STDOUT.print(verdict(True, f"{said}no machine raised, and all groups came together again"))
