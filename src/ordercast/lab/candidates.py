"""What there is to choose from: every protocol with the settings of a node, and with some that differ.

A simulated node usually has settings for a network on which nothing takes long. A candidate has those that a
real node has: the profile for local networks, and packets that fill trains of datagrams.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import msgspec

from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.core.protocol import LAN, Buffers
from ordercast.lab.grid import GridError, Settings
from ordercast.transport.udp import udp_capacity

DATAGRAM = 1_472
"""Bytes of a datagram on Ethernet: what `mtu = 1500` leaves."""
BUFFER = 1024 * 1024
"""Bytes of receive buffer that a node is taken to get from its system."""


class Variation(NamedTuple):
    """Settings that are tried beside the usual ones, and why."""

    settings: Settings
    why: str


VARIATIONS = (
    Variation({"accelerated_window": 0}, "the token leaves behind the messages, as in the paper"),
    Variation(
        {"accelerated_window": 0, "eager_requests": True}, "what is missing is asked for at the first token"
    ),
    Variation({"hold_us": 10_000}, "an idle ring's token is held for a shorter time"),
    Variation({"hurry_us": 300}, "who orders waits for less time before it acknowledges"),
    Variation({"window": 32}, "more packets of a member may be on their way"),
    Variation({"resilience": 1}, "an agreed message is delivered before a majority has it"),
)
"""Tried with every protocol that has these settings."""


class Candidate(NamedTuple):
    """A protocol and its settings."""

    protocol: str
    changes: Settings
    """Settings that differ from those of a node by default: what a configuration has to say."""
    why: str

    @property
    def name(self) -> str:
        """The candidate in a few words, the same in all figures and tables."""
        told = ", ".join(f"{name} {_shown(value)}" for name, value in self.changes.items())
        return f"{self.protocol} ({told})" if told else self.protocol

    @property
    def settings(self) -> Settings:
        """All settings of a node, for a simulation."""
        return {**settings_of_a_node(self.protocol), **self.changes}

    @property
    def configuration(self) -> str:
        """The lines of a node's configuration file that choose it."""
        lines = [f'protocol = "{self.protocol}"']
        if self.changes:
            lines += ["", f"[{self.protocol}]"]
            lines += [f"{name} = {_shown(value)}" for name, value in self.changes.items()]
        return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def _settings_of_a_node(protocol: str) -> dict[str, Any]:
    capacity = udp_capacity(DATAGRAM, BUFFER)
    product = LAB_PROTOCOLS[protocol].product
    config = product.configure(
        {"packet_size": capacity.packet}, LAN, Buffers(capacity.buffer, capacity.datagram)
    )
    usual = product.settings()
    found = {name: value for name, value in _fields(config).items() if value != getattr(usual, name)}
    return {name: value for name, value in found.items() if name != "founders"}


def _fields(config: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__struct_fields__}


def settings_of_a_node(protocol: str) -> Settings:
    """The settings of a real node in which it differs from a simulated one."""
    return dict(_settings_of_a_node(protocol))


def candidates(
    protocols: tuple[str, ...] | None, quick: bool, present: Candidate | None = None
) -> list[Candidate]:
    """All candidates, that which is in use at `present` first; a quick look has each protocol as it is by
    default."""
    for name in protocols or ():
        if name not in LAB_PROTOCOLS:
            raise GridError(f"no protocol {name!r} to choose; there are {', '.join(LAB_PROTOCOLS)}")
    found = [] if present is None else [present]
    for name, protocol in LAB_PROTOCOLS.items():
        if protocols is not None and name not in protocols:
            continue
        found.append(Candidate(name, {}, "as a node has it by default"))
        known = set(protocol.product.settings.__struct_fields__)
        if not quick:
            found += [
                Candidate(name, each.settings, each.why) for each in VARIATIONS if known >= set(each.settings)
            ]
    return list({each.name: each for each in reversed(found)}.values())[::-1]
