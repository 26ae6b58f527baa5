"""Ports for nodes that have to be told one before they start."""

from __future__ import annotations

import random
import socket

PORTS = range(10_000, 20_000, 2)
"""Below those that the kernel gives to whoever asks for any, and those that nodes draw: nobody comes by one
of them by chance."""


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


def free_address() -> str:
    """An address of loopback for a node: its port, and the next, are free."""
    return f"127.0.0.1:{free_port()}"
