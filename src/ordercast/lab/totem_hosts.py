"""The papers' two laboratories of Totem: their hosts, networks and settings, and what the model says of them.

The papers measured workstations of their time; what a packet and a token cost these is not in them. Five Sun
4/IPC on 10 Mb/s are the simulator's preset, which was chosen by the latencies of 000 §9 at 400 and 625
messages a second. Eight SPARCstation 20 on 100 Mb/s are taken to be five times as fast, which is a guess.
In the papers the token never rests, and what is missing is asked for at once; so it is in these runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ordercast.lab.grid import Settings
from ordercast.sim.network import Ethernet, preset

if TYPE_CHECKING:
    from ordercast.lab.totem_model import RingModel

SPARC20: dict[str, int | float] = {"receive_us": 40, "unicast_us": 260, "send_us": 20}
"""What a packet heard, a token and a packet sent cost a SPARCstation 20: a fifth of what they cost an IPC."""
PAPER: Settings = {"hold_us": 0, "eager_requests": True, "packing": False}
"""The protocol as the papers have it: a message a packet, a token that never rests, requests at once."""
FIVE, EIGHT = "five nodes, 10 Mb/s", "eight nodes, 100 Mb/s"
HOSTS: dict[str, dict[str, Any]] = {
    FIVE: {"nodes": 5, "network": "ethernet10"},
    EIGHT: {"nodes": 8, "network": "ethernet100", "net": SPARC20},
}
"""The two laboratories."""
MESSAGE = {FIVE: 1024, EIGHT: 1000}
"""The size of a message where it is not varied: 000 §9 and 001's Fig. 7."""
ABOUT_HOSTS = (
    "What a packet costs a host is not in the papers. A Sun 4/IPC is taken to need 200 µs for a packet "
    "heard, "
    "1300 for a token and 100 for a packet sent; a SPARCstation 20 a fifth of each: 40, 260 and 20 µs. Media "
    "have no collisions, and a message in a packet costs nothing beside the packet."
)


def network_of(hosts: str, loss: float = 0.0) -> Ethernet:
    """The Ethernet of a laboratory."""
    network = preset(HOSTS[hosts]["network"], {**HOSTS[hosts].get("net", {}), "loss": loss})
    assert isinstance(network, Ethernet)
    return network


def model_of(
    hosts: str, rate: float, arrivals: Literal["poisson", "deterministic"] = "poisson", loss: float = 0.0
) -> RingModel:
    """What the model has to say of a laboratory."""
    from ordercast.lab.totem_model import ethernet_ring

    return ethernet_ring(
        network_of(hosts, loss),
        nodes=HOSTS[hosts]["nodes"],
        rate=rate,
        size=MESSAGE[hosts],
        arrivals=arrivals,
    )


def air_of(hosts: str, size: int) -> float:
    """Microseconds for which a message of `size` bytes, alone in its packet, is on the medium."""
    from ordercast.lab.totem_model import DATA_BYTES, air_us

    return air_us(network_of(hosts), size + DATA_BYTES)
