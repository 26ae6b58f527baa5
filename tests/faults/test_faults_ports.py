"""Malformed, unfinished and slow words at the stream ports of live nodes.

More of them: ``ORDERCAST_PORT_ATTACKS=100000``, or ``python port_fuzz.py``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from port_fuzz import fuzz

from hunts import rounds

ATTACKS = rounds(600, 50_000, "ORDERCAST_PORT_ATTACKS")


@pytest.mark.campaign
@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "plain"])
def test_attacks_on_the_ports_end_no_node_and_correct_clients_are_served(
    sealed: bool, tmp_path: Path
) -> None:
    outcome = fuzz(tmp_path, ATTACKS, seed=7, sealed=sealed)
    for kind in ("greeting mutated", "odd fields", "frames mutated", "cut short", "too long", "nested"):
        assert outcome["said"][f"log: {kind}"] > 0
    for port in ("metrics", "control"):
        assert outcome["said"][f"{port}: mutated"] > 0
    drops = Counter[str]()
    for told in outcome["log drops"]:
        drops.update(told)
    for reason in ("not a client of the log", "malformed frame", "malformed wish", "frame too large"):
        assert drops[reason] > 0
    assert bool(drops["not authentic"]) == sealed
    assert not drops["defect"]
