"""The protocols there are, by name. A new one is a module of its own and an entry in `PROTOCOLS`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar
from typing import Protocol as Shape

import msgspec

from ordercast.audit.properties import EXTENDED_VIRTUAL_SYNCHRONY, VIEW_SYNCHRONY
from ordercast.core.contract import Machine
from ordercast.core.identity import NodeId
from ordercast.core.wire import Malformed
from ordercast.core.wire import kind_of as kind_number
from ordercast.sequencers.cm import Cm, Irbp, Rbp
from ordercast.sequencers.dtp import Dtp
from ordercast.sequencers.pinwheel import Pinwheel
from ordercast.sequencers.rewriting import rewrite
from ordercast.sequencers.total import Total
from ordercast.sim.founders import draw_founders
from ordercast.sim.fuzz import LOST, WRONG_SUSPICION
from ordercast.sim.network import Lan
from ordercast.sim.protocol import About, Protocol
from ordercast.sim.world import MachineFactory
from ordercast.totem.config import TotemConfig
from ordercast.totem.machine import TotemMachine
from ordercast.totem.packets import decode_data, kind_name
from ordercast.totem.rewriting import rewrite as totem_rewrite
from ordercast.totem.states import State
from ordercast.viewsync import states as viewsync_states
from ordercast.viewsync.change import ViewChange
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.contract import Orderer
from ordercast.viewsync.machine import GroupMachine
from ordercast.viewsync.packets import KIND_NAMES
from ordercast.viewsync.reformation import Reformation

__all__ = ["PROTOCOLS", "TOTEM", "Protocol", "protocol", "sequenced"]

Config = TypeVar("Config", bound=msgspec.Struct)


def _configured(name: str, kind: type[Config], settings: Mapping[str, object]) -> Config:
    """A protocol's settings; of wrong ones, what is wrong and what there is."""
    try:
        return msgspec.convert(dict(settings), kind, strict=False)
    except msgspec.ValidationError as error:
        fields = ", ".join(kind.__struct_fields__)
        raise ValueError(f"{name}: {error}; its settings are {fields}") from error


# --- Totem ---------------------------------------------------------------------------------------


def _totem_config(settings: Mapping[str, object]) -> TotemConfig:
    return _configured("totem", TotemConfig, settings)


def _configure_totem(settings: Mapping[str, object], buffer: int, datagram: int) -> TotemConfig:
    on_the_wire: dict[str, object] = {
        # Processes are scheduled, which a simulated network knows nothing of; those that ended are noticed
        # by the driver, so that the timeouts are for what is slow, or cut off.
        "token_loss_us": 150_000,
        "forming_loss_us": 800_000,
        "token_retransmission_us": 100_000,
        "least_retransmission_us": 5_000,
        "announce_us": 200_000,
        "join_us": 10_000,
        "consensus_us": 50_000,
        "consensus_member_us": 2_000,
        "hold_us": 70_000,
        # What the smallest socket buffer of a ring holds limits these further.
        "input_buffer": buffer,
        "datagram_size": datagram,
        "window_size": 2_300,
        "max_messages": 2_300,
        # The token leaves before the data: three nodes then work at the same time instead of in turn.
        "accelerated_window": 1_024,
    }
    return _totem_config({**on_the_wire, **settings})


def _build_totem(config: TotemConfig, node: NodeId) -> Machine:
    return TotemMachine(node, config)


def _make_totem(settings: Mapping[str, object]) -> MachineFactory:
    config = _totem_config(settings)
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


TOTEM = Protocol(
    name="totem",
    summary="A token goes round a ring of all members; who holds it numbers and multicasts its messages.",
    about=About(
        ordered="the sender, when it has the token",
        hops="half a rotation for the token, and 1",
        agreed="when all before it is here",
        safe="when all members have it: after two rotations",
        tolerates="any; each part of a group goes on by itself, and parts merge",
        choose="high load, many senders, or parts that have to go on alone",
    ),
    make=_make_totem,
    configure=_configure_totem,
    build=_build_totem,
    settings=TotemConfig,
    states=tuple(State),
    settled=State.OPERATIONAL,
    draw_settings=_draw_totem,
    kind_of=kind_name,
    rewrite=totem_rewrite,
    promises="extended-virtual-synchrony",
    checks=EXTENDED_VIRTUAL_SYNCHRONY,
    survives_amnesia=True,
)

# --- the sequencer family --------------------------------------------------------------------------


class OrdererClass(Shape):
    """What makes a protocol of the family: an orderer, and what it is called."""

    @property
    def NAME(self) -> str:  # noqa: N802
        """What the protocol is called."""

    @property
    def SUMMARY(self) -> str:  # noqa: N802
        """What it does, in a sentence."""

    @property
    def KIND_NAMES(self) -> Mapping[int, str]:  # noqa: N802
        """Names of its kinds of packets."""

    def __call__(self, me: NodeId, config: GroupConfig) -> Orderer:
        """One member's."""


