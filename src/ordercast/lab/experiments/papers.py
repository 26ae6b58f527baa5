"""Every claim of the papers that a simulation can decide, in one go: the claims of the other experiments.

Its runs are those of the other experiments, which judge what came of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ordercast.lab.experiment import (
    OURS,
    Claim,
    Experiment,
    Figure,
    Sizes,
    Table,
    counted,
    experiment,
)
from ordercast.lab.grid import GridError, Run

if TYPE_CHECKING:
    from ordercast.lab.frames import Frames

PARTS = (
    "totem-throughput",
    "totem-latency",
    "totem-visits",
    "totem-density",
    "totem-flow",
    "totem-faults",
    "rings-latency",
    "rings-scale",
    "rings-faults",
    "dtp",
    "dtp-limits",
    "reconfiguration",
    "comparison",
    "comparison-failures",
    "trmp",
)
"""The experiments that judge what papers say."""


def grid(quick: bool) -> list[Run]:
    """The runs of all parts, each once."""
    runs = [run for name in PARTS for run in experiment(name).grid(quick)]
    return list({run.id: run for run in runs}.values())


def _parts(frames: Frames) -> Iterator[tuple[Experiment, Frames]]:
    """Each experiment, with what came of its own runs; only those of which any was carried out."""
    for name in PARTS:
        part = experiment(name)
        its = frames.of(part.grid(frames.quick))
        if its.runs:
            yield part, its


def claims(frames: Frames) -> list[Claim]:
    """What all parts judge, by paper; what is no paper's comes last."""
    found = [claim for part, its in _parts(frames) for claim in part.claims(its)]
    return sorted(found, key=lambda claim: (claim.paper == OURS, claim.paper))


def by_paper(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    """The claims of each paper, and those that are ours."""
    return {paper: [each for each in claims if each.paper == paper] for paper in _papers(claims)}


def _papers(claims: Sequence[Claim]) -> list[str]:
    return list(dict.fromkeys(claim.paper for claim in claims))


def answer(frames: Frames) -> dict[str, Any]:
    """How many claims hold, do not hold and cannot be decided: of all papers, and of each."""
    found = claims(frames)
    of_papers = [claim for claim in found if claim.paper != OURS]
    counts = {paper: counted(its) for paper, its in by_paper(found).items()}
    return {"counts": {"papers": counted(of_papers), **counts}}


def figures(frames: Frames) -> list[Figure]:
    """Those of all parts."""
    return [
        replace(figure, name=f"{part.name}-{figure.name}")
        for part, its in _parts(frames)
        for figure in part.figures(its)
    ]


def tables(frames: Frames) -> list[Table]:
    """How many claims hold, by paper."""
    found = claims(frames)
    rows = [(paper, len(its), *counted(its).values()) for paper, its in by_paper(found).items()]
    return [
        Table(
            title="Verdicts by paper",
            columns=("paper", "claims", *counted(())),
            rows=rows,
            note=f"{OURS}: what we say ourselves, mostly of models that stand beside the simulations.",
        )
    ]


def _resize(sizes: Sizes) -> Experiment:
    if sizes != Sizes():
        raise GridError(
            "papers takes all claims as they are: for other seeds, protocols or sizes run one of its parts: "
            + ", ".join(PARTS)
        )
    return EXPERIMENT


EXPERIMENT = Experiment(
    name="papers",
    title="What the papers claim, and what comes of it",
    source="All claims of 000, 001, 002 and 004 that a simulation can decide",
    about=(
        "The runs of all experiments that judge what a paper says, and their verdicts together. What a quick "
        "look is too small for is counted as what cannot be decided, not left out.",
        "Each experiment has its own page with tables and assumptions: ordercast lab run NAME.",
    ),
    grid=grid,
    claims=claims,
    figures=figures,
    tables=tables,
    answer=answer,
    resize=_resize,
)
