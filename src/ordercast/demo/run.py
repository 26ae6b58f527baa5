"""The demo, step by step: what is done to the group, and what is waited for.

Nothing waits for a time alone: a step is over when the nodes report that they are where they should be, and
messages have flowed for a while. If that does not happen, the log of the node it hangs on is shown.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ordercast.audit.explain import Report as Audit
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.demo.messages import SAFE_EVERY, Close, Job, Leave, Report, StartSending, StopSending
from ordercast.demo.processes import DemoFailed, Process, Processes, State
from ordercast.keys import create
from ordercast.measure.agreement import CommonDigests, ConfigurationOrder, Life, OrderComparison
from ordercast.measure.rings import in_a_line, on_loopback, places, victim_of, without
from ordercast.runtime.storage import DataDirectory

SCENE_TIMEOUT_S = 90.0
"""Seconds that a scene of the demo may take; one that takes longer has failed."""
LOOK_S = 0.1
"""Seconds between two looks at the processes."""
SHARES = {"flow": 0.25, "kill": 0.2, "restart": 0.15, "stop": 0.2, "resume": 0.2}
"""How the time in which messages flow is divided among the steps."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be shown."""

    nodes: int = 5
    seconds: float = 12.0
    """How long messages flow, beside what the changes take."""
    rate: float = 200.0
    """Messages/s that each node sends."""
    protocol: str = "totem"
    rings: int = 1
    """How many rings the nodes are on, in a line, with a gateway between neighbours."""

    @property
    def on_rings(self) -> dict[int, tuple[NodeId, ...]]:
        """The nodes of each ring."""
        return in_a_line(self.nodes, self.rings)

    @property
    def killed(self) -> NodeId:
        """The node that is killed: the last one; of several rings, the first gateway."""
        return victim_of(self.nodes, self.rings)

    @property
    def stopped(self) -> NodeId:
        """The node that is stopped: the one in the middle."""
        return (self.nodes + 1) // 2


class Step(msgspec.Struct):
    """Something that is done, and what came of it."""

    name: str
    caption: str
    outcome: str = ""
    took_s: float = 0.0
    """From the blow until the group is as it should be."""
    gap_s: float = 0.0
    """The longest time that a node which was left in peace was without a delivery."""


class Observer(Protocol):
    """Who is shown what happens during the demo."""

    def begins(self, step: Step) -> None:
        """A step begins."""

    def ends(self, step: Step) -> None:
        """A step ends: its outcome is known."""

    def look(self, run: DemoRun) -> None:
        """Reports of the processes were read: something may have changed."""


class Result(msgspec.Struct, kw_only=True):
    """What was shown, and what it proves."""

    plan: Plan
    steps: list[Step]
    order: list[ConfigurationOrder]
    nodes: list[dict[str, Any]]
    audit: Audit
    took_s: float

    @property
    def order_equal(self) -> bool:
        """All nodes delivered the same order, for as long as each was there."""
        return bool(self.order) and all(each.same for each in self.order)

    @property
    def good(self) -> bool:
        """All nodes delivered the same order, and the audit of their traces found nothing."""
        return self.order_equal and self.audit.clean

    def as_dict(self) -> dict[str, Any]:
        """For programs: the names are part of the interface of `ordercast demo`."""
        return {
            "nodes": self.nodes,
            "steps": [
                {
                    "step": step.name,
                    "caption": step.caption,
                    "outcome": step.outcome,
                    "took_ms": round(step.took_s * 1e3, 1),
                    "longest_gap_ms": round(step.gap_s * 1e3, 1),
                }
                for step in self.steps
            ],
            "configurations": [
                {
                    "configuration": each.configuration._asdict(),
                    "members": list(each.members),
                    "messages": each.messages,
                    "same": each.same,
                    "delivered": msgspec.to_builtins(each.entries),
                }
                for each in self.order
            ],
            "order_equal": self.order_equal,
            "audit": self.audit.as_dict(),
            "protocol": self.plan.protocol,
            "rings": self.plan.rings,
            "rate": self.plan.rate,
            "seconds": self.plan.seconds,
            "took_s": round(self.took_s, 1),
        }


