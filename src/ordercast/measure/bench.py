"""Real groups under load: starts a process a node, measures them, and compares what they delivered."""

from __future__ import annotations

import importlib.util
import queue
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from ordercast.errors import OrdercastError
from ordercast.keys import create
from ordercast.measure.agreement import Agreement, Life, OrderComparison
from ordercast.measure.job import Await, Begin, Figures, Job, Ready, Sent, WorkerResult
from ordercast.measure.netns import Namespaces
from ordercast.measure.processes import JsonProcess
from ordercast.measure.relay import Impairments
from ordercast.measure.rings import free_address, gateways, in_a_line, places, port_of
from ordercast.runtime.config_values import DEFAULT_PORT
from ordercast.runtime.ring_settings import RINGS

MOST_NODES = 64
STARTING_S = 60.0
"""How long processes have to start and to find each other."""
ENDING_S = 60.0
"""How long they may take after the load has ended."""
LEAVING_S = 5.0
"""How long a process that was dismissed may take to end."""
HEAD_START_S = 0.3
"""From the word to begin until the load begins at all nodes in the same instant."""

Tell = Callable[[str], None]
Word = TypeVar("Word", bound=msgspec.Struct)


class WorkerFailed(OrdercastError):
    """A process that was measured ended before its time, or fell silent."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be measured."""

    nodes: int = 3
    size: int = 100
    """Bytes a message."""
    seconds: float = 5.0
    rate: float | None = None
    """Messages/s a node; None: flat out; 0: none at all, an idle group."""
    safe: bool = False
    sealed: bool = False
    log: bool = False
    """Each node keeps its ordered log, as durably as it does by default."""
    kill_one: bool = False
    """Kill the process of the `victim` halfway, with -9."""
    stop_one: bool = False
    """Stop the process of the `victim` halfway (SIGSTOP), and let it go on at the end."""
    netns: bool = False
    """Each node in its own network namespace; else all on loopback."""
    impairments: Impairments = Impairments()
    """What the network between the namespaces does to datagrams; nothing on loopback."""
    uvloop: bool | None = None
    """Whether to run in uvloop; None: if it is installed."""
    protocol: str = "totem"
    profile: Literal["auto", "lan", "wan"] = "auto"
    """As in `NodeConfig`."""
    settings: dict[str, object] = {}
    """Settings of the protocol."""
    rings: int = 1
    """How many rings the nodes are on, in a line, with a gateway between neighbours: protocol ``rings``."""

    @property
    def victim(self) -> int:
        """Who is killed or stopped: the last node; of several rings, the first gateway."""
        return self.nodes if self.rings == 1 else gateways(in_a_line(self.nodes, self.rings))[0]

    def __post_init__(self) -> None:
        if self.rings != 1:
            in_a_line(self.nodes, self.rings)
            if self.protocol != RINGS:
                raise ValueError(f"{self.rings} rings: protocol {self.protocol} has one, take {RINGS}")
        if not 1 <= self.nodes <= MOST_NODES:
            raise ValueError(f"{self.nodes} nodes: between 1 and {MOST_NODES} can be measured")
        if self.kill_one and self.nodes < 2:
            raise ValueError("one node alone cannot lose another: take at least 2 nodes")
        if self.stop_one and self.nodes < 2:
            raise ValueError("one node alone cannot miss another: take at least 2 nodes")
        if self.stop_one and self.kill_one:
            raise ValueError("a process is killed, or stopped: choose one of the two")
        if not self.impairments.none and not self.netns:
            raise ValueError("a network that loses or delays is one of namespaces: add --netns")
        if not 0.1 <= self.seconds <= 86_400:
            raise ValueError(f"{self.seconds:g} seconds: measure for 0.1 to 86,400")
        if self.rate is not None and not 0 <= self.rate <= 1e6:
            raise ValueError(
                f"{self.rate:g} messages/s: between 0 and 1,000,000, or leave it out for flat out"
            )
        if self.size < 0:
            raise ValueError(f"{self.size} bytes: a message has 0 or more")


