"""Leases: who holds what by a name, and who waits for it. The state of all locks and elections of a network.

A lease has a *token*, which is larger with every lease, and a *beat*, which counts how often its holder has
asked for it or renewed it. Each replica measures by its own clock for how long it has seen the same beat.
When that is as long as the lease lasts, it asks that the lease end (`expire`), which happens at one place in
the order, and only if there was no other beat before. The beat was asked for before anybody saw it, so
whoever counts from when it asked knows of the end first, whatever the clocks show
(``docs/decisions/leases.md``).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ordercast.objects.tickets import Tickets
from ordercast.process_groups.views import Process
from ordercast.replicated.command import command
from ordercast.replicated.replicated import Replicated


class Lease(msgspec.Struct, array_like=True, frozen=True):
    """Who holds something, or waits for it."""

    ticket: str
    process: Process
    beat: int
    ttl_us: int
    says: str
    """What the holder says of itself."""
    token: int = 0
    """0: it waits."""


class Changed(NamedTuple):
    """A lease was given, renewed, or has ended."""

    name: str
    lease: Lease | None


class Leases(Replicated):
    """Who holds what, by name, and who waits for it in which order."""

    __slots__ = ("tickets",)

    held: dict[str, Lease]
    waiting: dict[str, tuple[Lease, ...]]
    """In the order in which they have their turn; only of what is held."""
    base: int
    """Tokens are this much larger than positions: a history that began later has larger ones."""

    def __init__(self) -> None:
        self.tickets = Tickets(self.enter)
        self.held = {}
        self.waiting = {}
        self.base = 0

    @command
    def enter(self) -> int:
        """A number that no other replica has."""
        self.base = self.base or self.now_us
        return self.position

    @command
    def acquire(self, name: str, ticket: str, beat: int, ttl_us: int, wait: bool, says: str) -> int:
        """Hold it, or wait for it; the token, or 0 while somebody else holds it. To ask again is to renew."""
        asked = Lease(ticket, self.caller, beat, ttl_us, says)
        lease = self.held.get(name)
        if lease is None:
            return self._give(name, asked)
        if lease.ticket == ticket:
            self._set(name, msgspec.structs.replace(asked, token=lease.token))
            return lease.token
        if wait:
            others = self.waiting.get(name, ())
            at = next((at for at, each in enumerate(others) if each.ticket == ticket), len(others))
            self.waiting[name] = (*others[:at], asked, *others[at + 1 :])
        return 0

    @command
    def renew(self, name: str, ticket: str, beat: int) -> bool:
        """Go on holding it; whether it is held."""
        lease = self.held.get(name)
        if lease is None or lease.ticket != ticket:
            return False
        self._set(name, msgspec.structs.replace(lease, beat=beat))
        return True

    @command
    def release(self, name: str, ticket: str) -> None:
        """Hold it no longer, or do not wait for it any more."""
        lease = self.held.get(name)
        if lease is not None and lease.ticket == ticket:
            self._pass_on(name)
        else:
            self._wait_only(name, [each for each in self.waiting.get(name, ()) if each.ticket != ticket])

    @command
    def expire(self, name: str, ticket: str, beat: int) -> None:
        """Who holds it did not renew it in time, as far as a replica has seen."""
        lease = self.held.get(name)
        if lease is not None and (lease.ticket, lease.beat) == (ticket, beat):
            self._pass_on(name)

    def left(self, process: Process) -> None:
        """Who has left waits no longer. What it holds it may yet believe to hold, until its time is over."""
        for name, waiting in list(self.waiting.items()):
            self._wait_only(name, [each for each in waiting if each.process != process])

    def _wait_only(self, name: str, waiting: list[Lease]) -> None:
        if waiting:
            self.waiting[name] = tuple(waiting)
        else:
            self.waiting.pop(name, None)

    def _pass_on(self, name: str) -> None:
        del self.held[name]
        first, *rest = self.waiting.get(name, (None,))
        self._wait_only(name, [each for each in rest if each is not None])
        if first is None:
            self.tell(Changed(name, None))
        else:
            self._give(name, first)

    def _give(self, name: str, to: Lease) -> int:
        lease = msgspec.structs.replace(to, token=self.base + self.position)
        self._set(name, lease)
        return lease.token

    def _set(self, name: str, lease: Lease) -> None:
        self.held[name] = lease
        self.tell(Changed(name, lease))
