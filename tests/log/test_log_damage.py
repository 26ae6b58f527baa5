"""A log whose files are damaged: what is read is right, or it is told that it cannot be read."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from damage import damage
from log_parts import delivered, installed, store

from hunts import rounds
from ordercast.errors import Damaged, LogError, NotThere, StorageProblem, Unreachable
from ordercast.log import Position, Replica

ROUNDS = rounds(15, 1_000, "ORDERCAST_DAMAGES")
"""How many damages; each takes some hundredths of a second."""


def write(path: Path, chance: random.Random, lives: int) -> None:
    """A log with several lives, many small blocks and some segments."""
    for life in range(lives):
        log = store(path, most_bytes=600_000)
        log.append([installed(f"{10 * life + 4}.1", 1, 2, first=True)])
        for seq in range(1, chance.randrange(5, 60)):
            texts = [f"{life} {seq} {slot} " + "x" * chance.randrange(2000) for slot in range(1 + seq % 3)]
            log.append([delivered(seq, *texts)])
        log.close()


def everything(replica: Replica) -> tuple[list[dict[str, Any]], list[Damaged]]:
    """All that can be read of a log, over gaps and damage; and what was said to be damaged."""
    found: list[dict[str, Any]] = []
    told: list[Damaged] = []
    at: Position | None = None
    while True:
        try:
            end = replica.after(at, 20)
            if end is None:
                return found, told
            found += [row for batch in replica.read(at, end) for row in batch.to_pylist()]
            at = end
        except (Damaged, NotThere) as error:
            if isinstance(error, Damaged):
                told.append(error)
            places = [place for place in _places(error) if at is None or place > at]
            if not places:
                return found, told
            at = max(places)


def _places(error: LogError) -> list[Position]:
    words = str(error).replace(",", " ").replace(":", " ").split()
    places = []
    for word in words:
        try:
            places.append(Position.parse(word.rstrip(".")))
        except ValueError:
            continue
    return places


def place_of(row: dict[str, Any]) -> Position:
    return Position(row["config_seq"], row["config_rep"], row["seq"], row["slot"])


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_damaged_log_gives_what_was_written_or_says_what_is_damaged(tmp_path: Path, seed: int) -> None:
    chance = random.Random(f"damage/{seed}")
    log = tmp_path / "log"
    write(log, chance, 1)
    shutil.copytree(log, tmp_path / "older")
    write_more(log, chance)
    with Replica(str(log)) as replica:
        rows, told = everything(replica)
    assert not told
    truth = {place_of(row): row for row in rows}
    done = damage(chance, log, tmp_path / "older")
    try:
        with Replica(str(log)) as replica:
            rows, told = everything(replica)
    except (Damaged, Unreachable):
        pass
    else:
        check(rows, told, truth, done)
    try:
        again = store(log, most_bytes=600_000)
    except StorageProblem:
        return  # in words; another node's file, or another format
    again.append([installed("94.1", 1, 2, first=True), delivered(1, "after the damage")])
    damaged = [hole for segment in again.finished for hole in again.check(segment)]
    again.close()
    with Replica(str(log)) as replica:
        rows, told = everything(replica)
    assert [row["payload"] for row in rows if row["config_seq"] == 94][-1] == b"after the damage", done
    assert bool(damaged) == bool(told), done
    check([row for row in rows if row["config_seq"] < 94], [*told, *again.problems], truth, done)


def check(rows: list[dict[str, Any]], told: Sequence[object], truth: dict[Position, Any], done: str) -> None:
    """What is there is as it was, in order; if something is missing, that was told."""
    places = [place_of(row) for row in rows]
    assert places == sorted(set(places)), done
    assert all(truth[place_of(row)] == row for row in rows), done
    assert told or len(rows) == len(truth), done


def write_more(path: Path, chance: random.Random) -> None:
    log = store(path, most_bytes=600_000)
    log.append([installed("50.1", 1, 2, first=True)])
    for seq in range(1, chance.randrange(5, 60)):
        log.append([delivered(seq, "y" * chance.randrange(3000))])
    log.close()
