from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cli_parts import ordercast

from fuzz_results import result
from ordercast.cli import lab as cli_lab
from ordercast.cli.screen import Code
from ordercast.lab.campaign import work
from ordercast.lab.campaign.conduct import FuzzCampaign
from ordercast.lab.experiment import experiment, names
from ordercast.lab.laboratory import Laboratory
from ordercast.sim.campaign import Campaign, SeedResult

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
    listed = {each["name"] for each in ordercast("lab", "list", "--json").document["experiments"]}
    assert listed == {*names(), "fuzz"}
    assert all(name in said.out for name in listed)


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


def test_a_protocol_is_chosen_and_told_to_people_and_programs(spark: SparkSession, tmp_path: Path) -> None:
    words = ("--quick", "--nodes", "3", "--rate", "400", "--protocol", "totem", "--mtbf", "1h")
    said = ordercast("lab", "run", "choose", *words, "--output", tmp_path, "--json")
    assert said.code == Code.OK, said.err
    assert said.document["recommended"]["protocol"] == "totem"
    assert said.document["ranking"][0]["carries_the_load"] is True
    page = (tmp_path / "report.html").read_text()
    assert "Take totem" in page
    assert (tmp_path / "figures" / "overview.png").stat().st_size > 10_000
    again = ordercast("lab", "report", tmp_path)
    assert again.code == Code.OK
    assert 'protocol = "totem"' in again.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("choose", "--mtbf", "soon"), "90s"),
        (("choose", "--rate", "-1"), "--rate"),
        (("choose", "--nodes", "2:5"), "one group"),
        (("choose", "--network", "moon"), "moon"),
        (("choose", "--protocol", "raft"), "no protocol 'raft'"),
        (("dtp", "--rate", "5"), "for choose"),
        (("dtp", "--like", "."), "for choose"),
        (("choose", "--like", ".", "--rate", "5"), "with it, give --loss and --mtbf only"),
        (("choose", "--like", "nothing"), "no such trace"),
        (("choose", "--set", "window=3"), "with --like TRACE"),
    ],
)
def test_what_cannot_be_chosen_for(words: tuple[str, ...], told: str) -> None:
    said = ordercast("lab", "run", *words)
    assert said.code == Code.USAGE
    assert told in " ".join(said.err.split())


def test_without_a_terminal_a_line_now_and_then_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Laboratory(experiment("dtp"), tmp_path, quick=True)
    half = lab.cost(lab.pending()) / 2
    with cli_lab.progressing("dtp", len(lab.runs), 2 * half, processors=2) as watch:
        watch(1, half)
        assert not capsys.readouterr().err
        monkeypatch.setattr(cli_lab, "SAID_S", 0.0)
        watch(1, half)
        assert capsys.readouterr().err == f"1/{len(lab.runs)} runs, about 0 s left\n"


def test_fuzz_ends_with_one_if_a_seed_failed_and_says_how_to_replay_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_seed(campaign: Campaign, find: object, seed: int, near: int | None = None) -> SeedResult:
        violations = {"total-order": 1} if seed == 3 else {}
        return SeedResult(result(seed, violations, coverage={"crash": 1}), 0.1, 2, ("crash",))

    monkeypatch.setattr(work, "run_seed", run_seed)
    campaign = FuzzCampaign(["cm"], range(5), (2, 2), tmp_path)
    for block in campaign.pending().each():  # all that the command is going to ask for
        work.do_block(campaign.store, block)
    words = ("--protocol", "cm", "--seeds", "0:5", "--nodes", "2", "--output", tmp_path)
    said = ordercast("lab", "run", "fuzz", *words, "--json")
    assert said.code == Code.FAILED
    assert (said.document["asked"], said.document["earlier"], said.document["runs"]) == (5, 5, 5)
    (failure,) = said.document["failures"]
    assert failure["replay"].startswith("ordercast sim replay --protocol cm --seed 3 --nodes 2:2")
    report = ordercast("lab", "report", tmp_path)
    assert failure["replay"] in " ".join(report.out.split())


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
        (("run", "nonesuch"), "no experiment 'nonesuch'; there are choose, comparison"),
        (("run", "nowhere.toml"), "nowhere.toml: No such file"),
        (("run", "dtp", "--seeds", "x"), "no range of seeds"),
        (("run", "dtp", "--nodes", "100:120"), "no run with these protocols and so many nodes"),
        (("run", "dtp", "--quick", "--only", "zz"), "stands for 0 runs"),
        (("run", "fuzz", "--protocol", "cm", "--traces"), "fuzz takes --protocol, --seeds"),
        (("run", "fuzz", "--protocol", "nonesuch"), "no protocol 'nonesuch'"),
        (("run", "dtp", "--rounds", "1"), "--rounds is for fuzz"),
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
