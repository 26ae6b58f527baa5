"""corosync, from Debian's packages: its closed process groups (CPG), one daemon a namespace.

    cd bench && sudo ../.venv/bin/python -m peers.corosync --size 1024 --seconds 5 --transport best

Prints one JSON object. Windows are wider than corosync's defaults, for throughput; nothing is encrypted.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ordercast.measure.netns import Namespaces
from peers.figures import PeerMissing, Row, arguments, summed_up

CLIENT = Path(__file__).with_name("cpg_bench.c")
INSTALL = "apt-get install corosync libcpg-dev gcc iproute2"
TRANSPORTS = ("udp", "udpu")
"""Those that may be the fastest: IP multicast and unicast. knet had at most half of either at every size."""
TIMEOUT_S = 40.0
ATTEMPTS = 3

_CONF = """totem {{
  version: 2
  cluster_name: bench
  transport: {transport}
  crypto_cipher: none
  crypto_hash: none
  token: {token_ms}
  netmtu: 1500
  window_size: 300
  max_messages: 100
}}
nodelist {{
{nodes}
}}
quorum {{
  provider: corosync_votequorum
  expected_votes: {count}
}}
logging {{
  to_stderr: yes
  to_syslog: no
  to_logfile: no
}}
"""
_NODE = "  node {{\n    ring0_addr: {address}\n    name: n{node}\n    nodeid: {node}\n  }}"


def missing() -> str | None:
    """Why corosync cannot be measured here; None if it can."""
    for command in ("corosync", "cc", "nsenter", "unshare"):
        if shutil.which(command) is None:
            return f"corosync is not measured, {command} is missing: {INSTALL}"
    if not any(
        Path(base).joinpath("corosync/cpg.h").exists() for base in ("/usr/include", "/usr/local/include")
    ):
        return f"corosync is not measured, its header corosync/cpg.h is missing: {INSTALL}"
    return None


def measure(
    *,
    size: int,
    seconds: float,
    rate: float = 0,
    transport: str = "udp",
    token_ms: int = 1000,
    nodes: int = 3,
    kill_one: bool = False,
) -> Row:
    """One run. `rate` is messages/s a node, 0 flat out; `kill_one` kills the last daemon halfway.

    Daemons now and then abort while they form their ring (an assertion on its list of retransmissions),
    or do not find each other: then all of it is tried again.
    """
    reason = missing()
    if reason is not None:
        raise PeerMissing(reason)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            figures = _run(size, seconds, rate, transport, token_ms, nodes, kill_one)
            break
        except _Failed:
            if attempt == ATTEMPTS:
                raise
    mode = "rate" if rate else "flat"
    return {"system": "corosync", "size": size, "mode": mode, "transport": transport, **summed_up(figures)}


def best(*, transports: Sequence[str] = TRANSPORTS, **run: object) -> Row:
    """The run with the transport that delivers most; at a given rate, the one with the least latency."""
    rows = [measure(transport=transport, **run) for transport in transports]  # type: ignore[arg-type]
    return min(rows, key=lambda row: row["p50_us"]) if run.get("rate") else max(rows, key=_delivered)


def _delivered(row: Row) -> float:
    return float(row["delivered_per_s"])


class _Failed(RuntimeError):
    """Daemons or clients ended, or never met."""


def _run(
    size: int, seconds: float, rate: float, transport: str, token_ms: int, nodes: int, kill_one: bool
) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="corosync-bench-") as name, Namespaces(nodes) as network:
        work = Path(name)
        client = _built(work)
        listed = "\n".join(_NODE.format(node=node, address=network.address(node)) for node in network.nodes)
        conf = _CONF.format(transport=transport, token_ms=token_ms, nodes=listed, count=nodes)
        (work / "corosync.conf").write_text(conf)
        daemons = [_daemon(network, work, node) for node in network.nodes]
        _await_ring(work, daemons)
        arguments = [str(client), str(size), str(seconds), str(nodes), str(rate)]
        clients = [
            network.start(
                node,
                ["nsenter", "-t", str(daemon.pid), "-m", *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for node, daemon in zip(network.nodes, daemons, strict=True)
        ]
        if kill_one:
            time.sleep(seconds / 2)
            daemons.pop().kill()
            clients.pop().kill()
        return [json.loads(_answer(client, seconds)) for client in clients]


def _built(work: Path) -> Path:
    program = work / "cpg_bench"
    done = subprocess.run(
        ["cc", "-O2", "-o", str(program), str(CLIENT), "-lcpg"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise PeerMissing(f"corosync's client does not build ({INSTALL}): {done.stderr.strip()}")
    return program


def _daemon(network: Namespaces, work: Path, node: int) -> subprocess.Popen[bytes]:
    """A daemon with a /run and a /var/lib/corosync of its own, in the namespace of its node."""
    (work / f"lib{node}").mkdir()
    script = (
        "mount -t tmpfs tmpfs /run && mkdir -p /run/corosync /run/lock && "
        f"mount --bind {work}/lib{node} /var/lib/corosync && exec corosync -f -c {work}/corosync.conf"
    )
    with (work / f"log{node}").open("wb") as log:
        command = ["unshare", "-m", "sh", "-c", script]
        return network.start(node, command, stdout=subprocess.DEVNULL, stderr=log)


def _await_ring(work: Path, daemons: Sequence[subprocess.Popen[bytes]]) -> None:
    whole = f"Members[{len(daemons)}]"
    logs = [work / f"log{node}" for node in range(1, len(daemons) + 1)]
    until = time.monotonic() + TIMEOUT_S
    while not all(whole in log.read_text(errors="replace") for log in logs):
        ended = next(
            (log for log, daemon in zip(logs, daemons, strict=True) if daemon.poll() is not None), None
        )
        if ended is not None or time.monotonic() > until:
            said = (ended or logs[0]).read_text(errors="replace")[-2000:]
            raise _Failed(f"corosync's daemons did not form a ring; the log ends with:\n{said}")
        time.sleep(0.05)
    time.sleep(0.5)  # services are told of the ring a little later


def _answer(client: subprocess.Popen[str], seconds: float) -> str:
    out, err = client.communicate(timeout=seconds + TIMEOUT_S)
    if client.returncode != 0:
        raise _Failed(f"corosync's client failed: {err.strip() or client.returncode}")
    return out


def main() -> None:
    """One run, as JSON."""
    parser = arguments(__doc__)
    parser.add_argument("--transport", default="best", choices=["udp", "udpu", "knet", "best"])
    parser.add_argument("--token", type=int, default=1000, help="token timeout, ms")
    parser.add_argument("--kill-one", action="store_true", help="kill -9 the last node halfway")
    asked = parser.parse_args()
    run = {
        "nodes": asked.nodes,
        "size": asked.size,
        "seconds": asked.seconds,
        "rate": asked.rate,
        "token_ms": asked.token,
        "kill_one": asked.kill_one,
    }
    row = best(**run) if asked.transport == "best" else best(transports=[asked.transport], **run)
    print(json.dumps(row))


if __name__ == "__main__":
    main()
