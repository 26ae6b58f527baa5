"""Who a driver works for: what it tells, in the order in which it happened."""

from __future__ import annotations

from typing import Protocol

from ordercast.core.contract import Event
from ordercast.core.identity import Batch, Configuration, Ended


class Sink(Protocol):
    """Receives what the machine delivers."""

    def deliver(self, batch: Batch) -> None:
        """Take messages that were delivered, in order."""

    def install(self, configuration: Configuration, ended: Ended | None) -> None:
        """A configuration, in its place among the messages, and what it ends."""

    def originated(self, batch: Batch) -> None:
        """Own messages left the queue."""


class Owner(Protocol):
    """Is told when a life of the machine ends, and decides whether another one begins."""

    def entered(self, state: str) -> None:
        """The machine is in another state."""

    def halted(self, reason: str) -> bool:
        """The machine ended its life, and nobody had told it to; whether another one is going to begin."""

    def failed(self, event: Event, error: Exception) -> None:
        """The machine raised on an event, and its life is over: begin another one."""

    def outlived(self, life: int) -> None:
        """Others know that life of this node, and the one it is in is not later: take a later one."""

    def ended(self, error: BaseException | None) -> None:
        """The node's life is over; None if it left of its own accord."""
