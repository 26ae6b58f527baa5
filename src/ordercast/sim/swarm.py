"""Faults drawn from a seed, swarm style.

Every seed switches a random subset of the kinds on, so that some runs have many crashes and nothing
else, and others a little of everything. Faults come in clusters: most bugs of a membership protocol
need a second fault while it still deals with the first, so each kind places its faults a short random
gap behind common moments. Every kind has its own stream: a new kind leaves the others as they are.

All that begins also ends: see `ending`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from ordercast.core.identity import Guarantee, NodeId
from ordercast.sim.draws import draw_gap, draw_length, draw_links, draw_moments, draw_split, draw_victims
from ordercast.sim.faults import (
    IT,
    Action,
    Actions,
    At,
    Brake,
    Burst,
    Clog,
    Crash,
    Cut,
    Distance,
    Fault,
    Gone,
    Heal,
    Leave,
    Partition,
    Pause,
    Restart,
    Resume,
    Send,
    Slow,
    Unbrake,
    Unclog,
    Uncut,
    Unslow,
    When,
)
from ordercast.sim.lives import draw_clocks, draw_disks, draw_starts
from ordercast.sim.network_faults import NETWORK_KINDS, draw_ambushes, draw_struck_in_traffic
from ordercast.sim.topology import Attached, gateways

T = TypeVar("T")
_Kind = Callable[[random.Random, T, Sequence[int]], Iterator[At]]
"""How a kind of fault is drawn: a stream, to whom it happens, and moments, to faults near them."""

ROUND_TRIPS_US = (3_000, 30_000, 150_000, 450_000)
"""Round trips that nodes are told of, in networks where they take at most a few milliseconds."""


def draw(
    seed: int | str,
    nodes: Sequence[NodeId],
    duration_us: int,
    *,
    states: Sequence[str] = (),
    amnesia: bool = False,
    networks: Attached | None = None,
) -> list[Fault]:
    """The faults of a seed: those drawn, all before `duration_us`, and their `ending` at it.

    `states` are the names of the machine's states: with them some faults are triggered by a machine
    entering one. `amnesia` lets some nodes lose their disk, or find an old state on it, which not every
    protocol promises to survive. `networks` says who is attached to which, where there are several.
    """
    drawn = _ambush(random.Random(f"{seed}/fault/ambush"), nodes, states, duration_us)
    if not drawn or random.Random(f"{seed}/fault/company").random() < 0.3:
        drawn += _swarm(seed, _KINDS, nodes, duration_us)
        drawn += _triggered(random.Random(f"{seed}/fault/triggered"), nodes, states, duration_us)
    if networks is not None and gateways(networks):
        struck = draw_struck_in_traffic(random.Random(f"{seed}/fault/struck"), networks, duration_us)
        if struck and random.Random(f"{seed}/fault/struck alone").random() < 0.6:
            drawn = struck
        else:
            drawn += _swarm(seed, NETWORK_KINDS, networks, duration_us) + struck
            ambushes = random.Random(f"{seed}/fault/gateway ambush")
            drawn += draw_ambushes(ambushes, networks, states, duration_us)
    if amnesia:
        drawn = draw_disks(random.Random(f"{seed}/fault/disk"), drawn)
    drawn = draw_starts(random.Random(f"{seed}/fault/start"), nodes, duration_us) + drawn
    drawn = draw_clocks(random.Random(f"{seed}/fault/clock"), drawn, nodes)
    drawn += _hints(random.Random(f"{seed}/fault/gone"), drawn, nodes, states, duration_us)
    drawn += _distances(random.Random(f"{seed}/fault/distance"), seed, nodes, duration_us)
    drawn = [fault for fault in drawn if isinstance(fault, When) or fault.at_us < duration_us]
    drawn = [_shortened(fault, duration_us) for fault in drawn]
    drawn.sort(key=_time)
    return drawn + ending(drawn, nodes, duration_us, _dead(random.Random(f"{seed}/fault/dead"), nodes))


def _time(fault: Fault) -> int:
    """When it happens; what waits for a change of state comes before all else."""
    return fault.at_us if isinstance(fault, At) else -1


def _swarm(
    seed: int | str, kinds: Mapping[str, tuple[float, _Kind[T]]], what: T, duration_us: int
) -> list[Fault]:
    """Faults of some of the kinds that happen to `what`, near moments that all kinds have in common."""
    common = draw_moments(random.Random(f"{seed}/fault/moments"), duration_us)
    drawn: list[Fault] = []
    for kind, (likely, faults_of) in kinds.items():
        stream = random.Random(f"{seed}/fault/{kind}")
        if stream.random() < likely:
            intensity = stream.choice((0.2, 0.5, 0.9))
            chosen = [moment for moment in common if stream.random() < intensity]
            drawn += faults_of(stream, what, chosen)
    return drawn


def ending(
    faults: Iterable[Fault], nodes: Sequence[NodeId], at_us: int, dead: Iterable[NodeId] = ()
) -> list[Fault]:
    """What ends at `at_us` all that `faults` may have begun, so that liveness can be required.

    Partitions heal, cuts and clogs end, everybody resumes at full speed, nobody brakes any more or holds
    the others for far away, and every node that is down restarts; the `dead` are down for good, if anybody
    ever was. Bursts end by themselves. A shrunk list of faults gets its own ending: drop what is at the end
    and call this again.
    """
    begun = [fault.do for fault in faults]
    down = any(isinstance(action, Crash | Leave) for action in begun)
    stay_dead = set(dead)
    actions: list[Actions] = []
    if any(isinstance(action, Partition) for action in begun):
        actions.append(Heal())
    actions += [Uncut(*link) for link in _links(begun, Cut)]
    actions += [Unclog(*link) for link in _links(begun, Clog)]
    for node in nodes:
        if any(isinstance(action, Pause) for action in begun):
            actions.append(Resume(node))
        if any(isinstance(action, Slow) for action in begun):
            actions.append(Unslow(node))
        if any(isinstance(action, Brake) for action in begun):
            actions.append(Unbrake(node))
        if any(isinstance(action, Distance) for action in begun):
            actions.append(Distance(node, 0))
        if down:
            actions.append(Crash(node) if node in stay_dead else Restart(node))
    return [At(at_us, action) for action in actions]


def _links(actions: Iterable[Action], kind: type[Cut] | type[Clog]) -> list[tuple[NodeId, NodeId]]:
    return sorted({(action.source, action.to) for action in actions if isinstance(action, kind)})


# --- the kinds: a stream, the nodes and the moments to faults near them -----------------------------

Draw = _Kind[Sequence[NodeId]]
Drawn = Callable[[random.Random, NodeId], Actions]
"""What happens to a node."""


def _crashes(stream: random.Random, nodes: Sequence[NodeId], moments: Sequence[int]) -> Iterator[At]:
    """Crashes of one or several at once, some of whom come back quickly, late, or at the end."""
    for moment in moments:
        together = draw_gap(stream)
        for node in draw_victims(stream, nodes):
            at_us = moment + (together if stream.random() < 0.7 else draw_gap(stream))
            yield At(at_us, Crash(node))
            if stream.random() < 0.8:
                yield At(at_us + draw_length(stream), Restart(node))


def _flaps(stream: random.Random, nodes: Sequence[NodeId], moments: Sequence[int]) -> Iterator[At]:
    """Processes that die right after their start, some twice within a millisecond."""
    for moment in moments:
        at_us, node = moment + draw_gap(stream), stream.choice(nodes)
        for _ in range(stream.choice((2, 2, 3))):
            yield At(at_us, Crash(node))
            at_us += stream.choice((0, 1, 100, 400))
            yield At(at_us, Restart(node))
            at_us += stream.choice((0, 1, 100, 5_000))


def _down_and_up(ended: Drawn, share: float, least_us: int) -> Draw:
    """A node's life ends; in this share of the cases it is started again after at least so long."""

    def draw(stream: random.Random, nodes: Sequence[NodeId], moments: Sequence[int]) -> Iterator[At]:
        for moment in moments:
            at_us, node = moment + draw_gap(stream), stream.choice(nodes)
            yield At(at_us, ended(stream, node))
            if stream.random() < share:
                yield At(at_us + least_us + draw_length(stream), Restart(node))

    return draw


