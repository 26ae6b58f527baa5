"""Files of one node of a group are damaged: told or repaired, never wrong data, no signal, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hunts import rounds

ROUNDS = str(rounds(4, 400, "ORDERCAST_NODE_DAMAGES"))
"""A round takes one to two seconds."""


@pytest.mark.campaign
def test_a_node_whose_files_are_damaged_gives_no_wrong_data_and_says_what_is_wrong(tmp_path: Path) -> None:
    script = Path(__file__).with_name("damage_rounds.py")
    said = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "group"), "--rounds", ROUNDS, "--seed", "5"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr[-3000:] + said.stdout
    assert "Traceback" not in said.stderr
    found = json.loads(said.stdout)
    assert found["failures"] == []
    assert found["rounds"] == int(ROUNDS)
