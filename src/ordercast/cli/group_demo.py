"""``ordercast demo``: a group of real processes through a crash and a stop, and the proof of its order."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ordercast.audit.explain import Report
from ordercast.audit.files import audit_trace
from ordercast.cli.audit import Engine, show_violations, verdict_of
from ordercast.cli.member import fail
from ordercast.cli.options import FEWEST_OF_A_VIEW, Json, ProtocolName
from ordercast.cli.screen import STDERR, STDOUT, Code, answer, blaming, facts, refuse, verdict
from ordercast.core.identity import NodeId
from ordercast.demo.processes import Process, State
from ordercast.demo.run import DemoRun, Plan, Result, Step, counted, written
from ordercast.draw.words import duration
from ordercast.draw.words import nodes as listed
from ordercast.errors import OrdercastError
from ordercast.extras import need
from ordercast.measure.agreement import CommonDigests, ConfigurationOrder, MemberOrder
from ordercast.measure.rings import in_a_line
from ordercast.protocols import protocol as protocol_called
from ordercast.runtime.ring_settings import RINGS

MOST_NODES = 9
"""A laptop has no more to give: each node is a process, and has to be scheduled in time."""
MOST_MESSAGES = 200_000
"""More would take the audit at the end too long."""
RINGS_SHOWN = 3
REDRAW_S = 0.12
SHOWN = 8
"""Characters of a digest that are shown."""
COLOURS = {State.RUNNING: "green", State.STOPPED: "yellow", State.KILLED: "red"}
NEXT = """\
[bold]What to try next[/]
  a group of your own, in three terminals
      [cyan]{me} node --clients 127.0.0.1:4222[/]
      [cyan]{me} listen chat[/]
      [cyan]{me} send chat hello[/]
  how fast a group is on this machine, its order checked at that speed
      [cyan]{me} bench --nodes 3[/]
  two hundred simulated groups under random faults, audited
      [cyan]{me} sim fuzz --seeds 0:200[/]
  four protocols compared, on Spark, with a report to look at
      [cyan]{me} lab run dtp --quick[/]"""


def demo(
    nodes: Annotated[
        int | None,
        typer.Option(min=2, max=MOST_NODES, help="How many nodes, a process each. [default: 5]"),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.5, max=3600, help="How long messages flow, beside what the changes take.")
    ] = 12.0,
    rate: Annotated[
        float | None,
        typer.Option(min=1, max=10_000, help="Messages/s that each node sends. [default: 200]"),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", file_okay=False, help="Where data, logs and trace go. [default: a temporary directory]"
        ),
    ] = None,
    protocol: ProtocolName = "totem",
    rings: Annotated[
        bool,
        typer.Option(
            "--rings",
            help="Three rings joined by gateways, one of which is killed. --nodes is 9, --rate 50 then.",
        ),
    ] = False,
    engine: Annotated[
        Engine, typer.Option(help="Which auditor: the reference starts at once, Spark in some seconds.")
    ] = Engine.REFERENCE,
    json: Json = False,
) -> None:
    """Run a group of real processes on this machine; kill one, stop one, and prove the order.

    Messages flow all the while. At the end the order at every node is compared, and the trace that the
    nodes wrote is audited. Takes half a minute and needs no rights. Exit code 1 if an order differs or the
    audit finds something.
    """
    if rings:
        protocol = RINGS
    nodes = nodes or (9 if rings else 5)
    rate = rate or (50.0 if rings else 200.0)  # what is sent on one ring goes to all of them
    with blaming("--nodes"):
        in_a_line(nodes, RINGS_SHOWN if rings else 1)
    if nodes * rate * seconds > MOST_MESSAGES:
        refuse(
            f"{nodes * rate * seconds:,.0f} messages are too many to be audited at the end: choose --seconds "
            f"and --rate so that the nodes send at most {MOST_MESSAGES:,} together"
        )
    with blaming("--protocol"):
        chosen = protocol_called(protocol)
    if chosen.primary_partition and nodes < FEWEST_OF_A_VIEW:
        refuse(
            f"{protocol} goes on with a majority only, which one of {nodes} nodes is not: choose --nodes "
            f"{FEWEST_OF_A_VIEW} or more"
        )
    place = _place(directory)
    view = LiveView(STDERR if json else STDOUT, nodes, protocol)
    plan = Plan(nodes=nodes, seconds=seconds, rate=rate, protocol=protocol, rings=RINGS_SHOWN if rings else 1)
    run = DemoRun(plan, place, view)
    try:
        with _interruptible():
            with view:
                run.perform()
                view.begins(Step("proof", "What they delivered is compared, and their trace is audited"))
            result = run.judge(_on_spark if engine is Engine.SPARK else audit_trace)
    except KeyboardInterrupt:
        where = escape(str(place))
        STDERR.print(f"interrupted: no process is left; data and logs are in {where}", soft_wrap=True)
        raise typer.Exit(Code.INTERRUPTED) from None
    except OrdercastError as error:
        fail(str(error))
    if json:
        answer({**result.as_dict(), "dir": str(place)})
    else:
        _prove(result, place)
    raise typer.Exit(Code.OK if result.good else Code.FAILED)


def _on_spark(trace: Path) -> Report:
    need("spark", "--engine spark")
    from ordercast.audit.spark import audit_on_spark
    from ordercast.spark.sessions import spark_session

    with spark_session("demo") as spark:
        return audit_on_spark(spark, trace)


def _place(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="ordercast-demo-"))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        used = any(directory.iterdir())
    except OSError as error:
        refuse(f"{directory} cannot be used ({error.strerror}): name another place with --dir")
    if used:
        refuse(f"{directory} is not empty: name a new directory with --dir, or leave it out")
    return directory.absolute()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Being told to end is the same as Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# --- while it runs ------------------------------------------------------------------------------


class LiveView:
    """What people see meanwhile: steps as they come, and on a terminal the nodes below them, live."""

    def __init__(self, console: Console, nodes: int, protocol: str) -> None:
        self._console = console
        self._steps = 0
        self._run: DemoRun | None = None
        self._drawn = 0.0
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(console=console, auto_refresh=False, transient=True)
        self._say(
            f"[bold]{counted(nodes)} nodes[/] on this machine, a process each, sealed with a new key; "
            f"[bold]{protocol}[/] orders their messages."
        )

    def _say(self, text: str, indent: int = 0) -> None:
        if self._live is None:
            self._console.print(" " * indent + text, soft_wrap=True)
        else:
            self._console.print(Padding.indent(text, indent))

    def __enter__(self) -> LiveView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def begins(self, step: Step) -> None:
        """Print the step's caption."""
        self._steps += 1
        self._say(f"\n[bold cyan]{self._steps}[/]  [bold]{escape(step.caption)}[/]")

    def ends(self, step: Step) -> None:
        """Print what came of the step."""
        pause = f"; longest pause {written(step.gap_s)}" if step.gap_s else ""
        self._say(f"[green]✓[/] {escape(step.outcome)}[bright_black]{pause}[/]", indent=3)
        if self._live is None and self._run is not None:
            for line in _news(self._run, self._run.common()):
                self._say(line, indent=3)

    def look(self, run: DemoRun) -> None:
        """Draw, if it is time to."""
        self._run = run
        now = time.monotonic()
        if self._live is not None and now - self._drawn > REDRAW_S:
            self._drawn = now
            self._live.update(_scene(run), refresh=True)


