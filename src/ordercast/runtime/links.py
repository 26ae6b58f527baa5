"""Who is out there: nodes greet each other, and a link is what comes of it.

A node knows some addresses (`seeds`, or the full list of peers). It greets them; who answers tells which
others it knows, and they are greeted too. A greeting carries a *challenge*, and a link exists once a greeting
came that echoes mine: so what was recorded earlier, in another life of either side, makes no link. Linked
nodes greet each other every second; who is silent for `SILENT_S` is sent only greetings until it speaks.

A node identifier belongs to whoever has it: a second node that comes with it from another address is refused,
and told so, while the first one is alive. So is a node that runs another protocol than those that were here
before it.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from ordercast.core.identity import MAX_NODE_ID, NodeId
from ordercast.core.wire import UNREADABLE
from ordercast.errors import DuplicateNode, OrdercastError, OtherProtocol
from ordercast.runtime.seal import UNKNOWN_KEY, Opener, Refused, Seal
from ordercast.runtime.segments import Joiner
from ordercast.runtime.udp import Address

GREETING_MAGIC = b"OG\x01"
"""How a greeting begins on the wire; a segment begins otherwise."""
GREET_S = 0.5
"""How often addresses without a link are tried; linked nodes greet each other every other time."""
SILENT_S = 4.0
"""Who is silent for longer is not sent the group's packets."""
ALIVE_S = 2.4
"""Who was heard within this time is alive: nobody else gets its identifier."""
FORGET_S = 600.0
"""An address that was only heard of is forgotten after this long without an answer."""
MOST_ADDRESSES = 1024
"""Addresses to try, and nodes to know, at a time."""
MOST_ALIASES = 16
"""Addresses that one node is heard from."""
MOST_TOLD = 16
"""Peers named in a greeting, so that it fits a datagram; with more of them, each greeting names others."""


class Greeting(msgspec.Struct, array_like=True, frozen=True):
    """What nodes tell each other before, and while, they share a ring."""

    node: int
    incarnation: int
    session: bytes
    """One life of the sender: later lives have greater sessions."""
    challenge: bytes
    """Made at random in each life; to be echoed."""
    echo: bytes
    """The receiver's challenge, as far as the sender knows it."""
    number: int
    """Counts the sender's greetings in this life: an earlier one than the last was sent by somebody else."""
    linked: bool
    """The sender has a link to the receiver, and needs no answer."""
    data_port: int
    counters: tuple[int, int]
    """By channel, how many packets the sender has sealed: earlier ones are none of this link."""
    settings: str
    """What has to be the same everywhere, in words."""
    peers: list[tuple[int, str, int]]
    """Nodes that the sender has links to: identifier, host, port."""
    refusal: str = ""
    """Why the receiver is not wanted; empty otherwise."""
    protocol: str = "totem"
    """What orders the sender's messages: nodes with another have nothing to say to each other."""


