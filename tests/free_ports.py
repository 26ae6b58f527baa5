"""Ports for nodes that have to be told one before they start."""

from __future__ import annotations

import random
import socket

PORTS = range(20_000, 32_000, 2)
"""Below those that the kernel gives to whoever asks for any: nobody else comes by one of them by chance."""


def free_port() -> int:
    """A port that is free together with the next one, for datagrams and for connections."""
    while True:
        port = random.choice(PORTS)
        taken: list[socket.socket] = []
        try:
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                for one in (port, port + 1):
                    taken.append(socket.socket(type=kind))
                    taken[-1].bind(("127.0.0.1", one))
        except OSError:
            continue
        finally:
            for each in taken:
                each.close()
        return port
