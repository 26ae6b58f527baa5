"""Lives of other nodes that were heard of: remembered in order, bounded, and over restarts."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ordercast.core.identity import MAX_INCARNATION
from ordercast.transport import known_lives as lives
from ordercast.transport.known_lives import FREELY, REACH, KnownLives, within_reach

ONE, TWO = b"1" * 16, b"2" * 16


def test_a_later_life_is_known_and_an_earlier_one_is_outlived() -> None:
    known = KnownLives()
    assert known.outliving(5, 0, ONE) == -1, "nothing is known yet"
    known.note(5, 7, ONE)
    assert known.outliving(5, 7, ONE) == -1, "it is that life"
    assert known.outliving(5, 6, ONE) == -1, "it began a later one itself"
    assert known.outliving(5, 8, TWO) == -1
    assert known.outliving(5, 7, TWO) == 7, "two lives have one number"
    assert known.outliving(5, 3, TWO) == 7
    known.note(5, 3, TWO)
    assert known.outliving(5, 7, ONE) == -1, "the latest counts"


def test_a_single_claim_does_not_use_up_the_numbers() -> None:
    known = KnownLives()
    known.note(5, MAX_INCARNATION, ONE)
    assert known.outliving(5, 0, TWO) == -1
    known.note(5, FREELY, ONE)
    known.note(5, FREELY + REACH + 1, TWO)
    assert known.outliving(5, 0, TWO) == FREELY
    known.note(5, FREELY + REACH, TWO)
    assert known.outliving(5, 0, ONE) == FREELY + REACH
    steps, life = 0, FREELY
    while within_reach(life + REACH, life) and life + REACH < MAX_INCARNATION:
        steps, life = steps + 1, life + REACH
    assert steps > 1_000_000


def test_what_is_known_survives_and_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "MOST_NODES", 3)
    known = KnownLives()
    for node, life in ((1, 10), (2, 20), (3, 30), (1, 11), (4, 40)):
        known.note(node, life, ONE)
    assert known.changed
    known.save(tmp_path)
    assert not known.changed
    again = KnownLives()
    again.load(tmp_path)
    assert [again.outliving(node, 0, TWO) for node in (1, 2, 3, 4)] == [11, -1, 30, 40], (
        "the one heard of least lately"
    )
    assert again.outliving(3, 30, ONE) == -1, "with its session"
    assert (tmp_path / lives.FILE).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", [b"", b"\xff" * 40, None])
def test_a_damaged_file_is_told_of_and_not_used(
    damage: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = KnownLives()
    known.note(5, 7, ONE)
    known.save(tmp_path)
    path = tmp_path / lives.FILE
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"\x07", b"\x06", 1) if damage is None else damage)
    again = KnownLives()
    with caplog.at_level(logging.WARNING):
        again.load(tmp_path)
    assert again.outliving(5, 0, TWO) == -1
    assert "learnt anew" in caplog.text


def test_a_disk_that_is_full_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    known = KnownLives()
    known.note(5, 7, ONE)
    known.save(tmp_path / "gone")
    assert "cannot be written" in caplog.text
