"""Greetings and packets that were recorded and are sent again, by somebody without the key."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from group import Cluster, Member
from wire import MAY_SPOOF, Datagram, Ear, Forger

from ordercast import keys

pytestmark = pytest.mark.skipif(not MAY_SPOOF, reason="overhearing the wire and forging addresses needs root")
SEALED = pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "plain"])
GREETING = b"OG"


@contextmanager
def started(directory: Path, sealed: bool, nodes: int) -> Iterator[tuple[Cluster, list[Member]]]:
    if sealed:
        keys.create(directory / "key")
    with Cluster(directory, rate=40.0, key=str(directory / "key") if sealed else None) as group:
        yield group, group.start_all(nodes)


def port(member: Member) -> int:
    return int(member.address.rpartition(":")[2])


def recorded(to: Member, seconds: float) -> list[Datagram]:
    """What others send to a member meanwhile."""
    ear = Ear()
    heard = list(ear.listen({port(to), port(to) + 1}, seconds))
    ear.close()
    return heard


@SEALED
def test_a_recorded_greeting_is_answered_seldom_and_shortly(tmp_path: Path, sealed: bool) -> None:
    """How seldom, to the second, is for `tests/transport/test_links.py`, whose clock stands still."""
    with started(tmp_path, sealed, 1) as (group, (one,)):
        ear = Ear()
        group.start(2)
        group.await_whole()
        heard = ear.listen({port(one)}, 5.0)
        greeting = next(datagram.data for datagram in heard if datagram.data.startswith(GREETING))
        ear.close()
        outsider = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        outsider.bind(("127.0.0.66", 0))
        outsider.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22)
        outsider.setblocking(False)
        answers = []
        for _ in range(5_000):
            outsider.sendto(greeting, ("127.0.0.1", port(one)))
            with suppress(BlockingIOError):
                answers.append(outsider.recv(65_536))
        assert answers, "who is at that address may be a new node"
        assert max(map(len, answers)) < len(greeting)
        assert one.drops.get("greeting: too many", 0) + one.drops.get("greeting: no room", 0) > 0
        outsider.close()
        group.await_progress()
        group.conclude()


@SEALED
def test_what_was_recorded_of_a_dead_member_does_not_stand_in_its_way(tmp_path: Path, sealed: bool) -> None:
    """Its greetings and packets come again from its old address while it starts at another one."""
    with started(tmp_path, sealed, 2) as (group, (one, two)):
        heard = [datagram for datagram in recorded(one, 3.0) if datagram.source in (port(two), port(two) + 1)]
        assert any(datagram.data.startswith(GREETING) for datagram in heard)
        if (
            not sealed
        ):  # whoever can repeat packets of an unsealed group speaks for its members: docs/security.md
            heard = [datagram for datagram in heard if datagram.data.startswith(GREETING)]
        two.kill()
        enough = threading.Event()
        forger = Forger()

        def replay() -> None:
            while not enough.is_set():
                for datagram in heard:
                    forger.send(datagram)
                time.sleep(0.05)

        replaying = threading.Thread(target=replay)
        replaying.start()
        try:
            group.await_configuration(one, {1})
            again = group.start(2, listen="127.0.0.1:0")
            assert again.ready["event"] == "ready", again.ready
            group.await_whole()
            group.await_progress()
            if sealed:
                assert one.drops.get("greeting: replayed", 0) + one.drops.get("unknown sender", 0) > 0
        finally:
            enough.set()
            replaying.join()
            forger.close()
        group.conclude()
