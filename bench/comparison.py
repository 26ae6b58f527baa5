"""ordercast beside its peers: the same load, the same kind of namespaces, one after the other.

    sudo bench/compare --sizes 100,1024,8192 --seconds 5 --repeat 3 --rate-too --json
    sudo bench/compare --sizes 100 --protocols total,cm,rbp,irbp,pinwheel,dtp --no-pysyncobj

Every node sends as fast as it may. All systems take their turn in every repeat, so that whatever else the
machine does hits them alike, and the figures are medians over the repeats: only their ratios count. What is
called ordercast and no more runs its default protocol, Totem.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from peers import corosync, pysyncobj
from peers.figures import PeerMissing, Row, median_row, summed_up
from rich.console import Console
from rich.table import Table

import ordercast
from ordercast.catalogue import lab_protocol
from ordercast.measure import netns
from ordercast.measure.bench import Plan, WorkerFailed, measure

STDERR = Console(stderr=True, highlight=False)
PACED_SIZE, PACED_RATE = 1024, 1000.0
"""The load of the comparison of latencies: bytes a message, and messages/s a node."""
KILL_SECONDS = 6.0
TOKEN_MS = 200
"""corosync's token timeout where a node is killed: a fifth of its default."""

Run = Callable[[], Row]


def ours(system: str, mode: str, plan: Plan) -> Row:
    """One run of ordercast."""
    result = measure(plan)
    if not result.good:
        STDERR.print(
            f"[bold red]✗[/] {system}: {result.agreement.difference or f'{result.lost} messages lost'}"
        )
    nodes = [
        {
            "delivered_per_s": node.delivered_per_s,
            "sent_per_s": node.sent_per_s,
            "p50_us": node.p50_us,
            "p99_us": node.p99_us,
            "longest_gap_ms": node.longest_gap_ms,
        }
        for node in result.nodes
    ]
    cpu = sum(node.cpu for node in result.nodes) / len(result.nodes)
    extra = {"cpu": cpu, "order_equal": result.good, "loop": result.loop}
    return {"system": system, "size": plan.size, "mode": mode, **summed_up(nodes), **extra}


def runs(asked: argparse.Namespace) -> Iterator[tuple[str, Run]]:
    """All runs of one repeat, each with what to say of it."""
    nodes, seconds = asked.nodes, asked.seconds
    variants: list[tuple[str, dict[str, Any]]] = [("ordercast", {}), *_protocols(asked)]
    if asked.sealed:
        variants.append(("ordercast sealed", {"sealed": True}))
    for size in asked.sizes:
        for system, more in variants:
            plan = Plan(nodes=nodes, size=size, seconds=seconds, netns=True, **more)
            yield f"{system}, {size} B", _bound(ours, system, "flat", plan)
        for transport in asked.transports:
            told = {"size": size, "seconds": seconds, "nodes": nodes, "transport": transport}
            yield f"corosync over {transport}, {size} B", _bound(corosync.measure, **told)
        if asked.pysyncobj:
            told = {"size": size, "seconds": seconds, "nodes": nodes}
            yield f"pysyncobj, {size} B", _bound(pysyncobj.measure, **told)
    if asked.rate_too:
        yield from _paced(asked)
    if asked.kill_too:
        yield from _killing(asked)


def _protocols(asked: argparse.Namespace) -> list[tuple[str, dict[str, Any]]]:
    return [(f"ordercast {name}", {"protocol": name}) for name in asked.protocols]


def _paced(asked: argparse.Namespace) -> Iterator[tuple[str, Run]]:
    told = {"size": PACED_SIZE, "seconds": asked.seconds, "rate": PACED_RATE, "nodes": asked.nodes}
    for system, more in (("ordercast", {}), ("ordercast safe", {"safe": True}), *_protocols(asked)):
        plan = Plan(netns=True, **told, **more)
        yield f"{system}, {PACED_RATE:g} messages/s a node", _bound(ours, system, "rate", plan)
    for transport in asked.transports:
        say = f"corosync over {transport}, {PACED_RATE:g} messages/s a node"
        yield say, _bound(corosync.measure, transport=transport, **told)
    if asked.pysyncobj:
        yield f"pysyncobj, {PACED_RATE:g} messages/s a node", _bound(pysyncobj.measure, **told)


def _killing(asked: argparse.Namespace) -> Iterator[tuple[str, Run]]:
    told = {"size": PACED_SIZE, "seconds": KILL_SECONDS, "nodes": asked.nodes, "kill_one": True}
    for system, more in (("ordercast", {}), *_protocols(asked)):
        plan = Plan(netns=True, **told, **more)
        yield f"{system}, a node killed", _bound(ours, system, "kill", plan)
    for transport in asked.transports:
        run = _bound(_killed, transport=transport, token_ms=TOKEN_MS, **told)
        yield f"corosync over {transport}, a node killed", run


