"""``ordercast bench``: a real group under load, measured, its order checked."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ordercast.cli import options
from ordercast.cli.config import used
from ordercast.cli.options import FEWEST_OF_A_VIEW, Json, ProfileName, ProtocolName, Settings
from ordercast.cli.screen import STDERR, STDOUT, Code, answer, blaming, facts, refuse, verdict
from ordercast.extras import need
from ordercast.measure.apart import Apart, measure_apart
from ordercast.measure.bench import MOST_NODES, Plan, Result, WorkerFailed, measure
from ordercast.measure.netns import NoNamespaces
from ordercast.measure.relay import Impairments
from ordercast.protocols import protocol as protocol_called
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.ring_settings import RINGS


def bench(
    nodes: Annotated[int, typer.Option(min=1, max=MOST_NODES, help="How many nodes, a process each.")] = 3,
    size: Annotated[int, typer.Option(min=0, help="Bytes a message.")] = 100,
    seconds: Annotated[float, typer.Option(help="How long the load lasts.")] = 5.0,
    rate: Annotated[
        float | None,
        typer.Option(help="Messages/s that each node sends; 0 is an idle group. Not given: flat out."),
    ] = None,
    safe: Annotated[bool, typer.Option("--safe", help="Deliver only what every member has.")] = False,
    sealed: Annotated[
        bool, typer.Option("--sealed", help="Encrypt and authenticate, with a new key.")
    ] = False,
    log: Annotated[bool, typer.Option("--log", help="Each node keeps its ordered log.")] = False,
    kill_one: Annotated[
        bool,
        typer.Option(
            "--kill-one",
            help="Kill the last node halfway (-9), or the first gateway; look at longest_gap_ms.",
        ),
    ] = False,
    stop_one: Annotated[
        bool, typer.Option("--stop-one", help="Stop the last node halfway (SIGSTOP); look at longest_gap_ms.")
    ] = False,
    cut_one: Annotated[
        bool,
        typer.Option(
            "--cut-one",
            help="Cut the last node off halfway, or the first gateway, and let it come back. With --netns.",
        ),
    ] = False,
    trace: Annotated[
        Path | None, typer.Option(help="Each node writes its trace into this directory: see ordercast audit.")
    ] = None,
    netns: Annotated[
        bool, typer.Option("--netns", help="Each node in a network namespace of its own. Needs root.")
    ] = False,
    loss: Annotated[
        float, typer.Option(help="Share of the datagrams that the network loses, 0.05 for 5%. With --netns.")
    ] = 0.0,
    burst: Annotated[float, typer.Option(help="Datagrams that it loses in a row, on average.")] = 1.0,
    delay_ms: Annotated[float, typer.Option(help="How long it takes a datagram, one way.")] = 0.0,
    jitter_ms: Annotated[float, typer.Option(help="The most that a datagram takes longer.")] = 0.0,
    duplicate: Annotated[float, typer.Option(help="Share of the datagrams that arrive twice.")] = 0.0,
    reorder: Annotated[float, typer.Option(help="Share that later ones overtake.")] = 0.0,
    path_mtu: Annotated[
        int, typer.Option(help="Larger IP packets are lost without a word; 0: none are.")
    ] = 0,
    rings: Annotated[
        int,
        typer.Option(
            min=1, help="On how many rings, in a line, with a gateway between neighbours: protocol rings."
        ),
    ] = 1,
    apart: Annotated[
        bool,
        typer.Option(
            "--apart",
            help="These rings are of the same nodes, without gateways or an order between them: a process "
            "for each node and ring. Beside them, one ring is measured alone. Protocol: any.",
        ),
    ] = False,
    locality: Annotated[
        float,
        typer.Option(
            help="Share of each node's messages, 0.9 for 90%, to a group with members on its own ring alone; "
            "the rest to all nodes. With --rings."
        ),
    ] = 0.0,
    uvloop: Annotated[
        bool | None,
        typer.Option("--uvloop/--no-uvloop", help="The event loop. Not given: uvloop if installed."),
    ] = None,
    protocol: ProtocolName = "totem",
    profile: ProfileName = "auto",
    settings: Settings = None,
    json: Json = False,
) -> None:
    """Measure a real group under load, in real processes on this machine.

    Throughput, latency (from send to the sender's own delivery), the longest time without a delivery and
    the processor's share, node by node; and whether all delivered the same messages in the same order.
    Exit code 1 if they did not.
    """
    if sealed:
        need("seal", "--sealed")
    if rings > 1 and not apart:
        protocol = RINGS
    with blaming("--protocol"):
        chosen = protocol_called(protocol)
    with blaming("--profile"):
        config = NodeConfig(protocol=protocol).with_changes(profile=profile)
    with blaming("--set"):
        values = options.fields(settings or ())
        used(config.with_changes(protocol_settings=values))
    if (kill_one or stop_one or cut_one) and chosen.primary_partition and nodes < FEWEST_OF_A_VIEW:
        refuse(
            f"{protocol} goes on with a majority only, which one of {nodes} nodes is not: choose --nodes "
            f"{FEWEST_OF_A_VIEW} or more"
        )
    try:
        plan = Plan(
            nodes=nodes,
            size=size,
            seconds=seconds,
            rate=rate,
            safe=safe,
            sealed=sealed,
            log=log,
            kill_one=kill_one,
            stop_one=stop_one,
            cut_one=cut_one,
            trace=None if trace is None else str(trace),
            netns=netns,
            impairments=Impairments(
                loss=loss,
                burst=burst,
                delay_ms=delay_ms,
                jitter_ms=jitter_ms,
                duplicate=duplicate,
                reorder=reorder,
                path_mtu=path_mtu,
            ),
            uvloop=uvloop,
            protocol=protocol,
            profile=config.profile,
            settings=values,
            rings=1 if apart else rings,
            locality=locality,
        )
    except ValueError as error:
        refuse(str(error))
    if trace is not None:
        trace.mkdir(parents=True, exist_ok=True)
    try:
        result = measure_apart(plan, rings, tell=_tell_aside) if apart else measure(plan, tell=_tell_aside)
    except ValueError as error:
        refuse(str(error))
    except NoNamespaces as error:
        refuse(str(error))
    except WorkerFailed as error:
        STDERR.print(f"[bold red]error:[/] {error}", markup=True, soft_wrap=True)
        raise typer.Exit(Code.BROKEN) from None
    if json:
        answer(result.as_dict())
    elif isinstance(result, Apart):
        _show_apart(result)
    else:
        _show(result)
    raise typer.Exit(Code.OK if result.good else Code.FAILED)


def _tell_aside(text: str) -> None:
    STDERR.print(f"[bright_black]{text}[/]")


def _show_apart(result: Apart) -> None:
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for name in ("", "ordered/s", "p50", "p99", "longest gap", "cpu"):
        table.add_column(name, justify="right", no_wrap=True)
    named = [
        *((f"ring {at}", ring) for at, ring in enumerate(result.rings, 1)),
        ("one ring alone", result.one),
    ]
    for name, ring in named:
        table.add_row(
            name,
            f"{ring.ordered_per_s:,.0f}",
            _time(statistics.median(node.p50_us for node in ring.nodes)),
            _time(max(node.p99_us for node in ring.nodes)),
            f"{max(node.longest_gap_ms for node in ring.nodes):,.1f} ms",
            f"{sum(node.cpu for node in ring.nodes):.1%}",
        )
    STDOUT.print()
    STDOUT.print(table)
    STDOUT.print()
    share = result.together_per_s / max(1.0, result.one.ordered_per_s)
    ordered = (
        f"{result.together_per_s:,.0f} messages/s on all rings, {share:.2f} times what one ring orders alone"
    )
    STDOUT.print(facts({"together": ordered}))
    for name, ring in named:
        told = ring.agreement.difference or f"one order on {name}: {ring.agreement.messages:,} messages"
        STDOUT.print(verdict(ring.good, told if not ring.lost else f"{ring.lost:,} messages lost on {name}"))


def _show(result: Result) -> None:
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for name in ("node", "sent/s", "delivered/s", "p50", "p99", "longest gap", "cpu", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    for node in result.nodes:
        table.add_row(
            str(node.node),
            f"{node.sent_per_s:,.0f}",
            f"{node.delivered_per_s:,.0f}",
            _time(node.p50_us),
            _time(node.p99_us),
            f"{node.longest_gap_ms:,.1f} ms",
            f"{node.cpu:.1%}",
            f"{node.rss_mb[0]:.0f} → {node.rss_mb[1]:.0f} MB",
        )
    STDOUT.print()
    STDOUT.print(table)
    STDOUT.print()
    plan = result.plan
    megabytes = result.delivered_per_s * plan.size / 1e6
    shown = {"throughput": f"{result.delivered_per_s:,.0f} messages/s, {megabytes:,.1f} MB/s, at each node"}
    if plan.rings > 1:
        level = "safe" if plan.safe else "agreed"
        worst = max(node.far_p99_us for node in result.nodes)
        shown["ordered"] = f"{result.ordered_per_s:,.0f} messages/s on all rings together"
        shown["across rings"] = f"{level}: p50 {_time(result.far_p50_us)}, p99 {_time(worst)}"
        shown["gateways"] = (
            f"{result.counted('forwarded'):,} bundles of messages forwarded, "
            f"{result.counted('withheld'):,} without contents"
        )
    shown["event loop"] = result.loop
    changes = {tuple(map(tuple, installed)) for installed in result.configurations.values()}
    for installed in sorted(changes):
        if installed:
            shown["configurations"] = ", then ".join(
                f"{len(members)} members ({', '.join(map(str, members))})" for members in installed
            )
    STDOUT.print(facts(shown))
    agreement = result.agreement
    same = (
        f"the same order at every node: {agreement.messages:,} messages, {agreement.blocks:,} places compared"
    )
    STDOUT.print(verdict(agreement.equal, agreement.difference or same))
    if result.lost:
        why = ": nodes lost sight of each other" if result.split else ""
        STDOUT.print(verdict(False, f"{result.lost:,} messages were taken and not delivered everywhere{why}"))


def _time(us: float) -> str:
    return f"{us:,.0f} µs" if us < 10_000 else f"{us / 1e3:,.1f} ms"
