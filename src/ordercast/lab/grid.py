"""What is run: one run by its declaration, and grids of them.

A run's identifier is a hash of its own declaration and of nothing else: the same run has the same one in
every experiment and on every machine, and a run of which anything was changed is another run.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ordercast.catalogue import lab_protocol as protocol_called
from ordercast.errors import OrdercastError
from ordercast.sim.faults import Fault
from ordercast.sim.network import NetworkConfig, preset
from ordercast.sim.scenario import parse
from ordercast.sim.workload import Arrivals, Workload
from ordercast.trace.writer import TraceWriter

UNDER_LOAD = "ordercast.lab.under_load"
"""The usual method: a group under load, measured as 002 §1 does."""


class GridError(OrdercastError, ValueError):
    """A declaration that cannot be run. The sentence says what to change."""


class LabError(OrdercastError):
    """The laboratory could not do its work. The sentence says what to do."""


Settings: TypeAlias = dict[str, int | float | bool | str | dict[str, tuple[int, ...]]]
"""Settings of a protocol; the networks that nodes are attached to are a mapping by node."""


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One simulated run, declared."""

    protocol: str
    nodes: int
    arrivals: Arrivals = "poisson"
    """As in `ordercast.sim.workload`."""
    rate: float = 100.0
    """Messages per second, of all senders together. Without meaning when saturating."""
    size: int = 100
    """Bytes of a message, or the least where `size_to` is given."""
    size_to: int | None = None
    safe: float = 0.0
    """Share of messages that ask for safe delivery."""
    senders: int | None = None
    """How many nodes send, the first ones; None is all."""
    shares: tuple[float, ...] | None = None
    """How much each sender sends, in proportion to each other; None is all alike."""
    messages: int | None = None
    """How many messages are measured. The load goes on until each of them is stable everywhere."""
    seconds: float | None = None
    """Or else: for how long, in virtual time, messages are measured."""
    skip: int = 0
    """Messages sent before the first that is measured, for the group to come into its swing."""
    network: str = "lan"
    """A preset of `ordercast.sim.network`."""
    net: dict[str, Any] = {}
    """Fields of the network that differ from the preset: numbers, or tables of numbers."""
    loss: float = 0.0
    """Probability that a reception is lost."""
    faults: tuple[str, ...] = ()
    """As in scenario files: ``at 3s crash 2``; times count from the very start, the load begins at 1 s."""
    settings: Settings = {}
    """Settings of the protocol that differ from its defaults."""
    bucket_us: int = 100
    """Width of the buckets in which latencies are counted."""
    seed: int = 0
    labels: dict[str, int | float | str] = {}
    """What the experiment calls this point where no field above says it; columns of the results."""
    method: str = UNDER_LOAD
    """The module whose `METHOD` carries the run out."""

    def __post_init__(self) -> None:
        for name in ("rate", "safe", "loss", "seconds"):  # 200 and 200.0 are the same declaration
            value = getattr(self, name)
            if isinstance(value, int):
                msgspec.structs.force_setattr(self, name, float(value))

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits that stand for this declaration."""
        declared = msgspec.json.encode(self, order="deterministic")
        return hashlib.sha256(declared).hexdigest()[:16]

    @property
    def network_config(self) -> NetworkConfig:
        """The network, with its changes."""
        return preset(self.network, {**self.net, "loss": self.loss} if self.loss else self.net)

    @property
    def workload(self) -> Workload:
        """The load, without its start and stop."""
        return Workload(
            arrivals=self.arrivals,
            rate=self.rate,
            size=self.size,
            size_to=self.size_to,
            safe=self.safe,
            senders=None if self.senders is None else tuple(range(1, self.senders + 1)),
            shares=self.shares,
        )

    @property
    def parsed_faults(self) -> tuple[Fault, ...]:
        """The faults as data."""
        head = f"nodes {' '.join(map(str, range(1, self.nodes + 1)))}\nuntil 1s\n"
        return tuple(parse(head + "\n".join(self.faults)).faults) if self.faults else ()

    def check(self) -> None:
        """Raise GridError if this cannot be run."""
        try:
            protocol_called(self.protocol).make(self.settings)
            _ = self.network_config, self.workload, self.parsed_faults
        except ValueError as error:
            raise GridError(f"{self.summary}: {error}") from error
        problem = self._problem()
        if problem:
            raise GridError(f"{self.summary}: {problem}")

    def _problem(self) -> str:
        if self.nodes < 1:
            return f"a group has at least one node, not {self.nodes}"
        if self.senders is not None and not 1 <= self.senders <= self.nodes:
            return f"of {self.nodes} nodes {self.senders} cannot send: senders are 1 to {self.nodes}"
        if self.shares is not None and len(self.shares) != (self.senders or self.nodes):
            return f"{self.senders or self.nodes} nodes send, and there are {len(self.shares)} shares"
        if (self.messages is None) == (self.seconds is None):
            return "say how long it takes: either messages, how many are measured, or seconds"
        if self.messages is not None and self.messages < 1:
            return f"at least one message has to be measured, not {self.messages}"
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            return f"seconds has to be above 0, not {self.seconds}"
        if self.skip < 0 or self.bucket_us < 1:
            return "skip is 0 or more, and bucket_us 1 or more"
        return ""

    @property
    def summary(self) -> str:
        """The run in a few words, for people."""
        load = "saturating" if self.arrivals == "saturating" else f"{self.rate:g}/s"
        return f"{self.protocol}, {self.nodes} nodes, {load} of {self.size} bytes, seed {self.seed}"


class Outcome(msgspec.Struct, kw_only=True):
    """What came of one run."""

    figures: dict[str, float]
    """What was measured, by name: columns of the results. Times are microseconds and end in ``_us``."""
    histograms: dict[str, dict[int, int]] = {}
    """By name, how many values fell into each bucket; bucket ``b`` is from ``b`` to ``b + 1`` widths."""
    notes: list[str] = []
    """What a person should know: violations, damage, commands that repeat what failed."""


class Method(NamedTuple):
    """How runs are carried out."""

    conduct: Callable[[Run, TraceWriter | None], Outcome]
    """Carry one out; rows go to the writer if there is one."""
    cost: Callable[[Run], float]
    """About how many seconds of one processor that takes: decides what is packed together."""
    check: Callable[[Run], None] = Run.check
    """Raise GridError if it cannot be run."""
    traces: bool = True
    """Whether it can keep a trace."""


def method_of(run: Run) -> Method:
    """What carries a run out."""
    try:
        method = import_module(run.method).METHOD
    except (ImportError, AttributeError) as error:
        raise GridError(f"{run.summary}: no method {run.method!r}: {error}") from error
    assert isinstance(method, Method), f"{run.method}.METHOD is no Method"
    return method


def checked(runs: Iterable[Run]) -> list[Run]:
    """The runs, each once, if all can be run."""
    unique = {run.id: run for run in runs}
    if not unique:
        raise GridError("the grid is empty: every axis needs at least one value")
    for run in unique.values():
        method_of(run).check(run)
    return list(unique.values())


def product(**axes: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Every combination of the values of these axes, the last axis changing fastest."""
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def runs_of(axes: Mapping[str, Sequence[Any]], **same: Any) -> list[Run]:
    """A run for every combination of the axes' values; `same` is what all have in common."""
    return [Run(**same, **point) for point in product(**axes)]
