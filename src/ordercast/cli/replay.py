"""``ordercast sim replay``: the story of one fuzzed seed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape

from ordercast.catalogue import fuzzed_protocol as protocol_called
from ordercast.cli import options
from ordercast.cli.options import FuzzedName, Json, NodeRange, Packets, Seed, TraceDirectory
from ordercast.cli.screen import STDOUT, Code, answer, blaming, facts, verdict
from ordercast.draw import svg as svg_drawing
from ordercast.draw.spacetime import Note, timeline_of
from ordercast.draw.terminal import Drawing
from ordercast.sim.campaign import Campaign, trace_name
from ordercast.sim.faults import time_text
from ordercast.sim.fuzz import Case, Cuts, Result, is_ending, plan
from ordercast.sim.fuzz import run as run_case
from ordercast.sim.notes import notes
from ordercast.sim.reading import parse_time
from ordercast.sim.topology import Attached, attached, members
from ordercast.sim.world import World

CALM = "faults end, and the network loses nothing from here on"


def replay(
    seed: Seed,
    protocol: FuzzedName = "totem",
    nodes: NodeRange = None,
    members: Annotated[
        str | None, typer.Option(metavar="1,2,3", help="Only these nodes of the group.")
    ] = None,
    faults: Annotated[
        str | None, typer.Option(metavar="0,4|none", help="Only these of its faults, by their numbers.")
    ] = None,
    faults_until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only faults before this time, as in 300ms.")
    ] = None,
    near: Annotated[
        int | None,
        typer.Option(metavar="SEED", help="The case of this seed, with its faults shifted a little.", min=0),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(dir_okay=False, metavar="FILE", help="Draw it into this file, too.")
    ] = None,
    trace: TraceDirectory = None,
    packets: Packets = False,
    json: Json = False,
) -> None:
    """Run one seed of the fuzzer again and draw what happened: faults, lives and configurations.

    The numbers in --nodes must be those of the fuzzer: they are part of what the seed decides. Exit code
    1 if the run fails.
    """
    with blaming("--protocol"):
        chosen = protocol_called(protocol)
    with blaming("--nodes"):
        between = options.nodes(nodes, chosen.nodes)
    drawn = plan(chosen, seed, between, near=near)
    cuts = _cuts(drawn, members, faults, faults_until)
    with blaming("--faults-until"):
        case = plan(chosen, seed, between, cuts, near=near)
    result, world = run_case(chosen, case, packets=packets)
    told = _notes(case, world)
    campaign = Campaign(protocol=protocol, nodes=between, seeds=range(seed, seed + 1))
    if svg is not None:
        with blaming("--svg"):
            svg.parent.mkdir(parents=True, exist_ok=True)
            timeline = timeline_of(world.rows, attached(case.settings, case.nodes))
            drawing = svg_drawing.draw(timeline, told, title=f"{protocol}, seed {seed}")
            svg.write_text(drawing, encoding="utf-8")
    if trace is not None:
        from ordercast.trace.writer import TraceWriter  # loads Arrow, of an extra

        with blaming("--trace"), TraceWriter(trace, trace_name(protocol, seed), chosen.heading) as writer:
            writer.write(world.rows)
    if json:
        answer(_document(case, result, campaign.replay(seed, cuts, near)))
    else:
        _show(drawn, case, cuts, result, world, told)
        for kept in (svg, trace):
            if kept is not None:
                STDOUT.print(f"[bright_black]written:[/] {escape(str(kept))}", soft_wrap=True)
    raise typer.Exit(Code.FAILED if result.failed else Code.OK)


def _cuts(drawn: Case, members: str | None, faults: str | None, until: str | None) -> Cuts | None:
    if members is None and faults is None and until is None:
        return None
    with blaming("--members"):
        left = None if members is None else options.some_of(members, drawn.nodes, "nodes")
    with blaming("--faults"):
        begun = [number for number, fault in enumerate(drawn.faults) if not is_ending(drawn, fault)]
        kept = None if faults is None else options.some_of(faults, begun, "faults")
    with blaming("--faults-until"):
        until_us = None if until is None else parse_time(until)
    return Cuts(members=left, faults=kept, duration_us=until_us)


def _notes(case: Case, world: World) -> list[Note]:
    begun = [fault for fault in case.faults if not is_ending(case, fault)]
    return [*notes(begun, world.changes), (case.duration_us, CALM)]


def _document(case: Case, result: Result, command: str) -> dict[str, Any]:
    return {
        "seed": case.seed,
        "nodes": list(case.nodes),
        "network": msgspec.to_builtins(case.network),
        "settings": dict(case.settings),
        "workload": msgspec.to_builtins(case.workload),
        "faults": [str(fault) for fault in case.faults],
        "faults_until_us": case.duration_us,
        "property": result.failed,
        "violations": result.violations,
        "sentences": result.sentences,
        "converged": result.converged,
        "events": result.events,
        "receptions": result.receptions,
        "rows": result.rows,
        "coverage": result.coverage,
        "replay": command,
    }


# --- for people --------------------------------------------------------------------------------


def _show(drawn: Case, case: Case, cuts: Cuts | None, result: Result, world: World, told: list[Note]) -> None:
    STDOUT.print(facts(_case(case)))
    STDOUT.print()
    _show_faults(drawn, cuts)
    STDOUT.print()
    STDOUT.print(Drawing(timeline_of(world.rows, attached(case.settings, case.nodes)), told))
    STDOUT.print()
    for sentence in result.sentences:
        STDOUT.print(f"[red]•[/] {escape(sentence)}")
    if result.failed is None:
        STDOUT.print(verdict(True, f"{result.rows:,} events keep every property, and the group converged"))
    else:
        broken = ", ".join(f"{code} ×{count}" for code, count in sorted(result.violations.items()))
        apart = "" if result.converged else "the group did not converge"
        STDOUT.print(verdict(False, "failed: " + "; ".join(filter(None, (broken, apart)))))


def _case(case: Case) -> dict[str, str]:
    network, load = case.network, case.workload
    size = f"{load.size}" if load.size_to is None else f"{load.size} to {load.size_to}"
    return {
        "seed": str(case.seed),
        "nodes": " ".join(map(str, case.nodes)),
        "network": f"delay {network.base_us} µs and {network.tail_us} µs on average, "
        f"loss {network.loss:.0%}, duplicated {network.duplicate:.0%}, overtaken {network.reorder:.0%}",
        "load": f"{load.rate:g} messages/s ({load.arrivals}) of {size} bytes, {load.safe:.0%} safe",
        **({"attached": _networks(networks)} if (networks := attached(case.settings, case.nodes)) else {}),
        "settings": ", ".join(
            f"{name} {value}" for name, value in case.settings.items() if name != "networks"
        ),
        "faults until": time_text(case.duration_us),
    }


def _networks(networks: Attached) -> str:
    """Who is attached to which network."""
    numbers = sorted({number for on in networks.values() for number in on})
    return "; ".join(f"{' '.join(map(str, members(networks, each)))} to {each}" for each in numbers)


def _show_faults(drawn: Case, cuts: Cuts | None) -> None:
    """By number, as --faults takes them; those that are cut out are counted."""
    begun = [number for number, fault in enumerate(drawn.faults) if not is_ending(drawn, fault)]
    kept = begun if cuts is None or cuts.faults is None else cuts.faults
    for number in kept:
        STDOUT.print(f"[bright_black]{number:>4}[/]  {escape(str(drawn.faults[number]))}")
    if len(kept) < len(begun):
        STDOUT.print(f"[bright_black]      {len(begun) - len(kept)} more were drawn and are left out[/]")
    if not kept:
        STDOUT.print("[bright_black]      no faults[/]")
