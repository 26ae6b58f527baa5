"""UDP sockets: bound, with large buffers, and sending many datagrams a system call.

``UDP_SEGMENT`` and ``UDP_GRO`` are used where the kernel has them; where it, or the path, refuses, the same
trains leave as single datagrams, and nobody above notices but for the speed. `udp_reading` reads the sockets.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from typing import TypeAlias

from ordercast.errors import AddressProblem
from ordercast.transport.segments import Train

Address: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
"""A socket address as the kernel gives it: IPv4 or IPv6."""

UDP_SEGMENT = 103
UDP_GRO = 104
SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
SO_SNDBUFFORCE = 32

_U16 = struct.Struct("=H")
_FULL = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS, errno.ENOMEM})
_NO_OFFLOAD = frozenset({errno.EINVAL, errno.EIO, errno.EOPNOTSUPP, errno.EMSGSIZE, errno.ENOPROTOOPT})


class UdpSocket:
    """One bound UDP socket."""

    def __init__(
        self,
        address: Address,
        *,
        buffer: int,
        timed: bool = False,
        shared: bool = False,
        parted: bool = False,
    ) -> None:
        """Bind. ``timed`` has the kernel note when a datagram arrived; ``shared`` lets others bind it too;
        ``parted`` lets another socket of this user have a part of what comes to the port."""
        family = socket.AF_INET6 if len(address) == 4 else socket.AF_INET
        self.socket = sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            if shared:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if parted:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
            try:
                sock.bind(address)
            except OSError as error:
                raise AddressProblem(why_not_bound(address, error)) from error
            self.asked = buffer
            self.granted = _size_buffers(sock, buffer)
            self.offload_receive = _try(sock, socket.IPPROTO_UDP, UDP_GRO)
            self.offload_send = _try(sock, socket.IPPROTO_UDP, UDP_SEGMENT, 0)
            if timed:
                _try(sock, socket.SOL_SOCKET, SO_TIMESTAMPNS)
        except BaseException:
            sock.close()
            raise
        self.address: Address = sock.getsockname()
        self.unsent = 0
        """Datagrams or trains that the kernel had no room for."""

    def resize(self, buffer: int) -> None:
        """Ask for a receive buffer of so many bytes; what waits in it stays."""
        self.asked = buffer
        self.granted = _size_buffers(self.socket, buffer)

    def fileno(self) -> int:
        """The socket's descriptor, for the event loop."""
        return self.socket.fileno()

    def send(self, train: Train, to: Address) -> None:
        """Send a train. What the kernel has no room for is lost, as on the way."""
        data, segment = train
        try:
            if not segment:
                self.socket.sendto(data, to)
                return
            if self.offload_send:
                note = (socket.IPPROTO_UDP, UDP_SEGMENT, _U16.pack(segment))
                self.socket.sendmsg((data,), (note,), 0, to)
                return
        except OSError as error:
            if error.errno in _NO_OFFLOAD and segment:
                self.offload_send = False
            else:
                self.count_error(error)
                return
        self._send_singly(train, to)

    def _send_singly(self, train: Train, to: Address) -> None:
        view = memoryview(train.data)
        for at in range(0, len(view), train.segment):
            try:
                self.socket.sendto(view[at : at + train.segment], to)
            except OSError as error:
                self.count_error(error)

    def count_error(self, error: OSError) -> None:
        """No room, no route, nobody there: for a datagram that is all the same. A closed socket is not."""
        if error.errno == errno.EBADF:
            raise error
        self.unsent += 1

    def join(self, group: str, interface: int) -> None:
        """Receive what is sent to a multicast group; 0 is the interface that the system chooses."""
        if self.socket.family == socket.AF_INET6:
            request = socket.inet_pton(socket.AF_INET6, group) + struct.pack("=I", interface)
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
        else:
            request = struct.pack("=4s4si", socket.inet_aton(group), bytes(4), interface)
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)

    def send_multicast_from(self, interface: int) -> None:
        """Multicasts leave by that interface, and reach the other nodes of this host."""
        sock = self.socket
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
            if interface:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface)
        else:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
            if interface:
                request = struct.pack("=4s4si", bytes(4), bytes(4), interface)
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, request)

    def close(self) -> None:
        """Give the port back."""
        self.socket.close()


def _try(sock: socket.socket, level: int, option: int, value: int = 1) -> bool:
    try:
        sock.setsockopt(level, option, value)
    except OSError:
        return False
    return True


def granted_buffer(asked: int) -> int:
    """Bytes that the system grants a UDP socket's receive buffer when so many are asked for."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return _size_buffers(sock, asked)


def _size_buffers(sock: socket.socket, size: int) -> int:
    """Ask for buffers, past the system's limit if we may; what the receive buffer really is."""
    for force, plain in ((SO_RCVBUFFORCE, socket.SO_RCVBUF), (SO_SNDBUFFORCE, socket.SO_SNDBUF)):
        if not _try(sock, socket.SOL_SOCKET, force, size):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, plain, size)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2  # the kernel reports twice what it gave


def why_not_bound(address: Address, error: OSError) -> str:
    """What to tell the user whose address could not be had."""
    host, port = address[0], address[1]
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"{where} is in use by another program: give this node another port with `listen`; it takes that "
            "port and the next one"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where} is not an address of this machine: `listen` names a local one, or 0.0.0.0 for all"
    if error.errno == errno.EACCES:
        return f"{where} needs privileges: choose a port above 1023"
    return f"{where} cannot be bound ({error.strerror}): choose another address with `listen`"
