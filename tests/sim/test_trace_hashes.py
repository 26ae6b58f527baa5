"""A few traces hash to what they did before: behaviour is changed on purpose only."""

from __future__ import annotations

import pytest
from trace_hashes import recorded, seeds_of, trace_hash

from ordercast.catalogue import LAB_PROTOCOLS

FEW = (7, 58, 131)


@pytest.mark.parametrize(
    ("protocol", "seed"), [*((protocol, seed) for protocol in LAB_PROTOCOLS for seed in FEW), ("rings", 7)]
)
def test_the_trace_is_what_it_was(protocol: str, seed: int) -> None:
    assert trace_hash(protocol, seed) == recorded()[protocol][seed], (
        "another trace than before; if that is meant: python tests/sim/trace_hashes.py --write"
    )


def test_there_is_a_hash_for_every_protocol_and_seed() -> None:
    hashes = recorded()
    assert {protocol: len(of) for protocol, of in hashes.items()} == seeds_of()
    assert all(len(of) == len(set(of)) for of in hashes.values())