class DemoRun:
    """One run of the demo."""

    def __init__(self, plan: Plan, directory: Path, observer: Observer) -> None:
        self.plan = plan
        self.directory = directory
        self.processes = Processes(plan.nodes, directory)
        self.order = OrderComparison()
        self.steps: list[Step] = []
        self.counts: dict[Life, Report] = {}
        """The last report of each life."""
        self._observer = observer
        self._begun = time.monotonic()
        self._steady: tuple[NodeId, ...] = ()
        self._addresses: dict[NodeId, str] = {}
        self._places = places(plan.on_rings, on_loopback()) if plan.rings > 1 else {}

    def perform(self) -> None:
        """Perform all steps. No process is left when this returns, or raises."""
        try:
            self._prepare()
            self._form()
            self._flow()
            self._kill()
            self._restart()
            self._stop()
            self._resume()
            self._leave()
        finally:
            self.processes.end()

    # --- the steps -------------------------------------------------------------------------------

    def _prepare(self) -> None:
        create(self.directory / "group.key")
        for node in self.processes.nodes:
            DataDirectory.initialise(self._data(node), node)

    def _form(self) -> None:
        first, *others = self.processes.nodes
        step = self._begin(
            "form", f"{counted(len(self.processes.nodes))} processes start and look for each other"
        )
        self._start(first, early=True)
        self._until(lambda: first in self._addresses, (first,), "the first node to start")
        for node in others:
            self._start(node, early=True)
        self._together(self.processes.nodes)
        step.took_s = self._since(self._begun, self.processes.nodes)
        self._end(step, f"they form a group after {written(step.took_s)}")

    def _flow(self) -> None:
        rate = f"{self.plan.rate:,g} messages a second"
        step = self._begin("flow", f"Each sends {rate}, one in {counted(SAFE_EVERY).lower()} of them safe")
        for process in self._running():
            process.say(StartSending())
        self._until(
            lambda: all(process.last and process.last.delivered for process in self._running()),
            self.processes.nodes,
            "messages to arrive",
        )
        self._dwell(step)
        delivered = statistics.median(process.rate for process in self._running())
        self._end(step, f"each delivers {delivered:,.0f} a second, in one order")

    def _kill(self) -> None:
        victim = self.plan.killed
        what = f"Node {victim}" if self.plan.rings == 1 else f"Node {victim}, a gateway,"
        step = self._begin("kill", f"{what} is killed with -9, in the middle of it", spared=victim)
        blow = time.monotonic()
        self.processes.by_node[victim].kill()
        parts = without(self.plan.on_rings, victim)
        for part in parts:
            self._together(part)
        step.took_s = self._since(blow, self._but(victim))
        self._dwell(step)
        whole = "the others go on" if len(parts) == 1 else f"{counted(len(parts)).lower()} parts go on"
        self._end(step, f"{whole} without it after {written(step.took_s)}")

    def _restart(self) -> None:
        victim = self.plan.killed
        step = self._begin("restart", f"Node {victim} is started again", spared=victim)
        blow = time.monotonic()
        process = self._start(victim, early=False)
        self._together(self.processes.nodes)
        step.took_s = self._since(blow, self.processes.nodes)
        process.say(StartSending())
        self._dwell(step)
        assert process.life is not None
        life = f"node {victim}, incarnation {process.life.incarnation}"
        self._end(step, f"it is back as {life}, after {written(step.took_s)}")

    def _stop(self) -> None:
        victim = self.plan.stopped
        step = self._begin("stop", f"Node {victim} is stopped, like a laptop that is closed", spared=victim)
        blow = time.monotonic()
        self.processes.by_node[victim].stop()
        self._together(self._but(victim))
        step.took_s = self._since(blow, self._but(victim))
        self._dwell(step)
        self._end(step, f"the others go on without it after {written(step.took_s)}")

    def _resume(self) -> None:
        victim = self.plan.stopped
        step = self._begin("resume", f"Node {victim} goes on, as if nothing had happened", spared=victim)
        blow = time.monotonic()
        process = self.processes.by_node[victim]
        before = process.life
        process.resume()
        self._together(self.processes.nodes)
        step.took_s = self._since(blow, self.processes.nodes)
        self._dwell(step)
        life = process.life
        back = "back" if life is None or life == before else f"back as incarnation {life.incarnation}"
        self._end(step, f"it finds out, and is {back} after {written(step.took_s)}")

    def _leave(self) -> None:
        step = self._begin("leave", "Nobody sends any more, and when all has arrived, everyone leaves")
        processes = self.processes.by_node.values()
        blow = time.monotonic()
        for process in processes:
            process.say(StopSending())
        self._until(self._drained, self.processes.nodes, "the last messages to arrive everywhere")
        step.took_s = time.monotonic() - blow
        for process in processes:
            process.say(Close())
        self._until(
            lambda: all(process.last and process.last.closed for process in processes),
            self.processes.nodes,
            "the nodes' last words",
        )
        for process in processes:
            process.say(Leave())
            process.state = State.LEAVING
        self._until(
            lambda: all(process.state is State.GONE for process in processes),
            self.processes.nodes,
            "all to leave",
        )
        self._end(step, f"the last message had arrived everywhere after {written(step.took_s)}")

    # --- what the steps are made of ---------------------------------------------------------------

    def _begin(self, name: str, caption: str, spared: NodeId | None = None) -> Step:
        """A step; the one that something is done to is not asked how long it had to wait."""
        step = Step(name, caption)
        self.steps.append(step)
        self._steady = () if name in ("form", "leave") else self._but(spared)
        self._observer.begins(step)
        return step

    def _end(self, step: Step, outcome: str) -> None:
        step.outcome = outcome
        self._observer.ends(step)

    def _start(self, node: NodeId, early: bool) -> Process:
        process = self.processes.start(node)
        process.say(
            Job(
                data=str(self._data(node)),
                seeds=tuple(address for other, address in self._addresses.items() if other != node),
                rings=self._places.get(node, ()),
                key=str(self.directory / "group.key"),
                trace=str(self.trace),
                protocol=self.plan.protocol,
                rate=self.plan.rate,
                early=early,
            )
        )
        return process

    @property
    def trace(self) -> Path:
        """Where the nodes write what they did."""
        return self.directory / "trace"

    def _data(self, node: NodeId) -> Path:
        return self.directory / f"node{node}"

    def _but(self, victim: NodeId | None) -> tuple[NodeId, ...]:
        return tuple(node for node in self.processes.nodes if node != victim)

    def _running(self) -> list[Process]:
        return [process for process in self.processes.by_node.values() if process.state is State.RUNNING]

    def _together(self, nodes: Sequence[NodeId]) -> ConfigurationId:
        """Wait until these, and nobody else, share a configuration."""
        since = time.monotonic()

        def together() -> bool:
            reports = [self.processes.by_node[node].last for node in nodes]
            return (
                all(
                    report is not None
                    and report.at_s > since
                    and report.regular
                    and report.members == tuple(nodes)
                    for report in reports
                )
                and len({report.configuration for report in reports if report is not None}) == 1
            )

        self._until(together, nodes, f"nodes {', '.join(map(str, nodes))} to share a configuration")
        report = self.processes.by_node[nodes[0]].last
        assert report is not None
        return report.configuration

    def _since(self, blow: float, nodes: Collection[NodeId]) -> float:
        """From an instant until the last of these had installed its present configuration."""
        reports = (self.processes.by_node[node].last for node in nodes)
        return max(report.installed_s for report in reports if report is not None) - blow

    def _drained(self) -> bool:
        """Everyone has delivered its own messages, all are in one configuration and equally far in it."""
        reports = [process.last for process in self.processes.by_node.values()]
        told = [report for report in reports if report is not None and not report.flowing]
        return (
            len(told) == len(reports)
            and all(report.own == report.sent for report in told)
            and len({(report.configuration, report.place) for report in told}) == 1
            and all(report.regular and report.members == self.processes.nodes for report in told)
        )

    def _dwell(self, step: Step) -> None:
        """Let messages flow for the step's share of the time."""
        until = time.monotonic() + SHARES[step.name] * self.plan.seconds
        while time.monotonic() < until:
            self._look()

    def _until(self, true: Callable[[], bool], nodes: Collection[NodeId], what: str) -> None:
        """Wait for something that the reports of these nodes will tell."""
        deadline = time.monotonic() + SCENE_TIMEOUT_S
        while not true():
            if time.monotonic() > deadline:
                raise self._in_vain(what, nodes)
            self._look()

    def _look(self) -> None:
        """Hear what there is, and show it."""
        for process, report in self.processes.hear(LOOK_S):
            process.note(report)
            if report is None:
                continue
            life = Life(report.node, report.incarnation)
            self.order.add(life, report.blocks, report.ends)
            self.counts[life] = report
            self._addresses[report.node] = report.address
            if report.node in self._steady:
                self.steps[-1].gap_s = max(self.steps[-1].gap_s, report.gap_s)
        self._observer.look(self)

    def _in_vain(self, what: str, nodes: Collection[NodeId]) -> DemoFailed:
        """With the log of the node that was heard of least."""
        there = [self.processes.by_node[node] for node in nodes if node in self.processes.by_node]
        for process in there:
            if process.last is None:
                return process.failed(f"kept the demo waiting for {what}: it has reported nothing")
        seen = ", ".join(
            f"{process.node} ({process.state}) sees {' '.join(map(str, process.last.members))}"
            for process in there
            if process.last is not None
        )
        suspect = min(there, key=lambda process: len(process.last.members) if process.last else 0)
        return suspect.failed(f"may be why the demo waited {SCENE_TIMEOUT_S:g} s in vain for {what}: {seen}")

    # --- what can be seen ------------------------------------------------------------------------

    def common(self) -> CommonDigests | None:
        """How the nodes that share most of a configuration compare, up to where all of them are."""
        lives: dict[ConfigurationId, list[Life]] = {}
        for process in self._running():
            if process.last is not None and process.life is not None and process.last.regular:
                lives.setdefault(process.last.configuration, []).append(process.life)
        if not lives:
            return None
        configuration = max(lives, key=lambda each: len(lives[each]))
        return self.order.common(configuration, lives[configuration])

    def judge(self, audit: Callable[[Path], Audit]) -> Result:
        """What it proves: the nodes' orders side by side, and the audit of the trace that they wrote."""
        report = audit(self.trace)
        nodes = []
        for node in self.processes.nodes:
            lives = [report for life, report in sorted(self.counts.items()) if life.node == node]
            nodes.append(
                {
                    "node": node,
                    "lives": len(lives),
                    "sent": sum(report.sent for report in lives),
                    "delivered": sum(report.delivered for report in lives),
                    "safe": sum(report.safe for report in lives),
                }
            )
        return Result(
            plan=self.plan,
            steps=self.steps,
            order=self.order.configurations(),
            nodes=nodes,
            audit=report,
            took_s=time.monotonic() - self._begun,
        )


def counted(number: int) -> str:
    """A small number in a word, to begin a sentence with."""
    words = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
    return words[number] if number < len(words) else str(number)


def written(seconds: float) -> str:
    """A duration in words."""
    return f"{seconds * 1e3:,.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"
