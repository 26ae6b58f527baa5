"""Which protocol, with which settings, for a given load, loss and failures: all of them ranked.

Each candidate (`ordercast.lab.candidates`) is run under the load of the profile, with agreed and with safe
messages, flat out, and with a member that crashes and comes back; `ordercast.lab.ranking` puts them in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.catalogue import lab_protocol
from ordercast.lab import choice_figures, outage, replay, steady_load
from ordercast.lab.candidates import Candidate, candidates
from ordercast.lab.experiment import Advice, Experiment, Figure, Sizes, Table
from ordercast.lab.grid import GridError, Run
from ordercast.lab.prediction import COLUMNS, NOTE, prediction
from ordercast.lab.profile import Profile
from ordercast.lab.ranking import AGREED, CRASH, FLAT_OUT, REPLAY, SAFE, Entry, ranked, recommended
from ordercast.sim.network import MEASURED

if TYPE_CHECKING:
    from ordercast.lab.frames import Frames

MESSAGES, MESSAGES_QUICKLY = 6_000, 1_500
"""Messages that the load is measured by,"""
SHORTEST_S, LONGEST_S = 0.2, 60.0
"""but for so long at least, and at most."""
FLAT_OUT_S = 0.15
CRASH_RATES = (200.0, 1_000.0)
"""Messages per second at a crash: at least so many, to see a silence, and at most so many."""
CRASHES = 2
"""Crashes of the first member, and of another, that are looked at."""


def runs_of_profile(profile: Profile, chosen: list[Candidate], quick: bool, seeds: range) -> list[Run]:
    """The runs by which candidates are ranked: each of them under the load and the failures of a profile."""
    messages = MESSAGES_QUICKLY if quick else MESSAGES
    seconds = min(LONGEST_S, max(SHORTEST_S, messages / profile.rate))
    found = []
    for candidate in chosen:
        usual = partial(
            Run,
            protocol=candidate.protocol,
            nodes=profile.nodes,
            size=profile.size,
            network=profile.network,
            net=profile.net,
            loss=profile.loss,
            settings=candidate.settings,
            bucket_us=10,
        )

        def labelled(what: str, victim: int, candidate: Candidate = candidate) -> dict[str, Any]:
            return {"candidate": candidate.name, "what": what, "victim": victim}

        for seed in seeds:
            found += _under_load(profile, usual, labelled, seconds, seed)
        found.append(
            usual(
                arrivals="saturating",
                safe=float(profile.safe),
                seconds=FLAT_OUT_S,
                labels=labelled(FLAT_OUT, 0),
                method=steady_load.__name__,
            )
        )
        low, high = CRASH_RATES
        found += [
            usual(
                rate=min(high, max(low, profile.rate)),
                safe=float(profile.safe),
                seconds=1.0,
                seed=seed,
                labels=labelled(CRASH, victim),
                method=outage.__name__,
            )
            for victim in (1, profile.nodes)
            for seed in range(1 if quick else CRASHES)
        ]
    return found


def _under_load(
    profile: Profile, usual: Callable[..., Run], labelled: Callable[..., Any], seconds: float, seed: int
) -> list[Run]:
    """The load itself: as it is described, with each guarantee; or as a trace has it."""
    like = profile.like
    if like is None:
        load: dict[str, Any] = {"rate": profile.rate, "seconds": seconds, "seed": seed}
        return [
            usual(safe=float(what == SAFE), labels=labelled(what, 0), method=steady_load.__name__, **load)
            for what in (AGREED, SAFE)
        ]
    return [
        usual(
            rate=profile.rate,
            seconds=(like.to_us - like.from_us) / 1e6,
            network=MEASURED,
            net=like.net,
            labels={**labelled(REPLAY, 0), **like.labels},
            seed=seed,
            method=replay.__name__,
        )
    ]


# --- what came of it -----------------------------------------------------------------------------


class _Choice:
    """The experiment for one profile."""

    def __init__(self, profile: Profile, protocols: tuple[str, ...] | None, seeds: range) -> None:
        self.profile, self.protocols, self.seeds = profile, protocols, seeds

    def grid(self, quick: bool) -> list[Run]:
        """The runs."""
        return runs_of_profile(self.profile, self.candidates(quick), quick, self.seeds)

    def candidates(self, quick: bool) -> list[Candidate]:
        """What is ranked; where a trace is repeated, with what made it."""
        like = self.profile.like
        present = None if like is None else Candidate(like.protocol, like.settings, "what made the trace")
        return candidates(self.protocols, quick, present)

    def entries(self, frames: Frames) -> list[Entry]:
        """The candidates in their order."""
        found = ranked(frames, self.candidates(frames.quick), self.profile)
        if not found:
            raise GridError("no candidate has all of its runs: see what failed, and run it again")
        return found

    def advice(self, frames: Frames) -> Advice:
        """Which to take."""
        entries = self.entries(frames)
        best = recommended(entries)
        predicted = prediction(self.profile, entries)
        says = _sentences(self.profile, entries, best) + [each.text for each in predicted]
        return Advice(
            says=says,
            configuration=best.candidate.configuration,
            ranking=_ranking(entries),
        )

    def answer(self, frames: Frames) -> dict[str, Any]:
        """For programs."""
        entries = self.entries(frames)
        best = recommended(entries)
        return {
            "profile": _document(self.profile),
            "prediction": [each.as_dict() for each in prediction(self.profile, entries)],
            "carried": any(entry.carries for entry in entries),
            "recommended": {
                "protocol": best.candidate.protocol,
                "settings": best.candidate.changes,
                "configuration": best.candidate.configuration,
            },
            "ranking": [entry.as_dict() for entry in entries],
        }

    def figures(self, frames: Frames) -> list[Figure]:
        """All candidates side by side, and how latencies are distributed."""
        entries = self.entries(frames)
        drawn = [choice_figures.overview(entries), choice_figures.distributions(frames, entries)]
        if self.profile.like is not None:
            drawn.insert(
                0, choice_figures.predicted(frames, self.profile.like, prediction(self.profile, entries))
            )
        return drawn

    def tables(self, frames: Frames) -> list[Table]:
        """What was tried, and why."""
        tried = [entry.candidate for entry in self.entries(frames)]
        rows = [(each.name, each.why, lab_protocol(each.protocol).product.about.tolerates) for each in tried]
        made = [Table(title="Candidates", columns=("candidate", "why", "with whom gone"), rows=rows)]
        shown = [each.row for each in prediction(self.profile, self.entries(frames))]
        if shown:
            made.insert(
                0, Table(title="The trace, and its prediction", columns=COLUMNS, rows=shown, note=NOTE)
            )
        return made


def _document(profile: Profile) -> dict[str, Any]:
    """A profile for programs, without the tables of a model."""
    found: dict[str, Any] = msgspec.to_builtins(profile)
    if found["like"] is not None:
        del found["like"]["net"]
        for shown in (*found["like"]["tested"].values(), *found["like"]["whole"].values()):
            del shown["quantiles_us"]
    return found


def _ms(us: float) -> str:
    return f"{us / 1e3:.2f}" if us < 9_995 else f"{us / 1e3:,.0f}"


def _sentences(profile: Profile, entries: list[Entry], best: Entry) -> list[str]:
    about = lab_protocol(best.candidate.protocol).product.about
    latency = best.latency.get(profile.guarantee)
    took = "" if latency is None else f"{_ms(latency.mean_us)} ms on average, p99 {_ms(latency.p99_us)} ms"
    if not best.carries:
        return [
            f"No protocol carries this load. {best.candidate.name} comes closest, with "
            f"{best.ordered_per_s:,.0f} of {best.offered_per_s:,.0f} messages a second.",
            f"Send less, send several messages as one, or divide the load over several groups. "
            f"Asked for: {profile.text}.",
        ]
    says = [
        f"Take {best.candidate.name}: {took}, for {profile.guarantee} messages.",
        f"Asked for: {profile.text}.",
        f"It delivers up to {best.capacity_per_s:,.0f} messages/s of that size, and sends "
        f"{best.overhead:.2f} "
        "packets beside those with messages for each message.",
        f"After a crash it delivers nothing for {_ms(best.crash_us)} ms, when the node comes back for "
        f"{_ms(best.return_us)} ms: {best.outage_s_per_hour:.3g} s an hour.",
        f"With whom gone it goes on: {about.tolerates}.",
    ]
    others = [entry for entry in entries if entry.candidate.protocol != best.candidate.protocol]
    if others and others[0].carries:
        other = others[0]
        says.append(
            f"The best other protocol is {other.candidate.name}, with {_ms(other.expected_us)} ms against "
            f"{_ms(best.expected_us)} on average, failures included."
        )
    cannot = sorted({entry.candidate.name for entry in entries if not entry.carries})
    if cannot:
        says.append(f"These do not carry the load: {', '.join(cannot)}.")
    return says


def _ranking(entries: list[Entry]) -> Table:
    rows = []
    for entry in entries:
        shown = [entry.latency.get(name) for name in (AGREED, SAFE)]
        latencies = ["–" if each is None else f"{_ms(each.mean_us)}/{_ms(each.p99_us)}" for each in shown]
        rows.append(
            (
                entry.candidate.name + ("" if entry.carries else " ✗"),
                _ms(entry.expected_us) if entry.carries else "–",
                *latencies,
                f"{entry.capacity_per_s:,.0f}",
                f"{entry.overhead:.2f}",
                f"{_ms(entry.crash_us)}+{_ms(entry.return_us)}",
                f"{entry.outage_s_per_hour:.3g}",
            )
        )
    return Table(
        title="Ranking",
        columns=("candidate", "expected", "agreed", "safe", "most/s", "overhead", "outage", "s/hour"),
        rows=rows,
        note="Expected: the mean latency with what failures add to it, in ms. Agreed, safe: mean and 99th "
        "percentile from submission to delivery at every node, in ms. Most/s: what it delivers flat out. "
        "Overhead: packets without new messages, for each message. Outage: ms without a delivery after a "
        "crash, "
        "and when the node comes back; s/hour: of both in an hour. ✗: does not carry the load.",
    )


def choice(profile: Profile, protocols: tuple[str, ...] | None = None, seeds: range = range(1)) -> Experiment:
    """The experiment for a profile."""
    of = _Choice(profile, protocols, seeds)
    return replace(
        EXPERIMENT,
        grid=of.grid,
        figures=of.figures,
        tables=of.tables,
        answer=of.answer,
        advice=of.advice,
    )


def _resize(sizes: Sizes) -> Experiment:
    profile = sizes.profile or Profile()
    if sizes.nodes is not None:
        least, most = sizes.nodes
        if least != most:
            raise GridError(f"--nodes {least}:{most}: choose is for one group, say how many nodes it has")
        profile = msgspec.structs.replace(profile, nodes=least)
    return choice(profile, sizes.protocols, sizes.seeds or range(1))


_USUAL = _Choice(Profile(), None, range(1))

EXPERIMENT = Experiment(
    name="choose",
    title="Which protocol to choose",
    source="For a load, a network and failures that you describe",
    about=(
        "Each protocol is simulated with the settings that a node has on a local network, and with some that "
        "differ, under the load that was asked for: once with agreed messages, once with safe ones; then "
        "flat out, "
        "and while a member crashes and comes back.",
        "Candidates are ranked by the mean time from submission to delivery, failures included: a message "
        "that is "
        "submitted while the group delivers nothing waits for the rest of that outage. Who does not carry "
        "the load "
        "comes behind all who do.",
        "A simulation knows what a packet costs a host on average; it knows nothing of other processes on "
        "the "
        "machine. Take the order and the proportions from here, and check the absolute figures with "
        "ordercast "
        "bench.",
    ),
    grid=_USUAL.grid,
    figures=_USUAL.figures,
    tables=_USUAL.tables,
    answer=_USUAL.answer,
    advice=_USUAL.advice,
    takes_profile=True,
    resize=_resize,
)
