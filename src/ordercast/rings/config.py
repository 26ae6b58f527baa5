"""Settings of a node that is on one ring of several, or on several rings."""

from __future__ import annotations

import msgspec

from ordercast.core.identity import MOST_NETWORKS
from ordercast.rings.bundles import BUNDLE_SIZE
from ordercast.totem.config import TotemConfig

HEAD_ROOM = 1_280
"""Bytes that a ring's own payload may be larger than a message of the application."""


class RingsConfig(TotemConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of each ring, as in `TotemConfig`, and of what joins the rings."""

    networks: tuple[int, ...] = (1,)
    """The numbers of the networks that this node is attached to, a ring each. A node with two or more is a
    gateway. What its own application sends goes out on the first."""

    undelivered: int = 16 * 1024 * 1024
    """Bytes of messages that may wait for their place in the order; while more do, this node sends none."""

    forwarding: int = 8 * 1024 * 1024
    """Bytes that may wait in a gateway to be forwarded; while more do, nobody sends new messages."""

    def __post_init__(self) -> None:
        super().__post_init__()
        wrong = [network for network in self.networks if not 0 < network <= MOST_NETWORKS]
        if not self.networks or wrong or len(set(self.networks)) < len(self.networks):
            raise ValueError(
                f"networks is {list(self.networks)}: name each network that the node is attached to once, "
                f"by a number from 1 to {MOST_NETWORKS}"
            )

    @property
    def bundle_size(self) -> int:
        """Bytes of messages that are put into one bundle: about as many as a packet takes."""
        return max(BUNDLE_SIZE, self.packet_size - HEAD_ROOM)

    @property
    def of_a_ring(self) -> TotemConfig:
        """The settings of each ring: what it carries is a little larger than what applications send."""
        fields = {name: getattr(self, name) for name in TotemConfig.__struct_fields__}
        fields["max_message_size"] += HEAD_ROOM
        fields["send_queue"] += 2 * HEAD_ROOM
        return msgspec.convert(fields, TotemConfig)
