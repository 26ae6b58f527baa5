"""Somebody without the key at the TCP ports: crowds, unfinished frames, silence; and the group goes on."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from crowd import Crowd, Served, Target
from group import wait_until

from hunts import rounds
from ordercast import keys
from ordercast.errors import KeyProblem, Unreachable
from ordercast.keys import Keyring
from ordercast.log import wire
from ordercast.log.client import Connection
from ordercast.runtime.control import SOCKET, NoNode, ask

CONNECTIONS = rounds(1_000, 5_000, "ORDERCAST_CONNECTIONS")
"""Opened at each TCP port."""


@pytest.fixture(params=["sealed", "plain"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    target = Target(tmp_path, request.param == "sealed")
    with target.group:
        yield target
        target.group.conclude()


@pytest.fixture(params=["sealed", "plain"], scope="module")
def alone(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Target, Served]]:
    """A member by itself, for all that is done to one."""
    target = Target(tmp_path_factory.mktemp("alone"), request.param == "sealed")
    with target.group:
        served = target.start(1)
        served.member.await_word("ready")
        served.member.order("rate", rate=0)
        served.member.order("send", count=200, size=100_000)
        served.member.order("rate", rate=40.0)
        target.group.await_progress()
        yield target, served
        target.group.conclude()


@pytest.mark.campaign
def test_connections_at_every_tcp_port_do_not_stop_a_change_or_a_client(target: Target) -> None:
    served = target.start(1)
    served.member.await_word("ready")
    target.start(2)
    target.group.await_whole()
    target.group.await_progress()
    with Crowd() as crowd:
        for address in served.ports():
            crowd.connect(address, CONNECTIONS)
        target.start(3)  # all members persist what they agree on
        target.group.await_whole()
        target.group.await_progress()
        assert served.read_log(target.key) > 0
        assert "ordercast_members 3.0" in served.scrape()
        assert ask(target.directory / "data-1" / SOCKET)["configuration"]["members"] == [1, 2, 3]
        target.group.members[2].kill()
        target.group.await_whole()
        target.group.await_progress()
        assert served.read_log(target.key) > 0


def test_frames_that_never_end_take_no_memory(alone: tuple[Target, Served]) -> None:
    target, served = alone
    before = served.member.report()["rss_mb"]
    keyring = None if target.key is None else Keyring.load(target.key)  # whose names everybody can see
    unfinished = wire.LENGTH.pack(8 * 2**20) + bytes(8 * 2**20 - 1)
    lines = [socket.create_connection(served.log) for _ in range(100)]
    for line in lines:
        line.sendall(wire.greeting(wire.new_nonce(), keyring))
        line.setblocking(False)
        for at in range(0, len(unfinished), 2**18):
            with contextlib.suppress(OSError):
                line.send(unfinished[at : at + 2**18])
    target.group.await_progress()
    grown = served.member.report()["rss_mb"] - before
    assert grown < 100, f"{grown:.0f} MB more"
    assert served.read_log(target.key) > 0
    for line in lines:
        line.close()


def test_idle_connections_do_not_lock_readers_out(alone: tuple[Target, Served]) -> None:
    target, served = alone
    keyring = None if target.key is None else Keyring.load(target.key)
    greeted = [socket.create_connection(served.log) for _ in range(260)]
    for line in greeted:
        with contextlib.suppress(OSError):
            line.sendall(wire.greeting(wire.new_nonce(), keyring))
    assert served.read_log(target.key) > 0
    if target.key is None:  # whoever asks is a client like any other
        asked = wire.Frames().made({"op": "bounds"})
        for line in greeted:
            with contextlib.suppress(OSError):
                line.sendall(asked)
        wait_until(lambda: served.read_log(None) > 0, "a place is found for another reader")
    for line in greeted:
        line.close()


def test_a_client_that_takes_nothing_takes_little_memory(alone: tuple[Target, Served]) -> None:
    """It has the key, or none is needed: what it asked for waits for it, in a bounded number of blocks."""
    target, served = alone
    wait_until(lambda: served.member.report()["status"]["log"]["bytes"] > 2e7, "20 MB are in the log")
    key = None if target.key is None else Keyring.load(target.key)
    clients = [Connection(served.log_address, key, 30.0) for _ in range(100)]
    before = served.member.report()["rss_mb"]
    head = clients[0].ask({"op": "bounds"})[0]["bounds"][1]
    for client in clients:
        client.send({"op": "read", "start": None, "end": head, "group": None})
    target.group.await_progress()
    grown = served.member.report()["rss_mb"] - before
    # 256 MB of blocks, and what is on its way: each client could have all of 20 MB and more otherwise
    assert grown < 600, f"{grown:.0f} MB more"
    for client in clients:
        client.close()


def test_the_control_socket_is_answered_beside_a_crowd_at_it(alone: tuple[Target, Served]) -> None:
    target, _ = alone
    path = target.directory / "data-1" / SOCKET
    silent = []
    for _ in range(300):
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(OSError):
            line.connect(str(path))
        silent.append(line)

    def answered() -> bool:
        with contextlib.suppress(NoNode):
            return bool(ask(path)["node"] == 1)
        return False

    wait_until(answered, "its status is told")
    target.group.await_progress()
    for line in silent:
        line.close()


def test_a_session_ends_with_the_key_that_opened_it(tmp_path: Path) -> None:
    """Reading and writing: who was a member when the key was changed, and has only the old one, is out."""
    target = Target(tmp_path, sealed=True)
    assert target.key is not None
    with target.group:
        served = target.start(1)
        served.member.await_word("ready")
        target.group.await_progress()
        former = Keyring.load(target.key)
        reading, writing, idle = (Connection(served.log_address, former, 30.0) for _ in range(3))
        assert reading.ask({"op": "bounds"})[0]["bounds"]
        assert idle.ask({"op": "bounds"})[0]["bounds"]
        produce = {"op": "produce", "group": "faults", "producer": b"p" * 16, "batch": 0, "run": b"r" * 8}
        writing.send({**produce, "attempt": 0})
        assert writing.receive() is not None

        def noticed(times: int) -> bool:
            return served.member.log.read_text().count("the group key was changed") == times

        for step, change in enumerate((keys.add, keys.promote), start=1):
            change(target.key)
            wait_until(partial(noticed, step), "the key file was read again")
        assert reading.ask({"op": "bounds"})[0]["bounds"], "both keys are the group's"
        member = Connection(served.log_address, Keyring.load(target.key), 30.0)
        assert member.ask({"op": "bounds"})[0]["bounds"]
        keys.prune(target.key)
        wait_until(partial(noticed, 3), "the key file was read again")
        assert writing.receive() == {"kept": 0}, "said before"
        for line in (reading, writing, idle):
            with pytest.raises(Unreachable):
                line.ask({"op": "bounds"})
        with pytest.raises(KeyProblem):
            Connection(served.log_address, former, 30.0)
        assert member.ask({"op": "bounds"})[0]["bounds"], "who had the new key stays"
        ended = served.member.report()["status"]["connections"]["ended"]
        assert ended["the key was pruned"] == 3
        member.close()
        served.member.kill()
        target.group.check_logs()