def _scene(run: DemoRun) -> RenderableType:
    common = run.common()
    table = Table(box=None, pad_edge=False, header_style="bright_black", padding=(0, 2, 0, 0))
    table.add_column("node", justify="right")
    table.add_column("state", min_width=8)
    table.add_column("sees")
    for name, width in (("sent", 6), ("delivered", 9), ("per s", 6), ("rotation", 8)):
        table.add_column(name, justify="right", min_width=width, no_wrap=True)
    table.add_column("order digest", min_width=SHOWN, no_wrap=True)
    for node in run.processes.nodes:
        process = run.processes.by_node.get(node)
        if process is None:
            table.add_row(str(node), "[bright_black]-[/]")
            continue
        digest = common.digests.get(node) if common is not None else None
        table.add_row(*_row(process, run.processes.nodes, digest, common is None or common.same))
    return Group(Text(), table, Text(), *map(Text.from_markup, _news(run, common)))


def _row(process: Process, everyone: tuple[NodeId, ...], digest: str | None, same: bool) -> list[str]:
    report, state = process.last, process.state
    colour = COLOURS.get(state, "bright_black")
    cells = [str(process.node), f"[{colour}]{state}[/]"]
    if report is None:
        return cells
    there = state is State.RUNNING
    seen = _seen(report.members, everyone)
    cells += [
        seen if there else f"[bright_black]{seen}[/]",
        f"{report.sent:,}",
        f"{report.delivered:,}",
        f"{process.rate:,.0f}" if there else "",
        duration(round(report.rotation_us)) if there and report.rotation_us is not None else "",
        f"[{'green' if same else 'bold red'}]{digest[:SHOWN]}[/]" if digest is not None else "",
    ]
    return cells


