"""How packets arrive at a node by UDP: read from its sockets, put together, opened, and handed to the driver.

A *turn* reads what waits: data first, and a token only when no data waits (000 §5.2); a bounded amount, so
that the application's own tasks on the same event loop go on.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

from ordercast.core.identity import NodeId
from ordercast.transport.activity import ActivityMonitor
from ordercast.transport.greetings import GREETING_MAGIC
from ordercast.transport.interface import Drops, Receiver
from ordercast.transport.links import Links
from ordercast.transport.paths import PATH_MAGIC, Paths
from ordercast.transport.peers import Peer
from ordercast.transport.seal import Port, Refused, sealed_to
from ordercast.transport.segments import HEADER_SIZE, MAGIC, Reassembler
from ordercast.transport.sockets import NodeSockets
from ordercast.transport.udp_socket import SO_TIMESTAMPNS, UDP_GRO, Address, UdpSocket
from ordercast.transport.wake_policy import WakePolicy

BUFFERS_A_TURN = 8
"""Reads of up to 64 KB before the event loop has its turn again."""
USELESS_A_TURN = 128
"""Datagrams at the token port that are no tokens, and are read before the event loop has its turn again."""
MOST_USELESS = 128
"""Reads of data that were of no use, after which a token does not wait for the rest."""


_SPACE = socket.CMSG_SPACE(4) + socket.CMSG_SPACE(16)
"""Bytes of ancillary data: the size of a train's datagrams, and when it came."""
_SEGMENT = struct.Struct("=i")
_TIME = struct.Struct("=qq")


class Arrival(NamedTuple):
    """What one read found; the bytes are in the reader's buffer until the next read."""

    size: int
    source: Address
    segment: int
    """Bytes of each datagram but the last; 0 if it is a single one."""
    waited_us: int
    """How long the (last) datagram waited in the socket; 0 where nobody measures."""


