"""What an application gets from a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Message(NamedTuple):
    """A message to a group, as a client gets it."""

    payload: bytes
    group: str
    """The group, a subject in the words of NATS, that it was sent to."""
    headers: Mapping[str, str]
    """By name, as the sender wrote them. The values of a name that comes twice are joined by a comma."""
    reply: str
    """The group that an answer is wanted in; empty if none is."""
    seq: int | None
    """Its place in the log, the same at all nodes. None where the subscription is not one of the log."""

    @property
    def key(self) -> str | None:
        """What it is about, as its sender says (the header ``Key``); None if it does not."""
        return self.headers.get("Key")

    @property
    def size(self) -> int:
        """Bytes that it counts for while it waits to be read."""
        return len(self.payload) + len(self.group) + _EACH


class Acknowledged(NamedTuple):
    """A safe message is in the log: where it is."""

    seq: int
    """The message's place in the log, the same at all nodes."""
    duplicate: bool
    """It was sent before, with the same session and number, and is in the log once: `seq` is where."""
    stream: str
    """The log's name as a stream of JetStream."""


_EACH = 64
"""Bytes that a message counts for besides its own."""