def _for_a_while(begin: Drawn, end: Callable[[NodeId], Actions]) -> Draw:
    """Something happens to one node or several, each for a time of its own."""

    def draw(stream: random.Random, nodes: Sequence[NodeId], moments: Sequence[int]) -> Iterator[At]:
        for moment in moments:
            for node in draw_victims(stream, nodes):
                at_us = moment + draw_gap(stream)
                yield At(at_us, begin(stream, node))
                yield At(at_us + draw_length(stream), end(node))

    return draw


_torn = _down_and_up(lambda stream, node: Crash(node, stream.randrange(6)), 0.8, 20_000)
"""Crashes in the middle of carrying out effects."""
_leaves = _down_and_up(lambda _, node: Leave(node), 0.7, 5_000)
_pauses = _for_a_while(lambda _, node: Pause(node), Resume)
_slows = _for_a_while(lambda stream, node: Slow(node, stream.choice((50, 200, 1_000, 3_000))), Unslow)


def _partitions(stream: random.Random, nodes: Sequence[NodeId], moments: Sequence[int]) -> Iterator[At]:
    """Partitions that heal, change into others directly, or come back right after they healed."""
    for moment in moments:
        at_us = moment + draw_gap(stream)
        for _ in range(stream.choice((1, 1, 2, 3))):
            split = draw_split(stream, nodes)
            if split is None:
                return
            yield At(at_us, split)
            at_us += draw_length(stream)
            if stream.random() < 0.6:
                yield At(at_us, Heal())
                at_us += draw_gap(stream)
        yield At(at_us, Heal())


