"""``ordercast sim run``: a group under load, measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ordercast.catalogue import lab_protocol as protocol_called
from ordercast.cli import options
from ordercast.cli.audit import show_violations, verdict_of
from ordercast.cli.options import Json, Packets, ProtocolName, Seed, Settings, TraceDirectory
from ordercast.cli.screen import STDOUT, Code, answer, blaming, counting, facts, verdict
from ordercast.draw.words import duration
from ordercast.sim.campaign import trace_name
from ordercast.sim.experiment import MOST_AUDITED, WARM_UP_US, Experiment, Figures, check_size, conduct
from ordercast.sim.faults import Fault
from ordercast.sim.network import NetworkConfig, preset
from ordercast.sim.workload import Workload
from ordercast.trace.metrics import Latency


class Arrivals(StrEnum):
    """When messages come, as in `ordercast.sim.workload`."""

    POISSON = "poisson"
    DETERMINISTIC = "deterministic"
    SATURATING = "saturating"


def run(
    protocol: ProtocolName = "totem",
    nodes: Annotated[int, typer.Option(min=1, max=options.MOST_NODES, help="How many nodes.")] = 5,
    seconds: Annotated[
        float, typer.Option(help="Virtual time under load, after one second in which the group forms.")
    ] = 10.0,
    rate: Annotated[float, typer.Option(help="Messages per second, of all nodes together.")] = 200.0,
    size: Annotated[
        str, typer.Option(metavar="BYTES|FROM:TO", help="Of a message; a range is drawn from uniformly.")
    ] = "1000",
    arrivals: Annotated[
        Arrivals, typer.Option(help="When messages come; saturating: always, whatever --rate says.")
    ] = Arrivals.POISSON,
    network: Annotated[
        str, typer.Option(metavar="NAME", help="lan, lossy, ethernet10, ethernet100 or nodes.")
    ] = "lan",
    safe: Annotated[float, typer.Option(min=0, max=1, help="Share of messages sent as safe.")] = 0.0,
    levels: Annotated[
        float, typer.Option(min=0, max=1, help="Share of messages sent at random levels of resilience.")
    ] = 0.0,
    seed: Seed = 0,
    trace: TraceDirectory = None,
    packets: Packets = False,
    loss: Annotated[
        float | None, typer.Option(min=0, max=1, help="Probability that a reception is lost.")
    ] = None,
    net: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A field of the network; may be repeated.")
    ] = None,
    settings: Settings = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(metavar="'at 3s crash 2'", help="A fault, as in scenario files; may be repeated."),
    ] = None,
    faults: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, metavar="FILE", help="Faults, a line each.")
    ] = None,
    audit: Annotated[bool, typer.Option(help="Check every guarantee at the end.")] = True,
    json: Json = False,
) -> None:
    """Simulate a group under load and measure it.

    The group has one second of virtual time to form; then the load begins and --seconds counts. Figures
    are of the time under load; times of faults count from the very start. Exit code 1 if the audit finds
    a violation.
    """
    with blaming("--protocol"):
        chosen = protocol_called(protocol)
    if levels and not chosen.product.levels:
        raise typer.BadParameter(f"{protocol} has no levels of resilience", param_hint="--levels")
    with blaming("--set"):
        values = options.fields(settings or ())
        chosen.make(values)
    experiment = Experiment(
        nodes=nodes,
        seconds=_positive("--seconds", seconds),
        network=_network(network, net or (), loss),
        workload=_workload(str(arrivals), rate, size, safe, levels),
        settings=values,
        seed=seed,
        faults=_faults(nodes, fault or (), faults),
        packets=packets,
        audited=audit,
    )
    with blaming("--size"):
        check_size(chosen, experiment)
    with blaming("--trace"):
        name = trace_name(protocol, seed)
        writer = None
        if trace is not None:
            from ordercast.trace.writer import TraceWriter  # loads Arrow, of an extra

            writer = TraceWriter(trace, name, chosen.heading)
    with writer or nullcontext(), counting("simulating ms", experiment.end_us // 1000) as bar:
        figures = conduct(chosen, experiment, trace=writer, step=lambda now_us: bar.at(now_us // 1000))
    if json:
        answer({"protocol": protocol, "network": network, **figures.as_dict()})
    else:
        _show(protocol, network, figures)
        if writer is not None:
            STDOUT.print(f"trace: {', '.join(map(str, writer.files))}")
    raise typer.Exit(Code.FAILED if figures.clean is False else Code.OK)


def _positive(option: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise typer.BadParameter(f"{value:g} is no number above 0", param_hint=option)
    return value


def _network(name: str, changes: Iterable[str], loss: float | None) -> NetworkConfig:
    with blaming("--network"):
        preset(name)
    with blaming("--net"):
        fields = options.fields(changes)
        return preset(name, fields if loss is None else {**fields, "loss": loss})


def _workload(arrivals: str, rate: float, size: str, safe: float, levels: float) -> Workload:
    with blaming("--size"):
        least, most = options.sizes(size)
        Workload(size=least, size_to=most)
    with blaming("--rate"):
        return Workload(
            arrivals=arrivals,  # type: ignore[arg-type]
            rate=rate,
            size=least,
            size_to=most,
            safe=safe,
            levels=levels,
        )


def _faults(nodes: int, lines: Iterable[str], file: Path | None) -> tuple[Fault, ...]:
    members = range(1, nodes + 1)
    with blaming("--fault"):
        found = options.faults(lines, members)
    if file is not None:
        with blaming("--faults"):
            found += options.faults(file.read_text(encoding="utf-8").splitlines(), members, str(file))
    return found


# --- for people --------------------------------------------------------------------------------


def _show(protocol: str, network: str, figures: Figures) -> None:
    experiment, metrics = figures.experiment, figures.metrics
    load = experiment.workload
    rate = "as much as there is room for" if load.arrivals == "saturating" else f"{load.rate:g} messages/s"
    size = f"{load.size}" if load.size_to is None else f"{load.size} to {load.size_to}"
    STDOUT.print(
        f"[bold]{protocol}[/], {experiment.nodes} nodes on {network}, {rate} ({load.arrivals}) of {size} "
        f"bytes, {load.safe:.0%} safe, {experiment.seconds:g} s after {WARM_UP_US // 1_000_000} s to form"
    )
    STDOUT.print()
    STDOUT.print(facts(_figures(figures)))
    STDOUT.print()
    if metrics.from_submit:
        STDOUT.print(_latencies(figures))
        STDOUT.print()
    for damage in figures.corrupt:
        STDOUT.print(f"[bold red]corrupt[/]: {damage}")
    _show_verdict(figures)


def _figures(figures: Figures) -> dict[str, str]:
    metrics, experiment = figures.metrics, figures.experiment
    document = figures.as_dict()
    per_s, bytes_per_s = document["ordered_per_s"], document["bytes_per_s"]
    rotation = figures.rotation_us
    shown = {
        "messages": f"{metrics.submitted:,} submitted, {metrics.ordered:,} ordered",
        "delivered": f"{metrics.delivered:,} times, at {experiment.nodes} nodes",
        "throughput": f"{per_s:,.1f} messages/s, {bytes_per_s / 1e6:,.3f} MB/s",
        "configurations": f"{metrics.regular:,} regular, {metrics.transitional:,} transitional",
    }
    if rotation is not None:
        shown["token rotation"] = (
            f"{duration(round(rotation['mean']))}, at most {duration(int(rotation['max']))}"
        )
    if figures.utilization is not None:
        shown["medium in use"] = f"{figures.utilization:.1%} of the time"
    if figures.waited_us >= 1:
        shown["wait for room"] = f"{duration(round(figures.waited_us))} on average, before being submitted"
    shown |= {
        "drops": _counts(figures.drops),
        "refused": _counts(figures.refused),
        "simulator": f"{document['receptions']:,} receptions in {sum(document['took_s'].values()):.2f} s: "
        f"{document['receptions_per_s']:,.0f}/s",
    }
    return {name: value for name, value in shown.items() if value}


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(counts.items()))


def _latencies(figures: Figures) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for name in ("latency", "mean", "p50", "p99", "max", "deliveries"):
        table.add_column(name, justify="left" if name == "latency" else "right")
    sources = (
        ("from submit", figures.metrics.from_submit),
        ("from broadcast", figures.metrics.from_originate),
    )
    for guarantee in figures.metrics.from_submit:
        for since, latencies in sources:
            if guarantee in latencies:
                table.add_row(f"{guarantee}, {since}", *_latency(latencies[guarantee]))
    return table


def _latency(latency: Latency) -> tuple[str, ...]:
    times = (round(latency.mean_us), latency.p50_us, latency.p99_us, latency.max_us)
    return (*map(duration, times), f"{latency.count:,}")


def _show_verdict(figures: Figures) -> None:
    if figures.report is not None:
        show_violations(figures.report.violations)
        STDOUT.print(verdict_of(figures.report, f"{figures.report.events:,} events"))
    elif figures.experiment.audited:
        STDOUT.print(f"not audited: more than {MOST_AUDITED:,} events; keep a --trace and audit that")
    if figures.corrupt:
        STDOUT.print(verdict(False, "messages were damaged on their way"))
