"""For processes on loopback that are tried or measured: free ports, and an end with who started them."""

from __future__ import annotations

import ctypes
import signal
import socket
from collections.abc import Iterable
from contextlib import ExitStack

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def are_free(ports: Iterable[int]) -> bool:
    """Whether nobody has any of these ports of 127.0.0.1, for datagrams or for connections."""
    with ExitStack() as taken:
        try:
            for port in ports:
                for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                    taken.enter_context(socket.socket(type=kind)).bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends: for `subprocess.Popen(preexec_fn=…)`."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