def _cuts(stream: random.Random, nodes: Sequence[NodeId], moments: Sequence[int]) -> Iterator[At]:
    for moment in moments:
        at_us, until_us = moment + draw_gap(stream), draw_length(stream)
        for link in draw_links(stream, nodes):
            yield At(at_us, Cut(*link))
            yield At(at_us + until_us, Uncut(*link))


def _clogs(stream: random.Random, nodes: Sequence[NodeId], moments: Sequence[int]) -> Iterator[At]:
    for moment in moments:
        at_us, length_us = moment + draw_gap(stream), draw_length(stream)
        delay_us = stream.choice((None, None, 2_000, 20_000, 100_000))
        for link in draw_links(stream, nodes):
            yield At(at_us, Clog(*link, delay_us))
            yield At(at_us + length_us, Unclog(*link))


def _bursts(stream: random.Random, nodes: Sequence[NodeId], moments: Sequence[int]) -> Iterator[At]:
    for moment in moments:
        loss = stream.choice((0.1, 0.3, 0.6, 0.9, 1.0))
        yield At(moment + draw_gap(stream), Burst(loss, draw_length(stream)))


def _brakes(stream: random.Random, nodes: Sequence[NodeId], moments: Sequence[int]) -> Iterator[At]:
    """Applications that stop reading for a while, one or several, some for as long as there are faults."""
    for moment in moments:
        for node in draw_victims(stream, nodes):
            at_us = moment + draw_gap(stream)
            yield At(at_us, Brake(node))
            if stream.random() < 0.8:
                yield At(at_us + draw_length(stream), Unbrake(node))


_KINDS: dict[str, tuple[float, Draw]] = {
    "crash": (0.5, _crashes),
    "torn": (0.35, _torn),
    "pause": (0.3, _pauses),
    "slow": (0.2, _slows),
    "partition": (0.5, _partitions),
    "cut": (0.3, _cuts),
    "clog": (0.25, _clogs),
    "burst": (0.35, _bursts),
    "leave": (0.15, _leaves),
    "brake": (0.25, _brakes),
    "flap": (0.25, _flaps),
}
"""Each kind: how likely a seed has it, and how it is drawn."""


