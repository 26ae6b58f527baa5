"""One seed: what it decides happens in virtual time, and is judged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager

from ordercast.core.identity import NodeId
from ordercast.objects_fuzz.beside_use import USES
from ordercast.objects_fuzz.journal_use import JournalUse
from ordercast.objects_fuzz.plan import LOAD_S, Blackout, Plan, Sizes, plan
from ordercast.replicated import disk, machine, snapshot, state, transfer
from ordercast.sim.campaign import Failure
from ordercast.testing.event_loop import current_process
from ordercast.testing.faults import KINDS
from ordercast.testing.simulated import Settings, run_seed
from ordercast.testing.world import World
from ordercast.transport import memory_streams
from ordercast.transport.virtual_time import VirtualTimeLoop

OBJECTS = "+objects"
"""Behind the name of a protocol: with replicated objects."""
LIMIT_S = 120.0


def judge(protocol: str, seed: int) -> BaseException | None:
    """What is wrong in the run of a seed over a protocol; None if nothing is."""
    drawn = plan(protocol, seed)

    async def test(world: World) -> None:
        await _live(world, drawn)

    on_disk = drawn.durable and drawn.level is None and not drawn.beside
    more = {"voters": drawn.voters, "durable": on_disk, "settings": None, "rings": drawn.rings}
    how = Settings(drawn.nodes, protocol, KINDS, LIMIT_S, more)
    with _sized(drawn.sizes):
        return run_seed(test, how, seed, drawn.faults).error


@contextmanager
def _sized(sizes: Sizes) -> Iterator[None]:
    """Things have these sizes while this lasts."""
    places = (
        (state, "PIECE_BYTES"),
        (snapshot, "SLICE_BYTES"),
        (state, "STEP_ENTRIES"),
        (snapshot, "STEP_ENTRIES"),
        (machine, "AT_A_TIME"),
        (disk, "LOG_BYTES"),
        (memory_streams, "BUFFER"),
        (transfer, "STALL_S"),
        (transfer, "ALIVE_S"),
    )
    given = (sizes.piece_bytes, sizes.slice_bytes, sizes.step_entries, *sizes[2:])
    usual = [getattr(place, name) for place, name in places]
    try:
        for (place, name), size in zip(places, given, strict=True):
            setattr(place, name, size)
        yield
    finally:
        for (place, name), size in zip(places, usual, strict=True):
            setattr(place, name, size)


def failure_of_objects(protocol: str, seed: int) -> Failure | None:
    """How the run of a seed fails; `protocol` is followed by `OBJECTS`."""
    error = judge(protocol.removesuffix(OBJECTS), seed)
    if error is None:
        return None
    return Failure(seed, type(error).__name__, str(error).partition("\n")[0] or repr(error))


async def _live(world: World, drawn: Plan) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    takes = random.Random(f"{drawn.seed}/disks")

    def disk_s() -> float:
        here = current_process()
        slow = here is not None and here is world.process(drawn.slow_disk)
        return takes.uniform(0, 10 * drawn.disk_s if slow else drawn.disk_s)

    loop.thread_s = disk_s
    over = False
    journal = JournalUse(world, drawn)
    beside = USES[drawn.beside](world, drawn, lambda: over)
    await world.ready()
    journal.begin()
    for blackout in drawn.blackouts:
        world.at(world.now + blackout.at_s, _black_out, world, drawn, blackout)
    await asyncio.sleep(LOAD_S)
    await world.calm()
    await asyncio.sleep(0.5)
    over = True
    await journal.end()
    await beside.end()


def _black_out(world: World, drawn: Plan, blackout: Blackout) -> None:
    """All nodes that are up end at once, and come back."""
    ended = [id for id in world.ids if world.process(id) is not None]
    damages = blackout.damages and drawn.unlucky in ended
    damages = damages and all(_is_on_disk(world, id) for id in world.ids if id != drawn.unlucky)
    for id in ended:
        world.crash(id, silently=blackout.with_machines)
    if damages:
        world.damage(drawn.unlucky)
    for id in ended:
        after_s = blackout.lasts_s + (0 if id in blackout.first else blackout.others_after_s)
        world.at(world.now + after_s, _come_back, world, id)


def _is_on_disk(world: World, id: NodeId) -> bool:
    """Whether a node's disk knows of the objects: of the disks that do, a majority has to stay whole."""
    disks = [replica.machine.disk for replica in world.replicas_of(id)]
    return bool(disks) and all(disk.remembers or disk.promise_kept for disk in disks)


def _come_back(world: World, id: NodeId) -> None:
    if world.process(id) is None:
        world.restart(id)
