"""Mutated real bytes on the log's wire: the service goes on, and a client raises one clear error.

More of them: ``ORDERCAST_WIRE_MUTATIONS=200000``, or ``python wire_fuzz.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from log_parts import delivered, installed, store
from wire_fuzz import fuzz

from hunts import rounds
from ordercast.log.blocks import Messages, batch_of, checked_batch_of, head_of
from ordercast.log.position import Position
from ordercast.log.view import View

MUTATIONS = rounds(1_000, 100_000, "ORDERCAST_WIRE_MUTATIONS")


@pytest.mark.campaign
def test_mutated_requests_and_answers(tmp_path: Path) -> None:
    outcome = fuzz(tmp_path, MUTATIONS)
    assert outcome.mutations >= MUTATIONS - 3
    for reason in ("malformed wish", "malformed frame", "not authentic", "not a client of the log"):
        assert outcome.service[reason] > MUTATIONS // 100
    assert outcome.client["Unreachable"] > MUTATIONS // 10
    assert outcome.client["answered"] > MUTATIONS // 100, "some of it does not matter"


def test_a_block_whose_offsets_lead_beyond_it_is_refused_and_read_by_nobody(tmp_path: Path) -> None:
    """Arrow would read other memory, or end the process."""
    log = store(tmp_path)
    log.append([installed("4.1", 1, first=True), delivered(1, "a", "bc", "def")])
    view = View(tmp_path)
    *_, piece = view.pieces(None, Position(4, 1, 1, 2), None)
    whole = bytes(piece.block)
    assert checked_batch_of(memoryview(whole), 0, 3, None) == batch_of(whole, 0, 3, None)
    sizes = head_of(whole).sizes
    offsets = Messages.decoded(whole).payloads.buffers()[1].to_pybytes()
    at = whole.index(offsets)
    assert len(offsets) == sizes[-2]
    for wrong in (2**31 - 1, -1, 1_000):
        block = whole[: at + 8] + wrong.to_bytes(4, "little", signed=True) + whole[at + 12 :]
        with pytest.raises((ValueError, ArithmeticError)):
            checked_batch_of(memoryview(block), 0, 3, None)
    for begin, end in ((0, 4), (-1, 2), (2, 1)):
        with pytest.raises(ValueError, match="rows that the block does not have"):
            checked_batch_of(memoryview(whole), begin, end, None)
    view.close()
    log.close()
