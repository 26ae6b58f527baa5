"""Real groups under load: starts a process a node, measures them, and compares what they delivered."""

from __future__ import annotations

import importlib.util
import queue
import signal
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from ordercast.errors import OrdercastError
from ordercast.keys import create
from ordercast.measure.agreement import Agreement, Life, OrderComparison
from ordercast.measure.job import Await, Begin, Figures, Job, Ready, Sent, WorkerResult
from ordercast.measure.loads import group_of
from ordercast.measure.netns import Namespaces
from ordercast.measure.processes import JsonProcess
from ordercast.measure.relay import Impairments
from ordercast.measure.rings import far, first_ring, in_a_line, on_loopback, places, port_of, victim_of
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
    cut_one: bool = False
    """Cut the `victim` off from all others halfway, and let it come back after half of the time that is left;
    in network namespaces."""
    trace: str | None = None
    """A directory for the traces of the nodes."""
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
    locality: float = 0.0
    """The share of each node's messages that goes to the group of the nodes whose first ring is its own; the
    others go to a group of all nodes."""
    draining_s: float = 20.0
    """How long messages may take to arrive after the last was sent. A node that was cut off waits that long,
    because some never come to it."""

    @property
    def line(self) -> dict[int, tuple[int, ...]]:
        """The nodes of each ring, by network."""
        return in_a_line(self.nodes, self.rings)

    @property
    def victim(self) -> int:
        """Who is killed, stopped or cut off: the last node; of several rings, the first gateway."""
        return victim_of(self.nodes, self.rings)

    def __post_init__(self) -> None:
        if self.rings != 1:
            assert self.line, "there are nodes enough"
            if self.protocol != RINGS:
                raise ValueError(f"{self.rings} rings: protocol {self.protocol} has one, take {RINGS}")
        if not 1 <= self.nodes <= MOST_NODES:
            raise ValueError(f"{self.nodes} nodes: between 1 and {MOST_NODES} can be measured")
        if self.kill_one and self.nodes < 2:
            raise ValueError("one node alone cannot lose another: take at least 2 nodes")
        if self.stop_one and self.nodes < 2:
            raise ValueError("one node alone cannot miss another: take at least 2 nodes")
        if self.kill_one + self.stop_one + self.cut_one > 1:
            raise ValueError("a node is killed, stopped or cut off: choose one of these")
        if self.cut_one and not self.netns:
            raise ValueError("a node is cut off from others in network namespaces: add --netns")
        if self.cut_one and not self.impairments.none:
            raise ValueError("where a network loses or delays, nobody can be cut off: choose one of the two")
        if not self.impairments.none and not self.netns:
            raise ValueError("a network that loses or delays is one of namespaces: add --netns")
        if not 0.1 <= self.seconds <= 86_400:
            raise ValueError(f"{self.seconds:g} seconds: measure for 0.1 to 86,400")
        if self.rate is not None and not 0 <= self.rate <= 1e6:
            raise ValueError(
                f"{self.rate:g} messages/s: between 0 and 1,000,000, or leave it out for flat out"
            )
        if not 0 <= self.locality <= 1:
            raise ValueError(f"a share of {self.locality:g}: between 0 and 1, 0.9 for 90%")
        if self.locality and self.rings == 1:
            raise ValueError("locality is about several rings: add --rings 3")
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
    """Which node was killed, stopped or cut off."""
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
    def ordered_per_s(self) -> float:
        """Messages ordered in a second, of all nodes together; each counts when its sender delivers it."""
        return sum(node.ordered_per_s for node in self.nodes)

    def counted(self, statistic: str) -> int:
        """What the machines of all nodes counted, together."""
        found: list[Any] = [status["statistics"] for status in self.statuses.values()]
        return sum(int(each.get(statistic, 0)) for each in found)

    @property
    def delivered_per_s(self) -> float:
        """Messages that a node delivers in a second: the median over the nodes."""
        return statistics.median(node.delivered_per_s for node in self.nodes)

    @property
    def far_p50_us(self) -> float:
        """Latency from nodes on other rings: the median over the nodes; 0 if none is so far from others."""
        return statistics.median([node.far_p50_us for node in self.nodes if node.far_samples] or [0.0])

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
            "ordered_per_s": round(self.ordered_per_s, 1),
            "delivered_per_s": self.delivered_per_s,
            "p50_us": statistics.median(node.p50_us for node in self.nodes),
            "p99_us": max(node.p99_us for node in self.nodes),
            "far_p50_us": self.far_p50_us,
            "far_p99_us": max(node.far_p99_us for node in self.nodes),
            "forwarded": self.counted("forwarded"),
            "withheld": self.counted("withheld"),
            "longest_gap_ms": max(node.longest_gap_ms for node in self.nodes),
            "configurations": {str(node): installed for node, installed in self.configurations.items()},
            "loop": self.loop,
            **{
                name: value
                for name, value in plan.items()
                if name not in ("nodes", "kill_one", "trace", "uvloop", "draining_s")
            },
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
        tell(f"starting {plan.nodes} nodes {'in network namespaces' if plan.netns else 'on loopback'}")
        workers = form(plan, processes, tell)
        return _conduct(plan, processes, workers, begin(workers), network, tell)


