"""Cases in which the fuzzer once found a defect, kept as data: they do not change when drawing does."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ordercast.core.randomness import RandomStream
from ordercast.protocols import protocol
from ordercast.sim.fuzz import Case, run
from ordercast.totem.formation import Formation

FILES = sorted(Path(__file__).parent.glob("*/*.json"))
"""In a folder by protocol."""


def test_there_are_cases() -> None:
    assert FILES


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_what_was_mended_holds(file: Path) -> None:
    result, _ = run(protocol(file.parent.name), msgspec.json.decode(file.read_bytes(), type=Case))
    assert result.failed is None, result.sentences


class InStep(RandomStream):
    """Draws nothing: all timers of a kind are as long."""

    def between(self, lowest: int, highest: int) -> int:
        return lowest

    def spread(self, delay_us: int) -> int:
        return delay_us


def test_without_randomness_two_rings_try_to_merge_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """001: "judicious use of randomization"; without it the case would not show anything."""
    right = Formation._draw

    def in_step(self: Formation, stream: RandomStream) -> None:
        right(self, stream)
        self.random = InStep(0)

    monkeypatch.setattr(Formation, "_draw", in_step)
    file = Path(__file__).parent / "totem" / "two_rings_merge_in_step.json"
    result, _ = run(protocol("totem"), msgspec.json.decode(file.read_bytes(), type=Case))
    assert not result.converged
