"""All claims of the papers in one go: none is left out where a grid is too small for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import cast

import numpy as np
import pandas as pd
import pytest

from ordercast.lab.experiment import OURS, Claim, Sizes, counted, experiment, names
from ordercast.lab.experiments import papers
from ordercast.lab.frames import DECLARED, Frames
from ordercast.lab.grid import GridError, Run, checked
from ordercast.lab.laboratory import sized


class _Alike:
    """Results of runs that were never carried out: every figure of each is 1, every latency short."""

    def __init__(self, runs: Sequence[Run], quick: bool) -> None:
        self.runs, self.quick = tuple(runs), quick
        self._rows = [
            {**{name: getattr(run, name) for name in DECLARED}, **run.labels, "run": run.id} for run in runs
        ]

    def of(self, runs: Sequence[Run]) -> _Alike:
        wanted = {run.id for run in runs}
        return _Alike([run for run in self.runs if run.id in wanted], self.quick)

    def mean(self, by: Sequence[str], figures: Sequence[str]) -> pd.DataFrame:
        """As Spark does, groups of which a key is null are there, too."""
        frame = pd.DataFrame(self._rows).reindex(columns=list(by)).drop_duplicates().reset_index(drop=True)
        for name in figures:
            frame[name], frame[f"{name}_sd"] = 1.0, 0.0
        return frame.replace({np.nan: None})

    def density(self, by: Sequence[str], name: str) -> pd.DataFrame:
        keys = pd.DataFrame(self._rows).reindex(columns=list(by)).drop_duplicates()
        buckets = pd.DataFrame({"from_us": [0.0, 250.0], "to_us": [250.0, 500.0], "density": [0.002, 0.002]})
        return keys.merge(buckets, how="cross")


def judged(quick: bool, part: str) -> list[Claim]:
    chosen = experiment(part)
    return chosen.claims(cast(Frames, _Alike(chosen.grid(quick), quick)))


@pytest.mark.parametrize("part", papers.PARTS)
def test_a_quick_look_judges_the_same_claims_as_the_whole(part: str) -> None:
    """What it is too small for cannot be decided; it is not left out."""
    quick, whole = ([(claim.where, claim.says) for claim in judged(each, part)] for each in (True, False))
    assert quick == whole
    assert quick


def test_every_experiment_on_a_paper_is_a_part() -> None:
    """choose is about no paper."""
    assert {*papers.PARTS, "papers", "choose"} == set(names())


def test_its_runs_are_those_of_its_parts() -> None:
    runs = papers.grid(True)
    assert len(checked(runs)) == len(runs)
    assert {run.id for run in runs} == {
        run.id for part in papers.PARTS for run in experiment(part).grid(True)
    }


def test_claims_come_by_paper_and_are_counted() -> None:
    frames = cast(Frames, _Alike(papers.grid(True), True))
    found = papers.claims(frames)
    order = [claim.paper for claim in found]
    assert order == sorted(order, key=lambda paper: (paper == OURS, paper))
    counts = papers.answer(frames)["counts"]
    assert set(counts) == {"papers", "000", "001", "002", "004", OURS}
    assert counts["000"] == counted([claim for claim in found if claim.paper == "000"])
    summed: dict[str, int] = defaultdict(int)
    for paper in ("000", "001", "002", "004"):
        for verdict, count in counts[paper].items():
            summed[verdict] += count
    assert dict(summed) == counts["papers"]
    assert sum(summed.values()) + sum(counts[OURS].values()) == len(found)
    (table,) = papers.tables(frames)
    assert len(table.rows) == 5


def test_a_part_of_which_nothing_was_carried_out_is_left_out() -> None:
    runs = [run for part in papers.PARTS if part != "totem-density" for run in experiment(part).grid(True)]
    found = papers.claims(cast(Frames, _Alike(runs, True)))
    assert not [claim for claim in found if claim.where == "001, Fig. 7"]
    assert [claim for claim in found if claim.where == "001, Fig. 6"]


def test_other_sizes_are_for_its_parts() -> None:
    assert sized(papers.EXPERIMENT, True, Sizes())[0] is papers.EXPERIMENT
    with pytest.raises(GridError, match="run one of its parts: totem-throughput"):
        sized(papers.EXPERIMENT, True, Sizes(seeds=range(2)))


def test_a_claim_knows_its_paper() -> None:
    def claim(where: str) -> Claim:
        return Claim(says="", where=where, measured="", holds=None)

    assert claim("000 §9, Fig. 9 left").paper == "000"
    assert claim("docs/lab-model.md").paper == OURS