def _killed(**told: Any) -> Row:
    return corosync.measure(**told) | {"mode": "kill"}


def _bound(function: Callable[..., Row], *arguments: Any, **named: Any) -> Run:
    return lambda: function(*arguments, **named)


# --- from rows to the answer -------------------------------------------------------------------


def best(rows: Sequence[Row]) -> list[Row]:
    """Of each system the best of its transports, for each load."""
    found: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        load = (row["mode"], row["system"], row["size"])
        if load not in found or _better(row, found[load]):
            found[load] = row
    return sorted(found.values(), key=lambda row: (row["mode"], row["size"], row["system"]))


def _better(row: Row, other: Row) -> bool:
    match row["mode"]:
        case "rate":
            return bool(row["p50_us"] < other["p50_us"])
        case "kill":
            return bool(row["longest_gap_ms"] < other["longest_gap_ms"])
    return bool(row["delivered_per_s"] > other["delivered_per_s"])


def ratios(
    rows: Sequence[Row], of: str, mode: str = "flat", ours: str = "ordercast"
) -> dict[str, dict[str, float]]:
    """By peer and size, how many times ordercast's figure, or that of another protocol, is the other's."""
    mine = {row["size"]: row[of] for row in rows if row["system"] == ours and row["mode"] == mode}
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        system, size = row["system"], row["size"]
        if not system.startswith("ordercast") and row["mode"] == mode and size in mine and row[of]:
            found[system][str(size)] = round(mine[size] / row[of], 3)
    return dict(found)


def price(rows: Sequence[Row], variant: str, of: str, mode: str) -> dict[str, float]:
    """By size, how many times the figure of a variant is that of plain ordercast."""
    plain = {row["size"]: row[of] for row in rows if row["system"] == "ordercast" and row["mode"] == mode}
    dear = {row["size"]: row[of] for row in rows if row["system"] == variant and row["mode"] == mode}
    return {str(size): round(dear[size] / plain[size], 3) for size in dear if plain.get(size)}


def document(asked: argparse.Namespace, taken: Sequence[Row]) -> dict[str, Any]:
    """The answer for programs, from every run's figures."""
    same: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in taken:
        same[row["system"], row["size"], row["mode"], row.get("transport")].append(row)
    medians = [median_row(rows) for rows in same.values()]
    chosen = best(medians)
    equal = [row["order_equal"] for row in taken if "order_equal" in row]
    return {
        "rows": chosen,
        "ratios": ratios(chosen, "delivered_per_s"),
        "latency_ratios": ratios(chosen, "p50_us", "rate"),
        "gap_ratios": ratios(chosen, "longest_gap_ms", "kill"),
        "sealed": price(chosen, "ordercast sealed", "delivered_per_s", "flat"),
        "safe_p50": price(chosen, "ordercast safe", "p50_us", "rate"),
        "protocols": {
            name: {
                "ratios": ratios(chosen, "delivered_per_s", "flat", f"ordercast {name}"),
                "latency_ratios": ratios(chosen, "p50_us", "rate", f"ordercast {name}"),
                "gap_ratios": ratios(chosen, "longest_gap_ms", "kill", f"ordercast {name}"),
            }
            for name in asked.protocols
        },
        "order_equal": all(equal) if equal else None,
        "nodes": asked.nodes,
        "seconds": asked.seconds,
        "repeat": asked.repeat,
        "machine": machine(),
        "all": medians,
    }


