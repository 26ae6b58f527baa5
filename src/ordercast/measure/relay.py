"""A relay between network namespaces that loses, delays, repeats and reorders what passes, as ``netem`` does.

It stands where else a bridge stands, as a process of its own in the hub's namespace: every frame that comes
in by a node's cable goes out by that of its receiver, or of all others, if `Impairments` lets it.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import sys
import time
from heapq import heappop, heappush

import msgspec

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_VNET_HDR = 15
PACKET_IGNORE_OUTGOING = 23
VNET_HEADER = 10
"""What the kernel puts in front of a frame: where its checksum is still to be written."""
FRAME_HEADER = 14
IP_KINDS = (b"\x08\x00", b"\x86\xdd")
LARGEST_FRAME = 65_600
LATE_FACTOR = 4
"""A frame that is overtaken takes so many times the usual delay longer, and a millisecond at least."""
FRAMES_A_TURN = 64
MOST_WAITING = 100_000
"""Frames that are on their way at a time; more are lost, as on a full line."""


class Impairments(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to frames between nodes; drawn anew for each frame and each receiver."""

    loss: float = 0.0
    """Share of the frames that are lost."""
    burst: float = 1.0
    """Frames that are lost in a row, on average."""
    delay_ms: float = 0.0
    """How long a frame takes, one way."""
    jitter_ms: float = 0.0
    """The most that it takes longer."""
    duplicate: float = 0.0
    """Share of the frames that arrive twice."""
    reorder: float = 0.0
    """Share of the frames that are overtaken by later ones."""
    path_mtu: int = 0
    """IP packets larger than this are lost without a word; 0 is no limit."""

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "reorder"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name):g}: write a share from 0 to 1, 0.05 for 5%")
        if self.burst < 1:
            raise ValueError(f"burst is {self.burst:g}: at least 1 frame is lost in a row")
        for name in ("delay_ms", "jitter_ms"):
            if not 0 <= getattr(self, name) <= 60_000:
                raise ValueError(f"{name} is {getattr(self, name):g}: choose 0 to 60,000 ms")
        if self.path_mtu and self.path_mtu < 576:
            raise ValueError(f"path_mtu is {self.path_mtu}: every network carries 576; 0 is no limit")

    @property
    def none(self) -> bool:
        """Whether nothing happens to any frame."""
        return self == Impairments()


class ImpairedPath:
    """What happens to the frames to one node."""

    def __init__(self, impairments: Impairments, seed: str) -> None:
        self._impairments = impairments
        self._random = random.Random(seed)
        self._losing = False

    def lost(self) -> bool:
        """Whether the next frame is lost. Bursts begin and end at random (Gilbert's model)."""
        loss, burst = self._impairments.loss, self._impairments.burst
        if not loss:
            return False
        if burst == 1 or loss == 1:
            return self._random.random() < loss
        turns = 1 / burst if self._losing else min(1.0, loss / (burst * (1 - loss)))
        if self._random.random() < turns:
            self._losing = not self._losing
        return self._losing

    def delays_ms(self) -> list[float]:
        """How long the frame takes, and its copy if there is one."""
        impairments, chance = self._impairments, self._random.random
        delay = impairments.delay_ms + impairments.jitter_ms * chance()
        if impairments.reorder and chance() < impairments.reorder:
            delay += max(1.0, LATE_FACTOR * impairments.delay_ms * chance())
        return [delay, delay] if impairments.duplicate and chance() < impairments.duplicate else [delay]


class Relay:
    """The frames between some interfaces of this namespace."""

    def __init__(self, interfaces: list[str], impairments: Impairments, seed: int) -> None:
        self._impairments = impairments
        self._ports = [_port(name) for name in interfaces]
        self._paths = [ImpairedPath(impairments, f"{seed}/{name}") for name in interfaces]
        self._homes: dict[bytes, int] = {}
        """Behind which port a hardware address was last seen."""
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._count = 0

    def run(self) -> None:
        """Relay frames until the process is killed."""
        poll = select.epoll()
        for port in self._ports:
            poll.register(port.fileno(), select.EPOLLIN)
            port.setblocking(False)
        numbers = {port.fileno(): number for number, port in enumerate(self._ports)}
        while True:
            timeout = max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None
            if timeout is not None and timeout < 0.002:
                time.sleep(min(timeout, 0.0002))  # epoll counts in milliseconds
                timeout = 0.0
            for fd, _ in poll.poll(timeout):
                self._read(numbers[fd])
            self._deliver(time.monotonic())

    def _read(self, number: int) -> None:
        port = self._ports[number]
        for _ in range(FRAMES_A_TURN):
            try:
                frame = port.recv(LARGEST_FRAME)
            except BlockingIOError:
                return
            self.take(number, frame, time.monotonic())

    def take(self, number: int, frame: bytes, now: float) -> None:
        """A frame came in by a port."""
        head = frame[VNET_HEADER : VNET_HEADER + FRAME_HEADER]
        to, source, kind = head[:6], head[6:12], head[12:]
        self._homes[source] = number
        home = self._homes.get(to)
        chosen = range(len(self._ports)) if to[0] & 1 or home is None else (home,)
        ip = kind in IP_KINDS
        mtu = self._impairments.path_mtu
        if ip and mtu and len(frame) - VNET_HEADER - FRAME_HEADER > mtu:
            return
        for other in chosen:
            if other == number or (ip and self._paths[other].lost()):
                continue
            for delay_ms in self._paths[other].delays_ms() if ip else (self._impairments.delay_ms,):
                if delay_ms <= 0:
                    self._send(other, frame)
                elif len(self._waiting) < MOST_WAITING:
                    self._count += 1
                    heappush(self._waiting, (now + delay_ms / 1000, self._count, other, frame))

    def _deliver(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            _, _, number, frame = heappop(self._waiting)
            self._send(number, frame)

    def _send(self, number: int, frame: bytes) -> None:
        try:
            self._ports[number].send(frame)
        except OSError:
            return  # a full or vanished interface loses the frame, as a cable would


def _port(interface: str) -> socket.socket:
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    port.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    for option in (33, 32):  # SO_RCVBUFFORCE, SO_SNDBUFFORCE: what is lost here is lost by plan alone
        port.setsockopt(socket.SOL_SOCKET, option, 16 * 2**20)
    port.bind((interface, ETH_P_ALL))
    membership = struct.pack("=iHH8s", socket.if_nametoindex(interface), 1, 0, b"")
    port.setsockopt(SOL_PACKET, 1, membership)  # PACKET_ADD_MEMBERSHIP, promiscuous
    return port


def main() -> None:
    """``python -m ordercast.measure.relay SETTINGS SEED INTERFACE...``; prints ``ready`` when frames pass."""
    impairments = msgspec.json.decode(sys.argv[1], type=Impairments)
    relay = Relay(sys.argv[3:], impairments, int(sys.argv[2]))
    print("ready", flush=True)
    relay.run()


if __name__ == "__main__":
    main()