def form(plan: Plan, processes: Processes, tell: Tell) -> list[Worker]:
    """Start the processes, and wait until they have found each other."""
    workers = processes.start()
    for worker in workers:
        worker.hear(Ready, STARTING_S)
    load = "flat out" if plan.rate is None else f"at {plan.rate:g} messages/s a node"
    tell(f"the group has formed; {plan.size} bytes a message, {load}, for {plan.seconds:g} s")
    return workers


def begin(workers: Iterable[Worker]) -> int:
    """The load begins at all of them in one instant: which, by the monotonic clock, in nanoseconds."""
    begin_ns = time.monotonic_ns() + int(HEAD_START_S * 1e9)
    for worker in workers:
        worker.say(Begin(begin_ns))
    return begin_ns


def _conduct(
    plan: Plan,
    processes: Processes,
    workers: list[Worker],
    begin_ns: int,
    network: Namespaces | None,
    tell: Tell,
) -> Result:
    killed = None
    if plan.kill_one or plan.stop_one:
        _sleep_until(begin_ns, plan.seconds / 2)
        victim = workers.pop(plan.victim - 1)
        killed = victim.node
        victim.process.send_signal(signal.SIGKILL if plan.kill_one else signal.SIGSTOP)
        tell(f"{'killed' if plan.kill_one else 'stopped'} node {killed}")
    elif plan.cut_one and network is not None:
        _sleep_until(begin_ns, plan.seconds / 2)
        killed = plan.victim
        network.split(set(network.nodes) - {killed})
        tell(f"cut off node {killed}")
        _sleep_until(begin_ns, plan.seconds * 3 / 4)
        network.heal()
        tell(f"node {killed} reaches the others again")
    return finish(plan, processes, workers, killed, tell)


def finish(plan: Plan, processes: Processes, workers: list[Worker], killed: int | None, tell: Tell) -> Result:
    """Wait for the end of the load and for the last message, and compare what all delivered."""
    sent = {worker.node: worker.hear(Sent, plan.seconds + ENDING_S).messages for worker in workers}
    total = sum(count for groups in sent.values() for count in groups.values())
    tell(f"{total:,} messages sent; waiting for the last to arrive")
    expected: dict[str, dict[int, int]] = {}
    for node, groups in sent.items():
        for group, count in groups.items():
            expected.setdefault(group, {})[node] = count
    for worker in workers:
        worker.say(Await(expected, plan.draining_s))
    results = {worker.node: worker.hear(WorkerResult, ENDING_S) for worker in workers}
    for worker in workers:
        worker.dismiss()
    return Result(
        plan=plan,
        loop="uvloop" if processes.uvloop else "asyncio",
        nodes=[result.figures for result in results.values()],
        agreement=_compared(results),
        killed=killed,
        lost=max(result.missing for result in results.values()),
        configurations={node: result.configurations for node, result in results.items()},
        statuses={node: result.status for node, result in results.items()},
    )


def _sleep_until(begin_ns: int, seconds: float) -> None:
    """Until so long after the load began."""
    time.sleep(max(0.0, (begin_ns - time.monotonic_ns()) / 1e9 + seconds))


def _compared(results: Mapping[int, WorkerResult]) -> Agreement:
    """Whether all nodes that deliver a group's messages deliver them at the same places, in the same order:
    so any two nodes order what both deliver in the same way."""
    orders: defaultdict[str, OrderComparison] = defaultdict(OrderComparison)
    for node, result in results.items():
        for group, lives in result.lives.items():
            for number, (blocks, ends) in enumerate(lives):
                orders[group].add(Life(node, number), blocks, ends)
    found = {group: order.agreement() for group, order in sorted(orders.items())}
    differences = (
        f"in group {group}, {each.difference}" for group, each in found.items() if each.difference is not None
    )
    return Agreement(
        all(each.equal for each in found.values()),
        sum(each.blocks for each in found.values()),
        sum(each.messages for each in found.values()),
        next(differences, None),
    )


class Processes:
    """The processes of a measurement."""

    def __init__(self, plan: Plan, work: Path, network: Namespaces | None, port: int = DEFAULT_PORT) -> None:
        """In namespaces, they receive at that port."""
        self._plan = plan
        self._port = port
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
        line = {} if plan.rings == 1 else plan.line
        rings = places(line, on_loopback() if network is None else self._address_in_namespace)
        for worker in self._workers:
            host = "127.0.0.1:0" if network is None else f"{network.address(worker.node)}:{self._port}"
            worker.say(
                Job(
                    node=worker.node,
                    nodes=plan.nodes,
                    listen=host,
                    seeds=seeds,
                    rings=rings.get(worker.node, ()),
                    far=far(line, worker.node),
                    local_group=group_of(first_ring(line, worker.node)) if plan.locality else None,
                    locality=plan.locality,
                    data=str(self._work / f"data{worker.node}"),
                    log=str(self._work / f"log{worker.node}") if plan.log else None,
                    trace=plan.trace,
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

    def _address_in_namespace(self, node: int, network: int) -> str:
        assert self._network is not None
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
