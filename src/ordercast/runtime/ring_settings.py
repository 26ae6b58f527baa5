"""The rings that a node is on, as a configuration tells them: a table `[[ring]]` each."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ordercast.core.identity import MOST_NETWORKS
from ordercast.errors import ConfigProblem
from ordercast.runtime.config_values import toml_value, words_for
from ordercast.transport.address import parse_address

RINGS = "rings"
"""The protocol with such tables."""
FIRST_NETWORK = 1
"""The number of a node's network where there is no table."""
EVERYWHERE = frozenset(("0.0.0.0", "::"))
"""Hosts that stand for all addresses of a machine."""
DOUBLE = "write [[ring]], with two brackets on each side, above the fields of each ring"


class RingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ring that a node is on. Its fields, but for `network`, are those of a node that is on one ring."""

    network: int
    """The number of the network, from 1 to 1,023: the same at all nodes of the ring, and another one for each
    ring. Of a gateway's rings the first is the one that it sends its own messages on."""

    listen: str | None = None
    """Where the node receives what comes on this ring, at this port and the next; another port for each ring,
    or another host. Not set: port 4801, or the next free pair."""

    seeds: tuple[str, ...] = ()
    """Addresses of some other nodes on this ring."""

    peers: tuple[str, ...] | None = None
    """Addresses of all nodes on this ring, instead of `seeds`: nobody else is let in."""

    key: Path | None = None
    """File with the key of this ring, made by `ordercast keygen`; the same at all nodes on it. Rings may have
    different ones."""

    multicast: str | None = None
    """Send data to this IP multicast group; another one for each ring."""

    interface: str | None = None
    """The network interface that multicast uses on this ring."""

    @property
    def of_a_node(self) -> dict[str, Any]:
        """The fields of a node's configuration that these are on one ring."""
        return {name: getattr(self, name) for name in OF_ONE_NETWORK}


OF_ONE_NETWORK = tuple(name for name in RingSettings.__struct_fields__ if name != "network")
EXAMPLES: dict[str, object] = {
    "network": 1,
    "listen": "10.0.1.9:4801",
    "seeds": ("10.0.1.1:4801",),
    "peers": ("10.0.1.1:4801", "10.0.1.2:4801", "10.0.1.9:4801"),
    "key": "ring-1.key",
    "multicast": "239.1.2.3:4803",
    "interface": "eth0",
}
"""What could be written for each field, at a gateway."""


def ring_settings(told: object) -> tuple[RingSettings, ...]:
    """The rings of a configuration, from tables or as they are; raises what is wrong with one of them."""
    if not isinstance(told, Sequence) or isinstance(told, str | bytes):
        raise ConfigProblem(f"ring is {told!r}: {DOUBLE}")
    rings = tuple(
        _ring(msgspec.structs.asdict(each) if isinstance(each, RingSettings) else each, f"[[ring]] {place}")
        for place, each in enumerate(told, 1)
    )
    numbers = [ring.network for ring in rings]
    for place, number in enumerate(numbers, 1):
        if not 0 < number <= MOST_NETWORKS:
            raise ConfigProblem(
                f"[[ring]] {place}: network is {number}: number the rings from 1 to {MOST_NETWORKS}"
            )
        if numbers.index(number) < place - 1:
            raise ConfigProblem(
                f"[[ring]] {place}: network is {number}, as in another table: each ring has its own number"
            )
    return rings


def _ring(table: object, where: str) -> RingSettings:
    if not isinstance(table, dict):
        raise ConfigProblem(f"{where} is {table!r}: {DOUBLE}")
    types = {field.name: field.type for field in msgspec.structs.fields(RingSettings)}
    for name in table:
        if name not in types:
            near = difflib.get_close_matches(str(name), types, n=1, cutoff=0.5)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(types)}."
            raise ConfigProblem(
                f"{where}: there is no field {name}: {advice} Fields of the whole node stand above the first "
                "[[ring]]"
            )
    if "network" not in table:
        raise ConfigProblem(
            f"{where}: network is missing: number the rings, the same way at all nodes, as in network = 1"
        )
    found: dict[str, Any] = {}
    for name, value in table.items():
        try:
            found[name] = msgspec.convert(value, types[name], dec_hook=lambda kind, text: kind(text))
        except msgspec.ValidationError:
            raise ConfigProblem(
                f"{where}: {name} is {value!r}: write {words_for(types[name])}, as in {name} = "
                f"{toml_value(EXAMPLES[name])}"
            ) from None
    return RingSettings(**found)


def check_rings(
    rings: Sequence[RingSettings], protocol: str, settings: dict[str, Any], others: Sequence[str]
) -> None:
    """Raise what keeps these rings from being used; `others`: fields of one network that are given, too."""
    if not rings:
        return
    if protocol != RINGS:
        raise ConfigProblem(
            f"there are [[ring]] tables, and protocol is {protocol!r}, which has one ring: write protocol = "
            f'"{RINGS}" at every node, or leave the tables out'
        )
    if others:
        raise ConfigProblem(
            f"{others[0]} stands outside of the [[ring]] tables: write it into the table of each ring that "
            "it is for"
        )
    numbers = [ring.network for ring in rings]
    if list(settings.get("networks", numbers)) != numbers:
        raise ConfigProblem(
            f"networks is {settings['networks']} in [{RINGS}], and the [[ring]] tables have {numbers}: leave "
            "networks out, since it follows from them"
        )


def check_apart(rings: Sequence[RingSettings]) -> None:
    """Raise why two of these rings, each of which is right by itself, cannot be told apart."""
    for place, ring in enumerate(rings, 1):
        for earlier, other in enumerate(rings[: place - 1], 1):
            if ring.multicast is not None and ring.multicast == other.multicast:
                raise ConfigProblem(
                    f"[[ring]] {place}: multicast is {ring.multicast}, as in [[ring]] {earlier}: each ring "
                    "has its own group or port"
                )
            if ring.listen is not None and other.listen is not None and _overlap(ring.listen, other.listen):
                raise ConfigProblem(
                    f"[[ring]] {place}: listen is {ring.listen}, and [[ring]] {earlier} has {other.listen}: "
                    "each ring takes its port and the next one, so leave one between, or use another host"
                )


def _overlap(one: str, other: str) -> bool:
    """Whether two rings would receive at one port."""
    (host, port), (other_host, other_port) = parse_address(one), parse_address(other)
    if not (port and other_port) or abs(port - other_port) > 1:
        return False
    return host == other_host or not EVERYWHERE.isdisjoint((host, other_host))


def number_of_one(settings: dict[str, Any]) -> int:
    """The number of a node's network that has no [[ring]] table."""
    networks = settings.get("networks", (FIRST_NETWORK,))
    match networks:
        case [int(number)]:
            return number
        case _:
            raise ConfigProblem(
                f"networks is {networks!r} in [{RINGS}]: a node on several networks needs a table [[ring]] "
                "for each of them; one on a single network has one number, as in networks = [1]"
            )
