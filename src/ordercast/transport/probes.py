"""Liveness probes: whether the process of a peer still runs, which the kernel of its machine answers.

Every node has a *liveness port*: a TCP port, with the number of the UDP port for tokens, at which nobody is
ever served. While a process lives, its kernel completes connections to it; when it has ended, however it
ended, its kernel refuses them at once. So when the token has been away for longer than usual, a connection to
every peer's liveness port is tried, and a killed process is missed without waiting for a timeout. A machine
that died, or a firewall, says nothing: there, the protocol's own timeouts have the last word, and can be
generous to the slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket

from ordercast.errors import AddressProblem
from ordercast.transport.udp_socket import Address, why_not_bound

BACKLOG = 64
PAUSE_S = 0.1
"""How long nobody is let in where the process has no descriptor left."""
LOOKS = 10
"""A connection that is neither made nor refused after so many looks is given up, and tried anew."""


class LivenessPort:
    """Shows that this process runs: accepts every connection, and closes it at once."""

    def __init__(self, address: Address) -> None:
        family = socket.AF_INET6 if len(address) == 4 else socket.AF_INET
        self._socket = sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
            sock.bind(address)
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            raise AddressProblem(why_not_bound(address, error)) from error
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pause: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Accept connections from now on, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._let_in)

    def _let_in(self) -> None:
        try:
            for _ in range(BACKLOG):
                self._socket.accept()[0].close()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            pass
        except OSError:  # no descriptor is left: to be woken for it all the time would keep the node busy
            assert self._loop is not None
            self._loop.remove_reader(self._socket.fileno())
            self._pause = self._loop.call_later(PAUSE_S, self.open)

    def close(self) -> None:
        """Close the port: peers' connections to it are refused from now on."""
        if self._pause is not None:
            self._pause.cancel()
        if self._loop is not None and self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()


class _Probe:
    """Connects to the liveness port of one peer."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._looks = 0
        self.refused = False

    def look(self) -> None:
        """See what became of the last attempt, and make another."""
        if self._socket is None:
            self._try()
        else:
            self._looks += 1
            self._judge(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _try(self) -> None:
        family = socket.AF_INET6 if len(self._address) == 4 else socket.AF_INET
        self._looks = 0
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._judge(self._socket.connect_ex(self._address))

    def _judge(self, error: int) -> None:
        if error == errno.ECONNREFUSED:
            self.refused = True
        if error not in (0, errno.EINPROGRESS) or (self._looks >= 1 and self._made()) or self._looks >= LOOKS:
            self.close()

    def _made(self) -> bool:
        assert self._socket is not None
        try:
            self._socket.getpeername()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Give up the attempt under way."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class LivenessProbes:
    """Looks at the peers while something is amiss."""

    def __init__(self) -> None:
        self._probes: dict[Address, _Probe] = {}

    def look(self, addresses: list[Address]) -> list[Address]:
        """Try these, and no others any more; those where nobody is at home."""
        for address in self._probes.keys() - addresses:
            self._probes.pop(address).close()
        for address in addresses:
            probe = self._probes.get(address)
            if probe is None:
                probe = self._probes[address] = _Probe(address)
            with contextlib.suppress(OSError):  # no socket to be had: the timeouts do without
                probe.look()
        return [address for address, probe in self._probes.items() if probe.refused]

    def __bool__(self) -> bool:
        return bool(self._probes)

    def clear(self) -> None:
        """Nothing is amiss any more: probe nobody."""
        for probe in self._probes.values():
            probe.close()
        self._probes.clear()
