"""TRMP as a node knows it: its settings by profile, and how its machine is built."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ordercast.core.contract import Machine
from ordercast.core.identity import NodeId
from ordercast.core.protocol import LAN, WAN, Buffers
from ordercast.levels.config import Levels, LevelsConfig
from ordercast.levels.follower import FollowerMachine
from ordercast.levels.one_level import OneLevel
from ordercast.levels.packets import LEVEL_DROPS, LEVEL_KINDS, LEVEL_STATISTICS
from ordercast.levels.primary import PrimaryMachine
from ordercast.sequencers.member import OrdererOf
from ordercast.sequencers.trmp import Trmp
from ordercast.viewsync.machine import GroupMachine
from ordercast.viewsync.protocol import sequenced
from ordercast.viewsync.server import ServerReformation

_ORDERER = OrdererOf(Trmp)


def _build(config: LevelsConfig, node: NodeId) -> Machine:
    """The machine of a node on its level; that of the ring alone where there is one level only."""
    if config.primaries and not Levels(config).is_primary(node):
        return FollowerMachine(node, config)
    orderer = _ORDERER(node, config)
    if not config.primaries:
        return OneLevel(node, config, orderer, procedure=ServerReformation)
    ring = GroupMachine(node, config, orderer, procedure=ServerReformation)
    return PrimaryMachine(node, config, ring)


def _fit(config: msgspec.Struct, buffers: Buffers) -> Mapping[str, object]:
    """As the family's; a real node is refused below the primary ring, and above it.

    Process groups, which are above the machine of a real node, know members of configurations only.
    """
    assert isinstance(config, LevelsConfig)
    if config.primaries:
        raise ValueError(
            "primaries: levels of nodes are simulated only, since process groups need every node to be a "
            "member of the ring; leave primaries, sources and rings out, and all nodes are in one ring"
        )
    return _RING.fit(config, buffers)


_RING = sequenced(
    _ORDERER,
    settings=LevelsConfig,
    profiles={WAN: {"lateness_us": 300_000}, LAN: {"lateness_us": 20_000}},
    ordered="the token's holder; the token moves by the clock",
    hops="2 in groups of three, and 1 for each further member of a majority, each in its time",
    choose="failures are to be noticed by the time alone; many nodes that only follow the order",
)

TRMP = _RING._replace(
    build=_build,
    fit=_fit,
    kinds={**_RING.kinds, **LEVEL_KINDS},
    drops=(*_RING.drops, *LEVEL_DROPS),
    statistics=(*_RING.statistics, *LEVEL_STATISTICS),
    promises="followed-view-synchrony",
)
