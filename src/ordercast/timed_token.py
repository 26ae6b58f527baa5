"""FDDI's rule of who may broadcast how much, in place of Totem's, to compare the two (000 §8.2)."""

from __future__ import annotations

from ordercast.core.contract import Machine
from ordercast.totem.flow import FlowControl
from ordercast.totem.machine import TotemMachine
from ordercast.totem.tokens import Token


class TimedToken(FlowControl):
    """What is left of the window goes to whoever the token visits next: "the simple window-size mechanism
    used by FDDI" (000 §8.2), where a station sends for as long as the token is ahead of its time.
    """

    def _share(self, token: Token, tbl: int) -> int:
        return tbl


def share_by_timed_token(machine: Machine | None) -> None:
    """From now on a member of an idle ring takes of the window as FDDI does, to compare: until the ring
    changes."""
    assert isinstance(machine, TotemMachine)
    ring = machine.formation.ring
    ring.flow = TimedToken(machine.config, len(ring.members), ring.limits)
