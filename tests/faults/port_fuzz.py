"""Attacks on the stream ports of live nodes: log, metrics and control socket, with and without a group key.

One attack is one connection: it says real words (a greeting, wishes, an HTTP request, a line of JSON) that
are changed, cut short, too long, nested, repeated or mixed with each other, at once or a few bytes at a time;
and then it stays silent, closes one direction, closes, or resets. Between the attacks a correct client is
served at each port. In the end no node has ended and none has an exception in its log.

As a program: ``python port_fuzz.py --count 200000``.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import random
import socket
import struct
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import msgspec
from crowd import Served, Target
from group import wait_until

from changed_bytes import Changes, changed_bytes
from ordercast.errors import LogError
from ordercast.keys import Keyring, generate
from ordercast.log import wire
from ordercast.log.wire import Frames
from ordercast.runtime.control import SOCKET, NoNode, ask

NODES = 2
CHECK_EVERY = 500
"""Attacks between two looks at whether correct clients are served."""
ANSWER_S = 5.0
"""How long an attacker waits for a connection, or for the answer to a greeting, before it gives up."""
MOST_SILENT, MOST_SLOW = 60, 30
"""Connections that are kept open while others attack."""
PLACES = ([4, 1, 0, 0], [2**62, 1, 3, 1], [-1, 0, 0, 0], [1], None)
WISHES: list[dict[str, Any]] = [
    {"op": "bounds"},
    *({"op": "after", "start": place, "rows": 5} for place in PLACES),
    *({"op": "before", "end": place, "rows": 2**40} for place in PLACES),
    *({"op": "read", "start": None, "end": place, "group": "faults"} for place in PLACES),
    {"op": "produce", "group": "attacks", "producer": b"p" * 16, "batch": 0, "run": b"r", "attempt": 0},
    {"op": "commit", "job": b"j" * 16, "batch": 0, "done": True},
    {"rows": 0, "fence": 1},
]
CHANGES = Changes(
    at_once=(0, 1, 1, 2, 5),
    lengths=(1, 4, 50, 5_000),
    openings=(b"[", b"\x91", b"\r\n", b"{"),
    depths=(2, 3_000),
)
REQUESTS = (
    b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n",
    b"HEAD / HTTP/1.0\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
)
LINES = (
    b'{"what": "status"}\n',
    b'{"what": "tea"}\n',
    b"[" * 30_000 + b"\n",
    b'{"what": ' * 5_000 + b"\n",
    b'{"what": ' + b"[" * 700 + b"]" * 700 + b"}\n",
    b'{"what": "' + b"x" * 60_000 + b'"}\n',
    b'{"what": "\\ud800", "n": 1e999}\n',
)


def nested(depth: int) -> list[Any]:
    inside: list[Any] = []
    for _ in range(depth):
        inside = [inside]
    return inside


ODD: list[Any] = [None, -1, 2**63 - 1, 2**64 - 1, 1.5, "", "x" * 3_000, b"\xff" * 600, [], {}, True]
ODD += [nested(50), nested(700), {"a": nested(200)}, [2**64 - 1] * 4]


class Attacks:
    """Connections that somebody opens who wishes a node nothing good."""

    def __init__(self, seed: int, key: Path | None) -> None:
        """`key`: the file of the group's key, if there is one; some attackers have it."""
        self.chance = random.Random(seed)
        self.keyring = None if key is None else Keyring.load(key)
        self.said: Counter[str] = Counter()
        """How many attacks there were, by what they were."""
        self._silent: deque[socket.socket] = deque()
        self._slow: deque[tuple[socket.socket, bytes]] = deque()
        """Connections that say the rest of their words a few bytes at a time."""

    def close(self) -> None:
        for line in (*self._silent, *(line for line, _ in self._slow)):
            line.close()

    def attack(self, log: tuple[str, int], metrics: tuple[str, int], control: Path) -> None:
        """One more connection, to one of the ports of a node."""
        chance = self.chance
        port = chance.choice(("log", "log", "log", "log", "metrics", "control"))
        line = self._connected(log if port == "log" else metrics if port == "metrics" else control)
        if line is None:
            self.said[f"{port}: no connection"] += 1
            return
        with contextlib.suppress(OSError):
            if port == "log":
                words, how = self._to_log(line)
            else:
                words, how = self._changed(chance.choice(REQUESTS if port == "metrics" else LINES)), "mutated"
            self.said[f"{port}: {how}"] += 1
            self._say(line, words)
            return
        self.said[f"{port}: cut off"] += 1
        line.close()

    # --- words --------------------------------------------------------------------------------------

    def _to_log(self, line: socket.socket) -> tuple[bytes, str]:
        """What is said to a log, and what is wrong with it; some of it was said already."""
        chance, own = self.chance, wire.new_nonce()
        keyring = chance.choice((self.keyring, self.keyring, None, Keyring((generate(),))))
        greeting = wire.greeting(own, keyring)
        wishes = chance.choices(WISHES, k=chance.choice((1, 1, 2, 5)))
        if chance.random() < 0.2:
            return self._changed(greeting) + Frames().made(wishes[0]), "greeting mutated"
        frames, begun = Frames(), greeting
        if chance.random() < 0.6:
            frames, begun = self._greet(line, greeting, own), b""
        match chance.randrange(7):
            case 0:
                said = b"".join(frames.made(self._odd(wish)) for wish in wishes)
                return begun + said, "odd fields"
            case 1:
                said = b"".join(map(frames.made, wishes))
                return begun + self._changed(said), "frames mutated"
            case 2:
                said = b"".join(map(frames.made, wishes))
                return begun + said[: chance.randrange(len(said))], "cut short"
            case 3:
                length = chance.choice((4097, 2**20, 8 * 2**20, 8 * 2**20 + 1, 2**31, 2**32 - 1))
                rest = bytes(chance.choice((0, 100, 70_000)))
                return begun + wire.LENGTH.pack(length) + rest, "too long"
            case 4:
                header = chance.choice((b"\x91", b"\x81\xa2op", b"\x81\x91")) * chance.choice((500, 1_300))
                inside = wire.LENGTH.pack(len(header)) + header
                inside = frames._seal.sealed(inside)
                return begun + wire.LENGTH.pack(len(inside)) + inside, "nested"
            case 5:
                one, other = frames.made(wishes[0]), frames.made(wishes[-1])
                at = chance.randrange(len(one))
                return begun + one[:at] + other + one[at:], "interleaved"
        once = frames.made(wishes[0])
        return begun + once * 3, "repeated"

    def _greet(self, line: socket.socket, greeting: bytes, own: bytes) -> Frames:
        """The frames of a connection that the service has answered; open ones where it did not."""
        line.settimeout(ANSWER_S)
        line.sendall(greeting)
        said = b""
        while len(said) < wire.ANSWER_SIZE and (more := line.recv(wire.ANSWER_SIZE - len(said))):
            said += more
        frames = Frames()
        if len(said) == wire.ANSWER_SIZE:
            how, service, key_id, _ = wire.read_answer(said)
            if how == wire.SEALED and self.keyring is not None and key_id in self.keyring.ids:
                key = self.keyring.keys[self.keyring.ids.index(key_id)]
                frames = Frames.sealed(key, own, service, serving=False)
        return frames

    def _odd(self, wish: dict[str, Any]) -> dict[str, Any]:
        changed = dict(wish)
        name = self.chance.choice([*changed, "more"])
        if self.chance.random() < 0.2:
            changed.pop(name, None)
        else:
            changed[name] = self.chance.choice(ODD)
        return changed

    def _changed(self, data: bytes) -> bytes:
        """Bytes with something changed; now and then as they were."""
        return changed_bytes(self.chance, data, CHANGES)

    # --- lines --------------------------------------------------------------------------------------

    def _connected(self, where: tuple[str, int] | Path) -> socket.socket | None:
        """A connection, from one of many addresses of this computer; None if nobody takes it now."""
        family = socket.AF_UNIX if isinstance(where, Path) else socket.AF_INET
        line = socket.socket(family, socket.SOCK_STREAM)
        line.settimeout(ANSWER_S)
        try:
            if isinstance(where, Path):
                line.connect(str(where))
            else:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                line.bind((f"127.0.{self.chance.randrange(1, 250)}.{self.chance.randrange(1, 250)}", 0))
                line.connect(where)
        except (TimeoutError, ConnectionError, BlockingIOError):
            line.close()
            return None
        except OSError as error:
            line.close()
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EADDRINUSE):
                raise
            return None
        return line

    def _say(self, line: socket.socket, words: bytes) -> None:
        """Say it, and go on in one of the ways in which a connection can."""
        line.setblocking(False)
        if self.chance.random() < 0.2:
            self._slow.append((line, words))
            if len(self._slow) > MOST_SLOW:
                self._slow.popleft()[0].close()
        else:
            line.send(words)
            self._leave(line)
        for _ in range(min(3, len(self._slow))):
            self._drip()

    def _drip(self) -> None:
        line, words = self._slow.popleft()
        count = self.chance.choice((1, 3, 200))
        try:
            line.send(words[:count])
        except BlockingIOError:
            count = 0
        except OSError:
            line.close()
            return
        if words[count:]:
            self._slow.append((line, words[count:]))
        else:
            self._leave(line)

    def _leave(self, line: socket.socket) -> None:
        """Close it, one direction of it, or nothing."""
        end = self.chance.random()
        if end < 0.5:
            line.close()
            return
        with contextlib.suppress(OSError):
            if end < 0.7:
                line.shutdown(self.chance.choice((socket.SHUT_WR, socket.SHUT_RD)))
            elif end < 0.85:
                line.recv(1 << 16)
        self._silent.append(line)
        if len(self._silent) > MOST_SILENT:
            self._silent.popleft().close()


