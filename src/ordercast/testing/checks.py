"""What has to hold of replicated objects in every run: replicas at the same place are equal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from ordercast.core.identity import NodeId
from ordercast.replicated.fingerprint import in_order, ordered
from ordercast.replicated.machine import Machine
from ordercast.replicated.replica import Replica
from ordercast.replicated.replicated import Replicated
from ordercast.replicated.state import CANNOT_TRAVEL

if TYPE_CHECKING:
    from ordercast.testing.world import World

_encode = msgspec.msgpack.Encoder().encode

COMPARE_S = 0.1
"""How often replicas are compared while a test runs."""
LOOK_S = 0.01
"""How often it is looked whether they have come to the same place at the end."""


class ReplicasDiffer(AssertionError):
    """Replicas of one object that have carried out the same commands do not have the same state."""


def compare(replicas: Iterable[tuple[NodeId, Replica]]) -> None:
    """Compare the replicas of one object that are at the same place of its history."""
    places: dict[tuple[int, int], list[tuple[NodeId, Replica]]] = {}
    for node, replica in replicas:
        if replica.machine.up_to_date:
            at = replica.machine.applied
            places.setdefault((at.epoch, at.position), []).append((node, replica))
    for (other, first), *others in places.values():
        _check_types(first)
        expected = dict(_state(first.target, first.machine)) if others else {}
        for node, replica in others:
            for name, value in _state(replica.target, replica.machine):
                if value != expected[name]:
                    here, there = _readable(value), _readable(expected[name])
                    raise ReplicasDiffer(
                        f"the replicas of {replica.name} differ: behind position "
                        f"{replica.machine.applied.position} "
                        f"{name} is\n    {here} at node {node}, and\n    {there} at node {other}"
                        f"{_about_sets(replica.target)}"
                    )


class OfAnotherType(AssertionError):
    """A field of a replicated object holds what is not of its type: no other replica could get it."""


def _check_types(replica: Replica) -> None:
    for field in replica.target._fields:
        try:
            for _ in field.check(field.pieces(getattr(replica.target, field.name))):
                pass
        except CANNOT_TRAVEL as error:
            raise OfAnotherType(f"a command has spoilt {replica.name}: {error}") from None


async def compare_often(world: World) -> None:
    """Compare all replicas while a test runs."""
    while True:
        await asyncio.sleep(COMPARE_S)
        for replicas in _by_name(world).values():
            compare(replicas)


async def compare_at_the_end(world: World) -> None:
    """Wait until all replicas have come to the same place, and compare them there."""
    while True:
        every = _by_name(world).values()
        if world.is_ready and all(len({each.machine.applied for _, each in some}) == 1 for some in every):
            break
        await asyncio.sleep(LOOK_S)
    for replicas in every:
        compare(replicas)


def _by_name(world: World) -> dict[str, list[tuple[NodeId, Replica]]]:
    found: dict[str, list[tuple[NodeId, Replica]]] = {}
    for id in world.ids:
        if world.process(id) is not None:
            for replica in world.replicas_of(id):
                found.setdefault(replica.name, []).append((id, replica))
    return found


def _state(target: Replicated, machine: Machine) -> Iterator[tuple[str, bytes]]:
    """The parts of a replica's state, encoded so that they are equal if the replicas are."""
    sessions = machine.execution.sessions
    for field in target._fields.sorted():
        if field.name in machine.execution.common.fields:
            value = getattr(target, field.name)
            yield field.name, _encode(in_order(value, field.has_sets))
    yield "the checksum of its history", _encode(machine.applied.checksum)
    yield "the table of sessions", b"".join(sessions.pieces(sessions.captured()))
    yield "what is common to all objects", _encode(ordered(machine.execution.common))


def _about_sets(target: Replicated) -> str:
    """What may be the reason, if the object has sets."""
    names = [field.name for field in target._fields.sorted() if field.has_sets]
    if not names:
        return ""
    return (
        f"\n(what is in a set has another order at each replica and in each process, and {', '.join(names)} "
        "may hold sets: go through sorted(...); with PYTHONHASHSEED=0 in the environment, runs repeat "
        "themselves)"
    )


def _readable(value: bytes) -> str:
    try:
        text = repr(msgspec.msgpack.decode(value))
    except msgspec.MsgspecError:  # of several pieces
        text = repr(value)
    return text if len(text) < 400 else f"{text[:400]}…"
