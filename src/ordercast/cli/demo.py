"""``ordercast sim demo``: a group of five through a crash, a partition and a remerge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ordercast.audit.properties import audit
from ordercast.catalogue import LabProtocol
from ordercast.catalogue import lab_protocol as protocol_called
from ordercast.cli import options
from ordercast.cli.audit import show_violations, verdict_of
from ordercast.cli.options import ProtocolName
from ordercast.cli.screen import STDOUT, Code, blaming, counting, refuse
from ordercast.draw import svg
from ordercast.draw.spacetime import timeline_of
from ordercast.draw.terminal import Drawing
from ordercast.sim.experiment import WARM_UP_US, Experiment, conduct
from ordercast.sim.network import preset
from ordercast.sim.notes import notes
from ordercast.sim.workload import Workload
from ordercast.trace.reader import read_runs
from ordercast.trace.writer import TraceWriter

NODES = 5
FAULTS = (
    "at 1500ms crash 5",
    "at 2200ms restart 5",
    "at 2800ms partition 1 2 | 3 4 5",
    "at 3400ms heal",
)
NEXT = """\
[bold]What to try next[/]
  ordercast audit {trace}
      check the trace again; it is Parquet, one row an event, for any tool to read
  ordercast sim run --nodes 5 --network ethernet10 --arrivals saturating --size 1024
      measure a group: throughput, latency, token rotation
  ordercast sim fuzz --seeds 0:200
      two hundred groups under random faults, audited
  ordercast sim replay --seed 7
      the story of one of them"""


def demo(
    directory: Annotated[
        Path, typer.Option("--dir", file_okay=False, help="Where the trace and the drawing go.")
    ] = Path("build/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another run.")] = 7,
    protocol: ProtocolName = "totem",
) -> None:
    """Simulate a group of five through a crash, a partition and a remerge; draw it and audit it."""
    with blaming("--protocol"):
        chosen = protocol_called(protocol)
    experiment = Experiment(
        nodes=NODES,
        seconds=3.0,
        network=preset("lan", {"loss": 0.01}),
        workload=Workload(rate=400.0, size=20, size_to=2_000, safe=0.3),
        seed=seed,
        faults=options.faults(FAULTS, range(1, NODES + 1)),
        audited=False,
    )
    STDOUT.print(
        f"Five nodes form a group, ordered by {protocol}, on a network that loses 1% of its packets. From "
        f"{WARM_UP_US // 1000:,} ms on they send 400 messages a second in all, 30% of them safe."
    )
    try:
        files = _simulate(chosen, experiment, directory / "trace")
    except OSError as error:
        refuse(f"{directory} cannot be written ({error.strerror}): name another place with --dir")
    (_, rows), *_ = read_runs(files[0])
    story, told = timeline_of(rows), notes(experiment.faults, ())
    STDOUT.print()
    STDOUT.print(Drawing(story, told))
    drawing = directory / "demo.svg"
    drawn = svg.draw(story, told, title="A group of five: a crash, a partition and a remerge")
    drawing.write_text(drawn, encoding="utf-8")
    report = audit(rows, None, chosen.checks, one_clock=True)
    STDOUT.print()
    show_violations(report.violations)
    STDOUT.print(verdict_of(report, f"{report.events:,} events, read back from the trace,"))
    STDOUT.print()
    STDOUT.print(f"trace    {escape(str(files[0]))}", soft_wrap=True)
    STDOUT.print(f"drawing  {escape(str(drawing))}", soft_wrap=True)
    STDOUT.print()
    STDOUT.print(NEXT.format(trace=escape(str(directory / "trace"))), soft_wrap=True)
    raise typer.Exit(Code.OK if report.clean else Code.FAILED)


def _simulate(protocol: LabProtocol, experiment: Experiment, directory: Path) -> list[Path]:
    """Run it and write its trace; answers with the files."""
    with (
        TraceWriter(directory, "demo", protocol.heading) as writer,
        counting("simulating ms", experiment.end_us // 1000) as bar,
    ):
        conduct(protocol, experiment, trace=writer, step=lambda now_us: bar.at(now_us // 1000))
    return writer.paths
