"""The page of a campaign: what failed, what happened by protocol, fault and state, and what rarely did."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ordercast.lab.campaign.summary import FAULT, Summary
from ordercast.lab.campaign.table import Round, Smaller
from ordercast.lab.experiment import Claim, Figure, Table
from ordercast.lab.laboratory import Reported
from ordercast.lab.report import write_report
from ordercast.sim.coverage import ARROW, with_sums

if TYPE_CHECKING:
    from ordercast.lab.campaign.conduct import FuzzCampaign

MOST_SHOWN = 50
"""Failures listed on the page; the table of results has all."""


def write(
    campaign: FuzzCampaign, summary: Summary, rounds: Sequence[Round], smaller: Sequence[Smaller]
) -> Reported:
    """Write the page of a campaign, in its directory."""
    failures = _failures(summary, smaller)
    claims = _claims(summary)
    path = write_report(
        campaign.store.directory,
        title=f"Fuzzing {', '.join(campaign.protocols)}: {len(campaign.seeds):,} seeds",
        about=(
            "From each seed a group, a network, settings, a load and faults. Safety is judged over the whole "
            "run. Then faults stop, and those that are up have to become one configuration and deliver "
            "everything.",
            "After the seeds that were asked for, further rounds look near those in which something happened "
            "that is rare: the same case with its faults shifted a little and other chance.",
        ),
        claims=claims,
        figures=_figures(summary),
        tables=[*_failed(summary, failures), *_by_protocol(summary), *_rare(summary, rounds), *_all(summary)],
        facts=[
            ("runs", f"{summary.total('runs'):,}"),
            ("processor time", f"{summary.total('cpu_s'):,.0f} s"),
            ("program", ", ".join(sorted(summary.codes))),
            ("written", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())),
        ],
    )
    return Reported(page=path, claims=claims, answer=_answer(campaign, summary, failures))


def _answer(campaign: FuzzCampaign, summary: Summary, failures: list[dict[str, Any]]) -> dict[str, Any]:
    counts = ("runs", "violations", "not_converged", "events", "receptions", "rows", "cpu_s")
    return {
        "protocols": list(campaign.protocols),
        **{name: summary.total(name) for name in counts},
        "properties": summary.properties,
        "coverage": with_sums(summary.times),
        "by_protocol": {
            name: {
                "runs": tally.runs,
                "failed": tally.failed,
                "faults": {
                    kind: {"runs": met.runs, "failed": met.failed} for kind, met in tally.faults.items()
                },
                "states": {
                    state: {"entered": its.entered, "crashed": its.crashed, "failed": its.failed}
                    for state, its in tally.states.items()
                },
                "rare": {what: met.runs for what, met in tally.rare.items()},
            }
            for name, tally in summary.protocols.items()
        },
        "failures": failures,
    }


def _failures(summary: Summary, smaller: Sequence[Smaller]) -> list[dict[str, Any]]:
    replays = {(each.protocol, each.round, each.seed): each.replay for each in smaller}
    return [
        {
            "protocol": row["protocol"],
            "seed": row["seed"],
            "property": row["property"],
            "sentence": row["sentence"],
            "replay": replays.get((row["protocol"], row["round"], row["seed"]), row["replay"]),
        }
        for row in summary.failures
    ]


def _claims(summary: Summary) -> list[Claim]:
    told = ", ".join(f"{name} in {count:,}" for name, count in summary.properties.items() if count)
    runs, apart = summary.total("runs"), summary.total("not_converged")
    return [
        Claim(
            says="No guarantee is broken, no machine raises, no payload is damaged",
            where="the protocols' own promises",
            measured=f"{runs:,} runs, {summary.total('events'):,} events: {told or 'nothing broken'}",
            holds=not summary.total("violations"),
        ),
        Claim(
            says="Once faults stop, the nodes that are up become one configuration",
            where="the protocols' own promises",
            measured=f"{apart:,} of {runs:,} runs did not",
            holds=not apart,
        ),
    ]


# --- tables ---------------------------------------------------------------------------------------


def _failed(summary: Summary, failures: list[dict[str, Any]]) -> list[Table]:
    if not failures:
        return []
    rows = [(each["replay"], each["property"], each["sentence"][:200]) for each in failures[:MOST_SHOWN]]
    title = f"Seeds that failed: {summary.total('failed'):,}"
    return [Table(title=title, columns=("replay", "property", "what happened"), rows=rows)]


def _by_protocol(summary: Summary) -> list[Table]:
    tallies = summary.protocols.items()
    return [
        Table(
            title="By protocol",
            columns=("protocol", "runs", "near what is rare", "failed", "events", "processor time"),
            rows=[
                (
                    name,
                    *(f"{count:,}" for count in (its.runs, its.runs - its.asked, its.failed, its.events)),
                    f"{its.cpu_s:,.0f} s",
                )
                for name, its in tallies
            ],
        ),
        Table(
            title="By kind of fault",
            columns=("protocol", "fault", "runs", "failed"),
            rows=[
                (name, kind, f"{met.runs:,}", f"{met.failed:,}")
                for name, its in tallies
                for kind, met in its.faults.items()
            ],
        ),
        Table(
            title="By state",
            columns=("protocol", "state", "entered", "runs with a crash in it", "of these failed"),
            rows=[
                (name, state, f"{each.entered:,}", f"{each.crashed:,}", f"{each.failed:,}")
                for name, its in tallies
                for state, each in its.states.items()
            ],
        ),
    ]


def _rare(summary: Summary, rounds: Sequence[Round]) -> list[Table]:
    """What was looked near, and how often it was met there; a thing counts in the round that looked first."""
    rows = []
    told: set[tuple[str, str]] = set()
    for found in rounds:
        for look in found.looks:
            tally = summary.protocols.get(look.protocol)
            for what in look.rare if tally is not None else ():
                if (look.protocol, what) in told or tally is None:
                    continue
                told.add((look.protocol, what))
                met, near = tally.met[what], tally.runs - tally.asked
                plain = f"{met.asked:,} of {tally.asked:,}"
                rows.append((look.protocol, what, plain, f"{met.runs - met.asked:,} of {near:,}"))
    if not rows:
        return []
    columns = ("protocol", "what", "runs of the seeds asked for", "runs near")
    return [Table(title="What was rare, and looked near", columns=columns, rows=rows)]


def _all(summary: Summary) -> list[Table]:
    return [
        Table(
            title="What happened, and how often",
            columns=("protocol", "event", "times", "runs"),
            rows=[
                (name, what, f"{met.times:,}", f"{met.runs:,}")
                for name, its in summary.protocols.items()
                for what, met in sorted(its.met.items())
                if not what.startswith(FAULT)
            ],
            note="Of what is listed with 0, the fuzzer should have made it happen, and did not.",
        )
    ]


def _figures(summary: Summary) -> list[Figure]:
    """How often the fuzzer made happen what it has to."""
    import matplotlib.pyplot as plt

    from ordercast.lab.figures import COLOURS, style

    seen = [(name, count) for name, count in summary.times.items() if ARROW not in name]
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
