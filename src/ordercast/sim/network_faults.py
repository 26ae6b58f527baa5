"""Faults of one network among several, and of gateways, drawn as all others are (`ordercast.sim.swarm`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from ordercast.core.identity import Guarantee, NodeId
from ordercast.sim.draws import draw_gap, draw_length, draw_links, draw_split, draw_victims
from ordercast.sim.faults import (
    IT,
    Actions,
    At,
    Burst,
    Clog,
    Crash,
    Cut,
    Fault,
    Heal,
    Partition,
    Pause,
    Restart,
    Resume,
    Send,
    Unclog,
    Uncut,
    When,
)
from ordercast.sim.topology import Attached, gateways, members

STRIKES_US = (20_000, 200_000, 600_000, 600_000)
"""How long a strike lasts: mostly so long that the token of a ring is missed."""
Parts = tuple[tuple[NodeId, ...], ...]


def _some_network(stream: random.Random, networks: Attached) -> int:
    """One that a gateway is attached to."""
    return stream.choice(sorted({number for node in gateways(networks) for number in networks[node]}))


def _some_link(stream: random.Random, networks: Attached) -> tuple[NodeId, int]:
    """A gateway, and one of its networks."""
    gateway = stream.choice(gateways(networks))
    return gateway, stream.choice(networks[gateway])


def _gateway_crashes(stream: random.Random, networks: Attached, moments: Sequence[int]) -> Iterator[At]:
    """Gateways crash, one or several at once; most of them come back."""
    for moment in moments:
        together = draw_gap(stream)
        for node in draw_victims(stream, gateways(networks)):
            at_us = moment + (together if stream.random() < 0.7 else draw_gap(stream))
            torn = stream.randrange(6) if stream.random() < 0.3 else None
            yield At(at_us, Crash(node, torn))
            if stream.random() < 0.7:
                yield At(at_us + draw_length(stream), Restart(node))


def _gateway_pauses(stream: random.Random, networks: Attached, moments: Sequence[int]) -> Iterator[At]:
    for moment in moments:
        for node in draw_victims(stream, gateways(networks)):
            at_us = moment + draw_gap(stream)
            yield At(at_us, Pause(node))
            yield At(at_us + draw_length(stream), Resume(node))


def _parted(draw: Callable[[random.Random, Attached, int], Parts]) -> Callable[..., Iterator[At]]:
    """One network is parted for a while, as `draw` says, once or several times."""

    def parted(stream: random.Random, networks: Attached, moments: Sequence[int]) -> Iterator[At]:
        for moment in moments:
            at_us, number = moment + draw_gap(stream), _some_network(stream, networks)
            for _ in range(stream.choice((1, 1, 2, 3))):
                yield At(at_us, Partition(draw(stream, networks, number), network=number))
                at_us += draw_length(stream)
                if stream.random() < 0.5:
                    yield At(at_us, Heal(network=number))
                    at_us += draw_gap(stream)
            yield At(at_us, Heal(network=number))

    return parted


def _of_gateway(stream: random.Random, networks: Attached, number: int) -> Parts:
    """A gateway's link to the network is dead."""
    return ((stream.choice([node for node in gateways(networks) if number in networks[node]]),),)


def _of_ring(stream: random.Random, networks: Attached, number: int) -> Parts:
    """The network falls into two parts or three, or into single nodes."""
    attached = members(networks, number)
    parts = draw_split(stream, attached)
    if parts is None or stream.random() < 0.2:
        return tuple((node,) for node in attached)
    return parts.groups


def _of_gateways(stream: random.Random, networks: Attached, number: int) -> Parts:
    """Nobody else of the network reaches its gateways, which reach each other or do not."""
    joints = [node for node in gateways(networks) if number in networks[node]]
    return (tuple(joints),) if stream.random() < 0.5 else tuple((node,) for node in joints)


def _bursts(stream: random.Random, networks: Attached, moments: Sequence[int]) -> Iterator[At]:
    """A network loses much for a while, or all."""
    for moment in moments:
        loss = stream.choice((0.3, 0.6, 1.0, 1.0))
        yield At(
            moment + draw_gap(stream),
            Burst(loss, draw_length(stream), network=_some_network(stream, networks)),
        )


