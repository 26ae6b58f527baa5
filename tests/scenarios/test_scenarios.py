"""Golden scenarios: every text file beside this one is a story of a group and what must come of it.

The grammar is in `ordercast.sim.scenario`. Expectations are reasoned from the paper in the files' comments.
To look at one: ``ordercast sim scenario --draw tests/scenarios/FILE``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from ordercast.catalogue import LAB_PROTOCOLS, OVER_NETWORKS
from ordercast.sim.expect import Clean, Enters, OfAny
from ordercast.sim.faults import Lose
from ordercast.sim.scenario import parse, run
from ordercast.totem.states import NEXT, State
from ordercast.viewsync import states as views

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@cache
def text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_goes_as_the_paper_says(file: Path) -> None:
    scenario = parse(text(file))
    report = run(scenario, {**LAB_PROTOCOLS, **OVER_NETWORKS})
    assert report.ok, f"{file.name}\n{report}"
    if any(isinstance(fault.do, Lose) for fault in scenario.faults):
        left = [packet for links in report.world.networks.links() for packet in links.planned_losses]
        assert not left, f"{file.name}: a packet that was to be lost never came"


def test_there_are_scenarios_and_each_is_audited_and_cites_its_source() -> None:
    assert len(FILES) > 30
    for file in FILES:
        scenario = parse(text(file))
        assert any(isinstance(each.what, Clean) for each in scenario.expectations), f"{file.name}: no audit"
        assert re.match(r"# .*", text(file)), f"{file.name} does not say what it is about"
        assert re.search(r"§|Figs?\b|003,|PEERS", text(file)), f"{file.name} cites nothing"


def test_every_change_of_state_there_is_happens_in_some_scenario() -> None:
    """Every (state, reason) of the transition table is expected, by name, in a file of its own or another."""
    expected = entered(lambda protocol: protocol in (None, "totem"))
    # A node comes into the world operational on its singleton ring; the story has no state before that.
    expected |= {(State.OPERATIONAL, because) for _, because in expected if because == "started"}
    table = {(state, because) for state, reasons in NEXT.items() for because in reasons}
    assert table <= expected


def test_every_way_into_a_change_of_view_and_out_of_it_happens_in_some_scenario() -> None:
    """The same of the sequencer family's table: every reason in it is expected, by name, in some file."""
    expected = {because for _, because in entered(lambda protocol: protocol not in (None, "totem"))}
    assert {because for reasons in views.NEXT.values() for because in reasons} <= expected


def entered(chosen: Callable[[str | None], bool]) -> set[tuple[str | None, str | None]]:
    """From which states, and for which reasons, scenarios of these protocols expect others to be entered."""
    found = set()
    for scenario in (parse(text(file)) for file in FILES):
        for each in scenario.expectations if chosen(scenario.protocol) else ():
            what = each.what.what if isinstance(each.what, OfAny) else each.what
            if isinstance(what, Enters):
                found.add((what.since, what.because))
    return found
