"""Filters in the kernel: who is known is heard, and strangers are kept apart."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ordercast.transport import kernel_filter as sources
from ordercast.transport.kernel_filter import dropped, keep_only, part
from ordercast.transport.udp_socket import Address

HOSTS = pytest.mark.parametrize(
    ("listening", "at", "known", "stranger"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.3"),
        ("::1", "::1", "::1", "::1"),
        ("::", "127.0.0.1", "127.0.0.2", "127.0.0.3"),
    ],
    ids=["IPv4", "IPv6", "both"],
)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def bound(opened: ExitStack, host: str, port: int = 0, parted: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = opened.enter_context(socket.socket(family, socket.SOCK_DGRAM))
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
    if parted:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind((host, port))
    except OSError:
        pytest.skip(f"there is no {host} here")
    sock.settimeout(10)
    return sock


def source_at(sock: socket.socket, listening: str) -> Address:
    """The address of a socket, as who listens there sees it."""
    found: Address = sock.getsockname()
    if listening == "::":
        return (f"::ffff:{found[0]}", found[1], 0, 0)
    return found


@HOSTS
def test_only_those_who_are_known_are_heard(
    opened: ExitStack, listening: str, at: str, known: str, stranger: str
) -> None:
    here = bound(opened, listening)
    to = (at, here.getsockname()[1])
    known_socket, others = bound(opened, known), [bound(opened, stranger), bound(opened, known)]
    if not keep_only(here, [("10.0.0.1", 5), source_at(known_socket, listening), ("fe80::1", 5, 0, 0)]):
        pytest.skip("this kernel does not filter")
    for number in range(10):
        for other in others:
            other.sendto(b"stranger", to)
        known_socket.sendto(b"known %d" % number, to)
    assert [here.recv(100) for _ in range(10)] == [b"known %d" % number for number in range(10)]
    assert dropped(here) == 20
    assert keep_only(here, ())
    known_socket.sendto(b"known", to)
    assert dropped(here) == 21


@HOSTS
def test_greetings_and_strangers_have_sockets_of_their_own(
    opened: ExitStack, listening: str, at: str, known: str, stranger: str
) -> None:
    first = bound(opened, listening, parted=True)
    second, third = (bound(opened, listening, first.getsockname()[1], parted=True) for _ in range(2))
    to = (at, first.getsockname()[1])
    known_socket, other = bound(opened, known), bound(opened, stranger)
    if not part(first, (), b"OG"):
        pytest.skip("this kernel does not part them")
    for data in (b"not yet known", b"OG", b"O", b""):
        known_socket.sendto(data, to)
        assert third.recv(100) == data
    assert part(first, [("10.0.0.1", 5), source_at(known_socket, listening), ("fe80::1", 5, 0, 0)], b"OG")
    for data in (b"OG", b"OGreeting"):
        known_socket.sendto(data, to)
        assert second.recv(100) == data
    for data in (b"O", b"", b"GO"):
        known_socket.sendto(data, to)
        assert first.recv(100) == data
    for number in range(10):
        other.sendto(b"stranger %d" % number, to)
        known_socket.sendto(b"known %d" % number, to)
    assert [first.recv(100) for _ in range(10)] == [b"known %d" % number for number in range(10)]
    assert [third.recv(100) for _ in range(10)] == [b"stranger %d" % number for number in range(10)]


def test_too_many_for_a_program_are_all_heard(opened: ExitStack) -> None:
    here, known = bound(opened, "127.0.0.1"), bound(opened, "127.0.0.1")
    many: list[Address] = [("10.0.0.1", 1 + port) for port in range(sources.MOST_INSTRUCTIONS)]
    if not keep_only(here, ()):
        pytest.skip("this kernel does not filter")
    assert not keep_only(here, many)
    known.sendto(b"heard", here.getsockname())
    assert here.recv(100) == b"heard"


def test_as_many_as_fit_are_told_apart(opened: ExitStack) -> None:
    here, known = bound(opened, "127.0.0.1"), bound(opened, "127.0.0.1")
    many: list[Address] = [("10.0.0.1", 1 + port) for port in range(700)]
    if not keep_only(here, many):
        pytest.skip("this kernel does not filter")
    known.sendto(b"stranger", here.getsockname())
    assert keep_only(here, [*many, known.getsockname()])
    known.sendto(b"known", here.getsockname())
    assert here.recv(100) == b"known"
