"""Datagrams from the wire and onto it: overheard on loopback, and sent under any address (both need root).

A train of segments passes the loopback in one piece, so what is overheard is cut where the kernel would.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

CORPUS = Path(__file__).with_name("corpus")
DATAGRAM = 1452
"""What a datagram carries where the MTU is 1500."""
MAY_SPOOF = os.geteuid() == 0

_IP = struct.Struct("!BBHHHBBH4s4s")
_UDP = struct.Struct("!HHHH")
_ETHERNET = 14
_OUTGOING = 4
_LOOPBACK = socket.inet_aton("127.0.0.1")


class Datagram(NamedTuple):
    """From port to port."""

    source: int
    to: int
    data: bytes


class Ear:
    """Overhears what is sent to some ports of 127.0.0.1, from when it is made."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind(("lo", 0))

    def listen(self, ports: Collection[int], seconds: float) -> Iterator[Datagram]:
        """What goes to these ports in this time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                frame, address = self._socket.recvfrom(1 << 17)
            except TimeoutError:
                return
            if address[2] == _OUTGOING or frame[_ETHERNET + 9] != socket.IPPROTO_UDP:
                continue
            at = _ETHERNET + (frame[_ETHERNET] & 15) * 4
            source, to, *_ = _UDP.unpack_from(frame, at)
            if to in ports:
                data = frame[at + _UDP.size :]
                for start in range(0, len(data), DATAGRAM):
                    yield Datagram(source, to, data[start : start + DATAGRAM])

    def close(self) -> None:
        self._socket.close()


class Forger:
    """Sends datagrams under any port of 127.0.0.1; without root, under one of its own."""

    def __init__(self) -> None:
        self._plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._plain.bind(("127.0.0.1", 0))
        self._raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) if MAY_SPOOF else None

    def send(self, datagram: Datagram, own: bool = False) -> None:
        """Send it; with `own`, under the forger's own port."""
        source, to, data = datagram
        if self._raw is None or own:
            self._plain.sendto(data, ("127.0.0.1", to))
            return
        udp = _UDP.pack(source, to, _UDP.size + len(data), 0)
        total = _IP.size + len(udp) + len(data)
        ip = _IP.pack(0x45, 0, total, 0, 0, 64, socket.IPPROTO_UDP, 0, _LOOPBACK, _LOOPBACK)
        self._raw.sendto(ip + udp + data, ("127.0.0.1", 0))

    def close(self) -> None:
        self._plain.close()
        if self._raw is not None:
            self._raw.close()


# --- recorded datagrams ------------------------------------------------------------------------


def save(name: str, datagrams: Sequence[bytes]) -> None:
    """Into the corpus: each behind its length."""
    CORPUS.mkdir(exist_ok=True)
    packed = b"".join(struct.pack("!H", len(data)) + data for data in datagrams)
    (CORPUS / f"{name}.bin").write_bytes(packed)


def load(name: str) -> list[bytes]:
    """Out of the corpus."""
    packed = (CORPUS / f"{name}.bin").read_bytes()
    found = []
    while packed:
        (length,) = struct.unpack_from("!H", packed)
        found.append(packed[2 : 2 + length])
        packed = packed[2 + length :]
    return found