def _triggered(
    stream: random.Random, nodes: Sequence[NodeId], states: Sequence[str], duration_us: int
) -> list[Fault]:
    """Faults that hit a machine as it enters a state, or shortly after."""
    faults: list[Fault] = []
    if not states or stream.random() < 0.4:
        return faults
    for _ in range(stream.choice((1, 1, 2, 4))):
        other = stream.choice(nodes)
        action: Actions = stream.choice((Crash(IT), Crash(IT, stream.randrange(6)), Crash(other), Pause(IT)))
        split = draw_split(stream, nodes)
        if split is not None and stream.random() < 0.25:
            action = split
        who = stream.choice((None, None, *nodes))
        state, nth = stream.choice(states), stream.choice((1, 1, 2, 3, 5, 8))
        faults.append(When(who, state, action, nth, draw_gap(stream) // 10, duration_us))
    for node in stream.sample(list(nodes), stream.randint(0, len(nodes))):
        at_us = stream.randrange(duration_us)
        faults += [At(at_us, Restart(node)), At(at_us, Resume(node))]
    return faults


def _ambush(
    stream: random.Random, nodes: Sequence[NodeId], states: Sequence[str], duration_us: int
) -> list[Fault]:
    """One node dies in the middle of sending, while others send too; then, while they come to terms with
    it, they are struck themselves."""
    count = len(nodes)
    if not states or count < 3 or stream.random() < 0.5:
        return []
    moment = stream.randrange(duration_us // 5, duration_us * 3 // 5)
    first, guarantee = stream.choice(nodes), stream.choice((Guarantee.SAFE, Guarantee.AGREED, Guarantee.SAFE))
    spread_us = stream.choice((1, 300, 3_000))
    faults: list[Fault] = []
    if stream.random() < 0.4:  # much of it is still missing here and there when the node dies
        length_us = stream.choice((3_000, 10_000, 30_000))
        before_us = moment - length_us // 2
        faults += [At(before_us, Send(node, (f"early{node}_*15",), 300, guarantee)) for node in nodes]
        faults.append(At(before_us, Burst(stream.choice((0.3, 0.6)), length_us)))
    for node in nodes:
        at_us = moment if node == first else moment + stream.randrange(spread_us)
        faults.append(At(at_us, Send(node, (f"of{node}_*3",), 100, guarantee)))
    faults.append(At(moment, Crash(first, stream.choice((3, 4, 4, 5, 6)))))
    again = count + 1  # each has entered the states once when the group formed, so this is the first to again
    split = draw_split(stream, nodes)
    if split is not None and stream.random() < 0.6:
        faults.append(When(None, states[0], split, again, 0, duration_us))
        return faults
    for _ in range(stream.choice((1, 2, 3))):
        strikes: list[Actions] = [Crash(IT), Crash(stream.choice(nodes)), Pause(IT)]
        strikes += [split for _ in range(2) if (split := draw_split(stream, nodes)) is not None]
        nth = again + stream.choice((0, 0, 1, 2, count))
        delay_us = stream.choice((0, 1)) * draw_gap(stream) // 10
        state = stream.choice((states[0], states[-1], *states))
        faults.append(When(None, state, stream.choice(strikes), nth, delay_us, duration_us))
    return faults


def _hints(
    stream: random.Random,
    faults: Sequence[Fault],
    nodes: Sequence[NodeId],
    states: Sequence[str],
    duration_us: int,
) -> list[Fault]:
    """Word that a process has ended, in some seeds.

    Most crashes are told, a little later, to some of those who can be reached from there; some of that comes
    when the node lives again. And now and then there is wrong word of a node that lives.
    """
    if len(nodes) < 2 or stream.random() < 0.6:
        return []
    share, late, wrong = (
        stream.choice((0.3, 0.7, 1.0)),
        stream.choice((0.0, 0.3)),
        stream.choice((0, 0, 1, 3)),
    )
    hints: list[Fault] = []
    groups: tuple[tuple[NodeId, ...], ...] = ()
    for fault in sorted(faults, key=_time):
        match fault:
            case At(_, Partition(apart)):
                groups = apart
            case At(_, Heal()):
                groups = ()
            case At(at_us, Crash(node)) if stream.random() < 0.8:
                for to in _reached(node, nodes, groups):
                    if stream.random() < share:
                        hints.append(At(at_us + 1 + draw_gap(stream), Gone(node, to)))
            case At(at_us, Restart(node)) if stream.random() < late:
                hints.append(At(at_us + 1 + draw_gap(stream), Gone(node, stream.choice(nodes))))
            case When(who, state, Crash(node), nth, delay_us) if stream.random() < 0.8:
                for to in nodes:
                    if to != node and stream.random() < share:
                        told_us = delay_us + 1 + draw_gap(stream)
                        hints.append(When(who, state, Gone(node, to), nth, told_us, duration_us))
    times = [fault.at_us for fault in faults if isinstance(fault, At)] or [duration_us // 2]
    for _ in range(wrong):
        node, to = stream.sample(list(nodes), 2)
        hints.append(At(stream.choice(times) + draw_gap(stream), Gone(node, to)))
        if states:
            state, nth = stream.choice(states), stream.choice((1, 2, 5, 8))
            hints.append(When(None, state, Gone(node, IT), nth, draw_gap(stream) // 10, duration_us))
    return hints


def _distances(
    stream: random.Random, seed: int | str, nodes: Sequence[NodeId], duration_us: int
) -> list[Fault]:
    """Round trips that some nodes, or all, are told near the moments of the other faults, in some seeds.

    They are longer than those in the network: some timeouts are then too long, and not alike everywhere.
    """
    if stream.random() < 0.8:
        return []
    told: list[Fault] = []
    for moment in draw_moments(random.Random(f"{seed}/fault/moments"), duration_us):
        trip_us = stream.choice(ROUND_TRIPS_US)
        for node in draw_victims(stream, nodes):
            at_us = moment + draw_gap(stream)
            told.append(At(at_us, Distance(node, trip_us)))
            if stream.random() < 0.5:
                told.append(At(at_us + draw_length(stream), Distance(node, 0)))
    return told


def _reached(node: NodeId, nodes: Sequence[NodeId], groups: Sequence[Sequence[NodeId]]) -> list[NodeId]:
    """Who else is where the node is, in a partition into these groups; those in no group make up one more."""
    listed = {member for group in groups for member in group}
    rest = [member for member in nodes if member not in listed]
    home = next((group for group in groups if node in group), rest)
    return [member for member in nodes if member in home and member != node]


def _shortened(fault: Fault, duration_us: int) -> Fault:
    """A burst that would outlast the faults ends with them."""
    if isinstance(fault, At) and isinstance(fault.do, Burst):
        lasts_us = min(fault.do.duration_us, duration_us - fault.at_us)
        return At(fault.at_us, msgspec.structs.replace(fault.do, duration_us=lasts_us))
    return fault


def _dead(stream: random.Random, nodes: Sequence[NodeId]) -> list[NodeId]:
    """Nodes that are down for good at the end: in most runs none, never all."""
    if stream.random() < 0.7:
        return []
    return stream.sample(list(nodes), stream.randint(0, len(nodes) - 1))
