from __future__ import annotations

from pathlib import Path

import pytest
from cli_parts import ordercast, process

import ordercast as product
from ordercast.cli import options
from ordercast.core.build import build
from ordercast.trace.reader import read_runs

STORY = """
nodes p q r
at 300ms p sends a
at 500ms crash r
until 1s
expect p q r delivers a
expect p q ends in pq
expect clean
"""


def test_the_version() -> None:
    said = process("--version")
    assert said == (0, f"ordercast {product.__version__} ({build()})\n", "")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("sim",),
        *((("sim", name)) for name in ("run", "fuzz", "replay", "scenario", "mutants", "demo")),
        ("audit",),
    ],
)
def test_every_command_explains_itself(words: tuple[str, ...]) -> None:
    said = ordercast(*words, "--help")
    assert said.code == 0
    assert "Usage: " in said.out


# --- scenario -----------------------------------------------------------------------------------


def test_a_scenario_that_comes_true(tmp_path: Path) -> None:
    file = tmp_path / "story.txt"
    file.write_text(STORY)
    said = ordercast("sim", "scenario", file, "--draw")
    assert said.code == 0
    assert "✓ expect p q ends in pq" in said.out
    assert "p is 1, q is 2, r is 3" in said.out
    assert "crash 3" in said.out


def test_scenarios_that_do_not(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.txt", tmp_path / "wrong.txt"
    right.write_text(STORY)
    wrong.write_text(STORY + "expect q ends in pqr\n")
    said = ordercast("sim", "scenario", right, wrong)
    assert said.code == 1
    assert "✗ expect q ends in pqr" in said.out
    assert "q ended in pq" in said.out
    assert "1 of 2 scenarios went otherwise than expected" in said.out
    document = ordercast("sim", "scenario", right, wrong, "--json").document
    assert (document["scenarios"], document["failed"]) == (2, 1)
    assert [result["ok"] for result in document["results"]] == [True, False]
    assert document["results"][1]["expectations"][-1]["problems"] == ["q ended in pq"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"nodes p\nuntil soon\n", "story.txt: line 2: expected a time"),
        (b"nodes p\nprotocol paxos\nuntil 1s\n", "story.txt: no protocol 'paxos'"),
        (b"\xff\xfe\x00", "story.txt is not a scenario"),
    ],
)
def test_a_scenario_that_cannot_be_read(tmp_path: Path, text: bytes, complaint: str) -> None:
    file = tmp_path / "story.txt"
    file.write_bytes(text)
    said = ordercast("sim", "scenario", file)
    assert said.code == 2
    assert complaint in said.sentence.replace("error: ", "").removeprefix(str(tmp_path) + "/")


def test_a_scenario_that_is_not_there(tmp_path: Path) -> None:
    said = ordercast("sim", "scenario", tmp_path / "nowhere.txt")
    assert said.code == 2
    assert "cannot be read" in said.sentence


# --- demo ---------------------------------------------------------------------------------------


def test_the_demo_draws_audits_and_says_where_things_are(tmp_path: Path) -> None:
    said = process("sim", "demo", cwd=tmp_path)
    assert said.code == 0, said.err
    for word in (
        "crash 5",
        "partition 1 2 | 3 4 5",
        "heal",
        "install {1 2 3 4 5}",
        "✓ clean",
        "What to try next",
    ):
        assert word in said.out
    assert (tmp_path / "build/demo/demo.svg").read_text().startswith("<svg")
    ((run, rows),) = read_runs(tmp_path / "build/demo/trace")
    assert run == "demo"
    assert {"safe", "agreed"} <= {row[16] for row in rows if row[4] == "deliver"}
    assert "build/demo/trace/demo.parquet" in said.out


def test_the_demo_needs_a_place_to_write(tmp_path: Path) -> None:
    said = ordercast("sim", "demo", "--dir", "/proc/nowhere")
    assert said.code == 2
    assert "name another place with --dir" in said.sentence


# --- how values are read ------------------------------------------------------------------------


def test_seeds() -> None:
    assert options.seeds("5") == range(5, 6)
    assert options.seeds("0:1000") == range(1000)


def test_nodes() -> None:
    assert options.nodes("5") == (5, 5)
    assert options.nodes("2:7") == (2, 7)


def test_sizes() -> None:
    assert options.sizes("1000") == (1000, None)
    assert options.sizes("1:9") == (1, 9)


def test_fields_know_true_from_false() -> None:
    assert options.fields(["a=1", "b=true", "c=false"]) == {"a": "1", "b": True, "c": False}


def test_numbers() -> None:
    assert options.numbers("0,4,7") == (0, 4, 7)
    assert options.numbers("none") == ()
    assert options.some_of("2,1,2", (1, 2, 3), "nodes") == (1, 2)