class SocketReader:
    """Reads one socket: a datagram, or a train of them, a system call."""

    def __init__(self, socket: UdpSocket) -> None:
        self.socket = socket
        self.buffer = bytearray(65_536)
        self._view = [memoryview(self.buffer)]
        self._poll = select.poll()
        self._poll.register(socket, select.POLLIN)

    def fileno(self) -> int:
        """The socket's descriptor, for the event loop."""
        return self.socket.fileno()

    def waiting(self) -> bool:
        """Whether something can be read; cheaper than reading in vain."""
        return bool(self._poll.poll(0))

    def receive(self) -> Arrival | None:
        """Read once into `buffer`; None if nothing waits."""
        try:
            size, notes, _, source = self.socket.socket.recvmsg_into(self._view, _SPACE)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            # It is about something sent earlier, and says nothing about what waits here.
            self.socket.count_error(error)
            return Arrival(0, ("", 0), 0, 0)
        segment = waited_us = 0
        for _, kind, data in notes:
            if kind == UDP_GRO:
                segment = _SEGMENT.unpack_from(data)[0]
            elif kind == SO_TIMESTAMPNS:
                seconds, nanoseconds = _TIME.unpack(data)
                waited_us = max(0, (time.time_ns() - seconds * 1_000_000_000 - nanoseconds) // 1000)
        return Arrival(size, source, segment, waited_us)


class UdpReader:
    """Reads the sockets of a node."""

    def __init__(
        self,
        node: NodeId,
        sockets: NodeSockets,
        links: Links,
        paths: Paths,
        activity: ActivityMonitor,
        receiver: Receiver,
        drops: Drops,
        now_us: Callable[[], int],
    ) -> None:
        self._me = sealed_to(node)
        self._sockets = sockets
        self._links = links
        self._paths = paths
        self._activity = activity
        self._receiver = receiver
        self._drops = drops
        self._now_us = now_us
        self._token = SocketReader(sockets.token)
        self._data = [SocketReader(each) for each in (sockets.data, sockets.multicast) if each is not None]
        self._tokens = False
        self._useless = self._unread = 0
        """Since data was last read to its end, or a token: reads of no use, and bytes read."""
        self._closed = False
        self._wake_policy = WakePolicy(
            self._token.fileno(),
            [reader.fileno() for reader in self._data],
            self._on_token_readable,
            self._on_data_readable,
            now_us,
        )

    def expect_tokens(self) -> None:
        """Tokens come to the token port: they are read behind data, one a turn, and data may wait."""
        self._tokens = True
        self._wake_policy.expect_tokens()

    def close(self) -> None:
        """Stop reading."""
        self._closed = True
        self._wake_policy.close()

    # --- turns ----------------------------------------------------------------------------------

    def _on_data_readable(self) -> None:
        with self._receiver.guard:
            self._drain()
            self._receiver.on_turn_over()

    def _on_token_readable(self) -> None:
        with self._receiver.guard:
            self.turn()

    def turn(self) -> bool:
        """Read a bounded amount, and a token behind all data; whether everything was read.

        A token does not wait for data that does not end: what had come before it is in the socket's buffer,
        so that it waits for no more bytes than twice that, and for few datagrams that are of no use.
        """
        dry = self._drain()
        budget = 1 if self._tokens else BUFFERS_A_TURN
        useless = USELESS_A_TURN
        enough = self._useless >= MOST_USELESS or self._unread >= 2 * self._sockets.data.granted
        while budget and useless and (dry or enough or not self._tokens) and not self._closed:
            arrival = self._token.receive()
            if arrival is None:
                break
            if self.on_token_port(arrival, self._token):
                budget -= 1
                self._useless = self._unread = 0
            else:
                useless -= 1
        self._receiver.on_turn_over()
        return dry and budget > 0 and useless > 0

    def _drain(self) -> bool:
        """Read data, a bounded amount; whether none is left."""
        budget = BUFFERS_A_TURN
        for reader in self._data:
            while not self._closed and reader.waiting():
                arrival = reader.receive()
                if arrival is None:
                    break
                self._unread += arrival.size
                if not self._on_data(reader, arrival):
                    self._useless += 1
                budget -= 1
                if not budget:
                    return False
        self._useless = self._unread = 0
        return True

    # --- what was read --------------------------------------------------------------------------

    def _on_data(self, reader: SocketReader, arrival: Arrival) -> bool:
        """Hand the packets of a read over; whether there was any, or parts of some."""
        size, source, segment, _ = arrival
        peer = self._links.peer_at(source)
        if not size:
            self._drops.drop("empty")
            return False
        if peer is None:
            own = reader.socket is self._sockets.multicast and source[1] == self._sockets.data.address[1]
            if not own:
                self._drops.drop("unknown sender")
            return False
        if not self._tokens:
            self._came()
        joiner = peer.data_joiner
        joined = joiner.join(reader.buffer, size, segment)
        useless = bool(joined or joiner.bad)  # unless some can be opened; parts of packets may be of use
        packets = self._opened(peer, joiner, joined, Port.DATA, None)
        if packets:
            self._receiver.on_data(peer.node, packets)
        return bool(packets) or not useless

    def _came(self) -> None:
        """What shows that the group goes about its work: the token; or, without one, any packet."""
        now = self._now_us()
        self._activity.note(now)
        self._wake_policy.came(now)

    def on_token_port(self, arrival: Arrival, reader: SocketReader) -> bool:
        """What came to the token port, by any of its sockets; whether it was a packet of the machine's."""
        size, source, segment, waited_us = arrival
        buffer = reader.buffer
        if not segment:
            return self._on_datagram(buffer, size, source, waited_us)
        used = 0  # the kernel may have put tokens and greetings of one sender into one train
        for at in range(0, size, segment):
            part = buffer[at : min(size, at + segment)]
            used += self._on_datagram(part, len(part), source, waited_us)
        return used > 0

    def _on_datagram(self, buffer: bytearray, size: int, source: Address, waited_us: int) -> bool:
        if not buffer.startswith(MAGIC) or size < HEADER_SIZE:
            if buffer.startswith(GREETING_MAGIC) and size >= HEADER_SIZE:
                self._links.on_greeting(bytes(buffer[:size]), source)
            else:
                self._drops.drop("malformed segment" if size else "empty")
            return False
        peer = self._links.peer_at(source)
        if peer is None:
            self._drops.drop("unknown sender")
            return False
        joiner = peer.token_joiner
        used = False
        for packet in self._opened(peer, joiner, joiner.join(buffer, size, 0), Port.TOKEN, self._me):
            if self._closed:
                break
            if packet.startswith(PATH_MAGIC):
                self._on_probe(peer, packet)
                continue
            used = True
            self._came()
            self._receiver.on_unicast(peer.node, packet, waited_us)
        return used

    def _opened(
        self, peer: Peer, joiner: Reassembler, packets: list[bytes], port: Port, to: bytes | None
    ) -> list[bytes]:
        """The packets that are authentic, where there is a key; segments that were bad are counted."""
        if joiner.bad or joiner.given_up:
            self._drops.drop("malformed segment", joiner.bad)
            self._drops.drop("incomplete packet", joiner.given_up)
            joiner.bad = joiner.given_up = 0
        if peer.opener is not None:
            sealed, packets = packets, []
            for packet in sealed:
                try:
                    packets.append(peer.opener.open(port, packet, to))
                except Refused as error:
                    self._drops.drop(str(error))
        if packets:
            self._links.heard(peer)
        return packets

    def _on_probe(self, peer: Peer, packet: bytes) -> None:
        """A packet that asks or tells about the path."""
        if problem := self._paths.on_packet(peer, packet):
            self._drops.drop(problem)
