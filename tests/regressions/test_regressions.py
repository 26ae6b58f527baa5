"""Cases in which the fuzzer once found a defect, kept as data: they do not change when drawing does."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ordercast.catalogue import fuzzed_protocol
from ordercast.sim.fuzz import Case, run

FILES = sorted(Path(__file__).parent.glob("*/*.json"))
"""In a folder by protocol."""


def test_there_are_cases() -> None:
    assert FILES


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_what_was_mended_holds(file: Path) -> None:
    result, _ = run(fuzzed_protocol(file.parent.name), msgspec.json.decode(file.read_bytes(), type=Case))
    assert result.failed is None, result.sentences
