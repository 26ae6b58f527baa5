"""The sockets of a node: two neighbouring ports, and a multicast group's where it uses one."""

from __future__ import annotations

import asyncio
import fcntl
import random
import socket
import struct
from collections.abc import Collection, Sequence
from typing import NamedTuple, cast

from ordercast.errors import AddressProblem
from ordercast.transport.address import Place, parse_address
from ordercast.transport.greetings import GREETING_MAGIC
from ordercast.transport.kernel_filter import dropped, keep_only, part
from ordercast.transport.probes import LivenessPort
from ordercast.transport.udp_socket import Address, UdpSocket

PORTS_TRIED = 200
GREETINGS_BUFFER = 64 * 1024
"""Bytes of greetings that wait; there are some hundred in it."""
TOKENS_BUFFER = 256 * 1024
"""Bytes of tokens that wait: a few. In a larger buffer one would wait longer behind what is none."""
SIOCGIFADDR = 0x8915


class NodeSockets(NamedTuple):
    """The sockets of a node."""

    token: UdpSocket
    """Tokens and greetings."""
    data: UdpSocket
    liveness: LivenessPort
    """Shows that this process is there."""
    greetings: Sequence[UdpSocket] = ()
    """Where greetings arrive, at the port for tokens: of peers and of strangers. Empty where the kernel
    cannot part them from tokens."""
    multicast: UdpSocket | None = None
    """Where the group's multicasts arrive, if it uses IP multicast."""
    group: Address | None = None
    """Where they are sent to."""

    def close(self) -> None:
        """Give the ports back."""
        for channel in (self.token, *self.greetings, self.data, self.liveness, self.multicast):
            if channel is not None:
                channel.close()

    def admit(self, sources: Collection[Address]) -> None:
        """From now on data and tokens come from these addresses alone."""
        if self.greetings:
            part(self.token.socket, sources, GREETING_MAGIC)
        for channel in (self.data, self.multicast):
            if channel is not None:
                keep_only(channel.socket, sources)

    def expect_tokens(self) -> None:
        """From now on few packets at a time come to the token port, and none may wait behind others."""
        self.token.resize(min(self.token.asked, TOKENS_BUFFER))

    @property
    def dropped(self) -> dict[str, int]:
        """Datagrams that the kernel did not hand over, by reason."""
        found = {
            "data of unknown senders, or no room": sum(
                dropped(channel.socket) for channel in (self.data, self.multicast) if channel is not None
            ),
            "token port: no room": dropped(self.token.socket),
            "greeting: no room": sum(dropped(channel.socket) for channel in self.greetings),
        }
        return {reason: count for reason, count in found.items() if count}


async def resolve(addresses: Sequence[str], host: str) -> list[Address]:
    """Socket addresses, all that the names have, of the family that ``host`` belongs to."""
    found: list[Address] = []
    for text in addresses:
        found += await _look_up(text, *parse_address(text), six=":" in host)
    return found


async def _look_up(text: str, name: str, port: int, *, six: bool) -> list[Address]:
    family = socket.AF_INET6 if six else socket.AF_INET
    flags = socket.AI_V4MAPPED if six else 0
    try:
        answers = await asyncio.get_running_loop().getaddrinfo(
            name, port, family=family, type=socket.SOCK_DGRAM, flags=flags
        )
    except socket.gaierror as error:
        raise AddressProblem(
            f"{text!r} cannot be resolved ({error.strerror}): check the name, or write the address"
        ) from error
    return [cast(Address, answer[4]) for answer in answers]


async def open_sockets(
    place: Place,
    buffer: int,
    multicast: str | None = None,
    interface: str | None = None,
) -> NodeSockets:
    """The node's sockets: two neighbouring ports, and the multicast group's if there is one.

    `buffer`: bytes of receive buffer to ask for, at each port.
    """
    host = (await _look_up(place.host, place.host, 0, six=":" in place.host))[0]
    wires = _two_ports(place, host, buffer)
    try:
        return wires if multicast is None else _with_multicast(wires, multicast, interface)
    except BaseException:
        wires.close()
        raise


def _two_ports(place: Place, host: Address, buffer: int) -> NodeSockets:
    tries = PORTS_TRIED if not place.exact or not place.port else 1
    stream = random.Random()
    for attempt in range(tries):
        port = (place.port + 2 * attempt) if place.port else stream.randrange(20_000, 60_000, 2)
        tokens = cast(Address, (host[0], port, *host[2:]))
        data = cast(Address, (host[0], port + 1, *host[2:]))
        opened: list[UdpSocket | LivenessPort] = []
        try:
            # first: it cannot be shared, so that nobody else is there
            opened.append(liveness := LivenessPort(tokens))
            opened.append(token := UdpSocket(tokens, buffer=buffer, timed=True, parted=True))
            greetings = [UdpSocket(tokens, buffer=GREETINGS_BUFFER, parted=True)]
            opened += greetings
            greetings.append(UdpSocket(tokens, buffer=GREETINGS_BUFFER, parted=True))
            opened.append(greetings[1])
            opened.append(channel := UdpSocket(data, buffer=buffer))
            if part(token.socket, (), GREETING_MAGIC):
                return NodeSockets(token, channel, liveness, greetings)
            for lane in greetings:
                lane.close()
            return NodeSockets(token, channel, liveness)
        except AddressProblem:
            for one in opened:
                one.close()
            if attempt == tries - 1:
                raise
    raise AssertionError("the last attempt raises")


def _with_multicast(wires: NodeSockets, multicast: str, interface: str | None) -> NodeSockets:
    group, port = parse_address(multicast)
    channel = None
    try:
        index = interface_index(interface)
        where: Address = (group, port, 0, index) if ":" in group else (group, port)
        channel = UdpSocket(where, buffer=wires.data.asked, shared=True)
        channel.join(group, index)
        wires.data.send_multicast_from(index)
    except OSError as error:
        if channel is not None:
            channel.close()
        raise AddressProblem(
            f"multicast to {multicast} does not work here ({error.strerror or error}): name the "
            "`interface`, as `ip link` shows it, or leave `multicast` out"
        ) from error
    return wires._replace(multicast=channel, group=where)


def interface_index(interface: str | None) -> int:
    """The number of an interface that is given by its name or by its IPv4 address; 0 if none is given."""
    if interface is None:
        return 0
    try:
        wanted = socket.inet_aton(interface)
    except OSError:
        return socket.if_nametoindex(interface)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for index, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asking, SIOCGIFADDR, request)
            except OSError:
                continue  # an interface without an address
            if answer[20:24] == wanted:
                return index
    raise OSError(f"no interface has the address {interface}")
