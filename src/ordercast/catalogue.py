"""What the laboratory knows of each protocol: settings that it draws, checks, what a fuzzer has to hit."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ordercast.audit.properties import EXTENDED_VIRTUAL_SYNCHRONY, PROMISES
from ordercast.core.contract import Machine
from ordercast.core.identity import NodeId
from ordercast.core.protocol import GROUPS, SIM, Protocol
from ordercast.protocols import PROTOCOLS
from ordercast.protocols import protocol as product_called
from ordercast.rings.machine import RingsMachine
from ordercast.rings.protocol import RINGS
from ordercast.sequencers.rewriting import rewrite
from ordercast.sim.coverage import LOST, WRONG_SUSPICION
from ordercast.sim.founders import draw_founders
from ordercast.sim.network import Lan
from ordercast.sim.network_coverage import NETWORK_HITS
from ordercast.sim.protocol import LabProtocol
from ordercast.sim.topology import MOST_ON_A_NETWORK, draw_networks
from ordercast.sim.world import MachineFactory
from ordercast.totem.machine import TotemMachine
from ordercast.totem.packets import decode_data
from ordercast.totem.protocol import TOTEM
from ordercast.totem.rewriting import rewrite as totem_rewrite
from ordercast.viewsync.config import GroupConfig

__all__ = [
    "LAB_PROTOCOLS",
    "LAB_RINGS",
    "LAB_TOTEM",
    "OVER_NETWORKS",
    "LabProtocol",
    "fuzzed_protocol",
    "lab_protocol",
    "sequenced_in_lab",
]


def _configs(product: Protocol, settings: Mapping[str, object], differs: str) -> Callable[[NodeId], Any]:
    """The settings of each node; the one called `differs` may be a mapping, with a value for each node."""
    by_node = settings.get(differs)
    if not isinstance(by_node, Mapping):
        config = product.configure(settings, SIM)
        return lambda node: config
    return {
        int(node): product.configure({**settings, differs: value}, SIM) for node, value in by_node.items()
    }.__getitem__


# --- Totem ---------------------------------------------------------------------------------------


def _make_totem(settings: Mapping[str, object]) -> MachineFactory:
    config: Any = TOTEM.configure(settings, SIM)
    decode = lru_cache(maxsize=4096)(decode_data)  # a multicast is decoded once, not at each receiver

    def make(node: NodeId) -> Machine:
        return TotemMachine(node, config, decode)

    return make


def _draw_totem(stream: random.Random, nodes: int, lan: Lan) -> dict[str, object]:
    """Settings that fit the network's delays, with windows small enough to be filled."""
    hop_us = lan.base_us + 3 * lan.tail_us
    rotation_us = nodes * hop_us
    token_loss_us = max(20_000, 5 * rotation_us) * stream.choice((1, 2, 4))
    token_retransmission_us = token_loss_us // stream.choice((3, 5, 8))
    join_us = max(2_000, 4 * hop_us)
    window_size = stream.choice((nodes, 2 * nodes, 128))
    drawn: dict[str, object] = {
        "token_loss_us": token_loss_us,
        "token_retransmission_us": token_retransmission_us,
        "join_us": join_us,
        "consensus_us": join_us * stream.choice((3, 5)),
        "fail_to_receive": stream.choice((4, 10, 50)),
        "window_size": window_size,
        "max_messages": stream.choice((1, 4, 64)),
        "max_outstanding": window_size * stream.choice((2, 8)),
        "max_requests": stream.choice((2, 16, 128)),
        "eager_requests": stream.random() < 0.4,
        "accelerated_window": stream.choice((0, 0, 2, 20, 20)),
        "idle_rotations": stream.choice((1, 3)),
        "hold_us": stream.choice((0, token_retransmission_us // 3, token_retransmission_us * 4 // 5)),
        "announce_us": max(20_000, 6 * rotation_us),
        "packet_size": stream.choice((256, 500, 1_400)),
    }
    if stream.random() < 0.25:  # large enough to be filled less while some are lost
        drawn["packet_size"] = stream.choice((6_000, 20_000))
    drawn["least_retransmission_us"] = max(1, token_retransmission_us // stream.choice((1, 4, 20)))
    drawn["input_buffer"] = stream.choice((32_000, 212_992, 1024 * 1024))
    return drawn


LAB_TOTEM = LabProtocol(
    TOTEM, _make_totem, _draw_totem, checks=EXTENDED_VIRTUAL_SYNCHRONY, rewrite=totem_rewrite
)

# --- rings that gateways join ----------------------------------------------------------------------


def _make_rings(settings: Mapping[str, object]) -> MachineFactory:
    """The setting `networks` may be one list for all nodes, or one for each by its identifier."""
    config_of = _configs(RINGS, settings, "networks")
    decode = lru_cache(maxsize=4096)(decode_data)
    return lambda node: RingsMachine(node, config_of(node), decode)


def _draw_rings(stream: random.Random, nodes: int, lan: Lan) -> dict[str, object]:
    """Those of Totem for rings as large as there may be, and who is attached to which.

    A gateway forwards what all the others send, so that a single small packet at each visit of the token
    would not carry in minutes what nodes send in a second.
    """
    drawn: dict[str, Any] = _draw_totem(stream, min(nodes, MOST_ON_A_NETWORK), lan)
    drawn["max_messages"] = max(4, drawn["max_messages"])
    drawn["window_size"] = max(16, drawn["window_size"])
    drawn["packet_size"] = max(500, drawn["packet_size"])
    drawn["networks"] = draw_networks(stream, range(1, nodes + 1))
    drawn["undelivered"] = stream.choice((4_000, 100_000, 16 * 1024 * 1024))
    drawn["forwarding"] = stream.choice((4_000, 100_000, 8 * 1024 * 1024))
    return drawn


LAB_RINGS = LabProtocol(
    RINGS,
    _make_rings,
    _draw_rings,
    checks=EXTENDED_VIRTUAL_SYNCHRONY,
    rewrite=totem_rewrite,
    hits=NETWORK_HITS,
    nodes=(6, 14),
)

# --- the sequencer family --------------------------------------------------------------------------


def _draw_group(stream: random.Random, nodes: int, lan: Lan) -> dict[str, object]:
    """Settings that fit the network's delays, with windows small enough to be filled."""
    hop_us = lan.base_us + 3 * lan.tail_us
    heartbeat_us = max(5_000, 4 * hop_us)
    aggressive_us = heartbeat_us * stream.choice((3, 4, 5))
    change_us = hop_us * stream.choice((3, 4, 6))
    drawn: dict[str, object] = {
        "heartbeat_us": heartbeat_us,
        "aggressive_us": aggressive_us,
        "conservative_us": aggressive_us * stream.choice((2, 3, 4)),
        "change_us": change_us,
        "round_us": change_us * stream.choice((4, 5, 6)),
        "join_us": max(2_000, 4 * hop_us),
        "found_us": heartbeat_us * stream.choice((2, 4)),
        "retry_us": (retry_us := hop_us * stream.choice((3, 5, 8))),
        "silence_us": hop_us * stream.choice((3, 10, 40)),
        "hurry_us": max(1, hop_us * stream.choice((1, 1, 2)) // 2),
        "packet_size": stream.choice((256, 500, 1_400)),
        "window": stream.choice((1, 4, 8)),
        "batch": stream.choice((1, 4, 64)),
        "max_unstable": stream.choice((8, 64, 1_024)),
        "max_requests": stream.choice((2, 16, 64)),
        "resilience": stream.choice((0, 0, 0, 1, 2)),
        "keep_bytes": stream.choice((0, 2_000, 20_000, 16 * 1024 * 1024)),
        "founders": draw_founders(stream, range(1, nodes + 1)),
    }
    if stream.random() < 0.25:  # larger than a datagram: sent again in parts
        drawn["datagram_size"] = stream.choice((256, 500))
        drawn["packet_size"] = stream.choice((1_400, 6_000))
    drawn["lossy_retry_us"] = retry_us // stream.choice((1, 1, 2))
    return drawn


def sequenced_in_lab(product: Protocol, hits: tuple[str, ...] = ("token lost",)) -> LabProtocol:
    """A protocol of the sequencer family; of its own, a fuzzer has to make these `hits` happen.

    The setting `founders` may be one number for all nodes, or one for each by its identifier.
    """

    def make(settings: Mapping[str, object]) -> MachineFactory:
        config_of = _configs(product, settings, "founders")
        return lambda node: product.build(config_of(node), node)

    lost = (name for role, name in LOST.items() if role != "external")
    return LabProtocol(
        product,
        make,
        _draw_group,
        checks=PROMISES[product.promises],
        rewrite=rewrite,
        hits=(*lost, WRONG_SUSPICION, *hits),
    )


_HITS = {
    "total": (),
    "rbp": ("token lost", "several originators"),
    "irbp": (LOST["external"], "token lost", "external returned", "external gave up"),
}

# --- all of them ---------------------------------------------------------------------------------

LAB_PROTOCOLS: dict[str, LabProtocol] = {
    LAB_TOTEM.name: LAB_TOTEM,
    **{
        name: sequenced_in_lab(product, _HITS.get(name, ("token lost",)))
        for name, product in PROTOCOLS.items()
        if product.settings is GroupConfig
    },
}
"""Those whose nodes are all on one network."""


OVER_NETWORKS: dict[str, LabProtocol] = {LAB_RINGS.name: LAB_RINGS}
"""Those whose nodes may be on several networks."""


def lab_protocol(name: str) -> LabProtocol:
    """The protocol of that name."""
    return {**LAB_PROTOCOLS, **OVER_NETWORKS}[product_called(name).name]


def fuzzed_protocol(name: str) -> LabProtocol:
    """The protocol of that name; ``totem+groups`` is Totem with process groups above it."""
    plain = lab_protocol(name.removesuffix(GROUPS))
    return plain.with_process_groups() if name.endswith(GROUPS) else plain
