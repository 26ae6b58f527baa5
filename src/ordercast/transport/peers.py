"""What a node knows of another that it has a link to, or had; and who is told of links."""

from __future__ import annotations

from typing import Protocol

from ordercast.core.identity import NodeId
from ordercast.errors import OrdercastError
from ordercast.transport.seal import Opener
from ordercast.transport.segments import Reassembler
from ordercast.transport.udp_socket import Address


class Peer:
    """A node there is, or was, a link to."""

    __slots__ = (
        "addresses",
        "challenge",
        "data",
        "data_joiner",
        "heard",
        "incarnation",
        "key_id",
        "leaving",
        "linked",
        "node",
        "opener",
        "proved",
        "relay",
        "session",
        "token",
        "token_joiner",
    )

    def __init__(self, node: NodeId, token: Address, data: Address, sealed: bool = False) -> None:
        self.node = node
        self.token = token
        """Where its tokens and greetings go to, and come from."""
        self.data = data
        """The same for everything else."""
        self.addresses = list(dict.fromkeys((token, data)))
        """Where it was heard from: a machine with several addresses may use them all."""
        self.incarnation = 0
        self.session = b""
        self.challenge = b""
        """The latest challenge that the peer made for this node's address."""
        self.opener: Opener | None = None
        """Opens what this life of the peer seals; None where nothing is sealed."""
        self.key_id = 0
        """The group key that its latest greeting was sealed with."""
        self.proved = 0.0
        """When its latest greeting came. Others may be able to send in its name, but not that."""
        self.token_joiner = Reassembler(checked=not sealed)
        self.data_joiner = Reassembler(checked=not sealed)
        self.linked = False
        self.leaving = False
        """Whether the peer has said that it leaves."""
        self.heard = 0.0
        self.relay = 0
        """The port at which it carries streams between its networks; 0: nowhere."""


class LinkListener(Protocol):
    """The transport that links belong to: sends their greetings, and is told what becomes of links."""

    def send_greeting(self, packet: bytes, to: Address) -> None:
        """Send a greeting."""

    def linked(self, peer: Peer) -> None:
        """A link was made, or made again by a new life of the peer."""

    def silent(self, peer: Peer) -> None:
        """A peer has not been heard for long."""

    def refused(self, reason: OrdercastError) -> None:
        """Others say that this node is not wanted."""

    def outlived(self, life: int) -> None:
        """Others know a life of this node that is not earlier than the one it is in."""

    def drop(self, reason: str) -> None:
        """A datagram was not used."""

    def warn(self, sentence: str) -> None:
        """Something a person should know."""
