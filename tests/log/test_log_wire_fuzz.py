"""Mutated real bytes on the log's wire: the service goes on, and a client raises one clear error.

More of them: ``ORDERCAST_WIRE_MUTATIONS=200000``, or ``python wire_fuzz.py``.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from log_parts import delivered, installed, store
from wire_fuzz import fuzz, nested

from hunts import rounds
from ordercast.errors import LogError, Unreachable
from ordercast.log.blocks import Messages, batch_of, checked_batch_of, head_of
from ordercast.log.client import Connection, Remote
from ordercast.log.position import Position
from ordercast.log.view import View
from ordercast.log.wire import Frames, Malformed

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
    *_, piece = view.pieces(None, Position(4, 1, 1, 2))
    whole = bytes(piece.block)
    assert checked_batch_of(memoryview(whole), 0, 3) == batch_of(whole, 0, 3)
    sizes = head_of(whole).sizes
    offsets = Messages.decoded(whole).payloads.buffers()[1].to_pybytes()
    at = whole.index(offsets)
    assert len(offsets) == sizes[-2]
    for wrong in (2**31 - 1, -1, 1_000):
        block = whole[: at + 8] + wrong.to_bytes(4, "little", signed=True) + whole[at + 12 :]
        with pytest.raises((ValueError, ArithmeticError)):
            checked_batch_of(memoryview(block), 0, 3)
    for begin, end in ((0, 4), (-1, 2), (2, 1)):
        with pytest.raises(ValueError, match="rows that the block does not have"):
            checked_batch_of(memoryview(whole), begin, end)
    view.close()
    log.close()


NESTED: list[Any] = [nested(100), nested(800), {"a": nested(300)}]


@pytest.mark.parametrize("said", NESTED, ids=["lists", "many lists", "a map"])
def test_an_error_that_says_nested_things_is_an_error_of_ours(said: Any) -> None:
    with pytest.raises(LogError, match="something is wrong, and not what"):
        answered({"error": said, "message": said})


def test_what_is_nested_without_end_is_malformed(tmp_path: Path) -> None:
    """A header of a frame, and the head of a block in an answer."""
    endless = b"\x91" * 20_000
    with pytest.raises(Malformed):
        Frames().taken(len(endless).to_bytes(4, "big") + endless)
    block = len(endless).to_bytes(4, "little") + endless
    with pytest.raises(Unreachable, match="malformed answer"):
        answered({"rows": (0, 1)}, block)


def answered(header: dict[str, Any], body: bytes = b"") -> list[Any]:
    """What a client makes of an answer to a wish for entries."""
    here, there = socket.socketpair()
    with here, there:
        connection = Connection.__new__(Connection)
        connection.where, connection._timeout, connection._socket = "here", 5.0, here
        connection._frames = Frames()
        remote = Remote("here", None, 5.0)
        remote._connection = connection
        there.sendall(Frames().made(header, body))
        there.shutdown(socket.SHUT_WR)
        return list(remote.read(None, Position(4, 1, 1, 0)))
