"""What machines say and count is declared: reasons for drops, kinds of packets, statistics."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import ordercast
from ordercast.catalogue import LAB_PROTOCOLS, LabProtocol
from ordercast.core.contract import Drop, Effect, Event, Machine
from ordercast.core.declared import Purpose
from ordercast.core.wire import DROPS as OF_PACKETS
from ordercast.protocols import PROTOCOLS
from ordercast.sim.fuzz import plan, run
from ordercast.sim.world import MachineFactory
from ordercast.transport.drops import DROPS as OF_TRANSPORT

SOURCE = Path(ordercast.__file__).parent
ALL = pytest.mark.parametrize("each", LAB_PROTOCOLS.values(), ids=list(LAB_PROTOCOLS))
BY_MACHINES = {drop.reason for protocol in PROTOCOLS.values() for drop in protocol.drops}
ANYWHERE = BY_MACHINES | {drop.reason for drop in (*OF_PACKETS, *OF_TRANSPORT)}


def literals(packages: Sequence[str], callee: str) -> Iterator[tuple[str, str]]:
    """Texts that are the first argument of calls of this name, and where."""
    for package in packages:
        for path in sorted((SOURCE / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Call(
                        func=ast.Name(id=name) | ast.Attribute(attr=name),
                        args=[ast.Constant(value=str(text)), *_],
                    ) if name == callee:
                        yield text, f"{path.name}:{node.lineno}"


def test_every_reason_for_a_drop_is_declared() -> None:
    machines = ("totem", "viewsync", "sequencers")
    found = list(literals(machines, "Drop"))
    assert len(found) > 40
    undeclared = [(text, where) for text, where in found if text not in BY_MACHINES]
    malformed = {drop.reason for drop in OF_PACKETS}
    undeclared += [item for item in literals(("core", *machines), "Malformed") if item[0] not in malformed]
    drivers = ("runtime", "transport", "groups")
    undeclared += [item for item in literals(drivers, "drop") if item[0] not in ANYWHERE]
    assert not undeclared


def test_every_reason_is_declared_with_what_it_means_and_once() -> None:
    for protocol in PROTOCOLS.values():
        for declared in (protocol.drops, protocol.statistics, tuple(protocol.kinds.values())):
            names = [each[0] for each in declared]
            assert len(names) == len(set(names)), f"{protocol.name} declares something twice"
            assert all(each.help.endswith(".") for each in declared)


@ALL
def test_a_machine_counts_what_its_protocol_declares(each: LabProtocol) -> None:
    product = each.product
    machine = product.build(product.configure({}, "sim"), 1)
    assert set(machine.stats) == {statistic.name for statistic in product.statistics}
    assert {kind.purpose for kind in product.kinds.values()} == set(Purpose)


class Watched:
    """A machine whose reasons for drops are noted."""

    def __init__(self, machine: Machine, seen: set[str]) -> None:
        self._machine, self._seen = machine, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        effects = self._machine.handle(now_us, event)
        self._seen.update(effect.reason for effect in effects if isinstance(effect, Drop))
        return effects


@ALL
def test_where_nobody_sends_wrong_packets_every_drop_is_an_everyday_one(
    each: LabProtocol,
) -> None:
    """Nodes crash, networks lose and part: that is everyday, as far as packets are concerned."""
    seen: set[str] = set()

    def make(settings: Mapping[str, object]) -> MachineFactory:
        factory = each.make(settings)
        return lambda node: Watched(factory(node), seen)

    watched = each._replace(make=make)
    for seed in range(300, 304):
        result, _ = run(watched, plan(watched, seed, (3, 5)))
        assert result.failed is None
    everyday = {drop.reason for drop in each.product.drops if drop.everyday}
    assert seen - everyday == set()
    assert len(seen) >= 3
