"""``ordercast sim topology``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ordercast.cli import app

SCENARIO = Path(__file__).parents[1] / "scenarios" / "rings_route_change.txt"


def said(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["sim", "topology", *arguments])
    return result.exit_code, result.output


def test_a_scenario_is_drawn_with_who_forwards(tmp_path: Path) -> None:
    code, told = said(str(SCENARIO), "--svg", str(tmp_path / "new" / "a.svg"))
    assert code == 0
    assert "network 1  ●──●──◆──◇" in told
    assert (tmp_path / "new" / "a.svg").read_text(encoding="utf-8").startswith("<svg")


def test_what_a_seed_draws_is_told() -> None:
    code, told = said("--seed", "1", "--json")
    assert code == 0
    document = json.loads(told)
    assert document["networks"]["2"] == ["1", "3", "4", "5", "6"]
    assert document["forwarding"] == {"4": [1, 2], "11": [1, 3]}, "6 is between 2 and 3, which 1 joins"


@pytest.mark.parametrize(
    ("text", "problem"),
    [("nodes p q\nuntil 1s\n", "one network for all nodes"), ("nonsense", "expected a statement")],
)
def test_what_has_no_networks_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "scenario.txt"
    file.write_text(text)
    code, told = said(str(file))
    assert code == 2
    assert problem in " ".join(told.split())


def test_a_file_or_a_seed_is_needed() -> None:
    assert said()[0] == 2
    assert said(str(SCENARIO), "--seed", "1")[0] == 2
    assert said("no such file")[0] == 2
