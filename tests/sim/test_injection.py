"""Wrong packets at machines in every state: none raises; and the harness finds a machine that does."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from hunts import rounds
from ordercast.catalogue import LAB_PROTOCOLS, LAB_TOTEM, lab_protocol
from ordercast.core.contract import Packet
from ordercast.core.wire import Malformed
from ordercast.sim.injection import ImpossibleEffect, campaign, inject, retained
from ordercast.sim.mutation import Mutator
from ordercast.totem.machine import TotemMachine
from ordercast.totem.packets import Join, Token

FIRST_SEED = int(os.environ.get("ORDERCAST_SEED", "60"))
PACKETS = rounds(2_000, 200_000, "ORDERCAST_INJECTIONS")
"""Wrong packets at each protocol; the bar is ten million at all of them: ``ordercast sim inject``."""


@pytest.mark.campaign
@pytest.mark.parametrize("name", LAB_PROTOCOLS)
def test_no_machine_raises_because_of_a_packet(name: str) -> None:
    states: set[str] = set()
    for found in campaign(LAB_PROTOCOLS[name], FIRST_SEED, (2, 5), PACKETS):
        assert not found.failures, found.failures
        states |= found.states.keys()
    assert len(states) >= 2, states


def test_the_same_seed_injects_the_same_packets() -> None:
    one, other = (inject(lab_protocol("cm"), 9, (3, 3)) for _ in range(2))
    assert (one.count, one.states, one.reasons) == (other.count, other.states, other.reasons)
    assert one.count > 50


def test_a_machine_that_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TotemMachine._on_token

    def careless(self: TotemMachine, now_us: int, token: Token, *rest: Any) -> None:
        if token.seq > 2**60:
            raise ValueError("nobody sends as much")
        right(self, now_us, token, *rest)

    monkeypatch.setattr(TotemMachine, "_on_token", careless)
    failure = next(found.failures[0] for found in campaign(LAB_TOTEM, 0, (3, 4), 20_000) if found.failures)
    assert failure.what == "ValueError: nobody sends as much"
    assert failure.event.startswith("packet 4f430103")
    again = inject(LAB_TOTEM, failure.seed, (3, 4))
    assert again.failures == [failure], "the seed alone shows it again"


def test_a_machine_that_wants_the_impossible_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.totem.formation.within_reach", lambda number, known: True, raising=False)
    monkeypatch.setattr(Join, "encode", lambda self: b"OC\x01\x05" + bytes(70_000))
    found = inject(LAB_TOTEM, 1, (3, 3))
    assert found.failures[0].what == f"{ImpossibleEffect.__name__}: a packet of 70004 bytes is to be sent"


def test_what_is_retained_is_all_that_can_be_reached() -> None:
    class Slotted:
        __slots__ = ("inner",)

        def __init__(self, inner: object) -> None:
            self.inner = inner

    held: dict[str, object] = {"a": [bytes(10_000)], "b": Slotted({1: bytes(20_000)})}
    held["itself"] = held
    assert 30_000 < retained(held) < 32_000


def test_wrong_packets_are_mostly_readable_and_all_kinds_get_their_share() -> None:
    join = Join(1, 8, (1, 2), ()).encode()
    mutator = Mutator(random.Random(1), LAB_TOTEM.rewrite, (1, 2))
    mutator.saw(Packet(join, 1))
    made = [mutator.packet()[0] for _ in range(500)]
    assert len(set(made)) > 200
    readable = 0
    for data in made:
        try:
            LAB_TOTEM.rewrite(data, lambda packet: packet)
            readable += 1
        except Malformed:
            pass
    assert 100 < readable < 450
