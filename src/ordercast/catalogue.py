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
from ordercast.levels.config import LevelsConfig
from ordercast.levels.rewriting import rewrite as levels_rewrite
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


def config_by_node(product: Protocol, settings: Mapping[str, object]) -> Callable[[NodeId], Any]:
    """The settings of each node: any may be one value for all, or a mapping with a value for each node."""
    differing = {
        name: {int(node): each for node, each in value.items()}
        for name, value in settings.items()
        if isinstance(value, Mapping)
    }
    if not differing:
        config = product.configure(settings, SIM)
        return lambda node: config
    nodes = next(iter(differing.values()))
    return {
        node: product.configure(
            {**settings, **{name: by_node[node] for name, by_node in differing.items()}}, SIM
        )
        for node in nodes
    }.__getitem__


# --- Totem ---------------------------------------------------------------------------------------


def _make_totem(settings: Mapping[str, object]) -> MachineFactory:
    config_of = config_by_node(TOTEM, settings)
    decode = lru_cache(maxsize=4096)(decode_data)  # a multicast is decoded once, not at each receiver

    def make(node: NodeId) -> Machine:
        return TotemMachine(node, config_of(node), decode)

    return make


def _draw_totem(stream: random.Random, nodes: int, lan: Lan) -> dict[str, object]:
    """Settings of a ring, and in some runs such under which its members are not visited alike."""
    drawn = _draw_ring(stream, nodes, lan)
    return drawn | _draw_visits(drawn, nodes)


