"""Single values of a configuration: how they are written in TOML, and what is wrong with an address."""

from __future__ import annotations

import ipaddress
import typing
from pathlib import Path
from typing import Any, Literal

import msgspec

from ordercast.errors import AddressProblem, ConfigProblem
from ordercast.transport.address import format_address, is_literal, parse_address

DEFAULT_PORT = 4801
MULTICAST_EXAMPLE = "239.1.2.3:4803"


def words_for(kind: Any) -> str:
    """What to write for a value of a type."""
    options = [option for option in typing.get_args(kind) if option is not type(None)]
    if typing.get_origin(kind) is Literal:
        *most, last = map(toml_value, options)
        return f"{', '.join(most)} or {last}"
    if typing.get_origin(kind) is not tuple and len(options) == 1:
        return words_for(options[0])
    return _WORDS.get(typing.get_origin(kind) or kind, "something else")


_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number of seconds",
    bool: "true or false",
    str: "a text in quotes",
    Path: "a path in quotes",
    tuple: "a list of texts in brackets",
    dict: "a table",
}


def toml_value(value: object) -> str:
    """The value as TOML writes it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml_value, value))}]"
    return msgspec.json.encode(value, enc_hook=str).decode()


def check_address(field: str, text: str, least: int = 1) -> tuple[str, int]:
    """Host and port of an address; raises what is wrong with it, or that its port is below `least`."""
    try:
        host, port = parse_address(text)
    except AddressProblem as error:
        raise ConfigProblem(f"{field}: {error}") from None
    if port < least:
        raise ConfigProblem(
            f"{field} has {text!r}: name the port, as in {format_address(host, DEFAULT_PORT)}"
        )
    return host, port


def check_listen(text: str) -> None:
    """Raise what is wrong with where a node is to receive."""
    host, port = check_address("listen", text, least=0)
    if port == 65_535:
        raise ConfigProblem("listen has port 65535, but data needs the next port: choose a smaller one")
    if is_literal(host) and ipaddress.ip_address(host).is_multicast:
        raise ConfigProblem(f"listen is {text!r}, a multicast group: write that for multicast instead")


def check_multicast(text: str) -> None:
    """Raise what is wrong with the address of a multicast group."""
    host, _ = check_address("multicast", text)
    if not is_literal(host) or not ipaddress.ip_address(host).is_multicast:
        raise ConfigProblem(
            f"multicast is {text!r}: write an address of a multicast group and a port, as in "
            f"{MULTICAST_EXAMPLE} or [ff15::1]:4803"
        )
