"""etcd, from Debian (``apt-get install etcd-server``): three servers on loopback, and a worker that puts.

The worker speaks as little gRPC over HTTP/2 as puts need: that costs it a few microseconds for each, so what
is measured is etcd and not its client. Servers keep their log on disk, as they always do.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import struct
import subprocess
import time
import urllib.request
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from server_groups import free_ports, until

from ordercast.measure.loopback import die_with_parent
from peers.figures import PeerMissing
from peers.workers import Words, each_order, keys_of, latency, run_worker, say

DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
CREDIT = 1 << 30
"""Bytes that the server may send before it is told that it may send more."""


# --- servers ------------------------------------------------------------------------------------


class Servers:
    """Servers that run."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports

    def ask(self, which: int, path: str, words: Words) -> Words:
        """Ask one of them, through its gateway for JSON."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports[which]}{path}", json.dumps(words).encode()
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            found: Words = json.load(answer)
        return found

    @property
    def leader(self) -> int:
        """Which of them leads."""
        told = [self.ask(which, "/v3/maintenance/status", {}) for which in range(len(self.ports))]
        return next(at for at, each in enumerate(told) if each["header"]["member_id"] == each["leader"])


@contextmanager
def servers(directory: Path, count: int = 3) -> Iterator[Servers]:
    """A cluster, with its files in the directory."""
    binary = shutil.which("etcd")
    if binary is None:
        raise PeerMissing("etcd is not installed: on Debian, apt-get install etcd-server")
    ports = free_ports(2 * count)
    clients, peers = ports[:count], ports[count:]
    cluster = ",".join(f"n{number}=http://127.0.0.1:{port}" for number, port in enumerate(peers))
    processes = []
    try:
        for number in range(count):
            client, peer = f"http://127.0.0.1:{clients[number]}", f"http://127.0.0.1:{peers[number]}"
            words = {
                "name": f"n{number}",
                "data-dir": str(directory / f"etcd-{number}"),
                "listen-client-urls": client,
                "advertise-client-urls": client,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": cluster,
                "initial-cluster-state": "new",
                "quota-backend-bytes": str(8 << 30),
                "log-level": "error",
            }
            command = [binary, *(f"--{name}={value}" for name, value in words.items())]
            with (directory / f"etcd-{number}.log").open("ab") as log:
                processes.append(
                    subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_parent)
                )
        found = Servers(clients)
        until(lambda: _leads(found), "a leader of etcd", processes[0])
        yield found
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _leads(found: Servers) -> bool:
    try:
        return found.leader >= 0
    except (OSError, StopIteration, KeyError):
        return False


# --- a worker -----------------------------------------------------------------------------------


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def _literal(index: bytes, text: bytes) -> bytes:
    """A header that is not remembered, in HPACK."""
    return index + bytes((len(text),)) + text


def _field(tag: int, value: bytes) -> bytes:
    """A field of bytes, in protobuf."""
    assert len(value) < 1 << 14, "its length takes two bytes at most"
    size = bytes((len(value),)) if len(value) < 128 else bytes((len(value) & 127 | 128, len(value) >> 7))
    return bytes((tag << 3 | 2,)) + size + value


class Connection(asyncio.Protocol):
    """A connection that puts."""

    def __init__(self, authority: str) -> None:
        self._transport: Any = None
        self._block = (
            b"\x83\x86"  # POST, http
            + _literal(b"\x04", b"/etcdserverpb.KV/Put")
            + _literal(b"\x01", authority.encode())
            + _literal(b"\x0f\x10", b"application/grpc")
            + _literal(b"\x00\x02te", b"trailers")
        )
        self._stream = 1
        self._window = 65_535
        self._held: deque[tuple[int, bytes]] = deque()
        """What waits until the server allows more."""
        self._buffer = b""
        self._taken = 0
        self._answers: dict[int, bool] = {}
        """Streams that are open, and whether there is an answer."""
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._out: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport
        self._transport.write(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + _frame(SETTINGS, 0, 0, b"")
            + _frame(WINDOW, 0, 0, struct.pack(">I", CREDIT))
        )

    def connection_lost(self, error: Exception | None) -> None:
        """It is over."""
        for each in self._waiting.values():
            if not each.done():
                each.set_exception(ConnectionError("etcd closed the connection"))

    def put(self, key: bytes, value: bytes) -> asyncio.Future[None]:
        """Put; resolved when it is acknowledged."""
        message = _field(1, key) + _field(2, value)
        body = b"\0" + struct.pack(">I", len(message)) + message
        stream, self._stream = self._stream, self._stream + 2
        future = self._waiting[stream] = self._loop.create_future()
        self._answers[stream] = False
        data = _frame(HEADERS, END_HEADERS, stream, self._block) + _frame(DATA, END_STREAM, stream, body)
        if self._held or self._window < len(body):
            self._held.append((len(body), data))
        else:
            self._window -= len(body)
            self._write(data)
        return future

    def _write(self, data: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        out, self._out = self._out, []
        self._transport.write(b"".join(out))

    def data_received(self, data: bytes) -> None:
        """Frames from the server."""
        data = self._buffer + data if self._buffer else data
        at, end = 0, len(data)
        while end - at >= 9:
            size = int.from_bytes(data[at : at + 3], "big")
            if end - at < 9 + size:
                break
            kind, flags = data[at + 3], data[at + 4]
            stream = int.from_bytes(data[at + 5 : at + 9], "big")
            if kind == DATA:
                self._answers[stream] = True
                self._take(size)
            elif kind == HEADERS:
                if flags & END_STREAM:
                    self._end(stream)
            else:
                self._control(kind, flags, stream, data[at + 9 : at + 9 + size])
            at += 9 + size
        self._buffer = data[at:]

    def _take(self, size: int) -> None:
        self._taken += size
        if self._taken > CREDIT // 2:
            self._write(_frame(WINDOW, 0, 0, struct.pack(">I", self._taken)))
            self._taken = 0

    def _end(self, stream: int) -> None:
        answered, future = self._answers.pop(stream), self._waiting.pop(stream)
        if future.done():
            return
        if answered:
            future.set_result(None)
        else:
            future.set_exception(ConnectionError("etcd refused a put"))

    def _control(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            self._write(_frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self._write(_frame(PING, ACK, 0, body))
        elif kind == WINDOW and stream == 0:
            self._window += int.from_bytes(body, "big")
            while self._held and self._window >= self._held[0][0]:
                size, data = self._held.popleft()
                self._window -= size
                self._write(data)
        elif kind == GOAWAY:
            raise ConnectionError(f"etcd goes away: {body!r}")


class Job(msgspec.Struct):
    """What a worker is to be."""

    node: int
    port: int
    size: int
    connections: int = 2


async def work(job: Job) -> None:
    """One client, until its standard input says no more."""
    loop = asyncio.get_running_loop()
    where = f"127.0.0.1:{job.port}"
    connections = [
        (await loop.create_connection(lambda: Connection(where), "127.0.0.1", job.port))[1]
        for _ in range(job.connections)
    ]
    keys, value = [key.encode() for key in keys_of(job.node)], bytes(job.size)
    async for words in each_order():
        match words["do"]:
            case "one by one":
                took = []
                for number in range(words["count"]):
                    begun = time.perf_counter()
                    await connections[0].put(keys[number % len(keys)], value)
                    took.append(time.perf_counter() - begun)
                say(latency(took))
            case "digest":
                say({"digest": ""})  # it answers for itself
            case "many":
                say(await _many(connections, keys, value, words["seconds"], words["in_flight"]))


async def _many(
    connections: list[Connection], keys: list[bytes], value: bytes, seconds: float, in_flight: int
) -> Words:
    done = sent = in_time = 0
    begun = time.perf_counter()
    over = ended = begun + seconds

    async def put_on(connection: Connection) -> None:
        nonlocal done, sent, in_time, ended
        while time.perf_counter() < over:
            sent += 1
            await connection.put(keys[sent % len(keys)], value)
            done += 1
        if not in_time:
            in_time, ended = done, time.perf_counter()

    await asyncio.gather(*(put_on(connections[which % len(connections)]) for which in range(in_flight)))
    return {"per_s": in_time / (ended - begun), "failed": 0}


if __name__ == "__main__":
    run_worker(work, Job)