def _seen(members: tuple[NodeId, ...], everyone: tuple[NodeId, ...]) -> str:
    """Each in its place, so that one sees who is missing."""
    between = " " if len(everyone) < 7 else ""
    return between.join(str(node) if node in members else "·" for node in everyone)


def _news(run: DemoRun, common: CommonDigests | None) -> Iterator[str]:
    """How the nodes compare, and who is slow."""
    if common is not None and len(common.digests) > 1:
        who, digest = listed(common.digests), next(iter(common.digests.values()))[:SHOWN]
        if common.same:
            yield f"[green]✓[/] the same order at {who}: [green]{digest}[/], {common.messages:,} messages"
        else:
            yield f"[bold red]✗ the order differs between the nodes {who}[/]"
    named: Counter[NodeId] = Counter()
    waits: dict[NodeId, float] = {}
    for process in run.processes.by_node.values():
        report = process.last
        if process.state is State.RUNNING and report is not None and report.slow is not None:
            named[report.slow] += 1
            waits[report.slow] = max(report.waits_us, waits.get(report.slow, 0.0))
    for node, _ in named.most_common(1):
        waited = duration(round(waits[node]))
        yield f"[bright_black]the slowest is node {node}, where the token waited {waited}[/]"


# --- what it proves -----------------------------------------------------------------------------


def _prove(result: Result, place: Path) -> None:
    def say(what: RenderableType = "") -> None:
        STDOUT.print(what, soft_wrap=isinstance(what, str) and not STDOUT.is_terminal)

    say("   a digest over all that a node delivered, configuration by configuration")
    say()
    say(_pages(result))
    say()
    total = sum(page.messages for page in result.order)
    same = f"the same order at every node: {total:,} messages in {len(result.order)} configurations"
    say(verdict(result.order_equal, same if result.order_equal else "the order differs, where it is red"))
    for page in result.order:
        for entry in page.entries:
            if entry.same and entry.how != "to its end":
                say(f"  [bright_black]{_apart(page, entry)}[/]")
    show_violations(result.audit.violations)
    events = f"{result.audit.events:,} events"
    if result.audit.clean:
        kept = len(result.audit.properties) - len(result.audit.unchecked)
        say(verdict(True, f"clean: {events} in the trace that the nodes wrote, {kept} properties kept"))
    else:
        say(verdict_of(result.audit, f"{events} of the trace that the nodes wrote"))
    say()
    sent, delivered = (sum(node[name] for node in result.nodes) for name in ("sent", "delivered"))
    safe = sum(node["safe"] for node in result.nodes)
    say(
        facts(
            {
                "messages": f"{sent:,} sent, {delivered:,} delivered at the nodes, {safe:,} of them as safe",
                "took": f"{result.took_s:.0f} s",
                "kept": escape(str(place)),
            }
        )
    )
    say()
    STDOUT.print(NEXT.format(me=escape(_called())), soft_wrap=True)


def _pages(result: Result) -> Table:
    everyone = tuple(node["node"] for node in result.nodes)
    wide = STDOUT.width >= 20 + len(everyone) * (SHOWN + 2)
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    table.add_column("members")
    table.add_column("messages", justify="right")
    for node in everyone:
        table.add_column(f"node {node}" if wide else str(node), no_wrap=True)
    for page in result.order:
        cells = {entry.node: _cell(entry, wide) for entry in page.entries}
        table.add_row(
            _seen(page.members, everyone), f"{page.messages:,}", *(cells.get(node, "") for node in everyone)
        )
    return table


def _cell(entry: MemberOrder, wide: bool) -> str:
    digest = entry.digest[: SHOWN if wide else SHOWN // 2]
    if not entry.same:
        return f"[bold red]{digest} ✗[/]"
    if entry.how == "to its end":
        return f"[green]{digest}[/]"
    word = {"killed": "killed", "parted": "parted", "came later": "late"}[entry.how]
    return f"[green]✓[/] [yellow]{word}[/]" if wide else "[yellow]✓[/]"


def _apart(page: ConfigurationOrder, entry: MemberOrder) -> str:
    how = {
        "killed": f"node {entry.node} was killed: compared are its first",
        "parted": f"node {entry.node} was stopped or cut off: compared are its first",
        "came later": f"node {entry.node} came later: compared are its last",
    }[entry.how]
    return f"{how} {entry.messages:,} of these {page.messages:,}"


def _called() -> str:
    """How this command was called, so that what is printed can be typed."""
    called = Path(sys.argv[0])
    found = shutil.which("ordercast")
    if found is not None and called.exists() and Path(found).resolve() == called.resolve():
        return "ordercast"
    if called.name != "ordercast":
        return "ordercast"
    try:
        return str(called.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(called)
