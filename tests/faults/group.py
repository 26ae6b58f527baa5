"""A group of real processes: started, killed, stopped, cut off, and compared in the end.

Nothing here measures the machine: what is awaited is a state, with patience that a busy machine cannot
exhaust. `Cluster.conclude` is the end of every test: all are whole again, all tell the same story, the logs
hold no exception, and the auditor finds nothing in the run's trace.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable
from itertools import count, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from forked import Forked
from worker import Job

from ordercast.audit.properties import audit_runs
from ordercast.trace.reader import read_runs

PATIENCE_S = float(os.environ.get("ORDERCAST_PATIENCE", "60"))
"""How long a state is waited for before it is said that it does not come."""
POLL_S = 0.03
HERE = Path(__file__).parent
_numbers = count(1)


def wait_until(true: Callable[[], Any], what: str | Callable[[], str], patience_s: float = PATIENCE_S) -> Any:
    """Poll until it is true, whatever time that takes; answers with what was true."""
    until = time.monotonic() + patience_s
    while not (found := true()):
        if time.monotonic() > until:
            raise AssertionError(
                f"after {patience_s:g} s still not: {what if isinstance(what, str) else what()}"
            )
        time.sleep(POLL_S)
    return found


class Member:
    """One process, of one life of a node."""

    def __init__(self, process: subprocess.Popen[bytes] | Forked, job: Job, log: Path) -> None:
        self.process = process
        self.job = job
        self.node = job.node
        self.log = log
        self.spawned = time.monotonic()
        self.events: list[dict[str, Any]] = []
        self.configuration: dict[str, Any] = {"id": "", "kind": "", "members": []}
        """The last that it told of."""
        self.regular: list[dict[str, Any]] = []
        """All regular ones."""
        self._answers: dict[int, dict[str, Any]] = {}
        self._heard = threading.Condition()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = msgspec.json.decode(line)
            with self._heard:
                if said["event"] == "answer":
                    self._answers[said["to"]] = said
                elif said["event"] == "configuration":
                    self.configuration = said
                    if said["kind"] == "regular":
                        self.regular.append(said)
                else:
                    self.events.append(said)
                self._heard.notify_all()

    # --- what it said ----------------------------------------------------------------------------

    def said(self, *events: str) -> dict[str, Any] | None:
        """The last that it said of these."""
        return next((said for said in reversed(self.events) if said["event"] in events), None)

    def await_word(self, *events: str) -> dict[str, Any]:
        """Wait for one of these."""

        def word() -> dict[str, Any] | None:
            if self.gone:
                self._listener.join()
                return self.said(*events) or {"event": "nothing"}
            return self.said(*events)

        told: dict[str, Any] = wait_until(
            word, f"node {self.node} says {' or '.join(events)}; its log: {self.log}"
        )
        assert told["event"] in events, f"node {self.node} ended: {self.events[-1:]}, see {self.log}"
        return told

    @property
    def ready(self) -> dict[str, Any]:
        return self.await_word("ready", "failed")

    @property
    def address(self) -> str:
        return str(self.ready["address"])

    # --- orders ----------------------------------------------------------------------------------

    def tell(self, do: str, **more: Any) -> int:
        """Give an order; the answer's number."""
        number = next(_numbers)
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode({"do": do, "number": number, **more}) + b"\n")
        self.process.stdin.flush()
        return number

    def answer(self, number: int) -> dict[str, Any]:
        """Wait for the answer of that number."""
        with self._heard:
            assert self._heard.wait_for(lambda: number in self._answers or self.gone, PATIENCE_S), (
                f"node {self.node} does not answer, see {self.log}"
            )
        assert number in self._answers, f"node {self.node} is gone: {self.events[-1:]}, see {self.log}"
        return self._answers[number]

    def order(self, do: str, **more: Any) -> dict[str, Any]:
        """Give an order and wait until it is carried out."""
        return self.answer(self.tell(do, **more))

    def report(self) -> dict[str, Any]:
        return self.order("report")

    @property
    def drops(self) -> dict[str, int]:
        return dict(self.report()["status"]["drops"])

    # --- faults ----------------------------------------------------------------------------------

    @property
    def gone(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        """kill -9"""
        self.process.kill()
        self.process.wait()
        self._listener.join()

    def stop(self) -> None:
        """SIGSTOP; returns once it has really stopped."""
        self.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: _state(self.process.pid) == "T", "the process stands still")

    def go_on(self) -> None:
        """SIGCONT"""
        self.process.send_signal(signal.SIGCONT)

    def leave(self) -> int:
        """Have it leave, telling the others; its exit code."""
        self.tell("leave")
        code = self.process.wait(PATIENCE_S)
        self._listener.join()
        return code


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class Cluster:
    """The processes of one test, and their directories."""

    worker = "worker"
    """The module, beside this one, that the processes run."""

    def __init__(self, directory: Path, network: Any = None, **defaults: Any) -> None:
        """`network`: namespaces, one a node. `defaults`: fields of a `Job` for all."""
        self.directory = directory
        self.trace = directory / "trace"
        self.members: dict[int, Member] = {}
        """The latest life of each node."""
        self.logs: list[Path] = []
        self._network = network
        self._defaults = defaults
        self._lives = count(1)
        self._beside: list[Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in (*self.members.values(), *self._beside):
            if not member.gone:
                member.kill()
            for pipe in (member.process.stdin, member.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    # --- starting --------------------------------------------------------------------------------

    def start(self, node: int, **more: Any) -> Member:
        """A life of a node: at the address and with the data of the one before, if there was one."""
        before = self.members.get(node)
        fields: dict[str, Any] = {
            "node": node,
            "listen": before.address if before is not None and before.said("ready") else self._listen(node),
            "seeds": self._seeds(node),
            "data": str(self.directory / f"data-{node}"),
            "trace": str(self.trace),
            **self._defaults,
            **more,
        }
        self.members[node] = self.spawn(Job(**fields))
        return self.members[node]

    def spawn_beside(self, member: Member, **more: Any) -> Member:
        """A second process with the job of a member, but for these fields. The group does not count on it."""
        copy = msgspec.structs.replace(
            member.job, **{"listen": "127.0.0.1:0", "seeds": [member.address], **more}
        )
        self._beside.append(self.spawn(copy))
        return self._beside[-1]

    def spawn(self, job: Job) -> Member:
        """The process of a life."""
        log = self.directory / f"node-{job.node}-{next(self._lives)}.log"
        self.logs.append(log)
        told = msgspec.json.encode(job).decode()
        if self._network is None:
            return Member(Forked(self.worker, told, log), job, log)
        with log.open("wb") as stderr:
            options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": stderr}
            script = str(HERE / f"{self.worker}.py")
            process = self._network.start(job.node, [sys.executable, script, told], **options)
        return Member(process, job, log)

    def _listen(self, node: int) -> str:
        return "127.0.0.1:0" if self._network is None else f"{self._network.address(node)}:4801"

    def _seeds(self, node: int) -> list[str]:
        if self._network is not None:
            return [f"{self._network.address(1)}:4801", f"{self._network.address(2)}:4801"]
        return [
            str(ready["address"])
            for other in self.members.values()
            if other.node != node and (ready := other.said("ready")) is not None
        ]

    def start_all(self, nodes: int, **more: Any) -> list[Member]:
        """Nodes 1 to `nodes`, and wait until they share a ring."""
        if self._network is None and 1 not in self.members:
            self.start(1, **more).await_word("ready")
        for node in range(1, nodes + 1):
            if node not in self.members:
                self.start(node, **more)
        self.await_whole()
        return [self.members[node] for node in range(1, nodes + 1)]

    # --- states ----------------------------------------------------------------------------------

    @property
    def living(self) -> list[Member]:
        return [member for _, member in sorted(self.members.items()) if not member.gone]

    def await_whole(self, members: Iterable[Member] | None = None) -> float:
        """Until these (else: all that live) share a regular configuration; when the last installed it."""
        chosen = self.living if members is None else list(members)
        nodes = [member.node for member in chosen]

        def whole() -> bool:
            found = [member.configuration for member in chosen]
            return (
                all(one["kind"] == "regular" and sorted(one["members"]) == nodes for one in found)
                and len({one["id"] for one in found}) == 1
            )

        wait_until(whole, lambda: f"{nodes} share a ring: {[(m.node, m.configuration) for m in chosen]}")
        return max(float(member.configuration["at"]) for member in chosen)

    def await_configuration(self, member: Member, nodes: Collection[int]) -> None:
        """Until the member shares a regular configuration with exactly these."""
        wait_until(
            lambda: (
                member.configuration["kind"] == "regular"
                and set(member.configuration["members"]) == set(nodes)
            ),
            lambda: (
                f"node {member.node} is in a configuration of {sorted(nodes)}, not {member.configuration}"
            ),
        )

    def await_progress(self, messages: int = 50, members: Iterable[Member] | None = None) -> None:
        """Until each of these has delivered so many more."""
        chosen = self.living if members is None else list(members)
        due = {member.node: member.report()["count"] + messages for member in chosen}

        def done() -> bool:
            return all(member.report()["count"] >= due[member.node] for member in chosen)

        wait_until(done, f"each delivers {messages} messages more: {due}")

    # --- the end ---------------------------------------------------------------------------------

    def settle(self) -> list[dict[str, Any]]:
        """Whole, nobody sends, and everybody has everything that the living have sent; their reports."""
        living = self.living
        for member in living:
            member.order("rate", rate=0)
        self.await_whole()
        for member in living:
            member.order("send", count=1)  # also for those who have just come, and know nothing of the rest

        def settled() -> list[dict[str, Any]] | None:
            reports = [member.report() for member in living]
            sent = {_life(report): report["sent"] for report in reports}
            for report in reports:
                if any(report["last"].get(life) != number for life, number in sent.items()):
                    return None
            return reports

        reports: list[dict[str, Any]] = wait_until(settled, "everybody delivers what everybody sent")
        return reports

    def conclude(self) -> list[dict[str, Any]]:
        """All whole, all of one story, no exception, and a clean trace. Ends the processes."""
        reports = self.settle()
        check_stories([*reports, *self._last_words()])
        for member in self.living:
            member.kill()
        self.check_logs()
        self.check_trace()
        return reports

    def _last_words(self) -> list[dict[str, Any]]:
        return [
            said for member in self.members.values() if (said := member.said("left", "ended")) is not None
        ]

    def check_logs(self) -> None:
        for log in self.logs:
            if not log.exists():
                continue  # it was killed before it said anything
            text = log.read_text(errors="replace")
            assert "Traceback" not in text, f"{log}:\n{text[-3000:]}"
            assert "CRITICAL" not in text, f"{log}:\n{text[-3000:]}"

    def check_trace(self) -> None:
        report = audit_runs(read_runs(self.trace))
        assert report.events > 0
        assert report.clean, "\n".join(violation.sentence for violation in report.violations)


def _life(report: dict[str, Any]) -> str:
    return f"{report['status']['node']}.{report['status']['incarnation']}"


def check_stories(reports: list[dict[str, Any]]) -> None:
    """Nobody saw anything odd, and who went from one configuration to the same next delivered the same."""
    for report in reports:
        assert not report["problems"], report["problems"]
    stories: dict[tuple[str, str], set[tuple[int, str]]] = {}
    for report in reports:
        spans = report["spans"]
        for span, after in pairwise(spans[1:]):  # the first was joined in its middle
            stories.setdefault((span["id"], after["id"]), set()).add((span["count"], span["digest"]))
    for (begin, end), told in stories.items():
        assert len(told) == 1, f"from {begin} to {end} members delivered different messages: {told}"