class Peer:
    """A node there is, or was, a link to."""

    __slots__ = (
        "addresses",
        "challenge",
        "data",
        "data_joiner",
        "greeted",
        "heard",
        "incarnation",
        "linked",
        "node",
        "opener",
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
        self.greeted = 0
        """Number of its latest greeting."""
        self.incarnation = 0
        self.session = b""
        self.challenge = b""
        self.opener: Opener | None = None
        """Opens what this life of the peer seals; None where nothing is sealed."""
        self.token_joiner = Joiner(checked=not sealed)
        self.data_joiner = Joiner(checked=not sealed)
        self.linked = False
        self.heard = 0.0


class Post(Protocol):
    """What links need of the driver."""

    def post(self, packet: bytes, to: Address) -> None:
        """Send a greeting."""

    def linked(self, peer: Peer) -> None:
        """A link was made, or made again by a new life of the peer."""

    def silent(self, peer: Peer) -> None:
        """A peer has not been heard for long."""

    def refused(self, reason: OrdercastError) -> None:
        """Others say that this node is not wanted."""

    def drop(self, reason: str) -> None:
        """A datagram was not used."""

    def warn(self, sentence: str) -> None:
        """Something a person should know."""


class Links:
    """The links of one life of a node."""

    def __init__(
        self,
        node: NodeId,
        incarnation: int,
        session: bytes,
        data_port: int,
        protocol: str,
        settings: str,
        post: Post,
        seal: Seal | None,
        closed: bool,
        clock: Callable[[], float],
    ) -> None:
        """With ``closed``, only addresses given to `know` are greeted or answered: a full list of peers."""
        self.node = node
        self.incarnation = incarnation
        self.session = session
        self.challenge = secrets.token_bytes(8)
        self.peers: dict[NodeId, Peer] = {}
        self.targets: list[Peer] = []
        """Who is sent the group's packets."""
        self._by_address: dict[Address, Peer] = {}
        self._data_port = data_port
        self._protocol = protocol
        self._settings = settings
        self._post = post
        self._seal = seal
        self._closed = closed
        self._clock = clock
        self._known: dict[Address, float] = {}
        """Addresses to try, and when to stop."""
        self._warned: set[NodeId | Address] = set()
        self._rounds = 0
        self._greetings = 0
        self._told = 0

    # --- addresses ------------------------------------------------------------------------------

    def know(self, addresses: Iterable[Address]) -> None:
        """Addresses to greet for as long as this node lives."""
        for address in addresses:
            self._known[address] = float("inf")

    def peer_at(self, source: Address) -> Peer | None:
        """Whose address that is, if there is a link or was one."""
        return self._by_address.get(source)

    def unheard(self, seconds: float) -> list[Peer]:
        """Linked peers that nothing came from for so long."""
        now = self._clock()
        return [peer for peer in self.targets if now - peer.heard > seconds]

    def hosts(self) -> list[str]:
        """The hosts of the nodes that there are links to."""
        return list(dict.fromkeys(peer.token[0] for peer in self.targets))

    def heard(self, peer: Peer) -> None:
        """Something came from it that nobody else could have sent, or so it seems."""
        peer.heard = self._clock()
        if not peer.linked:
            self._link(peer)

    # --- greeting -------------------------------------------------------------------------------

    def greet(self) -> None:
        """Twice a second: greet everybody, linked peers every other time, and see who has fallen silent."""
        now = self._clock()
        self._rounds += 1
        for peer in list(self.peers.values()):
            if peer.linked and now - peer.heard > SILENT_S:
                peer.linked = False
                self._retarget()
                self._post.silent(peer)
            elif now - peer.heard > FORGET_S:
                self._forget(peer)
                continue
            if self._rounds % 2 or not peer.linked:
                self._send(peer.token, peer)
        for address, until in list(self._known.items()):
            if address not in self._by_address:
                if now > until:
                    del self._known[address]
                else:
                    self._send(address, None)

    def _send(self, to: Address, peer: Peer | None, echo: bytes = b"", refusal: str = "") -> None:
        linked = peer is not None and peer.linked
        self._greetings += 1
        greeting = Greeting(
            node=self.node,
            incarnation=self.incarnation,
            session=self.session,
            challenge=self.challenge,
            echo=echo or (peer.challenge if peer is not None else b""),
            number=self._greetings,
            linked=linked,
            data_port=self._data_port,
            counters=self._seal.counters if self._seal else (0, 0),
            settings=self._settings,
            peers=self._tell() if peer is not None else [],
            refusal=refusal,
            protocol=self._protocol,
        )
        body = msgspec.msgpack.encode(greeting)
        self._post.post(GREETING_MAGIC + (self._seal.greeting(body) if self._seal else body), to)

    def _tell(self) -> list[tuple[int, str, int]]:
        """Some of the linked peers: all of them, one greeting after the other."""
        told = self.targets
        if len(told) > MOST_TOLD:
            self._told = (self._told + MOST_TOLD) % len(told)
            told = (told[self._told :] + told[: self._told])[:MOST_TOLD]
        return [(peer.node, peer.token[0], peer.token[1]) for peer in told]

    def on_greeting(self, data: bytes, source: Address) -> None:
        """A datagram that begins like a greeting, from anybody."""
        sealed = data[len(GREETING_MAGIC) :]
        try:
            body = self._seal.open_greeting(sealed) if self._seal else sealed
            greeting = msgspec.msgpack.decode(body, type=Greeting)
        except Refused as error:
            self._post.drop(f"greeting: {error}")
            if (
                error.reason == UNKNOWN_KEY
                and source not in self._warned
                and len(self._warned) < MOST_ADDRESSES
            ):
                self._warned.add(source)
                self._post.warn(f"{spell(source)} greets with another key: give all nodes the same key file")
            return
        except UNREADABLE:
            self._post.drop("greeting: malformed")
            return
        if not _sound(greeting):
            self._post.drop("greeting: malformed")
        elif greeting.session == self.session:
            self._known.pop(source, None)  # one of the addresses is this node's own
        elif self._closed and source not in self._known:
            self._post.drop("greeting: not on the list of peers")
        else:
            self._on_greeting(greeting, source)

    def _on_greeting(self, greeting: Greeting, source: Address) -> None:
        proven = greeting.echo == self.challenge
        if greeting.refusal:
            if proven:
                other = greeting.protocol != self._protocol
                self._post.refused((OtherProtocol if other else DuplicateNode)(greeting.refusal))
            return
        peer = self.peers.get(greeting.node)
        refusal = self._why_not(greeting, peer, source)
        if refusal:
            if refusal != "stale":
                self._send(source, None, greeting.challenge, refusal)
            self._post.drop("greeting: earlier life" if refusal == "stale" else "greeting: id in use")
            return
        if greeting.protocol != self._protocol:
            self._turn_away(greeting, source)
            return
        if not proven:
            self._send(source, None, greeting.challenge)
            return
        if greeting.node == self.node:
            self._post.drop("greeting: own id")
            return
        same_life = peer is not None and peer.session == greeting.session
        if peer is not None and same_life and greeting.number <= peer.greeted:
            self._post.drop("greeting: replayed")
            return
        if peer is not None and same_life and peer.token != source and self._alive(peer):
            self._also_at(peer, source)
        elif peer is None or not same_life or peer.token != source:
            if peer is None and len(self.peers) >= MOST_ADDRESSES:
                self._post.drop("greeting: too many nodes")
                return
            peer = self._meet(greeting, source, peer)
        peer.greeted = greeting.number
        peer.heard = self._clock()
        fresh = not peer.linked
        if fresh:
            self._link(peer)
        if fresh or not greeting.linked:  # it is told at once who else is here
            self._send(source, peer)
        if not self._closed:
            self._hear_of(greeting.peers, source)

    def _why_not(self, greeting: Greeting, peer: Peer | None, source: Address) -> str:
        """Why there can be no link with the sender: a sentence for it, "stale", or nothing."""
        if greeting.node == self.node:
            if greeting.session < self.session:
                return ""  # it was here before me, and will say so
            return _TAKEN.format(node=self.node, where="the node you greeted")
        if peer is None or peer.session == greeting.session:
            return ""
        if peer.token != source and self._alive(peer):
            return _TAKEN.format(node=peer.node, where=spell(peer.token))
        life, known = (greeting.incarnation, greeting.session), (peer.incarnation, peer.session)
        return "stale" if life < known else ""

    def _turn_away(self, greeting: Greeting, source: Address) -> None:
        """It runs another protocol. Whoever was here before the other refuses it."""
        self._post.drop("greeting: another protocol")
        earlier = greeting.session < self.session
        said = _OTHER_PROTOCOL.format(theirs=self._protocol, yours=greeting.protocol)
        self._send(source, None, greeting.challenge, "" if earlier else said)
        if not earlier and greeting.node not in self._warned and len(self._warned) < MOST_ADDRESSES:
            self._warned.add(greeting.node)
            self._post.warn(
                f"node {greeting.node} at {spell(source)} runs protocol {greeting.protocol}, this group "
                f"{self._protocol}: it is not let in"
            )

    def _meet(self, greeting: Greeting, source: Address, earlier: Peer | None) -> Peer:
        """A link to a life of a node that there was no link to before."""
        if earlier is not None:
            self._forget(earlier)
        data: Address = (source[0], greeting.data_port, *source[2:])
        peer = Peer(greeting.node, source, data, self._seal is not None)
        peer.incarnation = greeting.incarnation
        peer.session = greeting.session
        peer.challenge = greeting.challenge
        if earlier is not None and earlier.session == peer.session:
            peer.opener = earlier.opener  # it has moved; what it has opened stays opened
        elif self._seal is not None:
            peer.opener = self._seal.opener(greeting.session, greeting.counters)
        for address in peer.addresses:
            there = self._by_address.get(address)
            if there is not None:
                self._forget(there)  # it was there before this one was
            self._by_address[address] = peer
        self.peers[peer.node] = peer
        if greeting.settings != self._settings and peer.node not in self._warned:
            self._warned.add(peer.node)
            self._post.warn(
                f"node {peer.node} at {spell(source)} runs with {greeting.settings}, this node with "
                f"{self._settings}: give all nodes the same settings"
            )
        return peer

    def _also_at(self, peer: Peer, source: Address) -> None:
        """It was heard from another of its addresses. It is still sent to where it was first met."""
        for address in (source, (source[0], peer.data[1], *source[2:])):
            if address not in self._by_address and len(peer.addresses) < MOST_ALIASES:
                peer.addresses.append(address)
                self._by_address[address] = peer

    def _alive(self, peer: Peer) -> bool:
        return peer.linked and self._clock() - peer.heard < ALIVE_S

    def part_with(self, peer: Peer) -> None:
        """Its process has ended: nothing more is sent to it. A new life of the node greets anew."""
        self._forget(peer)
        self._retarget()
        self._known.setdefault(peer.token, self._clock() + FORGET_S)

    def _forget(self, peer: Peer) -> None:
        del self.peers[peer.node]
        for address in peer.addresses:
            del self._by_address[address]

    def _link(self, peer: Peer) -> None:
        peer.linked = True
        self._retarget()
        self._post.linked(peer)

    def _retarget(self) -> None:
        self.targets = sorted((p for p in self.peers.values() if p.linked), key=lambda p: p.node)

    def _hear_of(self, others: list[tuple[int, str, int]], source: Address) -> None:
        """Greet nodes that a linked node has links to."""
        for node, host, port in others[:MOST_ADDRESSES]:
            known = self.peers.get(node)
            if node == self.node or (known is not None and known.linked) or not 0 < port < 65_536:
                continue
            if not _is_address(host, len(source) == 4):
                continue
            address: Address = (host, port, *source[2:])
            if address not in self._by_address and len(self._known) < MOST_ADDRESSES:
                if address not in self._known:
                    self._send(address, None)
                self._known.setdefault(address, self._clock() + FORGET_S)


_TAKEN = (
    "node id {node} is in use by {where}: give this node another `id`, or stop the other one; "
    "a node keeps its id in its data directory, which must not be copied"
)


_OTHER_PROTOCOL = (
    "the group runs protocol {theirs}, and this node {yours}: give this node the same `protocol`, or the "
    "seeds of another group"
)


def _sound(greeting: Greeting) -> bool:
    return (
        0 < greeting.node <= MAX_NODE_ID
        and greeting.incarnation >= 0
        and greeting.number > 0
        and len(greeting.session) == 16
        and len(greeting.challenge) == 8
        and 0 < greeting.data_port < 65_536
        and min(greeting.counters) >= 0
        and len(greeting.refusal) < 1000
        and len(greeting.protocol) < 100
    )


def _is_address(host: str, six: bool) -> bool:
    """Whether it is an address, and of the right kind: a name would have to be looked up, and wait."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    return found.version == (6 if six else 4) and not found.is_multicast and not found.is_unspecified


def spell(address: Address) -> str:
    """An address as people write it."""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
