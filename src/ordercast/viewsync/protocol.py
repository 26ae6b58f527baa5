"""The protocols of the sequencer family, as a node knows them: an orderer inside views makes one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import Protocol as Shape

import msgspec

from ordercast.core.contract import Machine
from ordercast.core.declared import DropReason, PacketKind, Statistic
from ordercast.core.identity import NodeId
from ordercast.core.protocol import LAN, SIM, WAN, About, Buffers, Protocol
from ordercast.viewsync.change import ViewChange
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.contract import Orderer
from ordercast.viewsync.declared import DROPS, KINDS, STATISTICS
from ordercast.viewsync.machine import GroupMachine
from ordercast.viewsync.states import State

PROFILES: dict[str, dict[str, object]] = {
    SIM: {},
    LAN: {
        # Processes are scheduled, which a simulated network knows nothing of; those that ended are noticed
        # by the driver, so that the timeouts are for what is slow, or cut off.
        "heartbeat_us": 100_000,
        "aggressive_us": 800_000,
        "conservative_us": 3_000_000,
        "change_us": 20_000,
        "round_us": 150_000,
        "retry_us": 30_000,
        "lossy_retry_us": 4_000,
        "join_us": 50_000,
        "found_us": 500_000,
        "silence_us": 100_000,
        "hurry_us": 1_000,
        "batch": 64,
    },
    WAN: {
        # A packet and its answer take 300 ms, and what has no answer may have been lost: nothing is sent
        # again before an answer can be here, nobody is suspected for three heartbeats that were lost, and a
        # coordinator has time for the four round trips that a change takes.
        "heartbeat_us": 300_000,
        "aggressive_us": 2_000_000,
        "conservative_us": 6_000_000,
        "change_us": 450_000,
        "round_us": 2_000_000,
        "retry_us": 450_000,
        "lossy_retry_us": 450_000,
        "join_us": 450_000,
        "found_us": 3_000_000,
        "silence_us": 300_000,
        "hurry_us": 5_000,
        "batch": 64,
    },
}


class Described(Shape):
    """What an orderer, or the rules of one, says of its protocol."""

    @property
    def NAME(self) -> str:  # noqa: N802
        """What the protocol is called."""

    @property
    def SUMMARY(self) -> str:  # noqa: N802
        """What it does, in a sentence."""

    @property
    def KINDS(self) -> Mapping[int, PacketKind]:  # noqa: N802
        """Its kinds of packets."""

    @property
    def DROPS(self) -> tuple[DropReason, ...]:  # noqa: N802
        """Why it drops packets."""

    @property
    def STATISTICS(self) -> tuple[Statistic, ...]:  # noqa: N802
        """What it counts."""


class OrdererClass(Described, Shape):
    """What makes a protocol of the family: an orderer, and what it is called."""

    def __call__(self, me: NodeId, config: GroupConfig) -> Orderer:
        """The orderer of one member."""


def _fit(config: msgspec.Struct, buffers: Buffers) -> Mapping[str, object]:
    """What all may have on the way has to fit into every socket's buffer."""
    assert isinstance(config, GroupConfig)
    in_flight = buffers.buffer // config.packet_size
    return {
        "window": max(4, min(32, in_flight // 4)),
        "max_unstable": max(32, min(1_024, in_flight)),
        "datagram_size": buffers.datagram,
    }


def sequenced(
    orderer: OrdererClass,
    *,
    ordered: str = "its orderer says",
    hops: str = "not told",
    choose: str = "not told",
    agreed: str = "when a majority has it, and all before it",
    safe: str = "when all members have it",
    procedure: type[ViewChange] = ViewChange,
    i_views: bool = False,
    settings: type[GroupConfig] = GroupConfig,
    profiles: Mapping[str, Mapping[str, object]] | None = None,
    **defaults: Any,
) -> Protocol:
    """The protocol that an orderer makes, inside views that its members agree on.

    They do so by consensus, or by another `procedure`, as `Reformation` (004 §3.2.3); with `i_views`, who is
    slow leaves the token list first (004 §4.4.3). `settings` may have more than `GroupConfig`, and `profiles`
    say what they are by the name of a profile; `defaults` differ from theirs in every profile. The words are
    for `ordercast protocols`.
    """

    def build(config: GroupConfig, node: NodeId) -> Machine:
        return GroupMachine(node, config, orderer(node, config), procedure=procedure, i_views=i_views)

    return Protocol(
        name=orderer.NAME,
        summary=orderer.SUMMARY,
        about=About(
            ordered=ordered,
            hops=hops,
            agreed=agreed,
            safe=safe,
            tolerates="a minority of the last view" + ("; who is slow stays" if i_views else ""),
            choose=choose,
        ),
        settings=settings,
        profiles={
            name: {**defaults, **common, **(profiles or {}).get(name, {})}
            for name, common in PROFILES.items()
        },
        build=build,
        states=tuple(State),
        settled=State.MEMBER,
        kinds={**KINDS, **orderer.KINDS},
        drops=(*DROPS, *orderer.DROPS),
        statistics=(*STATISTICS, *orderer.STATISTICS),
        promises="token-list-view-synchrony" if i_views else "view-synchrony",
        fit=_fit,
        revives=True,
        primary_partition=True,
        levels=True,
    )
