"""``ordercast sim inject``."""

from __future__ import annotations

from cli_parts import ordercast


def test_what_was_injected_is_told_to_programs() -> None:
    said = ordercast("sim", "inject", "--protocol", "cm", "--count", 300, "--nodes", "3", "--json")
    assert said.code == 0
    (told,) = said.document["protocols"]
    assert told["protocol"] == "cm"
    assert told["count"] >= 300
    assert told["failures"] == told["apart"] == told["replays"] == []
    assert sum(told["states"].values()) == told["count"]


def test_people_get_a_verdict() -> None:
    said = ordercast("sim", "inject", "--protocol", "totem", "--count", 300, "--nodes", "3")
    assert said.code == 0
    assert "no machine raised" in said.out


def test_a_protocol_that_there_is_not_is_a_mistake() -> None:
    assert ordercast("sim", "inject", "--protocol", "nonsense").code == 2
