from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from ordercast.measure import netns
from ordercast.measure.netns import Namespaces, NoNamespaces

needs_root = pytest.mark.skipif(netns.missing() is not None, reason=netns.missing() or "")

ECHO = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 5000))
print("ready", flush=True)
while True:
    data, source = server.recvfrom(2000)
    server.sendto(data, source)
"""
ASK = """
import socket, sys
asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asker.settimeout(float(sys.argv[2]))
answers = 0
for number in range(int(sys.argv[3])):
    asker.sendto(b"%d" % number, (sys.argv[1], 5000))
    try:
        while asker.recv(2000) != b"%d" % number:
            pass
        answers += 1
    except TimeoutError:
        pass
print(answers)
"""


def names() -> set[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines()}


def ours() -> set[str]:
    return {name for name in names() if name.startswith(f"ordercast-{os.getpid()}-")}


def answers(network: Namespaces, asker: int, asked: int, *, times: int = 1, patience: float = 0.2) -> int:
    command = [sys.executable, "-c", ASK, network.address(asked), str(patience), str(times)]
    told, _ = network.start(asker, command, stdout=subprocess.PIPE, text=True).communicate(timeout=60)
    return int(told)


@pytest.fixture
def three() -> Iterator[Namespaces]:
    with Namespaces(3) as network:
        for node in network.nodes:
            echo = network.start(node, [sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True)
            assert echo.stdout is not None
            assert echo.stdout.readline() == "ready\n"
        yield network


def test_without_root_the_error_says_what_to_do_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NoNamespaces, match=r"need root.*leave --netns out"), Namespaces(2):
        pass


def test_without_ip_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoNamespaces, match=r"iproute2.*leave --netns out"), Namespaces(2):
        pass


@pytest.mark.parametrize("nodes", [0, 251])
def test_there_is_room_for_so_many(nodes: int) -> None:
    with pytest.raises(ValueError, match="room for 1 to 250"):
        Namespaces(nodes)


@needs_root
def test_every_node_reaches_every_other(three: Namespaces) -> None:
    for asker in three.nodes:
        for asked in three.nodes:
            assert answers(three, asker, asked, patience=5.0) == 1


@needs_root
def test_a_split_network_carries_nothing_over_until_it_heals(three: Namespaces) -> None:
    three.split({1, 2}, {3})
    assert answers(three, 1, 2, patience=5.0) == 1
    assert answers(three, 1, 3) == 0
    three.split({1, 3})  # a node on no side is alone
    assert answers(three, 1, 3, patience=5.0) == 1
    assert answers(three, 2, 3) == 0
    three.heal()
    assert answers(three, 2, 3, patience=5.0) == 1


@needs_root
def test_packets_are_lost_by_chance_and_at_the_named_nodes_only(three: Namespaces) -> None:
    three.lose(0.5, {2})
    assert 5 < answers(three, 1, 2, times=60, patience=0.05) < 55
    assert answers(three, 1, 3, times=60, patience=5.0) == 60
    three.lose(0)
    assert answers(three, 1, 2, times=60, patience=5.0) == 60


@needs_root
def test_two_networks_do_not_meet(three: Namespaces) -> None:
    with Namespaces(2) as other:
        assert other.address(2) == three.address(2)
        assert answers(other, 1, 2) == 0


@needs_root
def test_nothing_is_left_after_an_exception() -> None:
    def fail() -> None:
        with Namespaces(2) as network:
            processes.append(network.start(1, ["sleep", "1000"]))
            raise KeyboardInterrupt

    processes: list[subprocess.Popen[str]] = []
    with pytest.raises(KeyboardInterrupt):
        fail()
    assert processes[0].poll() == -signal.SIGKILL
    assert not ours()


@needs_root
def test_nothing_is_left_after_an_interrupt_and_a_killed_run_is_tidied_up_by_the_next(tmp_path: Path) -> None:
    script = tmp_path / "holds.py"
    script.write_text(
        textwrap.dedent("""
        import time
        from ordercast.measure.netns import Namespaces
        with Namespaces(1) as network:
            network.start(1, ["sleep", "1000"])
            print(network.name(1), flush=True)
            time.sleep(1000)
        """)
    )

    def held() -> tuple[subprocess.Popen[str], str]:
        holder = subprocess.Popen(
            [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert holder.stdout is not None
        return holder, holder.stdout.readline().strip()

    holder, name = held()
    assert name in names()
    holder.send_signal(signal.SIGINT)
    holder.wait(timeout=30)
    assert name not in names()

    holder, name = held()
    holder.kill()
    holder.wait(timeout=30)
    assert name in names()
    with Namespaces(1):
        assert name not in names()


@needs_root
def test_what_cannot_be_is_refused(three: Namespaces) -> None:
    with pytest.raises(ValueError, match="there is no node 4"):
        three.address(4)
    with pytest.raises(ValueError, match="between 0 and 1"):
        three.lose(5)
    with pytest.raises(ValueError, match="on two sides"):
        three.split({1, 2}, {2, 3})


def test_addresses_are_real() -> None:
    assert socket.inet_aton(Namespaces(9).address(9)) == bytes((10, 77, 0, 9))
