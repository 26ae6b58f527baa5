"""A small network inside this machine: one namespace a node, all on a bridge in a namespace of their own.

Node ``i`` has the address ``10.77.0.i`` and sees the others over a virtual cable that can lose packets, and
a bridge that can be split. Nothing outside the namespaces is touched. Needs root and ``ip``.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from ordercast.errors import OrdercastError
from ordercast.measure.relay import Impairments

MOST_NODES = 250
INSTEAD = "leave --netns out to measure on loopback"
_NAMED = Path("/run/netns")
_OURS = re.compile(r"ordercast-(\d+)-\d+-\w+")
_numbers = count(1)


class NoNamespaces(OrdercastError):
    """Network namespaces cannot be made here."""


def missing() -> str | None:
    """Why there can be no namespaces here; None if there can."""
    if os.geteuid() != 0:
        return f"network namespaces need root: run it with sudo, or {INSTEAD}"
    if shutil.which("ip") is None:
        return f"network namespaces need the command ip (Debian: apt-get install iproute2): {INSTEAD}"
    return None


class Namespaces:
    """Network namespaces for nodes 1 to `nodes`, from ``with`` to the end of its block.

    The processes started in them end with the block, however it ends. Names hold the number of this
    process: runs side by side do not meet, and what a killed one left behind is removed by the next.
    """

    def __init__(self, nodes: int) -> None:
        if not 1 <= nodes <= MOST_NODES:
            raise ValueError(f"{nodes} nodes: the network has room for 1 to {MOST_NODES}")
        self.nodes = range(1, nodes + 1)
        self._prefix = f"ordercast-{os.getpid()}-{next(_numbers)}"
        self._hub = f"{self._prefix}-hub"
        self._processes: list[subprocess.Popen[Any]] = []
        self._sides = 1
        self._lossy: set[int] = set()
        self._relay: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Namespaces:
        reason = missing()
        if reason is not None:
            raise NoNamespaces(reason)
        _sweep()
        try:
            with _undisturbed():
                self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def name(self, node: int) -> str:
        """The namespace of a node, as ``ip netns`` knows it."""
        if node not in self.nodes:
            raise ValueError(f"there is no node {node}: they are 1 to {len(self.nodes)}")
        return f"{self._prefix}-n{node}"

    def address(self, node: int) -> str:
        """The node's IPv4 address, the same in all networks of this kind."""
        self.name(node)
        return f"10.77.0.{node}"

    def start(self, node: int, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Run a command at a node; `options` as for `subprocess.Popen`. Its pid is the command's own."""
        process: subprocess.Popen[Any]
        process = subprocess.Popen(["ip", "netns", "exec", self.name(node), *command], **options)
        self._processes.append(process)
        return process

    # --- faults --------------------------------------------------------------------------------

    def lose(self, share: float, nodes: Collection[int] | None = None) -> None:
        """From now on this share of the packets to these nodes (else: to all) is lost; 0 loses none.

        Loss is drawn for each packet and receiver: cables that lose do not carry many packets as one.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"a share of {share}: it is between 0 and 1, 0.05 for 5%")
        chosen = self.nodes if nodes is None else nodes
        for node in chosen:
            self._stop_losing(node)
            if share:
                self._begin_losing(node, share)
        most = 1 if self._lossy else 65535  # many packets carried as one would be lost as one
        for sender in self.nodes:
            _ip(self.name(sender), f"link set v0 gso_max_segs {most}")

    def split(self, *sides: Collection[int]) -> None:
        """From now on only nodes of the same side reach each other; a node on no side reaches nobody."""
        self._stop_relay()
        placed = [node for side in sides for node in side]
        if len(set(placed)) < len(placed):
            raise ValueError(f"a node is on two sides: {[sorted(side) for side in sides]}")
        alone = [{node} for node in self.nodes if node not in placed]
        moves = []
        for number, side in enumerate([*sides, *alone]):
            if number == self._sides:
                self._sides += 1
                moves += [f"link add br{number} type bridge mcast_snooping 0", f"link set br{number} up"]
            for node in side:
                self.name(node)
                moves.append(f"link set p{node} master br{number}")
        _ip(self._hub, *moves)

    def heal(self) -> None:
        """All reach all again."""
        self.split(self.nodes)

    def impair(self, impairments: Impairments, seed: int = 1) -> None:
        """From now on a relay stands between the nodes, and does that to what passes; a split ends it."""
        self._stop_relay()
        if impairments.none:
            self.heal()
            return
        for node in self.nodes:  # a relay sees the datagrams themselves, not many of them as one
            _ip(self.name(node), "link set v0 gso_max_segs 1")
        _ip(self._hub, *(f"link set p{node} nomaster" for node in self.nodes))
        told = [msgspec.json.encode(impairments).decode(), str(seed), *(f"p{node}" for node in self.nodes)]
        command = ["ip", "netns", "exec", self._hub, sys.executable, "-m", "ordercast.measure.relay", *told]
        self._relay = subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0)
        self._processes.append(self._relay)
        assert self._relay.stdout is not None
        if self._relay.stdout.readline() != b"ready\n":
            raise NoNamespaces(f"the relay between the namespaces did not start: {INSTEAD}")

    def _stop_relay(self) -> None:
        relay, self._relay = self._relay, None
        if relay is not None:
            relay.kill()
            relay.wait()

    def _begin_losing(self, node: int, share: float) -> None:
        # Classic BPF, as in the kernel's filter.txt: take a random number; below the share it is a match,
        # and goes to a bridge that leads nowhere. (netem does the same, where the kernel has it.) Only IP:
        # a lost question for an address is asked again a whole second later.
        program = f"4,32 0 0 {0xFFFFF000 + 56},53 1 0 {int(share * 0xFFFFFFFF)},6 0 0 {0xFFFFFFFF},6 0 0 0"
        _run("tc", "-n", self._hub, "qdisc", "add", "dev", f"p{node}", "clsact")
        self._lossy.add(node)
        _run(
            *("tc", "-n", self._hub, "filter", "add", "dev", f"p{node}", "egress", "protocol", "ip"),
            *("bpf", "bytecode", program, "action", "mirred", "egress", "redirect", "dev", "hole"),
        )

    def _stop_losing(self, node: int) -> None:
        self.name(node)
        if node in self._lossy:
            _run("tc", "-n", self._hub, "qdisc", "del", "dev", f"p{node}", "clsact")
            self._lossy.discard(node)

    # --- from nothing, and to nothing ----------------------------------------------------------

    def _build(self) -> None:
        _run("ip", "netns", "add", self._hub)
        _ip(
            self._hub,
            "link add br0 type bridge mcast_snooping 0",
            "link set br0 up",
            "link add hole type bridge",  # a bridge to nowhere: what goes there is lost
            "link set hole up",
        )
        for node in self.nodes:
            name = self.name(node)
            _run("ip", "netns", "add", name)
            _ip(
                name,
                "link set lo up",
                f"link add v0 type veth peer name p{node} netns {self._hub}",
                f"addr add {self.address(node)}/24 dev v0",
                "link set v0 up",
                "route add 224.0.0.0/4 dev v0",
            )
            _ip(self._hub, f"link set p{node} master br0 up")

    def _remove(self) -> None:
        with _undisturbed():
            for process in self._processes:
                if process.poll() is None:
                    process.kill()
                process.wait()
            self._processes.clear()
            for name in (*map(self.name, self.nodes), self._hub):
                _delete(name)


def _sweep() -> None:
    """Remove what processes that are no more have left behind."""
    for path in _NAMED.glob("ordercast-*"):
        match = _OURS.fullmatch(path.name)
        if match and not Path(f"/proc/{match[1]}").exists():
            _delete(path.name)


def _delete(name: str) -> None:
    if not (_NAMED / name).exists():
        return
    # Processes that others started there would keep the namespace alive without a name.
    inside = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    for pid in map(int, inside.stdout.split()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


def _ip(namespace: str, *lines: str) -> None:
    _run("ip", "-n", namespace, "-batch", "-", typed="".join(line + "\n" for line in lines))


def _run(*command: str, typed: str = "") -> None:
    done = subprocess.run(command, input=typed, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        what = " ".join(command) + (f" ({'; '.join(typed.splitlines())})" if typed else "")
        raise NoNamespaces(f"the network could not be made, {what} failed: {said}; {INSTEAD}")


@contextmanager
def _undisturbed() -> Iterator[None]:
    """An interrupt waits until the block is done: nothing is left half made."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
