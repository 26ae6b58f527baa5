"""Mutated datagrams from the members' own addresses, at a live group without a key: nobody ends.

A campaign sends 300,000 at each protocol, as ``ORDERCAST_DATAGRAMS=300000`` does, or ``python injection.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from injection import attack
from wire import MAY_SPOOF

from hunts import rounds

DATAGRAMS = rounds(1_500, 300_000, "ORDERCAST_DATAGRAMS")


@pytest.mark.campaign
@pytest.mark.skipif(not MAY_SPOOF, reason="overhearing the wire and forging addresses needs root")
@pytest.mark.parametrize("protocol", ["totem", "total", "cm"])
def test_a_group_stands_mutated_datagrams_of_its_members(protocol: str, tmp_path: Path) -> None:
    outcome = attack(tmp_path, protocol, DATAGRAMS)
    assert outcome.sent >= DATAGRAMS
    assert sum(outcome.drops.values()) > DATAGRAMS // 20