def machine() -> dict[str, Any]:
    """What it was measured on."""
    model = ""
    cores = 0
    for line in _lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            model, cores = value.strip(), cores + 1
    return {
        "cores": cores,
        "processor": model,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "ordercast": ordercast.__version__,
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def show(answer: dict[str, Any]) -> None:
    """The answer for people."""
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for name in ("load", "bytes", "system", "delivered/s", "of", "p50", "p99", "longest gap", "ordercast ×"):
        table.add_column(name, justify="left" if name in ("load", "system", "of") else "right", no_wrap=True)
    compared = {
        "flat": ("flat out", answer["ratios"]),
        "rate": (f"{PACED_RATE:g}/s a node", answer["latency_ratios"]),
        "kill": ("a node killed", answer["gap_ratios"]),
    }
    for row in answer["rows"]:
        load, times = compared[row["mode"]]
        ratio = times.get(row["system"], {}).get(str(row["size"]))
        low, high = row["delivered_per_s_range"]
        table.add_row(
            load,
            str(row["size"]),
            row["system"] + (f" ({row['transport']})" if "transport" in row else ""),
            f"{row['delivered_per_s']:,.0f}",
            f"{low:,.0f} to {high:,.0f}",
            f"{row['p50_us']:,.0f} µs",
            f"{row['p99_us']:,.0f} µs",
            f"{row['longest_gap_ms']:,.0f} ms",
            "" if ratio is None else f"{ratio:.2f}",
        )
    console = Console(highlight=False)
    console.print(table)
    console.print("[bright_black]×: ordercast's delivered/s, p50 or longest gap, by the other's[/]")
    for name, found in answer["protocols"].items():
        for peer, by_size in found["ratios"].items():
            times = ", ".join(f"{ratio:.2f}× at {size} B" for size, ratio in by_size.items())
            console.print(f"{name}: delivered/s {times}, of {peer}'s")
    if answer["order_equal"]:
        console.print("[bold green]✓[/] ordercast delivered in the same order at every node, in every run")
    elif answer["order_equal"] is False:
        console.print("[bold red]✗[/] ordercast lost or reordered messages")


# --- asking ------------------------------------------------------------------------------------


def _sizes(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _names(text: str) -> list[str]:
    try:
        return [lab_protocol(name).name for name in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    told = argparse.ArgumentParser(prog="bench/compare", description=(__doc__ or "").splitlines()[0])
    told.add_argument(
        "--sizes", type=_sizes, default=[100, 1024, 8192], help="bytes a message: 100,1024,8192"
    )
    told.add_argument("--seconds", type=float, default=5.0, help="under load, a run")
    told.add_argument("--repeat", type=int, default=3, help="how often; figures are medians")
    told.add_argument("--nodes", type=int, default=3)
    told.add_argument(
        "--rate-too", action="store_true", help="also at 1000 messages/s a node of 1 KB: latency"
    )
    told.add_argument("--kill-too", action="store_true", help="also with a node killed halfway: the gap")
    told.add_argument(
        "--protocols",
        type=_names,
        default=[],
        help="also ordercast with these protocols: total,cm,rbp,irbp,pinwheel,dtp,primary-backup",
    )
    told.add_argument("--sealed", action="store_true", help="also ordercast with a group key")
    told.add_argument("--no-pysyncobj", dest="pysyncobj", action="store_false", help="leave PySyncObj out")
    told.add_argument("--no-corosync", dest="corosync", action="store_false", help="leave corosync out")
    told.add_argument(
        "--transports",
        type=lambda text: text.split(","),
        default=list(corosync.TRANSPORTS),
        help="of corosync, of which the best counts: udp,udpu,knet",
    )
    told.add_argument("--plots", type=Path, metavar="DIR", help="draw the figures, as SVG, into DIR")
    told.add_argument("--json", action="store_true", help="print one JSON object to stdout")
    return told


def take(asked: argparse.Namespace) -> list[Row]:
    """Run everything; a system that fails is said to have failed, and the rest goes on."""
    taken: list[Row] = []
    for repeat in range(1, asked.repeat + 1):
        for say, run in runs(asked):
            STDERR.print(f"[bright_black]{repeat} of {asked.repeat}[/] {say} … ", end="")
            try:
                row = run()
            except (PeerMissing, WorkerFailed, RuntimeError) as error:
                STDERR.print(f"[bold red]failed[/]: {error}", soft_wrap=True)
                continue
            STDERR.print(
                f"{row['delivered_per_s']:,.0f} delivered/s, p50 {row['p50_us']:,.0f} µs, "
                f"longest gap {row['longest_gap_ms']:,.0f} ms"
            )
            taken.append(row)
    return taken


def main() -> None:
    """Ask, run, answer."""
    asked = parser().parse_args()
    reason = netns.missing()
    if reason is not None:
        sys.exit(f"error: {reason.partition(':')[0]}, as the peers are measured in them: run it with sudo")
    for name, peer in (("corosync", corosync), ("pysyncobj", pysyncobj)):
        why = peer.missing() if getattr(asked, name) else None
        if why is not None:
            STDERR.print(f"[yellow]{why}[/]")
            setattr(asked, name, False)
    if not asked.corosync:
        asked.transports = []
    taken = take(asked)
    if not taken:
        sys.exit("error: nothing could be measured")
    answer = document(asked, taken)
    if asked.plots is not None:
        from plots import draw

        for path in draw(answer, asked.plots):
            STDERR.print(f"drawn: {path}")
    if asked.json:
        print(json.dumps(answer))
    else:
        show(answer)
    sys.exit(0 if answer["order_equal"] is not False else 1)


if __name__ == "__main__":
    main()