class Result(msgspec.Struct, kw_only=True):
    """The figures of all nodes, and whether they delivered the same order."""

    plan: Plan
    loop: str
    nodes: list[Figures]
    """The figures of the nodes that were there to the end."""
    agreement: Agreement
    killed: int | None
    """Which node was killed, or stopped."""
    lost: int
    """Messages that were taken from a node, and never delivered at one; both lived to the end."""
    configurations: dict[int, list[list[int]]]
    """Members of the configurations that each node installed under load."""
    statuses: dict[int, dict[str, object]]

    @property
    def split(self) -> bool:
        """Whether nodes that were there to the end were ever apart: others' messages passed them by then."""
        survivors = {figures.node for figures in self.nodes}
        return any(
            not survivors <= set(members)
            for installed in self.configurations.values()
            for members in installed
        )

    @property
    def good(self) -> bool:
        """Nothing was reordered, and nothing was lost but in a split."""
        return self.agreement.equal and (not self.lost or self.split)

    @property
    def delivered_per_s(self) -> float:
        """Messages that a node delivers in a second: the median over the nodes."""
        return statistics.median(node.delivered_per_s for node in self.nodes)

    def as_dict(self) -> dict[str, Any]:
        """For programs: the names are part of the interface of `ordercast bench`."""
        plan = msgspec.to_builtins(self.plan)
        return {
            "nodes": msgspec.to_builtins(self.nodes),
            "order_equal": self.agreement.equal,
            "order": {
                "messages": self.agreement.messages,
                "marks": self.agreement.blocks,
                "difference": self.agreement.difference,
            },
            "lost": self.lost,
            "split": self.split,
            "killed": self.killed,
            "delivered_per_s": self.delivered_per_s,
            "p50_us": statistics.median(node.p50_us for node in self.nodes),
            "p99_us": max(node.p99_us for node in self.nodes),
            "longest_gap_ms": max(node.longest_gap_ms for node in self.nodes),
            "configurations": {str(node): installed for node, installed in self.configurations.items()},
            "loop": self.loop,
            **{name: value for name, value in plan.items() if name not in ("nodes", "kill_one", "uvloop")},
        }


def measure(plan: Plan, tell: Tell = lambda _: None) -> Result:
    """Start the group, load it, compare; `tell` hears what happens."""
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ordercast-bench-")))
        network = stack.enter_context(Namespaces(plan.nodes)) if plan.netns else None
        if network is not None:
            network.impair(plan.impairments)
        processes = Processes(plan, work, network)
        stack.callback(processes.end)
        return _conduct(plan, processes, tell)


def _conduct(plan: Plan, processes: Processes, tell: Tell) -> Result:
    tell(f"starting {plan.nodes} nodes {'in network namespaces' if plan.netns else 'on loopback'}")
    workers = processes.start()
    for worker in workers:
        worker.hear(Ready, STARTING_S)
    load = "flat out" if plan.rate is None else f"at {plan.rate:g} messages/s a node"
    tell(f"the group has formed; {plan.size} bytes a message, {load}, for {plan.seconds:g} s")
    begin_ns = time.monotonic_ns() + int(HEAD_START_S * 1e9)
    for worker in workers:
        worker.say(Begin(begin_ns))
    killed = None
    if plan.kill_one or plan.stop_one:
        time.sleep(max(0.0, (begin_ns - time.monotonic_ns()) / 1e9 + plan.seconds / 2))
        killed = workers.pop(plan.victim - 1)
        killed.process.send_signal(signal.SIGKILL if plan.kill_one else signal.SIGSTOP)
        tell(f"{'killed' if plan.kill_one else 'stopped'} node {killed.node}")
    sent = {worker.node: worker.hear(Sent, plan.seconds + ENDING_S).messages for worker in workers}
    tell(f"{sum(sent.values()):,} messages sent; waiting for the last to arrive")
    for worker in workers:
        worker.say(Await(sent))
    results = {worker.node: worker.hear(WorkerResult, ENDING_S) for worker in workers}
    for worker in workers:
        worker.dismiss()
    return Result(
        plan=plan,
        loop="uvloop" if processes.uvloop else "asyncio",
        nodes=[result.figures for result in results.values()],
        agreement=_compared(results),
        killed=None if killed is None else killed.node,
        lost=max(sum(map(abs, result.missing.values())) for result in results.values()),
        configurations={node: result.configurations for node, result in results.items()},
        statuses={node: result.status for node, result in results.items()},
    )


