from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from cli_parts import ordercast

from ordercast.mutants import MUTANTS
from ordercast.trace.reader import read_runs

SEED = ("sim", "replay", "--seed", 3, "--nodes", "2:4")


def test_the_story_has_the_case_the_drawing_and_a_verdict() -> None:
    said = ordercast(*SEED)
    assert said.code == 0
    for word in (
        "network",
        "load",
        "token_loss_us",
        "faults until",
        "install {",
        "faults end",
        "● ┃ regular",
    ):
        assert word in said.out
    assert "✓" in said.out.splitlines()[-1]


def test_the_answer_for_programs_has_the_whole_case() -> None:
    document = ordercast(*SEED, "--json").document
    assert document["seed"] == 3
    assert document["nodes"][0] == 1
    assert document["property"] is None
    assert document["converged"] is True
    assert document["network"]["base_us"] > 0
    assert document["replay"] == "ordercast sim replay --protocol totem --seed 3 --nodes 2:4"


def test_cuts_make_it_smaller() -> None:
    document = ordercast(
        *SEED, "--members", "1,2", "--faults", "none", "--faults-until", "50ms", "--json"
    ).document
    assert document["nodes"] == [1, 2]
    assert document["faults"] == []
    assert document["faults_until_us"] == 50_000
    assert document["replay"].endswith("--members 1,2 --faults none --faults-until 50000us")


def test_what_is_cut_out_is_counted() -> None:
    said = ordercast(*SEED, "--faults", "1")
    assert "more were drawn and are left out" in said.out
    assert "no faults" in ordercast(*SEED, "--faults", "none").out


def test_a_failure_is_told_in_words() -> None:
    with MUTANTS["no-transitional-configuration"].planted():
        said = ordercast(*SEED)
    assert said.code == 1
    assert "config-chain: " in said.out
    assert "✗ failed: config-chain ×" in said.out


def test_a_drawing_and_a_trace_are_written(tmp_path: Path) -> None:
    drawing = tmp_path / "pictures" / "story.svg"
    said = ordercast(*SEED, "--svg", drawing, "--trace", tmp_path / "trace", "--packets")
    assert said.code == 0
    assert ElementTree.parse(drawing).getroot().tag.endswith("svg")
    ((run, rows),) = read_runs(tmp_path / "trace")
    assert run == "totem-3"
    assert "packet_sent" in {row[4] for row in rows}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--members", "1,9"), "--members: 9 is not among the nodes of this seed: they are 1 to"),
        (("--members", "none"), "--members: at least one node has to stay"),
        (("--members", "all"), "--members: 'all': write numbers with commas between them"),
        (("--faults", "999"), "--faults: 999 is not among the faults of this seed"),
        (("--faults-until", "soon"), "--faults-until: expected a time such as 20ms"),
        (("--svg", "/proc/nowhere/x.svg"), "--svg: /proc/nowhere"),
        (("--protocol", "paxos"), "--protocol: no protocol 'paxos'"),
    ],
)
def test_a_mistake_is_named(words: tuple[str, ...], complaint: str) -> None:
    said = ordercast(*SEED, *words)
    assert said.code == 2
    assert complaint in said.sentence


def test_a_seed_is_needed() -> None:
    said = ordercast("sim", "replay")
    assert said.code == 2
    assert "--seed" in said.sentence
