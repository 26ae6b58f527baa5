"""Scenarios: what happens to a group and what must come of it, as text that a person can check.

A line is a statement; ``#`` begins a comment; times are ``300us``, ``20ms`` or ``1.5s``.

    nodes p q r s t            names of the nodes; their identifiers are 1, 2, 3, … in this order
    protocol totem             which machine runs (default: the first there is)
    network lan loss=0.01      a preset of `ordercast.sim.network`, fields changed (default: lan)
    attach p q g to 1          who is attached to which network, for a protocol with several, a line for each
    attach g r s to 2          network; all are of the same kind (default: all nodes are attached to one)
    set token_loss_us=100000   fields of the protocol's configuration, passed on unread
    seed 7                     of all that is random (default: 0)
    start p q r                who starts at 0 (default: all); the others by ``restart``
    load rate=200 safe=0.5     other messages, as in `ordercast.sim.workload` (default: none)
    at 400ms ACTION            something happens at a time
    when r enters recovery (2nd) before 3s +1ms ACTION
                               … or that much after a machine enters a state (any: whoever does)
    when q sends ack (2nd) ACTION
                               … or sends a packet of a kind, as the protocol names it
    until 3s                   how long it runs

ACTION is a fault as in `ordercast.sim.faults` (in ``when`` the node may be called ``it``), or:

    p sends a                  a message called a;  ``safe`` asks for safe delivery
    p sends x*50 size 1000 safe    fifty: x1 to x50;  ``size`` is of each, in bytes (default: 100)
    p sends a k=2              at a level of resilience, where the protocol has them

What is expected speaks of memberships and named messages only. Several nodes may be named: it is then
expected of each. A membership is written ``p q r`` or, where all names have one letter, ``pqr``;
a transitional configuration is in parentheses. ``x*50`` stands for x1 to x50.

    expect q installs pqrst, (qrst), qrstuv   somewhere in what it installs, directly after each other;
                                              ``...`` between two allows others there
    expect p q installs at most 4 after 2s    no more configurations than that, transitional included
    expect q ends in qrstuv                   the last it installed
    expect q delivers a b x*3                 these, in this order; others may lie between
    expect q delivers c in (qrst)             while this was the configuration installed last
    expect q never delivers d e               none of these
    expect r enters recovery (2nd)            at least so often
    expect r enters gather from commit because token lost    … in this way
    expect q halts                            it ended its life by itself
    expect q never halts                      it did not
    expect q crashes in commit                it was in that state then
    expect s sends req (2nd)                  a packet of that kind, at least so often
    expect s receives copy                    it reached its machine at least so often
    expect s never sends req                  not once;  ``never receives`` likewise
    expect timestamps a < b = c               the Lamport timestamps that these got compare so
    expect same-order q r s t                 any two deliver what both deliver in the same order
    expect clean                              the auditor finds all that the protocol promises kept, and no
                                              payload was damaged

``after 1s`` and ``before 2s`` behind ``installs``, ``delivers``, ``sends`` and ``receives`` say when that
must have been. ``any`` in place of nodes expects it of at least one of them all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from ordercast.audit.properties import audit
from ordercast.core.identity import NodeId
from ordercast.core.settings import setting_of
from ordercast.sim.expect import (
    Clean,
    Delivers,
    Expectation,
    NeverDelivers,
    OfAny,
    Outcome,
    Packets,
    Timestamps,
    judge,
    parse_expectation,
)
from ordercast.sim.faults import (
    IT,
    At,
    Fault,
    OnNetwork,
    Send,
    When,
    each_name,
    named,
    schedule,
)
from ordercast.sim.network import NetworkConfig, preset
from ordercast.sim.protocol import LabProtocol
from ordercast.sim.reading import node_called, parse_action, parse_ordinal, parse_time
from ordercast.sim.run_record import RunRecord
from ordercast.sim.workload import Workload, drive
from ordercast.sim.world import World

_APPLICATION_QUEUE = 100_000
_CHANGES = 100_000


_RESERVED = ("any", "it", "on", "to")
"""Words that no node may be called."""


class ScenarioError(ValueError):
    """A scenario that cannot be read: the line, and what was expected there."""


class Scenario(msgspec.Struct, kw_only=True):
    """A scenario as read from its text."""

    nodes: dict[str, NodeId] = {}
    protocol: str | None = None
    network: NetworkConfig = preset("lan")
    networks: dict[NodeId, tuple[int, ...]] = {}
    """The numbers of the networks that each node is attached to; empty is one network for all."""
    settings: dict[str, object] = {}
    seed: str = "0"
    start: tuple[NodeId, ...] = ()
    """Who starts at 0; empty is everybody."""
    load: Workload | None = None
    faults: list[Fault] = []
    until_us: int = 0
    expectations: list[Expectation] = []


class Report(NamedTuple):
    """How a scenario went."""

    outcomes: tuple[Outcome, ...]
    world: World

    @property
    def ok(self) -> bool:
        """All that was expected came true."""
        return all(outcome.ok for outcome in self.outcomes)

    def __str__(self) -> str:
        return "\n".join(("ok   " if outcome.ok else "FAIL ") + str(outcome) for outcome in self.outcomes)


# --- reading ---------------------------------------------------------------------------------------


def parse(text: str) -> Scenario:
    """Read a scenario. Raises `ScenarioError` with the line and what was expected there."""
    scenario = Scenario()
    for number, line in enumerate(text.splitlines(), 1):
        statement = " ".join(line.partition("#")[0].split())
        if statement:
            try:
                _read(scenario, statement, number)
            except ValueError as error:
                raise ScenarioError(f"line {number}: {error}: {statement}") from error
    _check(scenario)
    return scenario


def _read(scenario: Scenario, statement: str, line: int) -> None:
    word, _, rest = statement.partition(" ")
    if word not in ("nodes", "expect", *_STATEMENTS):
        raise ValueError(f"expected a statement (nodes, {', '.join(_STATEMENTS)}, expect), found {word!r}")
    if not rest:
        raise ValueError(f"expected something behind {word!r}")
    if word == "nodes":
        _read_nodes(scenario, rest)
    elif not scenario.nodes:
        raise ValueError("expected 'nodes' with the names of the nodes first")
    elif word == "expect":
        what = parse_expectation(rest, scenario.nodes)
        scenario.expectations.append(Expectation(line, statement, what))
    else:
        _STATEMENTS[word](scenario, rest)


def _read_nodes(scenario: Scenario, rest: str) -> None:
    names = rest.split()
    if scenario.nodes:
        raise ValueError("the nodes are named already")
    for name in names:
        if not re.fullmatch(r"\w+", name) or name in _RESERVED or names.count(name) > 1:
            raise ValueError(
                f"expected names of nodes, different and none of {', '.join(_RESERVED)}, found {name!r}"
            )
    scenario.nodes = {name: node for node, name in enumerate(names, 1)}


def _read_protocol(scenario: Scenario, rest: str) -> None:
    scenario.protocol = rest


def _read_network(scenario: Scenario, rest: str) -> None:
    name, _, changes = rest.partition(" ")
    scenario.network = preset(name, _fields(changes))


def _read_attach(scenario: Scenario, rest: str) -> None:
    match = re.fullmatch(r"(.+) to (\d+)", rest)
    if match is None or not int(match[2]):
        raise ValueError("expected it to be written like: attach p q r to 1")
    for name in match[1].split():
        node = node_called(name, scenario.nodes)
        attached = {*scenario.networks.get(node, ()), int(match[2])}
        scenario.networks[node] = tuple(sorted(attached))


def _read_settings(scenario: Scenario, rest: str) -> None:
    scenario.settings |= {field: setting_of(value) for field, value in _fields(rest).items()}


def _read_seed(scenario: Scenario, rest: str) -> None:
    scenario.seed = rest


def _read_start(scenario: Scenario, rest: str) -> None:
    scenario.start = tuple(node_called(name, scenario.nodes) for name in rest.split())


def _read_load(scenario: Scenario, rest: str) -> None:
    try:
        scenario.load = msgspec.convert(_fields(rest), Workload, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def _read_at(scenario: Scenario, rest: str) -> None:
    time, *action = rest.split()
    scenario.faults.append(At(parse_time(time), parse_action(action, scenario.nodes)))


_WHEN = re.compile(r"(\S+) (enters|sends) (\S+)(?: \((\w+)\))?(?: before (\S+))?(?: \+(\S+))? (.+)")


def _read_when(scenario: Scenario, rest: str) -> None:
    match = _WHEN.fullmatch(rest)
    if match is None:
        raise ValueError("expected it to be written like: when p enters STATE (2nd) before 3s +1ms crash q")
    who, event, state, nth, before, delay, action = match.groups()
    scenario.faults.append(
        When(
            None if who == "any" else node_called(who, scenario.nodes),
            state,
            parse_action(action.split(), {**scenario.nodes, "it": IT}),
            parse_ordinal(nth) if nth else 1,
            parse_time(delay) if delay else 0,
            parse_time(before) if before else None,
            "sends" if event == "sends" else "enters",
        )
    )


def _read_until(scenario: Scenario, rest: str) -> None:
    scenario.until_us = parse_time(rest)


def _fields(text: str) -> dict[str, str]:
    fields = {}
    for word in text.split():
        field, equals, value = word.partition("=")
        if not (field and equals and value):
            raise ValueError(f"expected field=value, found {word!r}")
        fields[field] = value
    return fields


_STATEMENTS: dict[str, Callable[[Scenario, str], None]] = {
    "protocol": _read_protocol,
    "network": _read_network,
    "attach": _read_attach,
    "set": _read_settings,
    "seed": _read_seed,
    "start": _read_start,
    "load": _read_load,
    "at": _read_at,
    "when": _read_when,
    "until": _read_until,
}


def _check(scenario: Scenario) -> None:
    """What only the whole text shows."""
    if not scenario.nodes:
        raise ScenarioError("expected 'nodes' with the names of the nodes")
    if not scenario.until_us:
        raise ScenarioError("expected 'until' with how long it runs")
    _check_networks(scenario)
    sends = [fault.do for fault in scenario.faults if isinstance(fault.do, Send)]
    sent = Counter(name for send in sends for name in each_name(send.names))
    for name, times in sent.items():
        if times > 1:
            raise ScenarioError(f"two messages are called {name!r}")
    for expectation in scenario.expectations:
        if isinstance(expectation.what, Delivers | NeverDelivers | Timestamps):
            for name in expectation.what.names:
                if name not in sent:
                    raise ScenarioError(
                        f"line {expectation.line}: nobody sends a message {name!r}: {expectation.text}"
                    )


def _check_networks(scenario: Scenario) -> None:
    """Whether every node is attached somewhere, and faults name networks that their nodes are attached to."""
    name = {node: name for name, node in scenario.nodes.items()}
    for node in scenario.nodes.values() if scenario.networks else ():
        if node not in scenario.networks:
            raise ScenarioError(f"{name[node]} is attached to no network: attach {name[node]} to 1")
    known = {number for numbers in scenario.networks.values() for number in numbers}
    for fault in scenario.faults:
        action = fault.do
        if isinstance(action, OnNetwork) and action.network is not None:
            if action.network not in known:
                raise ScenarioError(f"nobody is attached to network {action.network}: {fault}")
            for node in named(action):
                if node != IT and action.network not in scenario.networks[node]:
                    raise ScenarioError(f"{name[node]} is not attached to network {action.network}: {fault}")


# --- running ---------------------------------------------------------------------------------------


def run(scenario: Scenario, protocols: Mapping[str, LabProtocol], *, packets: bool = False) -> Report:
    """Run a scenario with the machines of one of `protocols`, and see whether it goes as expected.

    With `packets`, packets are traced, too; where the scenario speaks of some, they are in any case.
    """
    protocol = _chosen(scenario, protocols)
    world = _world(scenario, protocol, packets or _speaks_of_packets(scenario))
    schedule(world, scenario.faults)  # first: what is wrong from the start is wrong before it
    world.at(0, partial(world.start, *scenario.start))
    if scenario.load is not None:
        drive(world, scenario.load)
    world.run_until(scenario.until_us)
    story = RunRecord(world.rows, world.applications.names, world.changes)
    found = _audit(scenario, world, protocol)
    name = {node: name for name, node in scenario.nodes.items()}
    outcomes = (
        Outcome(expectation, tuple(judge(expectation.what, story, name, found)))
        for expectation in scenario.expectations
    )
    return Report(tuple(outcomes), world)


def _chosen(scenario: Scenario, protocols: Mapping[str, LabProtocol]) -> LabProtocol:
    name = scenario.protocol or next(iter(protocols))
    if name not in protocols:
        raise ScenarioError(f"no protocol {name!r}; there are {', '.join(protocols)}")
    return protocols[name]


def _world(scenario: Scenario, protocol: LabProtocol, packets: bool) -> World:
    try:
        return protocol.world(
            {**scenario.settings, "networks": scenario.networks} if scenario.networks else scenario.settings,
            tuple(scenario.nodes.values()),
            scenario.network,
            scenario.seed,
            history=_CHANGES,
            application_queue=_APPLICATION_QUEUE,
            packets=packets,
        )
    except ValueError as error:
        raise ScenarioError(str(error)) from error


def _speaks_of_packets(scenario: Scenario) -> bool:
    expected = [expectation.what for expectation in scenario.expectations]
    return any(isinstance(fault, When) and fault.event == "sends" for fault in scenario.faults) or any(
        isinstance(what.what if isinstance(what, OfAny) else what, Packets) for what in expected
    )


def _audit(scenario: Scenario, world: World, protocol: LabProtocol) -> list[str]:
    if not any(isinstance(expectation.what, Clean) for expectation in scenario.expectations):
        return []
    violations = audit(world.rows, None, protocol.checks, one_clock=True).violations
    return [str(found) for found in (*world.applications.corrupt, *violations)]