def _one_way_links(stream: random.Random, networks: Attached, moments: Sequence[int]) -> Iterator[At]:
    """Links of one network that work in one direction, or are slow in it."""
    for moment in moments:
        at_us, number = moment + draw_gap(stream), _some_network(stream, networks)
        until_us = at_us + draw_length(stream)
        cut = stream.random() < 0.5
        delay_us = stream.choice((None, 2_000, 20_000))
        for link in draw_links(stream, members(networks, number)):
            yield At(at_us, Cut(*link, network=number) if cut else Clog(*link, delay_us, network=number))
            yield At(until_us, Uncut(*link, network=number) if cut else Unclog(*link, network=number))


NETWORK_KINDS: dict[str, tuple[float, Callable[[random.Random, Attached, Sequence[int]], Iterator[At]]]] = {
    "gateway crash": (0.8, _gateway_crashes),
    "gateway pause": (0.2, _gateway_pauses),
    "gateway link": (0.4, _parted(_of_gateway)),
    "ring split": (0.4, _parted(_of_ring)),
    "ring apart": (0.25, _parted(_of_gateways)),
    "network burst": (0.25, _bursts),
    "network cut": (0.2, _one_way_links),
}
"""Each kind: how likely a seed has it, and how it is drawn."""


def draw_ambushes(
    stream: random.Random, networks: Attached, states: Sequence[str], duration_us: int
) -> list[Fault]:
    """Gateways that are struck as they, or any other node, enter a state: in some seeds."""
    faults: list[Fault] = []
    if not states or stream.random() < 0.6:
        return faults
    for _ in range(stream.choice((1, 1, 2, 3))):
        gateway, number = _some_link(stream, networks)
        who, crash = stream.choice(((gateway, Crash(IT)), (gateway, Crash(IT, 3)), (None, Crash(gateway))))
        action: Actions = stream.choice((crash, crash, Partition(((gateway,),), network=number)))
        nth, delay_us = stream.choice((1, 2, 2, 3, 5, 8)), stream.choice((0, 1)) * draw_gap(stream) // 10
        faults.append(When(who, stream.choice(states), action, nth, delay_us, duration_us))
        if stream.random() < 0.6:
            faults.append(At(stream.randrange(duration_us), Restart(gateway)))
    return faults


def draw_struck_in_traffic(stream: random.Random, networks: Attached, duration_us: int) -> list[Fault]:
    """In half of the seeds: all nodes send, and while that is on its way, a gateway or a network is struck.

    Perhaps the network has lost much of it just before; perhaps two are struck.
    """
    faults: list[Fault] = []
    if stream.random() < 0.5:
        return faults
    for strike in range(stream.choice((1, 2, 3))):
        moment = stream.randrange(duration_us // 3, duration_us * 4 // 5)
        guarantee = stream.choice((Guarantee.SAFE, Guarantee.SAFE, Guarantee.AGREED))
        count, spread_us = stream.choice((1, 3, 10)), stream.choice((1, 1_000, 10_000))
        for node in networks:
            names = (f"strike{strike}_{node}_*{count}",)
            faults.append(At(moment + stream.randrange(spread_us), Send(node, names, 100, guarantee)))
        for _ in range(stream.choice((1, 1, 2))):
            gateway, number = _some_link(stream, networks)
            if stream.random() < 0.3:
                loss, length_us = stream.choice((0.3, 0.6)), stream.choice((3_000, 10_000))
                faults.append(At(moment, Burst(loss, length_us, network=number)))
            at_us = moment + stream.randrange(stream.choice((1_000, 5_000, 20_000)))
            faults += _strike(stream, networks, gateway, number, at_us)
    return faults


def _strike(
    stream: random.Random, networks: Attached, gateway: NodeId, number: int, at_us: int
) -> Iterator[Fault]:
    """A gateway crashes, or is not heard any more on one of its networks; or that network is parted."""
    until_us = at_us + stream.choice(STRIKES_US)
    way = stream.choice(("crash", "mute", "mute", "parted", "parted"))
    if way == "crash":
        yield At(at_us, Crash(gateway, stream.choice((None, 3, 4, 5, 6))))
        yield At(until_us, Restart(gateway))
    elif way == "mute":
        for other in members(networks, number):
            if other != gateway:
                yield At(at_us, Cut(gateway, other, network=number))
                yield At(until_us, Uncut(gateway, other, network=number))
    else:
        parts = stream.choice((_of_gateway, _of_gateways, _of_ring))(stream, networks, number)
        yield At(at_us, Partition(parts, network=number))
        yield At(until_us, Heal(network=number))
