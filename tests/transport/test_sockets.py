"""A node's sockets: two neighbouring ports, found or refused, and all given back when something is wrong."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from ordercast.errors import AddressProblem
from ordercast.runtime.config import NodeConfig
from ordercast.transport.address import Place
from ordercast.transport.sockets import NodeSockets, interface_index, open_sockets, resolve
from ordercast.transport.udp_socket import UdpSocket

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    async def guarded() -> T:
        async with asyncio.timeout(20):
            return await work

    return asyncio.run(guarded())


def opened(host: str = "127.0.0.1", port: int = 0, *, exact: bool = True, **config: Any) -> NodeSockets:
    return run(
        open_sockets(
            Place(host, port, exact),
            config.get("socket_buffer", NodeConfig().socket_buffer),
            config.get("multicast"),
            config.get("interface"),
        )
    )


def sockets() -> int:
    """Sockets of this process."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    return sum(link.startswith("socket:") for link in links)


def test_two_neighbours() -> None:
    wires = opened()
    assert wires.token.address[0] == "127.0.0.1"
    assert wires.data.address[1] == wires.token.address[1] + 1
    assert wires.multicast is None
    assert wires.group is None
    wires.close()


def test_a_given_port_is_taken_or_refused() -> None:
    first = opened()
    port = first.token.address[1]
    before = sockets()
    for wanted in (port, port - 1):  # the second has a free port whose neighbour is taken
        with pytest.raises(AddressProblem, match="in use"):
            opened(port=wanted)
    assert sockets() == before
    first.close()
    again = opened(port=port)
    assert again.token.address[1] == port
    again.close()


def test_the_next_free_pair_where_any_will_do() -> None:
    first = opened()
    port = first.token.address[1]
    second = opened(port=port, exact=False)
    assert second.token.address[1] > port
    assert (second.token.address[1] - port) % 2 == 0
    for wires in (first, second):
        wires.close()


def test_the_buffer_is_asked_for_at_both() -> None:
    wires = opened(socket_buffer=200_000)
    assert wires.token.asked == wires.data.asked == 200_000
    wires.close()


@pytest.mark.parametrize("interface", ["lo", "127.0.0.1"])
def test_multicast_by_name_and_by_address(interface: str) -> None:
    config: dict[str, Any] = {"multicast": "239.66.1.2:47000", "interface": interface, "insecure": True}
    one, two = opened(**config), opened(**config)
    assert one.group == ("239.66.1.2", 47000)
    assert one.multicast is not None
    assert two.multicast is not None
    for wires in (one, two):
        wires.close()


@pytest.mark.parametrize("interface", ["nosuch0", "192.0.2.7"])
def test_an_interface_that_is_not_there_is_told(interface: str) -> None:
    before = sockets()
    with pytest.raises(AddressProblem, match=r"multicast to 239.* name the `interface`"):
        opened(multicast="239.66.1.2:47000", interface=interface, insecure=True)
    assert sockets() == before


def test_a_multicast_port_of_another_program_is_told() -> None:
    taken = UdpSocket(("239.66.1.3", 0), buffer=100_000)
    before = sockets()
    with pytest.raises(AddressProblem, match="in use"):
        opened(multicast=f"239.66.1.3:{taken.address[1]}", interface="lo", insecure=True)
    assert sockets() == before
    taken.close()


def test_interfaces() -> None:
    assert interface_index(None) == 0
    assert interface_index("lo") == socket.if_nametoindex("lo") == interface_index("127.0.0.1")
    with pytest.raises(OSError, match="no interface has the address"):
        interface_index("192.0.2.7")


def test_names_are_looked_up_in_the_family_of_the_node() -> None:
    assert run(resolve(["localhost:5", "127.0.0.2:6"], "127.0.0.1")) == [("127.0.0.1", 5), ("127.0.0.2", 6)]
    six = run(resolve(["[::1]:5"], "::"))
    assert six == [("::1", 5, 0, 0)]
    mapped = run(resolve(["127.0.0.1:5"], "::"))
    assert mapped[0][:2] == ("::ffff:127.0.0.1", 5)
    assert run(resolve([], "127.0.0.1")) == []


def test_what_cannot_be_looked_up() -> None:
    with pytest.raises(AddressProblem, match=r"'nobody\.invalid:5' cannot be resolved .*check the name"):
        run(resolve(["nobody.invalid:5"], "127.0.0.1"))
    with pytest.raises(AddressProblem, match="cannot be resolved"):
        opened(host="nobody.invalid")