def _draw_ring(stream: random.Random, nodes: int, lan: Lan) -> dict[str, object]:
    """Settings that fit the network's delays, with windows small enough to be filled."""
    hop_us = lan.base_us + 3 * lan.tail_us
    rotation_us = nodes * hop_us
    token_loss_us = max(20_000, 5 * rotation_us) * stream.choice((1, 2, 4))
    token_retransmission_us = token_loss_us // stream.choice((3, 5, 8))
    join_us = max(2_000, 4 * hop_us)
    window_size = stream.choice((nodes, 2 * nodes, 128))
    drawn: dict[str, Any] = {
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
    # Not from the stream: what else a seed draws stays what it was.
    kind = (token_loss_us + drawn["packet_size"] + drawn["max_messages"] + drawn["idle_rotations"]) % 4
    drawn["long_hold_us"] = token_loss_us * (0, 0, 0, 2)[kind]
    return drawn


def _draw_visits(others: dict[str, object], nodes: int, least_messages: int = 1) -> dict[str, object]:
    """Settings under which members are not visited alike, or none. What is drawn follows from the other
    settings, so that these are what they were before there was a choice."""
    stream = random.Random(repr(others))
    if stream.random() > 0.3:
        return {}
    drawn: dict[str, object] = {"visits": stream.choice(("square-root", "square-root", "proportional"))}
    drawn["visits_us"] = stream.choice((5_000, 30_000, 200_000))
    if stream.random() < 0.3:
        most = (least_messages, 4, 64)
        drawn["max_messages"] = {node: stream.choice(most) for node in range(1, nodes + 1)}
    return drawn


WORST_CLOCK_PPM = 200_000
"""More than simulated clocks ever differ in their rates, in millionths."""

LAB_TOTEM = LabProtocol(
    TOTEM, _make_totem, _draw_totem, checks=EXTENDED_VIRTUAL_SYNCHRONY, rewrite=totem_rewrite
)


# --- rings that gateways join ----------------------------------------------------------------------


def _make_rings(settings: Mapping[str, object]) -> MachineFactory:
    config_of = config_by_node(RINGS, settings)
    decode = lru_cache(maxsize=4096)(decode_data)
    return lambda node: RingsMachine(node, config_of(node), decode)


def _draw_rings(stream: random.Random, nodes: int, lan: Lan) -> dict[str, object]:
    """Those of Totem for rings as large as there may be, and who is attached to which.

    A gateway forwards what all the others send, so that a single small packet at each visit of the token
    would not carry in minutes what nodes send in a second.
    """
    drawn: dict[str, Any] = _draw_ring(stream, min(nodes, MOST_ON_A_NETWORK), lan)
    drawn["max_messages"] = max(4, drawn["max_messages"])
    drawn["window_size"] = max(16, drawn["window_size"])
    drawn["packet_size"] = max(500, drawn["packet_size"])
    drawn["networks"] = draw_networks(stream, range(1, nodes + 1))
    drawn["undelivered"] = stream.choice((4_000, 100_000, 16 * 1024 * 1024))
    drawn["forwarding"] = stream.choice((4_000, 100_000, 8 * 1024 * 1024))
    return drawn | _draw_visits(drawn, nodes, least_messages=4)


LAB_RINGS = LabProtocol(
    RINGS,
    _make_rings,
    _draw_rings,
    checks=EXTENDED_VIRTUAL_SYNCHRONY,
    rewrite=totem_rewrite,
    hits=NETWORK_HITS,
    nodes=(6, 14),
)

Draw = Callable[[random.Random, int, Lan], dict[str, object]]
"""Draws the settings of a run: of so many nodes, on that network."""

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
    return drawn | _draw_detector(drawn)


def _draw_detector(others: dict[str, object]) -> dict[str, object]:
    """How failures are detected, in some runs not by heartbeats. What is drawn follows from the other
    settings, so that these are what they were before there was a choice."""
    stream = random.Random(repr(others))
    detector = stream.choice(("heartbeats", "heartbeats", "attempts", "adaptive"))
    return {} if detector == "heartbeats" else {"detector": detector, "attempts": stream.choice((2, 5, 12))}


def _draw_patient(stream: random.Random, nodes: int, lan: Lan) -> dict[str, object]:
    """The same, with conservative timeouts that may be long: members are off the list, and come back."""
    drawn: dict[str, Any] = _draw_group(stream, nodes, lan)
    drawn["conservative_us"] = drawn["aggressive_us"] * stream.choice((2, 4, 8, 16))
    return drawn


def _draw_trmp(stream: random.Random, nodes: int, lan: Lan) -> dict[str, object]:
    """Those of the family, and a schedule that clocks and network keep well, hardly or not at all.

    Attempts are counted only where the settings say how wrong clocks are: who asks by a schedule that others
    do not keep has no answer yet, and would suspect them again and again (docs/decisions/detectors.md).
    """
    drawn = _draw_group(stream, nodes, lan)
    hop_us = lan.base_us + 3 * lan.tail_us
    drawn["hurry_us"] = max(1, hop_us * stream.choice((1, 2, 4)) // 2)
    drawn["lateness_us"] = hop_us * stream.choice((1, 2, 8))
    drawn["clock_error_ppm"] = clock_error_ppm = stream.choice((0, 200, WORST_CLOCK_PPM))
    drawn["servers"] = stream.sample(range(1, nodes + 1), stream.choice((0, 1, min(2, nodes))))
    if clock_error_ppm < WORST_CLOCK_PPM:
        drawn = {name: value for name, value in drawn.items() if name not in ("detector", "attempts")}
    return drawn


def _draw_levels(stream: random.Random, nodes: int, lan: Lan) -> dict[str, object]:
    """The same; in most seeds some nodes are below the primary ring, some of them in rings of their own."""
    drawn = _draw_trmp(stream, nodes, lan)
    if nodes < 3 or stream.random() < 0.3:
        return drawn
    shuffled = stream.sample(range(1, nodes + 1), nodes)
    count = stream.randint(2, nodes - 1)
    primaries, below = shuffled[:count], shuffled[count:]
    drawn["primaries"] = primaries
    drawn["servers"] = stream.sample(primaries, stream.choice((0, 1, 2)))
    drawn["sources"] = [node for node in below if stream.random() < 0.6]
    drawn["founders"] = {**dict.fromkeys(map(str, below), 0), **draw_founders(stream, primaries)}
    placed, rings = list(primaries), []
    while below and stream.random() < 0.7:
        ring = [below.pop() for _ in range(stream.randint(1, len(below)))]
        rings.append([*stream.sample(placed, stream.randint(1, min(2, len(placed)))), *ring])
        placed += ring
    drawn["rings"] = rings
    return drawn


def sequenced_in_lab(
    product: Protocol, hits: tuple[str, ...] = ("token lost",), draw: Draw = _draw_group
) -> LabProtocol:
    """A protocol of the sequencer family; of its own, a fuzzer has to make these `hits` happen."""

    def make(settings: Mapping[str, object]) -> MachineFactory:
        config_of = config_by_node(product, settings)
        return lambda node: product.build(config_of(node), node)

    by_time = product.settings is LevelsConfig
    lost = (name for role, name in LOST.items() if role != "external")
    return LabProtocol(
        product,
        make,
        draw,
        checks=PROMISES[product.promises],
        rewrite=levels_rewrite if by_time else rewrite,
        hits=(*lost, WRONG_SUSPICION, *hits),
        drifting_clocks=by_time,
        followers=by_time,
        draw_with_groups=_draw_trmp if by_time else None,
    )


_HITS = {
    "total": (),
    "rbp": ("token lost", "several originators"),
    "primary-backup": (LOST["external"], "token lost", "external returned", "external gave up"),
    "irbp": (LOST["external"], "token lost", "external returned", "external gave up"),
}

_DRAWS: Mapping[str, Draw] = {"primary-backup": _draw_patient, "trmp": _draw_levels}

# --- all of them ---------------------------------------------------------------------------------

LAB_PROTOCOLS: dict[str, LabProtocol] = {
    LAB_TOTEM.name: LAB_TOTEM,
    **{
        name: sequenced_in_lab(product, _HITS.get(name, ("token lost",)), _DRAWS.get(name, _draw_group))
        for name, product in PROTOCOLS.items()
        if issubclass(product.settings, GroupConfig)
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
