"""Sockets: trains leave in one call where the kernel takes them, as single datagrams where it refuses."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ordercast.errors import AddressProblem
from ordercast.transport.segments import Reassembler, Segmenter, Train
from ordercast.transport.udp_reading import Arrival, SocketReader
from ordercast.transport.udp_socket import Address, UdpSocket

HERE: Address = ("127.0.0.1", 0)
HERE_SIX: Address = ("::1", 0, 0, 0)


def _has_six() -> bool:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind(("::1", 0))
        except OSError:
            return False
    return True


FAMILIES = pytest.mark.parametrize(
    "here",
    [
        HERE,
        pytest.param(HERE_SIX, marks=pytest.mark.skipif(not _has_six(), reason="this machine has no ::1")),
    ],
    ids=["IPv4", "IPv6"],
)


@contextmanager
def channel(here: Address = HERE, **options: Any) -> Iterator[UdpSocket]:
    opened = UdpSocket(here, buffer=options.pop("buffer", 1_000_000), **options)
    try:
        yield opened
    finally:
        opened.close()


def read(reader: SocketReader) -> Arrival:
    """On loopback what was sent is there, but the kernel may take its time."""
    return until(reader.receive)


def until(look: Callable[[], Arrival | None]) -> Arrival:
    for _ in range(5000):
        arrival = look()
        if arrival is not None:
            return arrival
        time.sleep(0.001)
    raise AssertionError("nothing came")


def read_packets(two: UdpSocket, count: int) -> list[bytes]:
    reader = SocketReader(two)
    joiner = Reassembler()
    packets: list[bytes] = []
    while len(packets) < count:
        size, _, segment, _ = read(reader)
        packets += joiner.join(reader.buffer, size, segment)
    assert reader.receive() is None
    assert joiner.bad == 0
    return packets


@FAMILIES
def test_packets_from_one_to_the_other(here: Address) -> None:
    packets = [os.urandom(size) for size in (0, 1, 5000, 1438, 1438, 30_000, 7)]
    with channel(here) as one, channel(here) as two:
        for train in Segmenter(1452).cut(packets):
            one.send(train, two.address)
        assert read_packets(two, len(packets)) == packets
        assert one.unsent == 0


def test_where_it_came_from() -> None:
    with channel() as one, channel() as two:
        one.send(Train(b"hello", 0), two.address)
        reader = SocketReader(two)
        arrival = read(reader)
        assert arrival.source == one.address
        assert reader.buffer[: arrival.size] == b"hello"


def test_nothing_waits() -> None:
    with channel() as one:
        assert SocketReader(one).receive() is None


def test_time_in_the_socket_is_told_where_it_is_asked_for() -> None:
    with channel() as one, channel(timed=True) as timed, channel() as untimed:
        one.send(Train(b"x", 0), timed.address)
        one.send(Train(b"x", 0), untimed.address)
        time.sleep(0.002)
        assert read(SocketReader(timed)).waited_us > 0
        assert read(SocketReader(untimed)).waited_us == 0


def test_buffers_are_reported_as_granted() -> None:
    with channel(buffer=100_000) as one:
        assert one.asked == 100_000
        assert one.granted == one.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        assert one.granted > 0


# --- a kernel that refuses ----------------------------------------------------------------------


class Refusing:
    """A socket whose trains, or datagrams, are refused."""

    def __init__(self, inner: socket.socket, train: int = 0, datagram: int = 0, read: int = 0) -> None:
        self._inner = inner
        self._train, self._datagram, self._read = train, datagram, read
        self.trains = self.datagrams = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def sendmsg(self, *args: Any) -> int:
        self.trains += 1
        if self._train:
            raise OSError(self._train, os.strerror(self._train))
        return self._inner.sendmsg(*args)

    def sendto(self, data: Any, to: Any) -> int:
        self.datagrams += 1
        if self._datagram:
            raise OSError(self._datagram, os.strerror(self._datagram))
        return self._inner.sendto(data, to)

    def recvmsg_into(self, *args: Any) -> Any:
        if self._read:
            error, self._read = self._read, 0
            raise OSError(error, os.strerror(error))
        return self._inner.recvmsg_into(*args)


def refusing(one: UdpSocket, **errors: int) -> Refusing:
    fake = Refusing(one.socket, **errors)
    one.socket = fake  # type: ignore[assignment]
    return fake


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EMSGSIZE, errno.EIO, errno.EOPNOTSUPP])
def test_where_trains_are_refused_single_datagrams_leave(error: int) -> None:
    packets = [os.urandom(9000), os.urandom(200)]
    with channel() as one, channel() as two:
        one.offload_send = True
        fake = refusing(one, train=error)
        for train in Segmenter(1452).cut(packets):
            one.send(train, two.address)
        assert read_packets(two, 2) == packets
        assert fake.trains == 1, "the kernel is not asked again"
        assert not one.offload_send
        assert one.unsent == 0
        one.send(Segmenter(1452).cut([packets[0]])[0], two.address)
        assert read_packets(two, 1) == packets[:1]
        assert fake.trains == 1


def test_without_offload_from_the_start() -> None:
    packets = [os.urandom(9000)]
    with channel() as one, channel() as two:
        one.offload_send = False
        fake = refusing(one)
        for train in Segmenter(1452).cut(packets):
            one.send(train, two.address)
        assert read_packets(two, 1) == packets
        assert fake.trains == 0


@pytest.mark.parametrize("error", [errno.EAGAIN, errno.ENOBUFS, errno.ENETUNREACH, errno.ECONNREFUSED])
def test_what_the_kernel_has_no_room_for_is_counted(error: int) -> None:
    train = Segmenter(1452).cut([bytes(9000)])[0]
    with channel() as one:
        one.offload_send = True
        refusing(one, train=error, datagram=error)
        one.send(train, ("127.0.0.1", 9))
        one.send(Train(b"single", 0), ("127.0.0.1", 9))
        assert one.unsent == 2
        assert one.offload_send, "a full buffer says nothing about what the kernel can do"
        one.offload_send = False
        one.send(train, ("127.0.0.1", 9))
        assert one.unsent == 2 + 7


def test_a_datagram_too_large_for_the_path_is_counted() -> None:
    with channel() as one:
        refusing(one, datagram=errno.EMSGSIZE)
        one.send(Train(b"single", 0), ("127.0.0.1", 9))
        assert one.unsent == 1


def test_a_closed_socket_is_a_defect_and_no_loss() -> None:
    with channel() as one:
        to, reader = one.address, SocketReader(one)
        one.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            one.send(Train(b"x", 0), to)
        with pytest.raises(OSError, match="Bad file descriptor"):
            reader.receive()


def test_an_error_of_an_earlier_send_hides_nothing() -> None:
    with channel() as one, channel() as two:
        two.send(Train(b"hello", 0), one.address)
        refusing(one, read=errno.ECONNREFUSED)
        reader = SocketReader(one)
        assert reader.receive() == Arrival(0, ("", 0), 0, 0)
        assert one.unsent == 1
        assert read(reader).size == 5


def test_sending_to_nobody_is_no_error() -> None:
    with channel() as one, channel() as gone:
        to = gone.address
        gone.close()
        for _ in range(3):
            one.send(Train(b"x", 0), to)


# --- binding ------------------------------------------------------------------------------------


@FAMILIES
def test_a_taken_port(here: Address) -> None:
    with channel(here) as one, pytest.raises(AddressProblem, match=r"in use.*`listen`"), channel(one.address):
        pass


def test_an_address_of_another_machine() -> None:
    with pytest.raises(AddressProblem, match="not an address of this machine"), channel(("192.0.2.1", 0)):
        pass


def test_a_failed_bind_keeps_no_socket() -> None:
    with channel() as one:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            with pytest.raises(AddressProblem), channel(one.address):
                pass
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_shared_address_is_bound_by_several() -> None:
    with channel(shared=True) as one, channel(one.address, shared=True):
        pass


def test_multicast_on_loopback_reaches_every_member() -> None:
    group, loopback = "239.77.12.9", socket.if_nametoindex("lo")
    with channel(shared=True, here=(group, 0)) as one:
        port = one.address[1]
        with channel((group, port), shared=True) as two, channel() as sender:
            for member in (one, two):
                member.join(group, loopback)
            sender.send_multicast_from(loopback)
            sender.send(Train(b"to all", 0), (group, port))
            for member in (one, two):
                reader = SocketReader(member)
                assert reader.buffer[: read(reader).size] == b"to all"
