"""The transport of real nodes: UDP with trains of datagrams, sealing, links, probes and waking.

Its parts: `sockets` (two ports), `links` (who is where), `UdpSender` and `UdpReader` (packets to datagrams
and back), `Paths` (how far, how wide), `PeerMonitor` (greets, and notices processes that ended).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ordercast.core.contract import Lane
from ordercast.core.identity import NodeId
from ordercast.core.wire import MAX_PACKET
from ordercast.errors import NodeClosed, OrdercastError
from ordercast.keys import Keyring
from ordercast.transport.activity import ActivityMonitor, PeerMonitor
from ordercast.transport.address import Place, address_text
from ordercast.transport.drops import KERNEL_REFUSED
from ordercast.transport.interface import Capacity, Drops, Network, Receiver, Setup
from ordercast.transport.links import Links
from ordercast.transport.paths import Measured, Paths
from ordercast.transport.peers import Peer
from ordercast.transport.seal import OVERHEAD, Cipher, Port, Seal, new_session, sealed_to
from ordercast.transport.segments import HEADER_SIZE, MOST_SEGMENTS, Segmenter, Train
from ordercast.transport.sockets import NodeSockets, open_sockets, resolve
from ordercast.transport.udp_reading import SocketReader, UdpReader
from ordercast.transport.udp_socket import Address
from ordercast.transport.wake_policy import RateLimitedReader

LOG = logging.getLogger("ordercast")

ANSWER_S = 0.5
"""How long a starting node waits for an answer of the others before it begins alone."""
LINK_S = 3 * ANSWER_S
"""How long it waits for a link once somebody has answered: that takes two round trips."""
REFUSED_S = 3.2
"""How long a starting node goes on asking when refused: its own earlier life may just have ended."""
MOST_REFUSALS = 8
"""Refusals that are remembered."""
SEGMENTS_A_PACKET = 45
"""Datagrams that a full packet of the protocol fills: the more, the less work a byte. So many are a train."""
FULL_BUFFERS = 12
"""At least so many full packets fit into the socket's buffer: where it is small, packets are smaller."""


class UdpSettings(NamedTuple):
    """What a user says of how packets travel by UDP."""

    place: Place
    datagram: int
    """Bytes of the largest datagram that is not split on the way."""
    buffer: int
    """Bytes of receive buffer that the kernel is asked for."""
    greets: Sequence[str]
    """Addresses of others, as they were written."""
    closed: bool
    """Whether no node is let in that is not on this list."""
    shared: str
    """What has to be the same at all nodes, in words."""
    multicast: str | None = None
    interface: str | None = None
    cipher: str = Cipher.AES_GCM


