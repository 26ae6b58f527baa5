"""What a node has to know of a protocol to run it: one record each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from ordercast.core.contract import Machine
from ordercast.core.declared import DropReason, PacketKind, Statistic
from ordercast.core.identity import NodeId
from ordercast.core.settings import check_choices
from ordercast.core.wire import Malformed, kind_of

GROUPS = "+groups"
"""Behind the name of a protocol, or of what it promises: with process groups above it."""
SIM = "sim"
"""The profile of settings for a simulated network, in which nobody is scheduled and nothing takes long."""
LAN = "lan"
"""The profile of settings for processes of an operating system on a local network."""
WAN = "wan"
"""The profile of settings for nodes that are far apart: packet and answer take up to 300 ms."""
ROUND_TRIPS_US: Mapping[str, int] = {LAN: 15_000, WAN: 300_000}
"""By profile of a real node: the longest round trip between two nodes, in microseconds, that it is for."""


class About(NamedTuple):
    """What tells a protocol from the others, in few words, for whoever has to choose one."""

    ordered: str
    """Who gives messages their places."""
    hops: str
    """Hops on the network from sending a message to its delivery, where nobody else sends."""
    agreed: str
    """When an agreed message is delivered."""
    safe: str
    """When a safe message is delivered."""
    tolerates: str
    """Which members may be gone while the group goes on."""
    choose: str
    """When to choose it."""


class Buffers(NamedTuple):
    """What a node's sockets hold."""

    buffer: int
    """Bytes of the receive buffer that the system granted."""
    datagram: int
    """Bytes of a packet that one datagram carries."""


Fit = Callable[[msgspec.Struct, Buffers], Mapping[str, object]]


def no_fit(config: msgspec.Struct, buffers: Buffers) -> Mapping[str, object]:
    """The `Fit` of a protocol to whose settings the size of buffers is of no concern."""
    return {}


def no_report(machine: Any) -> dict[str, Any]:
    """The report of a protocol of which `status` tells nothing that it does not tell of all."""
    return {}


def nearest(machine: Any, node: NodeId) -> NodeId:
    """The first node on the way to another, where all are on one network: that node itself."""
    return node


class Protocol(NamedTuple):
    """A protocol by name."""

    name: str
    summary: str
    """The protocol in a sentence."""
    about: About
    settings: type[msgspec.Struct]
    """All of its settings, with their meanings as docstrings."""
    profiles: Mapping[str, Mapping[str, object]]
    """By name of the profile, the settings in which it differs from the defaults of `settings`."""
    build: Callable[[Any, NodeId], Machine]
    """A node's machine, from an instance of `settings`."""
    states: tuple[str, ...]
    """The states that its machines report."""
    settled: str
    """The one of them in which a machine is in a configuration that it orders messages in."""
    kinds: Mapping[int, PacketKind]
    """Its kinds of packets, by the number that is in them (`ordercast.core.wire.kind_of`)."""
    promises: str
    """The name of the set of properties that it promises."""
    drops: tuple[DropReason, ...] = ()
    """Why its machines drop packets, beside what is wrong with the packets of any protocol."""
    statistics: tuple[Statistic, ...] = ()
    """What its machines count: all of `Machine.stats`."""
    fit: Fit = no_fit
    """The settings of a node that follow from what its sockets hold, given all the others."""
    survives_amnesia: bool = False
    """Whether a node may lose its disk."""
    revives: bool = False
    """A machine may halt without having been told to go; then the node comes back as a new incarnation."""
    primary_partition: bool = False
    """The group goes on only while a majority of the nodes of its last view is up and connected. It has a
    setting `founders`: how many nodes have to agree to begin a group."""
    levels: bool = False
    """Whether messages may be sent at levels of resilience."""
    follows_distance: bool = False
    """Whether its machine's timeouts follow the round trips that are measured (`Distance`)."""
    report: Callable[[Any], dict[str, Any]] = no_report
    """What else `ordercast status` tells of a machine, by name; everything can be written as JSON."""
    toward: Callable[[Any, NodeId], NodeId | None] = nearest
    """By a machine, the first node on the way to another: itself, or a gateway; None if there is no way."""

    def configure(
        self, settings: Mapping[str, object], profile: str, buffers: Buffers | None = None
    ) -> msgspec.Struct:
        """All settings: what is asked for, then what the sockets' buffers demand, the profile, the defaults.

        Raises ValueError, in words, for wrong ones.
        """
        base = self.profiles[profile]
        config = self._convert({**base, **settings})
        if buffers is None:
            return config
        return self._convert({**base, **self.fit(config, buffers), **settings})

    def _convert(self, settings: Mapping[str, object]) -> msgspec.Struct:
        fields = self.settings.__struct_fields__
        for name in settings:
            if name not in fields:
                raise ValueError(
                    f"{self.name}: there is no setting {name}; its settings are {', '.join(fields)}"
                )
        check_choices(self.settings, settings)
        try:
            return msgspec.convert(dict(settings), self.settings, strict=False)
        except msgspec.ValidationError as error:
            wrong, _, name = str(error).partition(" - at `$.")
            place = f"{name.rstrip('`')}: " if name else ""
            raise ValueError(f"{self.name}: {place}{wrong}") from error

    def kind_of(self, data: bytes) -> str | None:
        """What a packet's kind is called; None if it is none of this protocol's."""
        try:
            kind = self.kinds.get(kind_of(data))
        except Malformed:
            return None
        return None if kind is None else kind.name

    @property
    def heading(self) -> dict[str, str]:
        """What a trace of it says of itself: `ordercast.trace.schema.About`."""
        return {"protocol": self.name, "promises": self.promises}

    @property
    def heading_with_groups(self) -> dict[str, str]:
        """The same for a node, which has process groups above its machine."""
        return {**self.heading, "promises": self.promises + GROUPS}