class Watch:
    """Correct clients of the nodes, and how long they had to wait."""

    def __init__(self, target: Target, nodes: list[Served]) -> None:
        self._target = target
        self._nodes = nodes
        self.longest_s = 0.0

    def look(self) -> None:
        """Each port of each node answers, and the group goes on."""
        for node, served in enumerate(self._nodes, start=1):
            self._await(partial(served.read_some, self._target.key))
            self._await(served.scrape)
            self._await(partial(ask, self._target.directory / f"data-{node}" / SOCKET))
            assert not served.member.gone, f"node {node} has ended"

    def _await(self, asked: Callable[[], Any]) -> None:
        begun = time.monotonic()

        def answered() -> bool:
            with contextlib.suppress(LogError, NoNode, OSError):
                return bool(asked())
            return False

        wait_until(answered, "a correct client is served")
        self.longest_s = max(self.longest_s, time.monotonic() - begun)


def fuzz(directory: Path, count: int, seed: int, sealed: bool) -> dict[str, Any]:
    """So many attacks on a group; what they were, and what became of the group."""
    target = Target(directory, sealed)
    with target.group:
        nodes = [target.start(1)]
        nodes[0].member.await_word("ready")
        nodes += [target.start(node) for node in range(2, NODES + 1)]
        target.group.await_whole()
        watch, attacks = Watch(target, nodes), Attacks(seed, target.key)
        ports = [
            (served.log, served.metrics, directory / f"data-{node}" / SOCKET)
            for node, served in enumerate(nodes, start=1)
        ]
        begun = time.monotonic()
        try:
            for number in range(count):
                attacks.attack(*ports[number % NODES])
                if number % CHECK_EVERY == CHECK_EVERY - 1:
                    watch.look()
            watch.look()
            target.group.await_progress()
        finally:
            attacks.close()
        took_s = time.monotonic() - begun
        reports = [served.member.report() for served in nodes]
        target.group.conclude()
    return {
        "attacks": count,
        "seconds": round(took_s, 1),
        "longest wait of a correct client, s": round(watch.longest_s, 2),
        "said": dict(sorted(attacks.said.items())),
        "log drops": [report["status"]["log"]["drops"] for report in reports],
        "ended": [report["status"]["connections"]["ended"] for report in reports],
        "MB": [round(report["rss_mb"]) for report in reports],
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument(
        "--count", type=int, default=200_000, help="half at a sealed group, half at an open one"
    )
    asked.add_argument("--seed", type=int, default=1)
    given = asked.parse_args()
    for sealed in (True, False):
        with tempfile.TemporaryDirectory() as directory:
            outcome = fuzz(Path(directory), given.count // 2, given.seed + sealed, sealed)
        print(json.dumps({"sealed": sealed} | msgspec.to_builtins(outcome), indent=1), flush=True)


if __name__ == "__main__":
    main()
