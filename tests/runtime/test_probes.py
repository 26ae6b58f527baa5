"""Probes: a port that nobody listens at is found out, one that somebody listens at is left in peace."""

from __future__ import annotations

import os
import socket
import time

import pytest

from ordercast.runtime.probes import CERTAIN, PROBE, Probes
from ordercast.runtime.udp import Address, Channel

FAMILIES = pytest.mark.parametrize("host", ["127.0.0.1", "::1"])


def at(host: str, port: int) -> Address:
    return (host, port, 0, 0) if ":" in host else (host, port)


def listening(host: str) -> Channel:
    try:
        return Channel(at(host, 0), buffer=100_000)
    except OSError:
        pytest.skip(f"this machine has no {host}")


def look_until_found(probes: Probes, addresses: list[Address]) -> list[Address]:
    for _ in range(2000):
        if found := probes.look(addresses):
            return found
        time.sleep(0.002)
    return []


@FAMILIES
def test_a_closed_port_is_found_and_an_open_one_is_not(host: str) -> None:
    alive, dead = listening(host), listening(host)
    gone = dead.address
    dead.close()
    probes = Probes()
    assert look_until_found(probes, [alive.address, gone]) == [gone]
    for _ in range(10):
        assert alive.address not in probes.look([alive.address, gone])
    assert alive.receive() is not None
    assert alive.buffer.startswith(PROBE)
    probes.clear()
    alive.close()


def test_one_refusal_is_not_enough() -> None:
    dead = listening("127.0.0.1")
    gone = dead.address
    dead.close()
    probes = Probes()
    for _ in range(CERTAIN):
        assert probes.look([gone]) == [], "so many answers have not come yet"
    probes.clear()


def test_after_all_is_well_it_begins_anew() -> None:
    dead = listening("127.0.0.1")
    gone = dead.address
    dead.close()
    probes = Probes()
    assert look_until_found(probes, [gone]) == [gone]
    assert probes
    probes.clear()
    assert not probes
    assert probes.look([gone]) == []
    probes.clear()


def test_only_those_asked_for_are_answered() -> None:
    probes = Probes()
    assert probes.look([]) == []
    assert not probes
    dead = listening("127.0.0.1")
    gone = dead.address
    dead.close()
    assert look_until_found(probes, [gone]) == [gone]
    assert probes.look([]) == []
    probes.clear()


def test_no_way_to_an_address_says_nothing_about_the_process() -> None:
    probes = Probes()
    for _ in range(CERTAIN + 3):
        assert probes.look([("240.0.0.1", 9)]) == []
    probes.clear()


def test_sockets_are_given_back() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM):
        before = len(os.listdir("/proc/self/fd"))
        probes = Probes()
        probes.look([("127.0.0.1", port) for port in range(1, 30)])
        probes.clear()
        assert len(os.listdir("/proc/self/fd")) == before