def _compared(results: Mapping[int, WorkerResult]) -> Agreement:
    order = OrderComparison()
    for node, result in results.items():
        for number, (blocks, ends) in enumerate(result.lives):
            order.add(Life(node, number), blocks, ends)
    return order.agreement()


class Processes:
    """The processes of a measurement."""

    def __init__(self, plan: Plan, work: Path, network: Namespaces | None) -> None:
        self._plan = plan
        self._work = work
        self._network = network
        self._workers: list[Worker] = []
        self.uvloop = plan.uvloop
        if self.uvloop is None:
            self.uvloop = importlib.util.find_spec("uvloop") is not None

    def start(self) -> list[Worker]:
        """A process a node. The first one's address is what the others begin with."""
        plan, network = self._plan, self._network
        key = None
        if plan.sealed:
            key = self._work / "group.key"
            create(key)
        numbers = range(1, plan.nodes + 1)
        self._workers = [Worker(node, self._work / f"stderr{node}", network) for node in numbers]
        seeds: tuple[str, ...] = ()
        rings = {} if plan.rings == 1 else places(in_a_line(plan.nodes, plan.rings), self._address)
        for worker in self._workers:
            host = "127.0.0.1:0" if network is None else f"{network.address(worker.node)}:{DEFAULT_PORT}"
            worker.say(
                Job(
                    node=worker.node,
                    nodes=plan.nodes,
                    listen=host,
                    seeds=seeds,
                    rings=rings.get(worker.node, ()),
                    data=str(self._work / f"data{worker.node}"),
                    log=str(self._work / f"log{worker.node}") if plan.log else None,
                    key=None if key is None else str(key),
                    size=plan.size,
                    seconds=plan.seconds,
                    rate=plan.rate,
                    safe=plan.safe,
                    uvloop=bool(self.uvloop),
                    protocol=plan.protocol,
                    profile=plan.profile,
                    settings=plan.settings,
                )
            )
            if not seeds and not rings:
                seeds = (worker.hear(Ready, STARTING_S).address,)
        for worker in self._workers[0 if rings else 1 :]:
            worker.hear(Ready, STARTING_S)
        return list(self._workers)

    def _address(self, node: int, network: int) -> str:
        """Where a node receives on one of several rings."""
        if self._network is None:
            return free_address(node, network)
        return f"{self._network.address(node)}:{port_of(network)}"

    def end(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.end()


class Worker:
    """A process that is a node, from outside."""

    def __init__(self, node: int, log: Path, network: Namespaces | None) -> None:
        self.node = node
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.process = JsonProcess(
            node,
            "ordercast.measure.worker",
            log,
            self._lines.put,
            problem=WorkerFailed,
            start=subprocess.Popen if network is None else partial(network.start, node),
        )
        self.say = self.process.say
        self._dismissed = False

    def hear(self, kind: type[Word], timeout: float) -> Word:
        """What the process says next."""
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise self.process.failed(f"has said nothing for {timeout:g} s") from None
        if line is None:
            raise self.process.failed("ended before its time")
        return msgspec.json.decode(line, type=kind)

    def dismiss(self) -> None:
        """Let the process leave the group and end."""
        self._dismissed = True
        self.process.dismiss()

    def end(self) -> None:
        """End the process: within `LEAVING_S` seconds if it was dismissed, else at once."""
        self.process.end(LEAVING_S if self._dismissed else 0.0)
