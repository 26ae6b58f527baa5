"""Links to other nodes: nodes greet each other, and who answers a greeting is linked.

A node knows some addresses (`seeds`, or the full list of peers). It greets them; who answers tells which
others it knows, and they are greeted too. A greeting counts only if it echoes a fresh challenge of mine
(`ordercast.transport.greetings`): so what was recorded earlier, or comes from elsewhere, makes no link.
Linked nodes greet each other every second, each with a new challenge for the other; who is silent for
`SILENT_S` is sent only greetings until it speaks.

What a link has opened stays opened: a session that comes back, at another address or after its process was
believed dead, goes on with the same replay windows.

A node identifier belongs to whoever has it: a second node that comes with it from another address is refused,
and told so, while the first one answers greetings. So is a node that runs another protocol than those that
were here before it.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable

import msgspec

from ordercast.core.identity import NodeId
from ordercast.core.wire import UNREADABLE
from ordercast.errors import DuplicateNode, OtherProtocol
from ordercast.transport.address import address_text, source_of
from ordercast.transport.greetings import (
    CHALLENGE,
    CHALLENGE_SIZE,
    GREETING,
    GREETING_MAGIC,
    HEADER,
    Challenges,
    Greeting,
    Lives,
    Rates,
    new_tag,
    sound,
)
from ordercast.transport.known_lives import KnownLives, within_reach
from ordercast.transport.peers import LinkListener, Peer
from ordercast.transport.seal import UNKNOWN_KEY, Refused, Seal
from ordercast.transport.udp_socket import Address

GREET_S = 0.5
"""How often addresses without a link are tried; linked nodes greet each other every other time."""
SILENT_S = 4.0
"""Who is silent for longer is not sent the group's packets."""
ALIVE_S = 2.4
"""Who greeted within this time is alive: nobody else gets its identifier."""
FORGET_S = 600.0
"""An address that was only heard of is forgotten after this long without an answer."""
OWN_S = 60.0
"""An address at which this node met itself is not tried for so long: without a key, anybody could say so."""
MOST_ADDRESSES = 1024
"""Addresses to try, and nodes to know, at a time."""
MOST_ALIASES = 16
"""Addresses that one node is heard from."""
GREETINGS_PER_S, AT_ONCE = 200.0, 400
"""Greetings that are challenged or opened, of one host or known address; a node sends two a second."""
STRANGERS_PER_S = 1000.0
"""Greetings a second that are handled of all hosts that are not known, taken together."""
MOST_TOLD = 16
"""Peers named in a greeting, so that it fits a datagram; with more of them, each greeting names others."""


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
        listener: LinkListener,
        seal: Seal | None,
        closed: bool,
        clock: Callable[[], float],
        known_lives: KnownLives | None = None,
    ) -> None:
        """With ``closed``, only addresses given to `know` are greeted or answered: a full list of peers."""
        self.node = node
        self.relay = 0
        """The port at which this node carries streams between its networks; 0: nowhere."""
        self.incarnation = incarnation
        self.session = session
        self.answered = False
        """Somebody has answered a greeting."""
        self.peers: dict[NodeId, Peer] = {}
        self.targets: list[Peer] = []
        """Who is sent the group's packets."""
        self.sources_changed: Callable[[Collection[Address]], None] = lambda sources: None
        """Told all addresses of peers whenever there are others than before."""
        self._by_address: dict[Address, Peer] = {}
        self._data_port = data_port
        self._protocol = protocol
        self._settings = settings
        self._listener = listener
        self._seal = seal
        self._closed = closed
        self._clock = clock
        self._known: dict[Address, float] = {}
        """Addresses to try, and when to stop."""
        self._own: dict[Address, float] = {}
        """Which of them are this node's own, and until when that is believed."""
        self._challenges = Challenges(clock)
        self._asked: OrderedDict[bytes, Address] = OrderedDict()
        """Where greetings were sent that have not been answered, by their tags."""
        self._lives = Lives(seal)
        self._sources = Rates(GREETINGS_PER_S, AT_ONCE, clock)
        self._strangers = Rates(STRANGERS_PER_S, AT_ONCE, clock)
        self._warned: set[NodeId | Address] = set()
        self._rounds = 0
        self._greetings = 0
        self._told = 0
        self._leaving = False
        self.known_lives = known_lives or KnownLives()

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

    def host_of(self, node: NodeId) -> str | None:
        """The host of a node that there is a link to."""
        peer = self.peers.get(node)
        return None if peer is None or not peer.linked else str(peer.token[0])

    def relay_of(self, node: NodeId) -> int:
        """The port at which a node that there is a link to carries streams between networks; 0: nowhere."""
        peer = self.peers.get(node)
        return peer.relay if peer is not None and peer.linked else 0

    def heard(self, peer: Peer) -> None:
        """Something came from it that nobody else could have sent, or so it seems."""
        peer.heard = self._clock()
        if not peer.linked and peer.opener is not None:  # else anybody could have sent it: it has to greet
            self._link(peer)

    def rekeyed(self) -> None:
        """The group's keys have changed: there is no link to who has shown only one that is none of them."""
        ids = () if self._seal is None else self._seal.keyring.ids
        for peer in list(self.targets):
            if peer.opener is not None and peer.key_id not in ids and peer.opener.key_id not in ids:
                peer.linked = False
                self._retarget()
                self._listener.silent(peer)

    # --- greeting -------------------------------------------------------------------------------

    def greet(self) -> None:
        """Twice a second: greet everybody, linked peers every other time, and see who has fallen silent."""
        now = self._clock()
        self._rounds += 1
        for peer in list(self.peers.values()):
            if peer.linked and now - peer.heard > SILENT_S:
                peer.linked = False
                self._retarget()
                self._listener.silent(peer)
            elif now - peer.heard > FORGET_S:
                self._forget(peer)
                continue
            if self._rounds % 2 or not peer.linked:
                self._send(peer.token, peer)
        for address, until in list(self._known.items()):
            if address not in self._by_address:
                if now > until:
                    del self._known[address]
                elif now > self._own.get(address, 0.0):
                    self._send(address, None)

    def part(self) -> None:
        """Tell all that this node goes: that nobody listens here any more will be no cause for concern."""
        self._leaving = True
        for peer in self.targets:
            self._send(peer.token, peer)

    def _send(
        self,
        to: Address,
        peer: Peer | None,
        echo: bytes = b"",
        refusal: str = "",
        ask: bool = False,
        outlived: int = -1,
    ) -> None:
        """Greet; `echo`: the receiver's challenge, where it is not that of `peer`; `ask` for an answer."""
        linked = peer is not None and peer.linked and not ask
        tag = new_tag()
        if not echo:  # what answers a challenge is not challenged again
            self._asked[tag] = to
            if len(self._asked) > MOST_ADDRESSES:
                self._asked.popitem(last=False)
            echo = peer.challenge if peer is not None else b""
        self._greetings += 1
        greeting = Greeting(
            node=self.node,
            incarnation=self.incarnation,
            session=self.session,
            challenge=self._challenges.made_for(to),
            number=self._greetings,
            linked=linked,
            data_port=self._data_port,
            counters=self._seal.counters if self._seal else (0, 0),
            settings=self._settings,
            peers=self._tell() if peer is not None else [],
            refusal=refusal,
            protocol=self._protocol,
            leaving=self._leaving,
            outlived=outlived,
            relay=self.relay,
        )
        body = msgspec.msgpack.encode(greeting)
        header = HEADER.pack(GREETING_MAGIC, GREETING, tag, echo)
        self._listener.send_greeting(header + (self._seal.greeting(body, header) if self._seal else body), to)

    def _tell(self) -> list[tuple[int, str, int]]:
        """Some of the linked peers: all of them, one greeting after the other."""
        told = self.targets
        if len(told) > MOST_TOLD:
            self._told = (self._told + MOST_TOLD) % len(told)
            told = (told[self._told :] + told[: self._told])[:MOST_TOLD]
        return [(peer.node, peer.token[0], peer.token[1]) for peer in told]

    def on_greeting(self, data: bytes, source: Address) -> None:
        """Handle a datagram that begins like a greeting or a challenge, from any address."""
        if len(data) < HEADER.size:
            self._listener.drop("greeting: malformed")
            return
        header = data[: HEADER.size]
        _, kind, tag, echo = HEADER.unpack(header)
        if kind == CHALLENGE:
            self._on_challenge(tag, echo, len(data))
        elif kind != GREETING or len(data) <= HEADER.size:
            self._listener.drop("greeting: malformed")
        elif self._closed and source not in self._known:
            self._listener.drop("greeting: not on the list of peers")
        elif not self._allowed(source):
            self._listener.drop("greeting: too many")
        elif not self._challenges.fresh(echo, source):
            challenge = self._challenges.made_for(source)
            self._listener.send_greeting(HEADER.pack(GREETING_MAGIC, CHALLENGE, tag, challenge), source)
        else:
            self._open(header, data[HEADER.size :], source)

    def _allowed(self, source: Address) -> bool:
        """Whether another greeting from there is looked at: known addresses do not share with others."""
        if source in self._known or source in self._by_address:
            return self._sources.allow(source)
        return self._sources.allow(source_of(source)) and self._strangers.allow("all")

    def _on_challenge(self, tag: bytes, challenge: bytes, size: int) -> None:
        """Greet again, if this answers a greeting of mine: once, and where that was sent to."""
        to = self._asked.pop(tag, None) if size == HEADER.size else None
        if to is None:
            self._listener.drop("greeting: challenge that nobody asked for")
            return
        self.answered = True
        self._send(to, self._by_address.get(to), challenge)

    def _open(self, header: bytes, sealed: bytes, source: Address) -> None:
        """A greeting from who is at that address now."""
        key_id = int.from_bytes(sealed[:4], "big")
        try:
            body = self._seal.open_greeting(sealed, header) if self._seal else sealed
            greeting = msgspec.msgpack.decode(body, type=Greeting)
        except Refused as error:
            self._listener.drop(f"greeting: {error}")
            if (
                error.reason == UNKNOWN_KEY
                and source not in self._warned
                and len(self._warned) < MOST_ADDRESSES
            ):
                self._warned.add(source)
                self._listener.warn(
                    f"{address_text(source)} greets with another key: give all nodes the same key file"
                )
            return
        except UNREADABLE:
            self._listener.drop("greeting: malformed")
            return
        if not sound(greeting):
            self._listener.drop("greeting: malformed")
        elif greeting.session == self.session:
            if source in self._known:  # one of the addresses is this node's own
                self._own[source] = self._clock() + OWN_S
        elif not self._lives.is_next(
            greeting, header[-CHALLENGE_SIZE:], {peer.session for peer in self.targets}
        ):
            self._listener.drop("greeting: replayed")
        else:
            self._on_greeting(greeting, source, key_id)

    def _on_greeting(self, greeting: Greeting, source: Address, key_id: int) -> None:
        if greeting.refusal:
            other = greeting.protocol != self._protocol
            self._listener.refused((OtherProtocol if other else DuplicateNode)(greeting.refusal))
            return
        peer = self.peers.get(greeting.node)
        refusal = self._why_not(greeting, peer, source)
        if refusal:
            self._send(source, None, greeting.challenge, refusal)
            if peer is not None:
                self._send(peer.token, peer, ask=True)  # if it is there still, it says so now
            self._listener.drop("greeting: id in use")
            return
        if greeting.protocol != self._protocol:
            self._turn_away(greeting, source)
            return
        if greeting.node == self.node:  # it was here before, and refuses this node once it hears of it
            self._listener.drop("greeting: own id")
            self._send(source, None, greeting.challenge)
            return
        if greeting.outlived >= self.incarnation:  # there is no link before this is in order
            self._listener.outlived(greeting.outlived)
            return
        later = self.known_lives.outliving(greeting.node, greeting.incarnation, greeting.session)
        if later >= 0 and within_reach(later, greeting.incarnation):  # else it would not follow
            self._send(source, None, greeting.challenge, outlived=later)
            self._listener.drop("greeting: earlier life")
            return
        self.known_lives.note(greeting.node, greeting.incarnation, greeting.session)
        same_life = peer is not None and peer.session == greeting.session
        if peer is not None and same_life and peer.token != source and self._alive(peer):
            self._also_at(peer, source)
        elif peer is None or not same_life or (peer.token, peer.data[1]) != (source, greeting.data_port):
            if peer is None and len(self.peers) >= MOST_ADDRESSES:
                self._listener.drop("greeting: too many nodes")
                return
            peer = self._meet(greeting, source, peer)
        peer.challenge, peer.key_id = greeting.challenge, key_id
        peer.heard = peer.proved = self._clock()
        peer.leaving, peer.incarnation = greeting.leaving, greeting.incarnation
        peer.relay = greeting.relay
        fresh = not peer.linked
        if fresh:
            self._link(peer)
        if fresh or not greeting.linked:  # it is told at once who else is here
            self._send(source, peer)
        if not self._closed:
            self._hear_of(greeting.peers, source)

    def _why_not(self, greeting: Greeting, peer: Peer | None, source: Address) -> str:
        """Why there can be no link with the sender: a sentence for it, or nothing."""
        if greeting.node == self.node:
            if greeting.session < self.session:
                return ""  # it was here before me, and will say so
            return _TAKEN.format(node=self.node, where="the node you greeted")
        if peer is None or peer.session == greeting.session:
            return ""
        if peer.token != source and self._alive(peer):
            return _TAKEN.format(node=peer.node, where=address_text(peer.token))
        return ""

    def _turn_away(self, greeting: Greeting, source: Address) -> None:
        """Refuse a node that runs another protocol, if this node was in the group before it."""
        self._listener.drop("greeting: another protocol")
        earlier = greeting.session < self.session
        said = _OTHER_PROTOCOL.format(theirs=self._protocol, yours=greeting.protocol)
        self._send(source, None, greeting.challenge, "" if earlier else said)
        if not earlier and greeting.node not in self._warned and len(self._warned) < MOST_ADDRESSES:
            self._warned.add(greeting.node)
            self._listener.warn(
                f"node {greeting.node} at {address_text(source)} runs protocol {greeting.protocol}, this "
                f"group {self._protocol}: it is not let in"
            )

    def _meet(self, greeting: Greeting, source: Address, earlier: Peer | None) -> Peer:
        """A link to a life of a node that there was no link to before."""
        if earlier is not None:
            self._forget(earlier)
        data: Address = (source[0], greeting.data_port, *source[2:])
        peer = Peer(greeting.node, source, data, self._seal is not None)
        peer.incarnation = greeting.incarnation
        peer.session = greeting.session
        peer.opener = self._lives.opener(greeting.session)
        for address in peer.addresses:
            there = self._by_address.get(address)
            if there is not None:
                self._forget(there)  # it was there before this one was
            self._by_address[address] = peer
        self.sources_changed(self._by_address)
        self.peers[peer.node] = peer
        if greeting.settings != self._settings and peer.node not in self._warned:
            self._warned.add(peer.node)
            self._listener.warn(
                f"node {peer.node} at {address_text(source)} runs with {greeting.settings}, this node with "
                f"{self._settings}: give all nodes the same settings"
            )
        return peer

    def _also_at(self, peer: Peer, source: Address) -> None:
        """Record another address of a peer. Packets are still sent to the address where it was first met."""
        for address in (source, (source[0], peer.data[1], *source[2:])):
            if address not in self._by_address and len(peer.addresses) < MOST_ALIASES:
                peer.addresses.append(address)
                self._by_address[address] = peer
                self.sources_changed(self._by_address)

    def _alive(self, peer: Peer) -> bool:
        return peer.linked and self._clock() - peer.proved < ALIVE_S

    def part_with(self, peer: Peer) -> None:
        """Forget the link to a peer whose process has ended. A new life of the node greets anew."""
        self._forget(peer)
        self._retarget()
        self._known.setdefault(peer.token, self._clock() + FORGET_S)

    def _forget(self, peer: Peer) -> None:
        del self.peers[peer.node]
        for address in peer.addresses:
            del self._by_address[address]
        self.sources_changed(self._by_address)

    def _link(self, peer: Peer) -> None:
        peer.linked = True
        self._retarget()
        self._listener.linked(peer)

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


def _is_address(host: str, six: bool) -> bool:
    """Whether it is an address, and of the right kind: a name would have to be looked up, and wait."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    return found.version == (6 if six else 4) and not found.is_multicast and not found.is_unspecified
