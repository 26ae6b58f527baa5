"""Flow control of push consumers (JetStream): clients are asked whether they have handled what they got."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.clients import wire

if TYPE_CHECKING:
    from ordercast.clients.connection import ClientConnection

FLOW = "$JS.FC."
"""So begin the subjects at which clients say that they have handled what came."""
FLOW_BYTES = 1024 * 1024
"""Bytes that a client with flow control gets before it is asked whether it has handled them; while it has not
answered, it gets as many again, and no more."""


class FlowControl:
    """How much a client has not handled yet."""

    def __init__(self, client: ClientConnection, deliver: str, stream: str, consumer: str) -> None:
        self._client = client
        self._deliver = deliver
        self._answers = f"{FLOW}{stream}.{consumer}."
        self._unconfirmed = 0
        """Bytes that the client may not have handled yet,"""
        self._question = ""
        """where it is to answer that it has; empty if it was not asked,"""
        self._asked_of = 0
        """and of how many bytes it was asked."""
        self._questions = 0

    @property
    def stalled(self) -> bool:
        """Whether the client has to say first that it has handled what it got."""
        return bool(self._question) and self._unconfirmed >= self._asked_of + FLOW_BYTES

    def sent(self, size: int) -> None:
        """So many bytes more go to the client: ask now and then whether it has handled what came before."""
        self._unconfirmed += size
        if not self._question and self._unconfirmed >= FLOW_BYTES:
            self._questions += 1
            self._asked_of = self._unconfirmed
            self._question = f"{self._answers}{self._questions}"
            question = wire.status(100, "FlowControl Request")
            self._client.tell(self._deliver, question, b"", self._question.encode())

    def confirm(self, subject: str) -> bool:
        """The client has handled all that came before a question; False if it was asked another one."""
        if not self._question or subject != self._question:
            return False
        self._question = ""
        self._unconfirmed -= self._asked_of
        return True

    def heartbeat(self, given: int, last: int) -> bytes:
        """Headers that say that nothing more came: so many messages were given, the last with that number."""
        lines = [("Nats-Last-Consumer", str(given)), ("Nats-Last-Stream", str(last))]
        if self.stalled:
            lines.append(("Nats-Consumer-Stalled", self._question))
        return wire.status(100, "Idle Heartbeat", lines)
