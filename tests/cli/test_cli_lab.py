from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cli_parts import ordercast

from ordercast.cli import lab_run
from ordercast.cli.screen import Code
from ordercast.lab.experiment import Sizes, experiment, names
from ordercast.lab.experiments import fuzz
from ordercast.lab.laboratory import Laboratory
from ordercast.lab.runner import do_task
from ordercast.lab.store import Task
from ordercast.sim.campaign import Campaign, SeedResult
from ordercast.sim.fuzz import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINE = """
title = "Small groups"
[grid]
protocol = ["cm", "dtp"]
nodes = [2, 3]
rate = 200
messages = 20
size = [100, 1073741824]
[report]
figures = ["delivery_us"]
"""
"""Half of these runs fail: no machine takes messages of a gigabyte."""


def test_list_names_every_experiment() -> None:
    said = ordercast("lab", "list")
    assert said.code == Code.OK
    assert all(name in said.out for name in names())
    assert {each["name"] for each in ordercast("lab", "list", "--json").document["experiments"]} == set(
        names()
    )


def test_a_file_is_run_reported_and_its_failures_can_be_repeated(spark: SparkSession, tmp_path: Path) -> None:
    file, output = tmp_path / "mine.toml", tmp_path / "out"
    file.write_text(MINE)
    said = ordercast("lab", "run", file, "--output", output, "--json")
    assert said.code == Code.FAILED
    document = said.document
    assert (document["asked"], document["earlier"], len(document["failed"])) == (8, 0, 4)
    assert Path(document["report"]).read_text().count("ordercast lab run") >= 4

    words = document["failed"][0]["repeat"].split()
    assert words[:4] == ["ordercast", "lab", "run", str(file)]
    again = ordercast(*words[1:])
    assert again.code == Code.USAGE
    assert "send smaller ones" in again.err

    report = ordercast("lab", "report", output)
    assert report.code == Code.OK
    assert str(output / "report.html") in report.out


def test_without_a_terminal_a_line_now_and_then_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Laboratory(experiment("dtp"), tmp_path, quick=True)
    half = lab.cost(lab.pending()) / 2
    with lab_run._progress(lab, processors=2) as watch:
        watch(1, half)
        assert not capsys.readouterr().err
        monkeypatch.setattr(lab_run, "SAID_S", 0.0)
        watch(1, half)
        assert capsys.readouterr().err == f"1/{len(lab.runs)} runs, about 0 s left\n"


def test_fuzz_ends_with_one_if_a_seed_failed_and_says_how_to_replay_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_seed(campaign: Campaign, find: object, seed: int) -> SeedResult:
        counts = {"events": 1, "receptions": 1, "rows": 1}
        violations = {"total-order": 1} if seed == 3 else {}
        result = Result(
            seed=seed, violations=violations, sentences=[], converged=True, coverage={"crash": 1}, **counts
        )
        return SeedResult(result, 0.1)

    monkeypatch.setattr(fuzz, "run_seed", run_seed)
    lab = Laboratory(experiment("fuzz"), tmp_path, sizes=Sizes(protocols=("cm",), seeds=range(5)))
    do_task(lab.store, Task(tuple(lab.runs), 1.0))  # all that the command is going to ask for
    said = ordercast("lab", "run", "fuzz", "--protocol", "cm", "--seeds", "0:5", "--output", tmp_path)
    assert said.code == Code.FAILED
    assert "ordercast sim replay --protocol cm --seed 3 --nodes 2:7" in " ".join(said.out.split())


def test_one_run_alone_needs_no_spark_and_keeps_nothing(tmp_path: Path) -> None:
    first = experiment("dtp").grid(True)[0]
    words = ("lab", "run", "dtp", "--quick", "--only", first.id, "--output", tmp_path, "--json")
    document = ordercast(*words).document
    assert document["run"] == first.id
    assert document["figures"]["measured"] == first.messages
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "nonesuch"), "no experiment 'nonesuch'; there are dtp"),
        (("run", "nowhere.toml"), "nowhere.toml: No such file"),
        (("run", "dtp", "--seeds", "x"), "no range of seeds"),
        (("run", "dtp", "--nodes", "100:120"), "no run with these protocols and so many nodes"),
        (("run", "dtp", "--quick", "--only", "zz"), "stands for 0 runs"),
        (("run", "fuzz", "--protocol", "cm", "--traces"), "keeps no traces"),
    ],
)
def test_what_cannot_be_is_refused_with_what_there_is(
    words: tuple[str, ...], told: str, tmp_path: Path, spark: SparkSession
) -> None:
    said = ordercast("lab", *words, "--output", tmp_path)
    assert said.code == Code.USAGE
    assert told in said.sentence


def test_a_report_of_what_was_never_run_is_refused(tmp_path: Path) -> None:
    said = ordercast("lab", "report", tmp_path)
    assert said.code == Code.USAGE
    assert "run the experiment first" in said.sentence
