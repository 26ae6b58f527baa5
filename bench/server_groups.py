"""Servers for NATS clients on loopback, in processes of their own: nats-servers, or nodes of ordercast."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from ordercast.measure.loopback import are_free, die_with_parent

START_S = 60.0
PORTS = range(24_000, 24_100, 4)
STREAM = "ORDERCAST"
SUBJECTS = "bench.>"


class Servers:
    """Servers that run, and where."""

    def __init__(self, name: str, ports: Sequence[int], processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self.name = name
        self.ports = ports
        self.processes = processes

    @property
    def urls(self) -> list[str]:
        """As clients want them."""
        return [f"nats://127.0.0.1:{port}" for port in self.ports]

    def cpu_s(self) -> float:
        """Seconds of processor time that they have used."""
        total = 0
        for process in self.processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / 100


def free_ports(count: int) -> list[int]:
    """Ports of which the next three are free, too."""
    found = list(islice((port for port in PORTS if are_free(range(port, port + 4))), count))
    if len(found) < count:
        raise SystemExit("no ports are free: end other programs that use 24000 to 24100 on 127.0.0.1")
    return found


@contextmanager
def nats_servers(directory: Path, count: int = 3) -> Iterator[Servers]:
    """A cluster with JetStream in files."""
    binary = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")
    if binary is None:
        raise SystemExit("nats-server is not installed: on Debian, apt-get install nats-server")
    ports = free_ports(count)
    routes = json.dumps([f"nats://127.0.0.1:{port + 1}" for port in ports])
    commands = []
    for port in ports:
        file = directory / f"{port}.conf"
        file.write_text(
            f'listen: "127.0.0.1:{port}"\nserver_name: s{port}\n'
            f'jetstream {{ store_dir: "{directory / f"store-{port}"}" }}\n'
            f'cluster {{ name: bench, listen: "127.0.0.1:{port + 1}", routes: {routes} }}\n'
        )
        commands.append([binary, "-c", str(file)])
    with _running("nats-server", ports, commands, directory) as servers:
        yield servers


@contextmanager
def nodes(directory: Path, count: int = 3, **more: Any) -> Iterator[Servers]:
    """Nodes of ordercast that keep a log and serve clients."""
    ports = free_ports(count)
    commands = []
    for number, port in enumerate(ports, 1):
        fields = {
            "id": number,
            "listen": f"127.0.0.1:{port + 2}",
            "seeds": [f"127.0.0.1:{other + 2}" for other in ports],
            "data": str(directory / f"data-{number}"),
            "log": str(directory / f"log-{number}"),
            "clients": f"127.0.0.1:{port}",
            "client_stream": [SUBJECTS],
            **more,
        }
        file = directory / f"{number}.toml"
        file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items()))
        commands.append(
            [sys.executable, "-c", "from ordercast.cli import main; main()", "node", "-c", str(file)]
        )
    with _running("ordercast", ports, commands, directory) as servers:
        yield servers


@contextmanager
def _running(
    name: str, ports: Sequence[int], commands: Sequence[Sequence[str]], directory: Path
) -> Iterator[Servers]:
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for port, command in zip(ports, commands, strict=True):
            with (directory / f"{port}.log").open("ab") as log:
                processes.append(
                    subprocess.Popen(
                        command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent
                    )
                )
        for port, process in zip(ports, processes, strict=True):
            until(lambda port=port: _greets(port), f"{name} at port {port}", process)  # type: ignore[misc]
        yield Servers(name, ports, processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def until(true: Callable[[], object], what: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait for something, and say what did not come."""
    deadline = time.monotonic() + START_S
    while not true():
        if time.monotonic() > deadline or (process is not None and process.poll() is not None):
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.02)


def _greets(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            return connection.recv(5) == b"INFO "
    except OSError:
        return False
