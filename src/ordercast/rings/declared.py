"""What the layer above the rings declares for people: why it drops payloads, and what it counts."""

from __future__ import annotations

from ordercast.core.declared import DropReason, Statistic
from ordercast.totem.declared import DROPS as TOTEM_DROPS
from ordercast.totem.declared import STATISTICS as TOTEM_STATISTICS

DROPS = (
    *TOTEM_DROPS,
    DropReason("network unknown", "The packet came in on a network that this node is not attached to."),
    DropReason("bad payload", "What a ring delivered is nothing that a node writes."),
    DropReason(
        "traffic of another configuration",
        "Messages of a component configuration that this node is not in, or not any more.",
        everyday=True,
    ),
)

STATISTICS = (
    *TOTEM_STATISTICS,
    Statistic("forwarded", "Bundles of messages that this gateway forwarded to another ring, with contents."),
    Statistic(
        "withheld", "Bundles that this gateway forwarded without contents: nobody there needs their messages."
    ),
    Statistic("vectors", "Guarantee Vectors that this gateway sent."),
    Statistic("topologies", "Component configurations that were installed."),
    Statistic("agreements_repeated", "Agreements on a topology that stood still."),
)
