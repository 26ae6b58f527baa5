"""Is a process still there? The kernel of its machine knows, and tells: nobody listens at that port.

When the token has been away for longer than usual, every peer's port is sent a probe from a socket of its
own, connected to it: that a datagram came to a closed port is then an error on that socket. So a killed
process is missed at once. A machine that died, or a network that swallows the answer, says nothing: there,
the protocol's own timeouts have the last word, and can be generous to the slow.
"""

from __future__ import annotations

import contextlib
import socket

from ordercast.runtime.udp import Address

PROBE = b"OP\x01"
"""What a probe says. Its receiver, if there is one, passes over it."""
CERTAIN = 2
"""So many probes have to find a port closed."""


class _Probe:
    """Looks at one address."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.refused = 0
        family = socket.AF_INET6 if len(address) == 4 else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(OSError):
            self._socket.connect(address)

    def look(self) -> None:
        """Take the answer to the last probe, and send the next."""
        try:
            with contextlib.suppress(BlockingIOError):
                self._socket.recv(1)
            self._socket.send(PROBE)
        except ConnectionRefusedError:
            self.refused += 1
        except OSError:
            pass  # no route, no memory: that says nothing about the process

    def close(self) -> None:
        self._socket.close()


class Probes:
    """Looks at the peers while something is amiss."""

    def __init__(self) -> None:
        self._probes: dict[Address, _Probe] = {}

    def look(self, addresses: list[Address]) -> list[Address]:
        """Probe these, and no others any more; those at which nobody listens."""
        for address in self._probes.keys() - addresses:
            self._probes.pop(address).close()
        for address in addresses:
            probe = self._probes.get(address)
            if probe is None:
                try:
                    probe = self._probes[address] = _Probe(address)
                except OSError:
                    continue  # no socket to be had: the protocol's own timeouts do without
            probe.look()
        return [address for address, probe in self._probes.items() if probe.refused >= CERTAIN]

    def __bool__(self) -> bool:
        return bool(self._probes)

    def clear(self) -> None:
        """All is well again."""
        for probe in self._probes.values():
            probe.close()
        self._probes.clear()