def udp_capacity(datagram: int, buffer: int) -> Capacity:
    """What fits datagrams of `datagram` bytes and a receive buffer of so many bytes.

    Packets fill whole datagrams and fit the buffer.
    """
    space = datagram - HEADER_SIZE
    segments = max(1, min(SEGMENTS_A_PACKET, buffer // (FULL_BUFFERS * space), MAX_PACKET // space))
    most = min(MAX_PACKET, MOST_SEGMENTS * space)
    return Capacity(buffer, space - OVERHEAD, segments * space - OVERHEAD, most - OVERHEAD)


class UdpSender:
    """Sends packets to linked peers, sealed where there is a key."""

    def __init__(
        self, sockets: NodeSockets, links: Links, seal: Seal | None, datagram: int, drops: Drops
    ) -> None:
        """`datagram`: bytes of the largest datagram."""
        self._sockets = sockets
        self._links = links
        self._seal = seal
        self._drops = drops
        self._cutters = {port: Segmenter(datagram, checked=seal is None) for port in Port}
        self._probes = Segmenter(datagram, checked=seal is None)

    def resize(self, datagram: int) -> None:
        """Packets leave in datagrams of at most so many bytes from now on; probes of paths do not change."""
        for port, cutter in self._cutters.items():
            if cutter.datagram != datagram:
                self._cutters[port] = cutter.resized(datagram)

    def multicast(self, packets: Sequence[bytes]) -> None:
        """Send packets to all linked peers, in few trains."""
        self._send(self._trains(packets), self._links.targets)

    def unicast(self, to: NodeId, packet: bytes, behind: Sequence[bytes]) -> None:
        """Send a packet to one peer, behind multicasts. They go first to that peer, and to the others while
        the packet, which may be the token, is on its way already."""
        peer = self._links.peers.get(to)
        trains = self._trains(behind) if behind else []
        if peer is None:
            self._send(trains, self._links.targets)
            self._drops.drop("no address to send to")
            return
        if trains:
            self._send(trains, (peer,))
        if self._seal is not None:
            packet = self._seal.seal(Port.TOKEN, packet, sealed_to(to))
        for train in self._cutters[Port.TOKEN].cut((packet,)):
            self._sockets.token.send(train, peer.token)
        if trains and self._sockets.group is None:
            self._send(trains, [target for target in self._links.targets if target is not peer])

    def probe(self, peer: Peer, packet: bytes) -> None:
        """Send a question or an answer about the path to a peer, as one datagram."""
        if self._seal is not None:
            packet = self._seal.seal(Port.TOKEN, packet, sealed_to(peer.node))
        self._sockets.token.send(self._probes.cut((packet,))[0], peer.token)

    def _trains(self, packets: Sequence[bytes]) -> list[Train]:
        if self._seal is not None:
            seal = self._seal.seal
            packets = [seal(Port.DATA, packet) for packet in packets]
        return self._cutters[Port.DATA].cut(packets)

    def _send(self, trains: Sequence[Train], targets: Iterable[Peer]) -> None:
        send = self._sockets.data.send
        if self._sockets.group is not None:
            for train in trains:
                send(train, self._sockets.group)
        else:
            for peer in targets:
                for train in trains:
                    send(train, peer.data)


class UdpTransport:
    """Carries the packets of one node by UDP. `open` is the way to one."""

    def __init__(
        self,
        setup: Setup,
        settings: UdpSettings,
        sockets: NodeSockets,
        listed: Mapping[str, Sequence[Address]],
    ) -> None:
        """`listed`: what `settings.greets` was resolved to."""
        self.listed = listed
        self.sockets = sockets
        self._setup = setup
        self._drops = setup.drops
        self._settings = settings
        self.seal = None if setup.keyring is None else Seal(setup.keyring, Cipher(settings.cipher))
        self.links = Links(
            node=setup.node,
            incarnation=setup.incarnation,
            session=new_session() if self.seal is None else self.seal.session,
            data_port=sockets.data.address[1],
            protocol=setup.protocol,
            settings=settings.shared,
            listener=self,
            seal=self.seal,
            closed=settings.closed,
            clock=time.monotonic,
            known_lives=setup.known_lives,
        )
        self.links.know(address for addresses in listed.values() for address in addresses)
        self.sender = UdpSender(sockets, self.links, self.seal, settings.datagram, setup.drops)
        overhead = HEADER_SIZE + (OVERHEAD if self.seal is not None else 0)
        self.paths = Paths(
            settings.datagram, overhead, setup.now_us, self.sender.probe, self._on_measured, self.warn
        )
        self._refusals: list[OrdercastError] = []
        self._started: _Started | None = None
        self._news = asyncio.Event()
        """Set when something happens that `find_peers` may wait for."""
        self._outlived = False
        self._tokens = False
        self._closed = False

    @classmethod
    async def open(cls, setup: Setup, settings: UdpSettings) -> UdpTransport:
        """Look the addresses up and bind the ports."""
        if setup.keyring is None:
            LOG.warning(
                "no key: packets are neither encrypted nor authenticated; `ordercast keygen` makes one"
            )
        listed = {text: await resolve([text], settings.place.host) for text in settings.greets}
        sockets = await open_sockets(settings.place, settings.buffer, settings.multicast, settings.interface)
        try:
            return cls(setup, settings, sockets, listed)
        except BaseException:
            sockets.close()
            raise

    # --- life -----------------------------------------------------------------------------------

    def start(self, receiver: Receiver) -> None:
        """Receive and greet from now on."""
        self._started = _Started(self, self._setup, receiver)

    def begin_life(self, incarnation: int) -> None:
        """Greet in that life from now on."""
        self.links.incarnation = incarnation
        if self._outlived:
            self._outlived = False
            self.links.greet()

    async def find_peers(self) -> None:
        """Wait for the first link, or for nobody to answer; a second node of one identifier stops here."""
        begun = time.monotonic()
        while self._settings.greets and not (self.links.targets or self._closed or self._outlived):
            wait_s = REFUSED_S if self._refusals else LINK_S if self.links.answered else ANSWER_S
            left_s = begun + wait_s - time.monotonic()
            if left_s <= 0:
                if self._refusals:
                    raise self._refusals[-1]
                others = ", ".join(self._settings.greets)
                LOG.info("nobody answers yet at %s: going on alone until somebody does", others)
                return
            self._news.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._news.wait()
            except TimeoutError:
                continue

    def rekey(self, keyring: Keyring) -> None:
        """Seal with the first of these keys from now on, and open what is sealed with any of them."""
        if self.seal is None:
            raise NodeClosed("the node was started without a key: start it with one")
        self.seal.rekey(keyring)
        self.links.rekeyed()

    def say_goodbye(self) -> None:
        """Tell linked peers that nobody listens here soon."""
        self.links.part()

    def close(self) -> None:
        """Give the ports back."""
        self._closed = True
        self._news.set()
        if self._started is not None:
            self._started.close()
        self.sockets.close()

    # --- packets --------------------------------------------------------------------------------

    def multicast(self, packets: Sequence[bytes]) -> None:
        """Send packets to all linked peers, in few trains."""
        if not self._closed:
            self.sender.multicast(packets)

    def unicast(self, to: NodeId, packet: bytes, lane: Lane, behind: Sequence[bytes]) -> None:
        """Send a packet to the token port of a peer, behind multicasts."""
        if self._closed:
            return
        if lane is Lane.TOKEN and not self._tokens:
            self._expect_tokens()
        self.sender.unicast(to, packet, behind)

    def _expect_tokens(self) -> None:
        """Tell the services that this node has sent a token, so that one is expected."""
        self._tokens = True
        self.sockets.expect_tokens()
        if self._started is not None:
            self._started.expect_tokens()

    def read_waiting(self) -> bool:
        """Read a bounded amount; whether the sockets are dry."""
        return self._started is None or self._closed or self._started.reader.turn()

    # --- looking --------------------------------------------------------------------------------

    @property
    def networks(self) -> Mapping[int, Network]:
        """The one network that this transport is on."""
        return {0: self}

    @property
    def address(self) -> str:
        """The address of the token port, which others greet."""
        return address_text(self.sockets.token.address)

    @property
    def own(self) -> Address:
        """The address of the token port."""
        return self.sockets.token.address

    @property
    def sealed(self) -> bool:
        """Whether there is a key."""
        return self.seal is not None

    @property
    def capacity(self) -> Capacity:
        """How large packets may be, by the datagrams and the receive buffer that the kernel granted."""
        return udp_capacity(self._settings.datagram, self.sockets.data.granted)

    @property
    def reachable(self) -> Sequence[NodeId]:
        """The nodes to which there is a link."""
        return [peer.node for peer in self.links.targets]

    @property
    def round_trip_us(self) -> int:
        """The longest that was measured."""
        return self.paths.measured.round_trip_us

    def hosts(self) -> Sequence[str]:
        """Where linked peers are."""
        return self.links.hosts()

    def host_of(self, node: NodeId) -> str | None:
        """Where the peer is, while there is a link to it."""
        return self.links.host_of(node)

    def relay_of(self, node: NodeId) -> int:
        """Where a peer carries streams between its networks."""
        return self.links.relay_of(node)

    def relays_at(self, port: int) -> None:
        """Tell others where this node carries streams between its networks."""
        self.links.relay = port

    def take_refusal(self) -> OrdercastError | None:
        """The last one, if there is no link."""
        refusals, self._refusals = self._refusals, []
        return refusals[-1] if refusals and not self.links.targets else None

    def lost(self) -> Mapping[str, int]:
        """Datagrams that the kernel did not hand over, or not take."""
        refused = self.sockets.data.unsent + self.sockets.token.unsent
        return {**self.sockets.dropped, **({KERNEL_REFUSED: refused} if refused else {})}

    def status(self) -> dict[str, Any]:
        """Peers, the sockets' buffers, and what the paths and the kernel can do."""
        data, now = self.sockets.data, time.monotonic()
        return {
            "address": self.address,
            "sealed": self.sealed,
            "peers": [
                {
                    "node": peer.node,
                    "address": address_text(peer.token),
                    "linked": peer.linked,
                    "silent_s": round(now - peer.heard, 3),
                    "round_trip_us": self.paths.round_trip_us(peer.node),
                }
                for peer in sorted(self.links.peers.values(), key=lambda peer: peer.node)
            ],
            "buffers": {"asked": data.asked, "granted": data.granted},
            "datagram_bytes": self.paths.measured.datagram,
            "offload": {"send": data.offload_send, "receive": data.offload_receive},
        }

    # --- what links tell ------------------------------------------------------------------------

    def send_greeting(self, packet: bytes, to: Address) -> None:
        """Send a greeting."""
        self.sockets.token.send(Train(packet, 0), to)

    def linked(self, peer: Peer) -> None:
        """A link was made, or made again."""
        LOG.info("node %d is at %s", peer.node, address_text(peer.token))
        self._news.set()

    def silent(self, peer: Peer) -> None:
        """A peer has not been heard for long."""
        tell_of(peer, "is silent")

    def outlived(self, life: int) -> None:
        """Others know a life of this node that is not earlier than the one it is in."""
        self._outlived = True
        self._news.set()
        if self._started is not None:
            self._started.receiver.on_outlived(life)

    def refused(self, reason: OrdercastError) -> None:
        """Others say that this node is not wanted."""
        if str(reason) not in map(str, self._refusals):
            LOG.warning("refused: %s", reason)
        self._refusals.append(reason)
        del self._refusals[:-MOST_REFUSALS]
        self._news.set()

    def drop(self, reason: str) -> None:
        """A greeting was not used."""
        self._drops.drop(reason)

    def warn(self, sentence: str) -> None:
        """Something a person should know."""
        LOG.warning("%s", sentence)

    def _on_measured(self, measured: Measured) -> None:
        """Paths are narrower than was thought, or wide again; or peers are farther or nearer."""
        self.sender.resize(measured.datagram)
        if self._started is not None:
            self._started.receiver.on_distance()


class _Started:
    """What works from when the transport was started until it is closed."""

    def __init__(self, transport: UdpTransport, setup: Setup, receiver: Receiver) -> None:
        sockets, links = transport.sockets, transport.links
        self.receiver = receiver
        self._activity = ActivityMonitor(setup.now_us, lambda: receiver.delivered)
        self.reader = UdpReader(
            setup.node, sockets, links, transport.paths, self._activity, receiver, setup.drops, setup.now_us
        )
        links.sources_changed = sockets.admit
        sockets.admit(())
        self._closed = False
        self._links = links
        self._greetings = [
            RateLimitedReader(reader.fileno(), partial(self._on_greeting, reader))
            for reader in map(SocketReader, sockets.greetings)
        ]
        sockets.liveness.open()
        self._monitor = PeerMonitor(links, receiver.guard, self._activity, self._on_gone, transport.paths)

    def expect_tokens(self) -> None:
        """Record that this node has sent a token: activity is expected from now on."""
        self._activity.expect_tokens()
        self.reader.expect_tokens()

    def _on_greeting(self, reader: SocketReader) -> bool:
        """Read a greeting where nothing else comes; whether there was any."""
        with self.receiver.guard:
            arrival = None if self._closed else reader.receive()
            if arrival is not None:
                self.reader.on_token_port(arrival, reader)
            return arrival is not None
        return False

    def _on_gone(self, peer: Peer) -> None:
        """Act on a peer's process having ended: log it, drop the link, tell the driver."""
        tell_of(peer, "is gone: nobody listens there any more")
        self._links.part_with(peer)
        self.receiver.on_gone(peer.node)

    def close(self) -> None:
        self._closed = True
        self.reader.close()
        for reader in self._greetings:
            reader.close()
        self._monitor.close()


def tell_of(peer: Peer, what: str) -> None:
    """Log what became of a peer: as information if it said that it leaves, as a warning otherwise."""
    level = logging.INFO if peer.leaving else logging.WARNING
    LOG.log(level, "node %d at %s %s", peer.node, address_text(peer.token), what)
