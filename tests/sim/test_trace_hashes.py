"""A few traces hash to what they did before: behaviour is changed on purpose only."""

from __future__ import annotations

import pytest
from trace_hashes import SEEDS, recorded, trace_hash

from ordercast.catalogue import LAB_PROTOCOLS

FEW = (7, 58, 131)


@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize("protocol", LAB_PROTOCOLS)
def test_the_trace_is_what_it_was(protocol: str, seed: int) -> None:
    assert trace_hash(protocol, seed) == recorded()[protocol][seed], (
        "another trace than before; if that is meant: python tests/sim/trace_hashes.py --write"
    )


def test_there_is_a_hash_for_every_protocol_and_seed() -> None:
    hashes = recorded()
    assert hashes.keys() == LAB_PROTOCOLS.keys()
    assert all(len(of) == len(set(of)) == SEEDS for of in hashes.values())
