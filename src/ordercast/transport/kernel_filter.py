"""Datagrams of strangers, kept apart by the kernel: small filter programs on a node's UDP sockets.

Only linked peers send data and tokens, from addresses that are known. A program in the kernel (classic BPF,
which needs no privilege) compares the source of each datagram with these:

- at the data port, what comes from elsewhere is dropped before it takes room in the socket's buffer;
- the token port has three sockets: one for tokens of those who are known, a small one for their greetings,
  and a small one for strangers, who greet there. A flood of greetings fills a small one, whichever address it
  comes from, and no token waits behind it.

Where the kernel does not offer that, everything arrives in one socket, and the driver drops it there.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import socket
import struct
from collections.abc import Iterable

from ordercast.transport.udp_socket import Address

SO_ATTACH_FILTER = 26
SO_DETACH_FILTER = 27
SO_ATTACH_REUSEPORT_CBPF = 51
SO_MEMINFO = 55
MOST_INSTRUCTIONS = 4096
"""The most instructions that a kernel takes in one program."""

_NETWORK = 2**32 - 0x100000
"""Offsets from here are into the network header (`SKF_NET_OFF`)."""
_LOAD, _LOAD_HALF, _LOAD_BYTE = 0x20, 0x28, 0x30
_LOAD_KEPT, _KEEP = 0x60, 0x02
_AND, _SHIFT_RIGHT = 0x54, 0x74
_LOAD_NUMBER, _LOAD_LENGTH = 0x00, 0x80
_JUMP, _JUMP_IF_EQUAL, _JUMP_IF_NOT_LESS = 0x05, 0x15, 0x35
_RETURN = 0x06
_ALL = 2**32 - 1
_BEGIN = 15
"""Where the first two bytes of a datagram are kept."""

Instruction = tuple[int, int, int, int]
"""Operation, how many to skip if true and if false, operand."""


def keep_only(sock: socket.socket, sources: Iterable[Address]) -> bool:
    """Have the kernel drop what comes to this socket from elsewhere; False if it cannot."""
    program = _program(sources, [(_RETURN, 0, 0, _ALL)], otherwise=0)
    if len(program) > MOST_INSTRUCTIONS:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        return False
    return _attached(sock, SO_ATTACH_FILTER, program)


def part(sock: socket.socket, sources: Iterable[Address], greeting: bytes) -> bool:
    """Of three sockets that share a port, have the first one get what comes from these sources, the second
    what of it begins with the two bytes of a `greeting`, and the third all else.

    False if the kernel cannot; then any may get anything.
    """
    found = [
        (_LOAD_KEPT, 0, 0, _BEGIN),
        (_JUMP_IF_EQUAL, 0, 1, int.from_bytes(greeting[:2], "big")),
        (_RETURN, 0, 0, 1),
        (_RETURN, 0, 0, 0),
    ]
    begin = [
        (_LOAD_LENGTH, 0, 0, 0),
        (_JUMP_IF_NOT_LESS, 0, 2, 2),
        (_LOAD_HALF, 0, 0, 0),
        (_JUMP, 0, 0, 1),
        (_LOAD_NUMBER, 0, 0, 0),  # what is shorter begins like nothing
        (_KEEP, 0, 0, _BEGIN),
    ]
    program = [*begin, *_program(sources, found, otherwise=2)]
    if len(program) > MOST_INSTRUCTIONS:
        program = [(_RETURN, 0, 0, 0)]
    return _attached(sock, SO_ATTACH_REUSEPORT_CBPF, program)


def dropped(sock: socket.socket) -> int:
    """Datagrams to this socket that the kernel dropped: filtered out, or there was no room."""
    try:
        return int(struct.unpack("=9I", sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36))[8])
    except (OSError, struct.error):
        return 0


def _attached(sock: socket.socket, option: int, program: list[Instruction]) -> bool:
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    try:
        sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("@HP", len(program), ctypes.addressof(buffer)))
    except OSError:
        return False
    return True


def _program(sources: Iterable[Address], found: list[Instruction], otherwise: int) -> list[Instruction]:
    """Does `found` for datagrams from these sources, whatever family they have, else returns `otherwise`."""
    four: list[tuple[tuple[int, ...], int]] = []
    six: list[tuple[tuple[int, ...], int]] = []
    for source in sources:
        host = ipaddress.ip_address(source[0].partition("%")[0])
        if isinstance(host, ipaddress.IPv6Address) and host.ipv4_mapped is not None:
            host = host.ipv4_mapped
        words = struct.unpack(f">{len(host.packed) // 4}I", host.packed)
        (four if len(words) == 1 else six).append((words, source[1]))
    at_four = [
        (_LOAD_BYTE, 0, 0, _NETWORK),
        (_AND, 0, 0, 0x0F),
        (_JUMP_IF_EQUAL, 1, 0, 5),  # a header without options, or the port is elsewhere
        (_RETURN, 0, 0, otherwise),
        *_compared(four, address_at=12, words=1, port_at=20, found=found),
        (_RETURN, 0, 0, otherwise),
    ]
    at_six = [
        (_LOAD_BYTE, 0, 0, _NETWORK + 6),
        (_JUMP_IF_EQUAL, 1, 0, socket.IPPROTO_UDP),  # no header between, or the port is elsewhere
        (_RETURN, 0, 0, otherwise),
        *_compared(six, address_at=8, words=4, port_at=40, found=found),
        (_RETURN, 0, 0, otherwise),
    ]
    return [
        (_LOAD_BYTE, 0, 0, _NETWORK),
        (_SHIFT_RIGHT, 0, 0, 4),
        (_JUMP_IF_EQUAL, 0, 1, 6),
        (_JUMP, 0, 0, len(at_four)),
        *at_four,
        *at_six,
    ]


def _compared(
    sources: list[tuple[tuple[int, ...], int]],
    address_at: int,
    words: int,
    port_at: int,
    found: list[Instruction],
) -> list[Instruction]:
    """Does `found` if address and port of the datagram are one of these."""
    code: list[Instruction] = []
    for word in range(words):
        code += [(_LOAD, 0, 0, _NETWORK + address_at + 4 * word), (_KEEP, 0, 0, word)]
    code += [(_LOAD_HALF, 0, 0, _NETWORK + port_at), (_KEEP, 0, 0, words)]
    for address, port in sources:
        left = 2 * words + len(found)  # instructions behind this comparison that belong to the same source
        for word, value in enumerate((*address, port)):
            code += [(_LOAD_KEPT, 0, 0, word), (_JUMP_IF_EQUAL, 0, left, value)]
            left -= 2
        code += found
    return code
