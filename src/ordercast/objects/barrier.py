"""A replicated barrier: parties wait until all have arrived."""

from __future__ import annotations

from functools import partial
from itertools import islice

from ordercast.errors import CommandFailed, ConfigProblem
from ordercast.objects.tickets import Tickets
from ordercast.objects.waiting import do_later, told
from ordercast.process_groups.views import Process
from ordercast.replicated.command import command
from ordercast.replicated.replicated import Replicated, watch

MOST_REFUSED = 10_000
"""Parties that wait in vain and have not noticed yet: so many are remembered."""


class BarrierBroken(CommandFailed):
    """Not all parties of a barrier can arrive any more."""

    def __str__(self) -> str:
        return f"the barrier is broken: {self.args[0]}; reset it when all parties are there again"


class Barrier(Replicated):
    """Parties arrive, and go on when there are as many as the barrier is made for; then it can be used again.

        ready = await node.replicate(Barrier(3), "ready")
        await ready.wait()

    Each node that replicates it is taken for a party: if one leaves, dies or is cut off while others wait,
    the barrier is broken, and they get `BarrierBroken`, as who comes later does, until `reset`.
    """

    __slots__ = ("_tickets",)

    parties: int
    arrived: dict[str, Process]
    """By ticket: who waits."""
    refused: dict[str, str]
    """By ticket: who waited when it broke, and has not noticed yet; and why."""
    broken: str
    """Why it is broken; empty if it is not."""

    def __init__(self, parties: int) -> None:
        if parties < 1:
            raise ConfigProblem(f"a barrier is for 1 party or more, not {parties}")
        self._tickets = Tickets(self.enter)
        self.parties = parties
        self.arrived = {}
        self.refused = {}
        self.broken = ""

    async def wait(self) -> None:
        """Arrive, and wait until all have. Raises `BarrierBroken`. Who is cancelled has not arrived."""
        ticket = await self._tickets.draw()
        try:
            with watch(self) as events:
                await self.arrive(ticket)
                while ticket in self.arrived:
                    await told(events, lambda event: True)
                    await self.sync()
        except BaseException:
            do_later(partial(self.withdraw, ticket))
            raise
        if ticket in self.refused:
            why = self.refused[ticket]
            do_later(partial(self.withdraw, ticket))
            raise BarrierBroken(why)

    @command
    def enter(self) -> int:
        """A number that no other replica has."""
        return self.position

    @command
    def arrive(self, ticket: str) -> None:
        """A party arrives at the barrier."""
        if self.broken:
            raise BarrierBroken(self.broken)
        self.arrived[ticket] = self.caller
        if len(self.arrived) == self.parties:
            self.arrived.clear()
            self.tell("complete")

    @command
    def withdraw(self, ticket: str) -> None:
        """A party does not wait any more."""
        self.arrived.pop(ticket, None)
        self.refused.pop(ticket, None)

    @command
    def reset(self) -> None:
        """Begin anew: who waits gets `BarrierBroken`, and nobody else does."""
        self._refuse("it was reset")
        self.broken = ""

    def left(self, process: Process) -> None:
        """A party is gone."""
        if self.arrived:
            self.broken = f"node {process.node} was gone while others waited"
            self._refuse(self.broken)

    def _refuse(self, why: str) -> None:
        self.refused.update(dict.fromkeys(self.arrived, why))
        for ticket in list(islice(self.refused, max(0, len(self.refused) - MOST_REFUSED))):
            del self.refused[ticket]
        self.arrived.clear()
        self.tell("broken")
