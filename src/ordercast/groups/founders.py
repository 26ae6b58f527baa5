"""Who may begin a group, from what each node was told of the others.

A group with a primary partition must not be begun twice: each would be sure to be the one. How many nodes
have to agree to begin it (`founders`) follows from the addresses that a node is given, without a number:

| the node is told of | it |
|---|---|
| nobody | is the first, and begins a group alone |
| `peers`: all nodes | begins one together with more than half of them |
| `seeds`, its own address among them | begins one together with more than half of those listed |
| `seeds`, others only | begins none: it waits for the group that it was told of |

If all who are on a list have the same list, no two groups can be begun: a majority of it is needed, and
nobody else counts.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from ordercast.core.protocol import Protocol
from ordercast.errors import ConfigProblem
from ordercast.runtime.config import NodeConfig
from ordercast.transport.udp_socket import Address


def with_founders(
    config: NodeConfig, protocol: Protocol, listed: Mapping[str, Sequence[Address]], own: Address
) -> NodeConfig:
    """The configuration with `founders` said, where the protocol has that and the user did not say it.

    `listed` are the addresses of each of `seeds` or `peers`, `own` is where this node receives.
    """
    if not protocol.primary_partition or "founders" in config.protocol_settings:
        return config
    settings = {**config.protocol_settings, "founders": _founders(config, protocol, listed, own)}
    return config.with_changes(protocol_settings=settings)


def _founders(
    config: NodeConfig, protocol: Protocol, listed: Mapping[str, Sequence[Address]], own: Address
) -> int:
    if not listed:
        return 1
    others = {addresses[0] for addresses in listed.values() if not any(is_own(own, a) for a in addresses)}
    mine = any(is_own(own, address) for addresses in listed.values() for address in addresses)
    if config.peers is None and not mine:
        return 0
    for text, addresses in listed.items():
        if len(addresses) > 1:
            raise ConfigProblem(
                f"{text} stands for {len(addresses)} addresses, so that nobody knows how many nodes are to "
                f"begin the group: list each node by itself, or set founders in [{protocol.name}], to more "
                "than half of all nodes, or to 0 where the node is only to join"
            )
    return (len(others) + 1) // 2 + 1


def is_own(own: Address, address: Address) -> bool:
    """Whether an address is one at which this node, bound to `own`, receives."""
    if address[1] != own[1]:
        return False
    if address[0] == own[0]:
        return True
    return own[0] in ("0.0.0.0", "::") and _is_here(address)


def _is_here(address: Address) -> bool:
    """Whether the host of an address is this machine: only then can a socket be bound to it."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address[0], 0, *address[2:]))
        except OSError:
            return False
    return True


def who_begins(config: NodeConfig) -> str:
    """What a node of a protocol with a primary partition waits for that is in no group yet."""
    founders = config.protocol_settings["founders"]
    listed = ", ".join(config.peers or config.seeds)
    if founders > 1:
        return (
            f"{founders} nodes have to be up to begin a group ({listed}); a node that was in one waits for a "
            "majority of those who were in it last"
        )
    if founders or not listed:
        return "others of its last group have to be up"
    return (
        f"it waits to be let in by the group of {listed}. A node that is to begin one has no seeds, or its "
        "own address among them, the same list at all nodes; or founders is set"
    )