def _draw_group(stream: random.Random, nodes: int, lan: Lan) -> dict[str, object]:
    """Settings that fit the network's delays, with windows small enough to be filled."""
    hop_us = lan.base_us + 3 * lan.tail_us
    heartbeat_us = max(5_000, 4 * hop_us)
    aggressive_us = heartbeat_us * stream.choice((3, 4, 5))
    change_us = hop_us * stream.choice((3, 4, 6))
    return {
        "heartbeat_us": heartbeat_us,
        "aggressive_us": aggressive_us,
        "conservative_us": aggressive_us * stream.choice((2, 3, 4)),
        "change_us": change_us,
        "round_us": change_us * stream.choice((4, 5, 6)),
        "join_us": max(2_000, 4 * hop_us),
        "found_us": heartbeat_us * stream.choice((2, 4)),
        "retry_us": hop_us * stream.choice((3, 5, 8)),
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


def _group_on_the_wire(in_flight: int) -> dict[str, object]:
    return {
        # Processes are scheduled, which a simulated network knows nothing of; those that ended are noticed
        # by the driver, so that the timeouts are for what is slow, or cut off.
        "heartbeat_us": 100_000,
        "aggressive_us": 800_000,
        "conservative_us": 3_000_000,
        "change_us": 20_000,
        "round_us": 150_000,
        "retry_us": 30_000,
        "join_us": 50_000,
        "found_us": 500_000,
        "silence_us": 100_000,
        "hurry_us": 1_000,
        # What all may have on the way has to fit into every socket's buffer.
        "window": max(4, min(32, in_flight // 4)),
        "batch": 64,
        "max_unstable": max(32, min(1_024, in_flight)),
    }


def sequenced(
    orderer: OrdererClass,
    *,
    ordered: str = "",
    hops: str = "",
    choose: str = "",
    token: bool = True,
    reformation: bool = False,
    i_views: bool = False,
    **defaults: Any,
) -> Protocol:
    """The protocol that an orderer makes, inside views that its members agree on.

    They do so by consensus, or by Reformation (004 §3.2.3); with `i_views`, who is slow leaves the token list
    first (004 §4.4.3). Without `token`, the same member orders for as long as a view lasts. `defaults` are
    settings that differ from those of `GroupConfig`. The words are for `ordercast protocols`.
    """
    name = orderer.NAME
    procedure: type[ViewChange] = Reformation if reformation else ViewChange

    def configured(settings: Mapping[str, object]) -> GroupConfig:
        return _configured(name, GroupConfig, {**defaults, **settings})

    def machine(node: NodeId, config: GroupConfig) -> Machine:
        return GroupMachine(node, config, orderer(node, config), procedure=procedure, i_views=i_views)

    def make(settings: Mapping[str, object]) -> MachineFactory:
        founders = settings.get("founders")
        if not isinstance(founders, Mapping):
            config = configured(settings)
            return lambda node: machine(node, config)
        configs = {int(node): configured({**settings, "founders": some}) for node, some in founders.items()}
        return lambda node: machine(node, configs[node])

    def configure(settings: Mapping[str, object], buffer: int, datagram: int) -> GroupConfig:
        size = configured(settings).packet_size
        return configured({**_group_on_the_wire(buffer // size), **settings})

    def build(config: GroupConfig, node: NodeId) -> Machine:
        return machine(node, config)

    return Protocol(
        name=name,
        summary=orderer.SUMMARY,
        about=About(
            ordered=ordered or "its orderer says",
            hops=hops or "not told",
            agreed="when a majority has it, and all before it",
            safe="when all members have it",
            tolerates="a minority of the last view" + ("; who is slow stays" if i_views else ""),
            choose=choose or "not told",
        ),
        make=make,
        configure=configure,
        build=build,
        settings=GroupConfig,
        states=tuple(viewsync_states.State),
        settled=viewsync_states.State.MEMBER,
        draw_settings=_draw_group,
        kind_of=_kind_names({**KIND_NAMES, **orderer.KIND_NAMES}),
        rewrite=rewrite,
        promises=VIEW_SYNCHRONY.name,
        checks=VIEW_SYNCHRONY,
        revives=True,
        primary_partition=True,
        levels=True,
        token_on_unicast=False,
        hits=(
            *(lost for role, lost in LOST.items() if i_views or role != "external"),
            WRONG_SUSPICION,
            *(("token lost",) if token else ()),
            *(("several originators",) if reformation else ()),
            *(("external returned", "external gave up") if i_views else ()),
        ),
    )


def _kind_names(names: Mapping[int, str]) -> Callable[[bytes], str | None]:
    def kind_of(data: bytes) -> str | None:
        try:
            return names.get(kind_number(data))
        except Malformed:
            return None

    return kind_of


# --- all of them ---------------------------------------------------------------------------------

PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        TOTEM,
        sequenced(
            Total,
            token=False,
            ordered="a fixed sequencer: the first member",
            hops="2 in groups of three, 3 in larger ones",
            choose="low latency in small groups, and few senders",
        ),
        sequenced(
            Cm,
            ordered="the token's holder; each acknowledgement passes the token round",
            hops="2 in groups of three, and 1 for each further member of a majority",
            choose="no member should have more to do than another",
        ),
        sequenced(
            Rbp,
            reformation=True,
            ordered="as CM",
            hops="as CM",
            choose="as CM; who notices a failure leads the way out of it",
        ),
        sequenced(
            Irbp,
            i_views=True,
            ordered="as CM",
            hops="as CM",
            choose="as CM, where members are slow now and then and should not be thrown out for it",
        ),
        sequenced(
            Pinwheel,
            ordered="as CM, and every message tells what its sender has",
            hops="as CM; less if others send",
            choose="many senders, whose messages tell what they have",
        ),
        sequenced(
            Dtp,
            ordered="the token's holder; the token goes to who is heard from least",
            hops="as CM; less if others send",
            choose="few senders, and safe messages: who is silent has its say first",
        ),
    )
}


def protocol(name: str) -> Protocol:
    """The protocol of that name."""
    if name not in PROTOCOLS:
        raise ValueError(f"no protocol {name!r}; there are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
