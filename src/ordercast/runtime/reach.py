"""Whom a node would be reached by, and whom it would reach: whether that is meant, and safe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.errors import ConfigProblem
from ordercast.transport.address import Place, is_literal, is_loopback, parse_address

if TYPE_CHECKING:
    from ordercast.runtime.config import NodeConfig

ALLOW = (
    "name a group key (key = FILE; `ordercast keygen` makes one), or write insecure = true if you trust "
    "everyone on that network"
)


def check_that_nobody_else_is_reached(config: NodeConfig, place: Place) -> None:
    """Raise where other machines could read and forge messages: the node has no key."""
    if not is_loopback(place.host):
        raise ConfigProblem(
            f"listen is {config.listen!r}, where other machines could read and forge messages, since the "
            f"node has no key: {ALLOW}, or listen on 127.0.0.1"
        )
    if config.multicast is not None and not (config.interface and is_loopback(config.interface)):
        raise ConfigProblem(
            f"multicast is {config.multicast!r}, which other machines can read and forge, since the node "
            f"has no key: {ALLOW}"
        )


def check_that_others_can_be_reached(config: NodeConfig, place: Place) -> None:
    """Raise which node could not be reached from where this one listens."""
    for name, addresses in (("seeds", config.seeds), ("peers", config.peers or ())):
        for address in addresses:
            host, _ = parse_address(address)
            if is_loopback(place.host) and not is_loopback(host):
                wish = (
                    'listen on an address that others can reach, as in listen = "0.0.0.0:4801"'
                    if config.listen is not None
                    else "name a group key (key = FILE; `ordercast keygen` makes one), or write "
                    "insecure = true, and it will listen on all interfaces"
                )
                raise ConfigProblem(
                    f"{name} has {address!r} on another machine, but the node listens on "
                    f"{place.host} alone, from where it reaches none: {wish}"
                )
            if is_literal(host) and (":" in host) != (":" in place.host) and is_literal(place.host):
                kind, listens = ("IPv6", "IPv4") if ":" in host else ("IPv4", "IPv6")
                raise ConfigProblem(
                    f"{name} has {address!r}, but the node listens with {listens} at {place.host}: "
                    f"write the {listens} address of that node, or an {kind} one for listen"
                )
