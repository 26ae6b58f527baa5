"""Replicated objects on disk: processes are killed, stopped and cut off, and files damaged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hunts import rounds
from ordercast.measure.netns import missing

PROTOCOLS = pytest.mark.parametrize("protocol", ["totem", "total"])
KILLS = rounds(2, 100, "ORDERCAST_OBJECT_KILLS")
STARTS = rounds(1, 20, "ORDERCAST_OBJECT_STARTS")
DAMAGES = rounds(8, 1000, "ORDERCAST_OBJECT_DAMAGES")
DAMAGES_IN_PROCESSES = rounds(1, 50)
MINUTES = rounds(0, 30, "ORDERCAST_OBJECT_MINUTES")
"""Of histories; 0: a quarter of one."""

pytestmark = pytest.mark.campaign


def ran(script: str, *words: object) -> dict[str, Any]:
    """What a script of this directory prints."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *map(str, words)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr[-5000:]
    found: dict[str, Any] = json.loads(said.stdout)
    return found


@PROTOCOLS
def test_all_nodes_are_killed_at_once_and_what_was_answered_is_there(protocol: str, tmp_path: Path) -> None:
    found = ran("objects_kill_rounds.py", tmp_path / "group", "--rounds", KILLS, "--protocol", protocol)
    assert found["rounds"] == KILLS
    assert found["writes answered"] > 0


def test_nodes_are_killed_in_their_first_start_and_in_the_transfer_of_a_state(tmp_path: Path) -> None:
    assert ran("objects_start_rounds.py", tmp_path / "groups", "--rounds", STARTS)["rounds"] == STARTS


@PROTOCOLS
def test_damage_is_noticed_and_repaired_and_spreads_to_nobody(protocol: str) -> None:
    found = ran("objects_damage_rounds.py", "--rounds", DAMAGES, "--protocol", protocol, "--seed", 3)
    assert found["rounds"] == DAMAGES
    assert found["lost, told and repaired"] > 0


def test_damage_to_files_of_processes_is_noticed_and_repaired(tmp_path: Path) -> None:
    found = ran(
        "objects_damage_rounds.py",
        "--rounds",
        DAMAGES_IN_PROCESSES,
        "--seed",
        4,
        "--real",
        tmp_path / "group",
    )
    assert found["rounds"] == DAMAGES_IN_PROCESSES


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_histories_of_maps_and_locks_are_linearizable_whatever_fails(tmp_path: Path) -> None:
    found = ran("objects_history_rounds.py", tmp_path / "group", "--minutes", MINUTES or 0.25, "--seed", 5)
    assert found["map: calls that were answered"] > 0
