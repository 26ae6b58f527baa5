"""Orderers that go by the time, or by one member: whole simulated groups with faults, from seeds."""

from __future__ import annotations

import pytest

from ordercast.catalogue import lab_protocol
from ordercast.sim.fuzz import plan, run


@pytest.mark.parametrize("seed", range(500_000, 500_008))
@pytest.mark.parametrize("protocol", ["trmp", "primary-backup"])
def test_groups_with_faults_keep_their_order_and_converge(protocol: str, seed: int) -> None:
    which = lab_protocol(protocol)
    result, _ = run(which, plan(which, seed, (2, 4)))
    assert result.failed is None, result.sentences
