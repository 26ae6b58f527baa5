"""Connections of somebody who has no key, as many as it takes, and what a member serves over TCP."""

from __future__ import annotations

import contextlib
import errno
import resource
import socket
import urllib.request
from collections import deque
from pathlib import Path
from typing import Any

from group import Cluster, Member

from free_ports import free_port
from ordercast import keys
from ordercast.log import Replica
from ordercast.transport.address import parse_address

DESCRIPTORS = 256
"""Of each member of a group that is attacked."""
SPARE = 150
"""Descriptors that a crowd leaves to the test itself."""


class Served:
    """What a member serves over TCP, and where."""

    def __init__(self, member: Member, metrics: int) -> None:
        self.member = member
        self.metrics = ("127.0.0.1", metrics)
        self.listens = parse_address(member.address)

    @property
    def log(self) -> tuple[str, int]:
        return parse_address(self.log_address)

    @property
    def log_address(self) -> str:
        return str(self.member.report()["status"]["log"]["address"])

    def ports(self) -> list[tuple[str, int]]:
        return [self.log, self.metrics, self.listens]

    def read_log(self, key: Path | None) -> int:
        """Entries that a client with the key counts in the log, read over TCP."""
        with Replica(self.log_address, None if key is None else str(key)) as replica:
            bounds = replica.bounds()
            assert bounds.head is not None
            return sum(batch.num_rows for batch in replica.read(None, bounds.head))

    def read_some(self, key: Path | None) -> bool:
        """Whether a client with the key reads the last entries of the log over TCP."""
        with Replica(self.log_address, None if key is None else str(key)) as replica:
            head = replica.bounds().head
            assert head is not None
            start = replica.before(head, 20)
            return any(batch.num_rows for batch in replica.read(start, head))

    def scrape(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics[1]}/metrics", timeout=30) as answer:
            text: str = answer.read().decode()
        return text


class Target:
    """A group whose members serve logs and metrics, with few descriptors."""

    def __init__(self, directory: Path, sealed: bool) -> None:
        self.directory = directory
        self.key: Path | None = None
        if sealed:
            self.key = directory / "key"
            keys.create(self.key)
        self.group = Cluster(
            directory, rate=40.0, key=str(self.key) if self.key else None, descriptors=DESCRIPTORS
        )

    def start(self, node: int) -> Served:
        metrics = free_port()
        options = {"log": str(self.directory / f"log-{node}"), "metrics": f"127.0.0.1:{metrics}"}
        return Served(self.group.start(node, options=options), metrics)


class Crowd:
    """Connections that stay open for as long as the other side lets them, oldest given up for new ones."""

    def __init__(self, first_words: bytes = b"") -> None:
        """Each says `first_words` and then nothing."""
        self._words = first_words
        self.attempts = 0
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._open: deque[socket.socket] = deque(maxlen=None)
        self._most = soft - SPARE

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *error: Any) -> None:
        while self._open:
            self._open.popleft().close()

    def connect(self, address: tuple[str, int], count: int) -> None:
        """So many more connections to one address; nobody waits until they are made."""
        for _ in range(count):
            if len(self._open) >= self._most:
                self._open.popleft().close()
            line = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            self._open.append(line)
            self.attempts += 1
            assert line.connect_ex(address) in (0, errno.EINPROGRESS)
            if self._words:
                with contextlib.suppress(OSError):
                    line.send(self._words)
