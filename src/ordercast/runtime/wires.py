"""The sockets of a node: two neighbouring ports, and a multicast group's where it uses one."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Sequence
from typing import NamedTuple, cast

from ordercast.errors import AddressProblem
from ordercast.runtime.config import NodeConfig, Place, parse_address
from ordercast.runtime.udp import Address, Channel

PORTS_TRIED = 200


class Wires(NamedTuple):
    """The sockets of a node."""

    token: Channel
    """Tokens and greetings."""
    data: Channel
    multicast: Channel | None = None
    """Where the group's multicasts arrive, if it uses IP multicast."""
    group: Address | None = None
    """Where they are sent to."""

    def close(self) -> None:
        """Give the ports back."""
        for channel in (self.token, self.data, self.multicast):
            if channel is not None:
                channel.close()


async def resolve(addresses: Sequence[str], host: str) -> list[Address]:
    """Socket addresses of the family that ``host`` belongs to."""
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found: list[Address] = []
    for text in addresses:
        name, port = parse_address(text)
        flags = socket.AI_V4MAPPED if family == socket.AF_INET6 else 0
        try:
            answers = await loop.getaddrinfo(name, port, family=family, type=socket.SOCK_DGRAM, flags=flags)
        except socket.gaierror as error:
            raise AddressProblem(
                f"{text!r} cannot be resolved ({error.strerror}): check the name, or write the address"
            ) from error
        found.append(cast(Address, answers[0][4]))
    return found


def open_wires(place: Place, config: NodeConfig) -> Wires:
    """The node's sockets: two neighbouring ports, and the multicast group's if there is one."""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    host = socket.getaddrinfo(place.host, 0, family, socket.SOCK_DGRAM)[0][4]
    tries = PORTS_TRIED if not place.exact or not place.port else 1
    stream = random.Random()
    for attempt in range(tries):
        port = (place.port + 2 * attempt) if place.port else stream.randrange(20_000, 60_000, 2)
        opened: list[Channel] = []
        try:
            for offset in (0, 1):
                address = cast(Address, (host[0], port + offset, *host[2:]))
                opened.append(Channel(address, buffer=config.socket_buffer, timed=offset == 0))
            return _with_multicast(Wires(token=opened[0], data=opened[1]), config)
        except AddressProblem:
            for channel in opened:
                channel.close()
            if attempt == tries - 1:
                raise
    raise AssertionError("the last attempt raises")


def _with_multicast(wires: Wires, config: NodeConfig) -> Wires:
    if config.multicast is None:
        return wires
    group, port = parse_address(config.multicast)
    where: Address = (group, port, 0, 0) if ":" in group else (group, port)
    channel = Channel(where, buffer=config.socket_buffer, shared=True)
    try:
        channel.join(group, config.interface)
        wires.data.send_multicast_from(config.interface)
    except OSError as error:
        channel.close()
        raise AddressProblem(
            f"multicast to {config.multicast} does not work here ({error.strerror}): name the `interface`, "
            "or leave `multicast` out"
        ) from error
    return wires._replace(multicast=channel, group=where)
