"""Golden scenarios: every text file beside this one is a story of a group and what must come of it.

The grammar is in `ordercast.sim.scenario`. Expectations are reasoned from the paper in the files' comments.
To look at one: ``ordercast sim scenario --draw tests/scenarios/FILE``.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from ordercast.protocols import PROTOCOLS
from ordercast.sim.expect import Clean, Enters
from ordercast.sim.scenario import parse, run
from ordercast.totem.states import NEXT, State

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@cache
def text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_goes_as_the_paper_says(file: Path) -> None:
    report = run(parse(text(file)), PROTOCOLS)
    assert report.ok, f"{file.name}\n{report}"


def test_there_are_scenarios_and_each_is_audited_and_cites_its_source() -> None:
    assert len(FILES) > 30
    for file in FILES:
        scenario = parse(text(file))
        assert any(isinstance(each.what, Clean) for each in scenario.expectations), f"{file.name}: no audit"
        assert re.match(r"# .*", text(file)), f"{file.name} does not say what it is about"
        assert re.search(r"§|Fig\.|PEERS", text(file)), f"{file.name} cites nothing"


def test_every_change_of_state_there_is_happens_in_some_scenario() -> None:
    """Every (state, reason) of the transition table is expected, by name, in a file of its own or another."""
    expected = {
        (each.what.since, each.what.because)
        for file in FILES
        for each in parse(text(file)).expectations
        if isinstance(each.what, Enters)
    }
    # A node comes into the world operational on its singleton ring; the story has no state before that.
    expected |= {(State.OPERATIONAL, because) for _, because in expected if because == "started"}
    table = {(state, because) for state, reasons in NEXT.items() for because in reasons}
    assert table <= expected
