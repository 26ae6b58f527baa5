"""Addresses: as people write them (host and port), where a node listens, and who shares one."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, NamedTuple

from ordercast.errors import AddressProblem


class Place(NamedTuple):
    """Where a node listens."""

    host: str
    port: int
    """Tokens and greetings arrive here, data at the next one; 0 is any two neighbours that are free."""
    exact: bool
    """False: if the port is taken, the next free pair above it does as well."""


def parse_address(text: str) -> tuple[str, int]:
    """``"10.0.0.1:4801"``, ``"localhost:4801"`` or ``"[::1]:4801"`` as host and port."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not bracketed and (":" in host or text.startswith("[")):
        raise AddressProblem(
            f"{text!r} is no address: write an IPv6 host in brackets and the port behind it, as in [::1]:4801"
        )
    if not colon or not host:
        raise AddressProblem(f"{text!r} is no address: write host and port, as in 10.0.0.1:4801")
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise AddressProblem(f"{text!r} has no port behind the colon: write a number up to 65535, as in 4801")
    if bracketed:
        host = host[1:-1]
        if not is_literal(host) or ":" not in host:
            raise AddressProblem(
                f"{host!r} is no IPv6 address: brackets are for those alone, as in [::1]:4801"
            )
    elif re.fullmatch(r"[\d.]+", host) and not is_literal(host):
        raise AddressProblem(f"{host!r} is no IPv4 address: write four numbers up to 255, as in 10.0.0.1")
    elif not re.fullmatch(r"[\w.-]+", host):
        raise AddressProblem(f"{host!r} is no name of a host: write a name or an address, as in 10.0.0.1")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """Host and port as one text, as `parse_address` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_text(address: tuple[Any, ...]) -> str:
    """A socket's address, which begins with host and port, as one text."""
    return format_address(address[0], address[1])


def is_loopback(host: str) -> bool:
    """Whether the host, or the interface of that name, is surely this machine alone."""
    if is_literal(host):
        return ipaddress.ip_address(host).is_loopback
    return host in ("localhost", "lo")


def is_literal(host: str) -> bool:
    """Whether a host is an IP address, and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def source_of(address: Any) -> str:
    """Whose connections count together: an IPv4 host, the /64 of an IPv6 host, or this machine's user."""
    if not isinstance(address, tuple):
        return "local"
    found = ipaddress.ip_address(address[0].partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))
