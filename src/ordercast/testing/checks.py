"""What has to hold of replicated objects in every run: replicas at the same place are equal."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.core.identity import NodeId
from ordercast.replicated.machine import Machine
from ordercast.replicated.replica import Replica
from ordercast.replicated.replicated import Replicated

if TYPE_CHECKING:
    from ordercast.testing.world import World

_encode = msgspec.msgpack.Encoder().encode
_PLAIN = frozenset((bool, int, float, str, bytes, type(None)))

COMPARE_S = 0.1
"""How often replicas are compared while a test runs."""
LOOK_S = 0.01
"""How often it is looked whether they have come to the same place at the end."""


class ReplicasDiffer(AssertionError):
    """Replicas of one object that have carried out the same commands do not have the same state."""


def compare(replicas: Iterable[tuple[NodeId, Replica]]) -> None:
    """Compare the replicas of one object that are at the same place of its history."""
    first: dict[Any, tuple[NodeId, dict[str, bytes]]] = {}
    for node, replica in replicas:
        machine = replica.machine
        if not machine.up_to_date:
            continue
        state = dict(_state(replica.target, machine))
        other, expected = first.setdefault((machine.applied.epoch, machine.applied.position), (node, state))
        for name, value in state.items():
            if value != expected[name]:
                here, there = _readable(value), _readable(expected[name])
                raise ReplicasDiffer(
                    f"the replicas of {replica.name} differ: behind position {machine.applied.position} "
                    f"{name} is\n    {here} at node {node}, and\n    {there} at node {other}"
                )


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
    for name in sorted(machine.execution.common.fields & target._fields.names):
        yield name, _encode(_ordered(getattr(target, name)))
    yield "the checksum of its history", _encode(machine.applied.checksum)
    yield "the table of sessions", b"".join(sessions.pieces(sessions.captured()))
    yield "what is common to all objects", _encode(_ordered(machine.execution.common))


def _ordered(value: Any) -> Any:
    """A value without sets, whose order is their process's own; that of a dict is a part of the state."""
    if type(value) in _PLAIN:
        return value
    match value:
        case set() | frozenset():
            return sorted(_encode(_ordered(each)) for each in value)
        case dict():
            return [(_ordered(key), _ordered(each)) for key, each in value.items()]
        case list() | tuple() | deque():
            return [_ordered(each) for each in value]
        case msgspec.Struct():
            return [_ordered(each) for each in msgspec.structs.astuple(value)]
    if dataclasses.is_dataclass(value):
        return [_ordered(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return value


def _readable(value: bytes) -> str:
    try:
        text = repr(msgspec.msgpack.decode(value))
    except msgspec.MsgspecError:  # of several pieces
        text = repr(value)
    return text if len(text) < 400 else f"{text[:400]}…"
