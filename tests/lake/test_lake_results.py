"""Results of experiments and of fuzzing in a lake: each once, with the traces beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.lab.campaign.blocks import Block, Stage
from ordercast.lab.campaign.table import CampaignStore
from ordercast.lab.campaign.table import Manifest as Asked
from ordercast.lab.campaign.work import do_block
from ordercast.lab.grid import runs_of
from ordercast.lab.runner import do_task
from ordercast.lab.store import Manifest, Store, Task
from ordercast.lake import Lake

RUNS = runs_of({"protocol": ["cm"], "nodes": [2, 3]}, messages=5, rate=200)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def rows(lake: Lake, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.sql(query).to_pylist()
    return found


def test_results_of_an_experiment_and_its_traces(lake: Lake, tmp_path: Path) -> None:
    store = Store(tmp_path / "lab")
    store.write_manifest(Manifest(experiment="mine", quick=True, runs=RUNS))
    do_task(store, Task((RUNS[0],), 1.0), round_="1", traces=True)
    assert lake.add([tmp_path / "lab"])[2:] != (0, 0)
    do_task(store, Task((RUNS[1],), 1.0), round_="2")
    again = lake.add([tmp_path / "lab"])
    assert (again.runs, again.there, again.results) == ([], [RUNS[0].id], 1)
    found = rows(lake, "SELECT experiment, run, protocol, nodes, figures FROM results ORDER BY nodes")
    assert [(row["experiment"], row["run"], row["nodes"]) for row in found] == [
        ("mine", RUNS[0].id, 2),
        ("mine", RUNS[1].id, 3),
    ]
    assert all(dict(row["figures"]) for row in found)
    assert [run["run"] for run in lake.runs()] == [RUNS[0].id]
    assert rows(lake, "SELECT count(*) AS n FROM results r JOIN runs USING (run)") == [{"n": 1}]


def test_results_of_fuzzing_each_seed_once(lake: Lake, tmp_path: Path) -> None:
    store = CampaignStore(tmp_path / "fuzz")
    store.keep(Asked(protocols=["cm"], seeds=(0, 4), nodes=(2, 3), rounds=0, programs=["p"]))
    for seeds in (range(2), range(1, 4)):
        do_block(store, Block(Stage("cm", (2, 3), 0, range(4)), seeds))
    assert lake.add([tmp_path / "fuzz"], "tonight").results == 4
    assert lake.add([tmp_path / "fuzz"], "tonight").results == 0
    assert lake.add([tmp_path / "fuzz"]).results == 4, "another campaign"
    query = "SELECT seed, property, converged FROM seeds WHERE campaign = 'tonight' ORDER BY seed"
    assert rows(lake, query) == [{"seed": seed, "property": None, "converged": True} for seed in range(4)]
    assert msgspec.json.decode((tmp_path / "fuzz" / "campaign.json").read_bytes())["seeds"] == [0, 4]
