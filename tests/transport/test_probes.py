"""LivenessProbes: a process that has ended is noticed at its liveness port, and none that still runs."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable

import pytest

from absence import turns
from free_ports import free_port
from ordercast.errors import AddressProblem
from ordercast.transport.probes import LivenessPort, LivenessProbes
from ordercast.transport.udp_socket import Address

FAMILIES = pytest.mark.parametrize("any_port", [("127.0.0.1", 0), ("::1", 0, 0, 0)], ids=["IPv4", "IPv6"])


def free(any_port: Address) -> Address:
    """An address at which nobody is."""
    host, port = any_port[0], free_port()
    return (host, port, 0, 0) if len(any_port) == 4 else (host, port)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await main()

    asyncio.run(limited())


async def found(probes: LivenessProbes, addresses: list[Address]) -> list[Address]:
    while not (gone := probes.look(addresses)):
        await asyncio.sleep(0.005)
    return gone


@FAMILIES
def test_a_liveness_port_that_is_closed_is_found_and_an_open_one_is_not(any_port: Address) -> None:
    async def main() -> None:
        here, gone = free(any_port), free(any_port)
        port = LivenessPort(here)
        port.open()
        probes = LivenessProbes()
        assert await found(probes, [here, gone]) == [gone]
        for _ in range(50):
            assert probes.look([here]) == []
            await turns(3)
        port.close()
        assert await found(probes, [here]) == [here]
        probes.clear()

    run(main)


@FAMILIES
def test_who_does_not_get_round_to_open_is_there_all_the_same(any_port: Address) -> None:
    """A process that is stopped, or busy: its kernel answers for it."""

    async def main() -> None:
        here = free(any_port)
        port = LivenessPort(here)
        probes = LivenessProbes()
        for _ in range(300):
            assert probes.look([here]) == []
            await asyncio.sleep(0)
        probes.clear()
        port.close()

    run(main)


def test_all_is_forgotten_when_all_is_well_again() -> None:
    async def main() -> None:
        gone = free(("127.0.0.1", 0))
        probes = LivenessProbes()
        assert await found(probes, [gone]) == [gone]
        assert probes
        probes.clear()
        assert not probes
        assert probes.look([]) == []

    run(main)


def test_who_is_not_asked_for_any_more_is_not_told_of() -> None:
    async def main() -> None:
        gone = free(("127.0.0.1", 0))
        probes = LivenessProbes()
        assert await found(probes, [gone]) == [gone]
        assert probes.look([]) == []
        assert not probes

    run(main)


def test_an_address_without_a_route_says_nothing() -> None:
    probes = LivenessProbes()
    for _ in range(20):
        assert probes.look([("240.0.0.1", 9)]) == []
    probes.clear()


def test_no_socket_is_left_behind() -> None:
    async def main() -> None:
        here = free(("127.0.0.1", 0))
        port = LivenessPort(here)
        port.open()
        before = len(os.listdir("/proc/self/fd"))
        probes = LivenessProbes()
        for _ in range(200):
            probes.look([here, *(("127.0.0.1", port) for port in range(1, 10))])
            await turns(3)
        probes.clear()
        await turns()
        assert len(os.listdir("/proc/self/fd")) <= before
        port.close()

    run(main)


def test_a_liveness_port_that_is_somebody_elses_is_a_problem_with_the_address() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(AddressProblem, match="in use"):
            LivenessPort(other.getsockname())
