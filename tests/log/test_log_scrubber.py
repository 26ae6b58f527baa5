from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from ordercast.groups.log_scrubber import LogScrubber, read_mark

if TYPE_CHECKING:
    from ordercast.log.store import Store


class Committed:
    """A log that has had so many commits."""

    path = Path("log")
    commits = 7


def scrubber(mark: Path) -> LogScrubber:
    return LogScrubber(cast("Store", Committed()), mark, list, lambda: None, lambda: 0)


def test_how_many_commits_there_were_is_noted(tmp_path: Path) -> None:
    scrubber(tmp_path / "mark").note()
    assert read_mark(tmp_path / "mark", Committed.path) == 7
    assert read_mark(tmp_path / "mark", Path("another")) == 0


def test_a_disk_that_refuses_the_note_is_told_of_once(
    tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", str(tmp_path))

    one = scrubber(tmp_path / "mark")
    with monkeypatch.context() as refusing:
        refusing.setattr(os, "replace", full)
        one.note()
        one.note()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left on device" in caplog.text
    assert "old copy of the log would not be noticed" in caplog.text
    one.note()
    assert read_mark(tmp_path / "mark", Committed.path) == 7
