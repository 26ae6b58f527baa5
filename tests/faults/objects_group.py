"""Three processes with a map on disk each, to be killed, stopped and cut off; what their clients were
answered, and whether it is still there."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from group import Cluster, Member, wait_until
from objects_worker import NAME, ObjectJob

from free_ports import free_address
from ordercast.testing import Call

NODES = (1, 2, 3)
Rows = dict[str, tuple[str, int]]
"""The contents of a map: by key, value and revision."""


class Objects(Cluster):
    """The processes, of all lives of the nodes, and what clients noted in them."""

    worker = "objects_worker"

    def __init__(
        self, directory: Path, network: Any = None, *, protocol: str = "totem", **defaults: Any
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory, network)
        self._jobs = defaults
        self._options: dict[str, Any] = {"protocol": protocol, "voters": NODES}
        if protocol == "totem":
            self._options["primary"] = "majority"
        ports = [free_address().rpartition(":")[2] for _ in NODES]
        hosts = ["127.0.0.1" if network is None else network.address(node) for node in NODES]
        self._addresses = {
            node: f"{host}:{port}" for node, host, port in zip(NODES, hosts, ports, strict=True)
        }
        self._begun = 0
        self._read = 0
        self.calls: list[Path] = []
        """Files with what clients noted, of each life one."""

    def durable(self, node: int) -> Path:
        """The files of the map at a node."""
        return self.directory / f"objects-{node}" / NAME

    def start(self, node: int, **more: Any) -> Member:
        """A life of a node."""
        self.calls.append(self.directory / f"calls-{len(self.calls)}")
        fields: dict[str, Any] = {
            "node": node,
            "listen": self._addresses[node],
            "seeds": list(self._addresses.values()),
            "data": str(self.directory / f"data-{node}"),
            "trace": None,
            "durable": str(self.directory / f"objects-{node}"),
            "calls": str(self.calls[-1]),
            "options": self._options,
            **self._jobs,
            **more,
        }
        self.members[node] = self.spawn(ObjectJob(**fields))
        return self.members[node]

    def ready(self, *nodes: int) -> list[Member]:
        """These, when they have the object."""
        members = [self.members[node] for node in nodes]
        for member in members:
            said = member.ready
            assert said["event"] == "ready", f"node {member.node} refuses: {said}, see {member.log}"
        return members

    def kill(self, *nodes: int) -> None:
        """kill -9 of all of them at once."""
        members = [self.members[node] for node in nodes if node in self.members]
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                member.process.send_signal(signal.SIGKILL)
        for member in members:
            member.kill()

    def dump(self, *nodes: int) -> Rows:
        """What the map holds at these nodes, which is the same at all of them: nobody calls meanwhile."""
        members = self.ready(*nodes)
        asked = [member.tell("dump") for member in members]
        found = [member.answer(number)["rows"] for member, number in zip(members, asked, strict=True)]
        for one, other in pairwise(found):
            assert one == other, f"replicas differ: {difference(one, other)}; see {self.directory}"
        return {key: (value, revision) for key, (value, revision) in found[0].items()}

    def noted(self) -> list[Noted]:
        """What clients noted since this was asked last, in processes that have ended."""
        files, self._read = self.calls[self._read :], len(self.calls)
        return [call for path in files if path.exists() for call in read_calls(path)]


def difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """A few keys that are not the same."""
    keys = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
    return ", ".join(f"{key}: {one.get(key)} and {other.get(key)}" for key in keys[:3])


class Noted(NamedTuple):
    """A call, and which part of the state it is of: a key, or a lock."""

    part: str
    call: Call


def read_calls(path: Path) -> list[Noted]:
    """What the clients of one process called. What was refused is left out: it did not happen.

    Locks are released some time after their holders knew last that they held them: a lease ends by itself."""
    found: dict[int, Noted] = {}
    held: dict[int, float] = {}
    rows = path.read_bytes().split(b"\n")
    for row in rows[:-1]:  # the last is empty, or was being written
        kind, number, *more = msgspec.json.decode(row)
        if kind == "begin":
            client, part, name, args, began = more
            call = Call(client=client, name=name, args=tuple(args), began=began)
            found[number] = Noted(part, call)
        elif kind == "end":
            part, call = found[number]
            result, ended = more
            found[number] = Noted(part, msgspec.structs.replace(call, result=result, ended=ended))
            held[number] = ended
        elif kind == "held":
            (held[number],) = more
        else:
            del found[number]
    for number, (part, call) in list(found.items()):
        if call.name == "acquire":
            since = held.get(number, call.began)
            found[-number] = Noted(
                part, Call(client=call.client, name="release", args=call.args, began=since)
            )
    return list(found.values())


# --- what was answered is there -------------------------------------------------------------------


class Books:
    """What each key may hold, by what was answered, where one client at a time writes a key."""

    def __init__(self) -> None:
        self._may: dict[str, set[str | None]] = {}
        self.answered = 0

    def add(self, noted: Iterable[Noted]) -> None:
        """All that clients wrote since `check`, in processes that have ended."""
        unanswered: dict[str, set[str | None]] = defaultdict(set)  # each may be carried out later
        for key, call in sorted(noted, key=lambda each: each.call.began):
            new = call.args[1] if call.name == "put" else None
            if call.ended is None:
                unanswered[key].add(new)
                self._may.setdefault(key, {None}).add(new)
            else:
                self._may[key] = {new, *unanswered[key]}
                self.answered += 1

    def check(self, rows: Rows) -> None:
        """Hold the contents of the map against it: from now on it is what the keys hold."""
        for key in self._may.keys() | rows.keys():
            value = rows[key][0] if key in rows else None
            may = self._may.get(key, {None})
            assert value in may, f"{key} holds {value!r}, and it may hold {may} by what was answered"
            self._may[key] = {value}


def check_revisions(noted: Iterable[Noted]) -> None:
    """Each write has a later revision than all that were answered before it was called."""
    writes = [
        call for _, call in noted if call.name == "put" and call.ended is not None and call.result is not None
    ]
    assert len({call.result for call in writes}) == len(writes), "two writes have one revision"
    ended = sorted(writes, key=lambda call: call.ended or 0)
    latest, at = 0, 0
    for call in sorted(writes, key=lambda call: call.began):
        while at < len(ended) and (ended[at].ended or 0) < call.began:
            latest = max(latest, ended[at].result)
            at += 1
        assert call.result > latest, f"{call} of client {call.client} has no later revision than {latest}"


# --- what a lock protects -------------------------------------------------------------------------


class Resource:
    """A resource behind a socket that refuses smaller fencing tokens than it has seen."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.accepted: list[tuple[str, int, int]] = []
        """Lock, token and node of each use, in their order."""
        self.refused = 0
        self._highest: dict[str, int] = {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(path))
        self._socket.listen(64)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                asking, _ = self._socket.accept()
            except OSError:
                return  # it was closed
            with asking:
                asked = asking.recv(1000)
                if not asked:
                    continue  # it was killed before it asked
                lock, token, node = msgspec.json.decode(asked)
                accepts = token >= self._highest.get(lock, 0)
                if accepts:
                    self._highest[lock] = token
                    self.accepted.append((lock, token, node))
                else:
                    self.refused += 1
                with contextlib.suppress(OSError):
                    asking.send(b"accepted" if accepts else b"refused")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


def await_members(members: Iterable[Member]) -> None:
    """Until these are together."""
    chosen = list(members)
    nodes = sorted(member.node for member in chosen)
    wait_until(
        lambda: all(sorted(member.report()["members"]) == nodes for member in chosen),
        lambda: f"{nodes} are together: {[member.report()['members'] for member in chosen]}",
    )
