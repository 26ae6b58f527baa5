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
from ordercast.runtime.config import NodeConfig, Place, parse_address
from ordercast.runtime.greetings import GREETING_MAGIC
from ordercast.runtime.probes import Door
from ordercast.runtime.sources import dropped, keep_only, part
from ordercast.runtime.udp import Address, Channel

PORTS_TRIED = 200
GREETINGS_BUFFER = 64 * 1024
"""Bytes of greetings that wait; there are some hundred in it."""
TOKENS_BUFFER = 256 * 1024
"""Bytes of tokens that wait: a few. In a larger buffer one would wait longer behind what is none."""
SIOCGIFADDR = 0x8915


class Wires(NamedTuple):
    """The sockets of a node."""

    token: Channel
    """Tokens and greetings."""
    data: Channel
    door: Door
    """Shows that this process is there."""
    greetings: Sequence[Channel] = ()
    """Where greetings arrive, at the port for tokens: of peers and of strangers. Empty where the kernel
    cannot part them from tokens."""
    multicast: Channel | None = None
    """Where the group's multicasts arrive, if it uses IP multicast."""
    group: Address | None = None
    """Where they are sent to."""

    def close(self) -> None:
        """Give the ports back."""
        for channel in (self.token, *self.greetings, self.data, self.door, self.multicast):
            if channel is not None:
                channel.close()

    def admit(self, sources: Collection[Address]) -> None:
        """From now on data and tokens come from these addresses alone."""
        if self.greetings:
            part(self.token.socket, sources, GREETING_MAGIC)
        for channel in (self.data, self.multicast):
            if channel is not None:
                keep_only(channel.socket, sources)

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


async def open_wires(place: Place, config: NodeConfig, *, only_tokens: bool = False) -> Wires:
    """The node's sockets: two neighbouring ports, and the multicast group's if there is one.

    `only_tokens`: nothing else comes to the first port, but for greetings.
    """
    host = (await _look_up(place.host, place.host, 0, six=":" in place.host))[0]
    token_buffer = min(config.socket_buffer, TOKENS_BUFFER if only_tokens else config.socket_buffer)
    wires = _two_ports(place, host, config.socket_buffer, token_buffer)
    try:
        return _with_multicast(wires, config)
    except BaseException:
        wires.close()
        raise


def _two_ports(place: Place, host: Address, buffer: int, token_buffer: int) -> Wires:
    tries = PORTS_TRIED if not place.exact or not place.port else 1
    stream = random.Random()
    for attempt in range(tries):
        port = (place.port + 2 * attempt) if place.port else stream.randrange(20_000, 60_000, 2)
        tokens = cast(Address, (host[0], port, *host[2:]))
        data = cast(Address, (host[0], port + 1, *host[2:]))
        opened: list[Channel | Door] = []
        try:
            opened.append(door := Door(tokens))  # first: it cannot be parted, so that nobody else is there
            opened.append(token := Channel(tokens, buffer=token_buffer, timed=True, parted=True))
            greetings = [Channel(tokens, buffer=GREETINGS_BUFFER, parted=True)]
            opened += greetings
            greetings.append(Channel(tokens, buffer=GREETINGS_BUFFER, parted=True))
            opened.append(greetings[1])
            opened.append(channel := Channel(data, buffer=buffer))
            if part(token.socket, (), GREETING_MAGIC):
                return Wires(token, channel, door, greetings)
            for lane in greetings:
                lane.close()
            return Wires(token, channel, door)
        except AddressProblem:
            for one in opened:
                one.close()
            if attempt == tries - 1:
                raise
    raise AssertionError("the last attempt raises")


def _with_multicast(wires: Wires, config: NodeConfig) -> Wires:
    if config.multicast is None:
        return wires
    group, port = parse_address(config.multicast)
    channel = None
    try:
        index = interface_index(config.interface)
        where: Address = (group, port, 0, index) if ":" in group else (group, port)
        channel = Channel(where, buffer=wires.data.asked, shared=True)
        channel.join(group, index)
        wires.data.send_multicast_from(index)
    except OSError as error:
        if channel is not None:
            channel.close()
        raise AddressProblem(
            f"multicast to {config.multicast} does not work here ({error.strerror or error}): name the "
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
