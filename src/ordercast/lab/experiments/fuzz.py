"""The fuzzer over executors: seeds by the hundred thousand, each a group tortured and judged.

A run of this experiment is a block of `BLOCK` seeds that begins at a multiple of it. What comes of a block
depends on its seeds alone, so that the sum is the same however blocks are packed, in whatever order they
come, and whoever was killed on the way. A seed that fails comes back as the command that replays it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.catalogue import lab_protocol as protocol_called
from ordercast.lab.experiment import Claim, Experiment, Figure, Sizes, Table
from ordercast.lab.grid import GridError, Method, Outcome, Run
from ordercast.sim.campaign import Campaign, Totals, run_seed
from ordercast.trace.writer import TraceWriter

if TYPE_CHECKING:
    from ordercast.lab.frames import Frames

BLOCK = 20
"""Seeds of a run: a few seconds of work."""
SEEDS = range(1000)
NODES = (2, 7)
MOST_SHOWN = 50
"""Failures listed on the page; ``--json`` has all."""
_SEED_S = 0.3
"""What a seed takes, about."""


# --- one block ----------------------------------------------------------------------------------


def conduct(run: Run, trace: TraceWriter | None = None) -> Outcome:
    """Run the seeds of a block and add up what came of them."""
    campaign = campaign_of(run)
    totals = Totals()
    for seed in campaign.seeds:
        totals.add(run_seed(campaign, protocol_called, seed))
    return Outcome(
        figures={
            "runs": float(totals.runs),
            "violations": float(totals.violations),
            "not_converged": float(totals.not_converged),
            "failures": float(len(totals.failures)),
            "events": float(totals.events),
            "receptions": float(totals.receptions),
            "rows": float(totals.rows),
            **{f"property/{code}": float(totals.properties[code]) for code in sorted(totals.properties)},
            **{f"coverage/{name}": float(totals.coverage[name]) for name in sorted(totals.coverage)},
        },
        notes=[
            f"seed {seed}: {totals.failures[seed].property}: {totals.failures[seed].sentence}"
            for seed in sorted(totals.failures)
        ],
    )


def campaign_of(run: Run) -> Campaign:
    """The seeds of a block, as the fuzzer knows them."""
    count, fewest = run.labels["seeds"], run.labels["fewest"]
    assert isinstance(count, int)
    assert isinstance(fewest, int)
    return Campaign(protocol=run.protocol, nodes=(fewest, run.nodes), seeds=range(run.seed, run.seed + count))


def cost(run: Run) -> float:
    """Seconds of one processor."""
    seeds, fewest = run.labels["seeds"], run.labels["fewest"]
    assert isinstance(seeds, int)
    assert isinstance(fewest, int)
    return seeds * _SEED_S * (fewest + run.nodes) / sum(NODES)


def check(run: Run) -> None:
    """Raise GridError if the protocol or the group sizes are none."""
    try:
        protocol_called(run.protocol)
    except ValueError as error:
        raise GridError(str(error)) from error
    if not isinstance(run.labels.get("seeds"), int) or not isinstance(run.labels.get("fewest"), int):
        raise GridError("a block of seeds says how many they are, and the fewest nodes (labels)")


METHOD = Method(conduct, cost, check, traces=False)


def blocks(protocol: str, seeds: range, nodes: tuple[int, int]) -> list[Run]:
    """The seeds in blocks that begin at multiples of `BLOCK`, as far as they are asked for."""
    found = []
    for first in range(seeds.start // BLOCK * BLOCK, seeds.stop, BLOCK):
        begin, end = max(first, seeds.start), min(first + BLOCK, seeds.stop)
        found.append(
            Run(
                protocol=protocol,
                nodes=nodes[1],
                seed=begin,
                labels={"seeds": end - begin, "fewest": nodes[0]},
                method=__name__,
            )
        )
    return found


# --- the experiment -----------------------------------------------------------------------------


def campaign(protocol: str, seeds: range = SEEDS, nodes: tuple[int, int] | None = None) -> Experiment:
    """The experiment that fuzzes one protocol, in groups of the usual sizes if `nodes` are not said."""
    if protocol not in LAB_PROTOCOLS:
        raise GridError(f"no protocol {protocol!r}; there are {', '.join(LAB_PROTOCOLS)}")
    between = nodes or LAB_PROTOCOLS[protocol].nodes
    fewest, most = between

    def grid(quick: bool) -> list[Run]:
        return blocks(protocol, seeds[: 2 * BLOCK] if quick else seeds, between)

    def replay(seed: int) -> str:
        return Campaign(protocol=protocol, nodes=between, seeds=seeds).replay(seed)

    def failures(frames: Frames) -> list[dict[str, Any]]:
        found = []
        for note in frames.notes:
            head, code, sentence = note.split(": ", 2)
            seed = int(head.removeprefix("seed "))
            found.append({"seed": seed, "property": code, "sentence": sentence, "replay": replay(seed)})
        return sorted(found, key=lambda each: each["seed"])

    def tables(frames: Frames) -> list[Table]:
        failed = failures(frames)
        shown = [
            Table(
                title="What happened, and how often",
                columns=("event", "times"),
                rows=[(name, f"{count:,.0f}") for name, count in _part(frames.total, "coverage/").items()],
                note="Of what is listed with 0, the fuzzer should have made it happen, and did not.",
            )
        ]
        if failed:
            rows = [
                (each["replay"], each["property"], each["sentence"][:200]) for each in failed[:MOST_SHOWN]
            ]
            title = f"Seeds that failed: {len(failed):,}"
            shown.insert(0, Table(title=title, columns=("replay", "property", "what happened"), rows=rows))
        return shown

    def answer(frames: Frames) -> dict[str, Any]:
        total = frames.total
        counts = ("runs", "violations", "not_converged", "events", "receptions", "rows")
        return {
            "protocol": protocol,
            **{name: int(total[name]) for name in counts},
            "properties": {name: int(count) for name, count in _part(total, "property/").items()},
            "coverage": {name: int(count) for name, count in _part(total, "coverage/").items()},
            "failures": failures(frames),
        }

    return Experiment(
        name=f"fuzz-{protocol}",
        title=f"Fuzzing {protocol}: {len(seeds):,} seeds",
        about=(
            f"From each seed a group of {fewest} to {most} nodes, a network, settings, a load and faults. "
            "Safety is judged over the whole run. Then faults stop, and those that are up have to become one "
            "configuration and deliver everything.",
        ),
        grid=grid,
        claims=_claims,
        figures=_figures,
        tables=tables,
        answer=answer,
        strict=True,
        resize=resize,
    )


def resize(sizes: Sizes) -> Experiment:
    """The campaign that was asked for."""
    protocols = sizes.protocols or ("totem",)
    if len(protocols) != 1:
        raise GridError("fuzz takes one protocol at a time")
    return campaign(protocols[0], sizes.seeds or SEEDS, sizes.nodes)


def _claims(frames: Frames) -> list[Claim]:
    total = frames.total
    broken = {name: count for name, count in _part(total, "property/").items() if count}
    told = ", ".join(f"{name} in {count:,.0f}" for name, count in sorted(broken.items()))
    runs = f"{total['runs']:,.0f} runs, {total['events']:,.0f} events"
    return [
        Claim(
            says="No guarantee is broken, no machine raises, no payload is damaged",
            where="the protocol's own promises",
            measured=f"{runs}: {told or 'nothing broken'}",
            holds=not total["violations"],
        ),
        Claim(
            says="Once faults stop, the nodes that are up become one configuration",
            where="the protocol's own promises",
            measured=f"{total['not_converged']:,.0f} of {total['runs']:,.0f} runs did not",
            holds=not total["not_converged"],
        ),
    ]


def _figures(frames: Frames) -> list[Figure]:
    """How often the fuzzer made happen what it has to."""
    import matplotlib.pyplot as plt

    from ordercast.lab.figures import COLOURS, style

    seen = [(name, count) for name, count in _part(frames.total, "coverage/").items() if " -> " not in name]
    seen.sort(key=lambda each: each[1])
    if not seen:
        return []
    with style():
        drawing, axes = plt.subplots(figsize=(7.4, 0.9 + 0.26 * len(seen)))
        axes.barh([name for name, _ in seen], [max(count, 0.7) for _, count in seen], color=COLOURS[0])
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, place: f"{value:,.0f}")
        axes.grid(axis="y", visible=False)
        for place, (_, count) in enumerate(seen):
            axes.annotate(
                f"{count:,.0f}" if count else "never",
                (max(count, 0.7), place),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color="#333333" if count else COLOURS[3],
            )
        axes.set_xlim(left=0.5)
        axes.set_xlabel("times, over all runs")
        plt.close(drawing)
    caption = "Changes of state are in the table below."
    return [Figure(name="coverage", title="What the fuzzer made happen", caption=caption, drawing=drawing)]


def _part(total: dict[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in total.items() if name.startswith(prefix)}


EXPERIMENT = Experiment(
    name="fuzz",
    title="The fuzzer over executors",
    source="sim fuzz, for very many seeds; takes --protocol, --seeds and --nodes",
    grid=lambda quick: campaign("totem").grid(quick),
    strict=True,
    resize=resize,
)
