"""What a seed decides: how many nodes there are, what they have on disk, what is asked, what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from ordercast.core.identity import NodeId
from ordercast.replicated import disk, machine, snapshot, state, transfer
from ordercast.testing.faults import KINDS, Fault, draw_faults
from ordercast.transport import streams

LOAD_S = 1.5
"""For so many virtual seconds much is asked, and goes wrong."""
DIRECTORY = "objects"
MANY_SEEDS = 10**9
"""Where faults come from beside those of a seed."""


class Blackout(NamedTuple):
    """All nodes end at once."""

    at_s: float
    lasts_s: float
    with_machines: bool
    """What was not synced may be lost."""
    first: tuple[NodeId, ...]
    """A majority, which comes back first:"""
    others_after_s: float
    """the others come so much later."""
    damages: bool
    """The disk of the node that is out of luck is damaged."""


class Sizes(NamedTuple):
    """What the library does in pieces, so that small runs have many of them."""

    piece_bytes: int
    """Of a field, encoded at a time;"""
    slice_bytes: int
    """of a state, sent at a time;"""
    step_entries: int
    """entries of which references are copied at a time."""
    at_a_time: int
    """Entries that are carried out at a time."""
    log_bytes: int
    """Of the log on disk, until a snapshot is written."""
    buffer: int
    """Bytes that are on their way between nodes over one stream, until its writer waits."""
    stall_s: float
    """For so long a donor may say nothing;"""
    alive_s: float
    """and so often it says that it is there."""


USUAL = Sizes(
    state.PIECE_BYTES,
    snapshot.SLICE_BYTES,
    state.STEP_ENTRIES,
    machine.AT_A_TIME,
    disk.LOG_BYTES,
    streams.BUFFER,
    transfer.STALL_S,
    transfer.ALIVE_S,
)
SMALL = Sizes(2_000, 1_000, 20, 3, 5_000, 2_000, 0.1, 0.02)


class Plan(NamedTuple):
    """One run, as its seed decides it."""

    seed: int
    protocol: str
    nodes: int
    durable: bool
    """The journal is on disk."""
    level: str | None
    disk_s: float
    """What is asked of a disk takes so long at most."""
    slow_disk: NodeId
    """The node whose disk takes ten times as long; 0: none."""
    deep: bool
    """The journal has fields in which things change."""
    beside: str
    """What there is beside the journal: a queue, a lock, a map, or nothing."""
    burst: int
    """Notes that a program calls at once, at most."""
    gap_s: float
    """Seconds between two notes of a burst."""
    pause_s: float
    """Seconds between two bursts of a program, at most."""
    talkers: Sequence[NodeId]
    """The nodes at which programs call."""
    fills: bool
    """The state becomes large."""
    sizes: Sizes
    unlucky: NodeId
    """Whose disk may be lost or damaged, where objects are on disk."""
    releases: NodeId
    """At which node the journal is released, and replicated again; 0: at none."""
    refuses: bool
    """Whether commands are called that raise what cannot travel."""
    blackouts: Sequence[Blackout]
    faults: Sequence[Fault]
    run: Literal["everywhere", "primary"]
    """Where commands are carried out."""
    rings: Mapping[int, Sequence[NodeId]] | None
    """With the protocol rings: who is on which network."""

    @property
    def voters(self) -> tuple[NodeId, ...] | None:
        """Of whom a majority has it on disk; None: as is usual with the protocol."""
        return tuple(range(1, self.nodes + 1)) if self.durable else None


def plan(protocol: str, seed: int) -> Plan:
    """The run that a seed decides: the same for the same seed."""
    draw = random.Random(f"{seed}/replicated objects")
    nodes = draw.choice((3, 3, 3, 4, 5))
    ids = range(1, nodes + 1)
    durable = draw.random() < 0.5
    level = draw.choice((None, None, None, "disk", "memory")) if durable else None
    unlucky = draw.choice(ids)
    blackouts = []
    if durable and level is None:
        blackouts = _blackouts(random.Random(f"{seed}/blackouts"), ids, unlucky)
    faults = draw_faults(seed, ids, KINDS, LOAD_S)
    if draw.random() < 0.4:
        faults += draw_faults(seed + MANY_SEEDS, ids, KINDS, LOAD_S)
    if durable:
        faults = [_fewer_disks_lost(fault, unlucky) for fault in faults]
    if level is not None:  # what is in the memory of some, or on one disk, does not outlive every crash
        faults = [fault for fault in faults if fault.kind != "crash"]
    donors = random.Random(f"{seed}/donors")
    stops = level is None and donors.random() < 0.3
    if stops:
        faults += _donor_stops(donors, unlucky if durable else donors.choice(ids))
    forgets = not durable and any(fault.kind == "crash" for fault in faults)
    beside = draw.choice(("queue", "lock", "map", ""))
    if blackouts:
        beside = ""
    if beside in ("queue", "lock"):
        faults += _holders_stop(random.Random(f"{seed}/holders"), ids)
    burst, pause_s = draw.choice(((1, 0.05), (4, 0.15), (30, 0.8)))
    return Plan(
        seed=seed,
        protocol=protocol,
        nodes=nodes,
        durable=durable,
        level=level,
        disk_s=draw.choice((0.0, 0.0005, 0.003, 0.02, 0.1)),
        slow_disk=draw.choice((0, 0, *ids)),
        deep=draw.random() < 0.5 and not stops,
        beside=beside,
        burst=burst,
        gap_s=draw.choice((0.0, 0.0, 0.0005, 0.002)),
        pause_s=pause_s,
        talkers=draw.choice((ids, ids, (draw.choice(ids),))),
        fills=draw.random() < 0.4 or stops,
        sizes=SMALL if draw.choice((USUAL, SMALL)) is SMALL or stops else USUAL,
        unlucky=unlucky,
        releases=0 if forgets or draw.random() < 0.6 else draw.choice(ids),
        refuses=random.Random(f"{seed}/refuses").random() < 0.2,
        blackouts=blackouts,
        faults=faults,
        run=_run(protocol, seed),
        rings=_rings(random.Random(f"{seed}/rings"), ids) if protocol == "rings" else None,
    )


def _donor_stops(draw: random.Random, needs: NodeId) -> list[Fault]:
    """A node loses its state, and who gives it another one is stopped or cut off half-way: the next donor
    goes on."""
    at_s = round(draw.uniform(0.3, LOAD_S - 0.3), 4)
    lost = Fault(kind="crash", node=needs, at_s=at_s, lasts_s=0.01, without_disk=True)
    kind = draw.choice(("pause", "partition"))
    stopped = Fault(kind=kind, at_s=at_s, moment="state half sent", lasts_s=1.0)
    return [lost, stopped]


def _holders_stop(draw: random.Random, ids: Sequence[NodeId]) -> list[Fault]:
    """Nodes are stopped or cut off for about as long as a lease lasts, and a change of the group takes."""
    return [
        Fault(
            kind=draw.choice(("pause", "pause", "partition")),
            node=draw.choice(ids),
            at_s=round(draw.uniform(0.05, LOAD_S), 4),
            lasts_s=round(draw.uniform(0.1, 0.6), 4),
        )
        for _ in range(draw.randint(0, 4))
    ]


def _rings(draw: random.Random, ids: Sequence[NodeId]) -> Mapping[int, Sequence[NodeId]]:
    """Two networks with one gateway or two, or three in a line, where there are enough nodes for that."""
    middle = draw.randrange(1, len(ids) - 1)
    if len(ids) == 3 or draw.random() < 0.4:
        return {1: ids[: middle + 1], 2: ids[middle:]}
    if draw.random() < 0.5:
        return {1: ids[: middle + 1], 2: ids[middle - 1 :]}
    return {1: ids[:2], 2: ids[1:3], 3: ids[2:]}


def _run(protocol: str, seed: int) -> Literal["everywhere", "primary"]:
    """At the primary alone mostly where the protocol has one, and now and then over any other."""
    often = 0.8 if protocol == "primary-backup" else 0.1
    return "primary" if random.Random(f"{seed}/run").random() < often else "everywhere"


def _blackouts(draw: random.Random, ids: Sequence[NodeId], unlucky: NodeId) -> list[Blackout]:
    """Some, of which some come soon after one another, when replicas have just told what they have."""
    found: list[Blackout] = []
    for _ in range(draw.choice((0, 1, 2, 3, 4))):
        found.append(_blackout(draw, ids, unlucky))
        if draw.random() < 0.4:
            again = _blackout(draw, ids, unlucky)
            at_s = found[-1].at_s + found[-1].lasts_s + draw.uniform(0.005, 0.2)
            found.append(again._replace(at_s=at_s))
    return found


def _blackout(draw: random.Random, ids: Sequence[NodeId], unlucky: NodeId) -> Blackout:
    first = draw.sample(list(ids), len(ids) // 2 + 1)
    damages = draw.random() < 0.3
    if damages and unlucky not in first:
        first[0] = unlucky
    return Blackout(
        at_s=draw.uniform(0.05, LOAD_S),
        lasts_s=draw.choice((0.0, 0.05, 0.3)),
        with_machines=draw.random() < 0.7,
        first=tuple(first),
        others_after_s=draw.choice((0.0, 0.0, 0.05, 0.5)),
        damages=damages,
    )


def _fewer_disks_lost(fault: Fault, unlucky: NodeId) -> Fault:
    """Of what is on disk a majority has to stay."""
    if not fault.without_disk:
        return fault
    node = fault.node or unlucky
    return msgspec.structs.replace(fault, node=node, without_disk=node == unlucky)
