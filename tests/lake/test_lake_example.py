"""The example: from a live group to a table, a replica in Spark, a lake, and a picture by SQL."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ordercast.lake import Lake, Landing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "lake.py"
PNG = b"\x89PNG\r\n"


@pytest.mark.usefixtures("journals")
def test_the_example_tells_the_whole_story(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(tmp_path)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    said = capsys.readouterr().out
    assert "Spark's replica has the state of the nodes" in said
    assert "- and as of half of them: 1000" in said
    assert (tmp_path / "latency.png").read_bytes().startswith(PNG)
    [run] = Lake(tmp_path / "lake").runs()
    assert run["clean"] is True
    assert run["nodes"] == 3
    span = Landing(tmp_path / "orders").span
    assert span is not None
    assert Landing(tmp_path / "orders").as_of(span.last).num_rows == 2_000
