"""``ordercast send GROUP MESSAGE… [--client HOST:PORT]`` and no more, without what takes long to load.

Whatever else is asked for, and whatever goes wrong before a message is sent, is for the command itself
(`ordercast.cli.send`), which does the same and says what is wrong.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from ordercast.client import wire
from ordercast.client.parser import Event, Info, Malformed, Parser, Ping, Pong, Refusal

LOCAL = "127.0.0.1:4222"
CONNECT = b'CONNECT {"verbose":false,"lang":"python-ordercast","version":"1","name":"ordercast"}\r\n'
LOGIN = ("ORDERCAST_USER", "ORDERCAST_PASSWORD", "ORDERCAST_TOKEN")
TIMEOUT_S = 10.0
READ = 65_536
BROKEN = 3
"""The exit code where what was sent may be lost."""


class SendRequest(NamedTuple):
    """What is to be sent, and to which node."""

    server: str
    group: str
    messages: list[bytes]


def send(words: Sequence[str]) -> bool:
    """Do what these words ask for; False if the command itself has to: then nothing was sent."""
    request = understood(words)
    if request is None or sys.stdout is None or sys.stdout.encoding.lower() != "utf-8":
        return False
    host, _, port = request.server.rpartition(":")
    try:
        line = socket.create_connection((host, int(port)), TIMEOUT_S)
    except OSError:
        return False
    with line:
        connection = NodeConnection(line)
        if not connection.lets_in(request):
            return False
        refusal = connection.hand_over(request)
    if refusal:
        print(f"error: {request.server}: {refusal}: see to it, and send it again", file=sys.stderr)
        raise SystemExit(BROKEN)
    _say(request)
    return True


def understood(words: Sequence[str]) -> SendRequest | None:
    """What words ask for, as far as that is done here; None if it is more."""
    servers, rest = [], []
    following = iter(words)
    for word in following:
        if word == "--client":
            servers.append(next(following, ""))
        elif word.startswith("-"):
            return None
        else:
            rest.append(word)
    (server,) = servers if len(servers) == 1 else ("" if servers else LOCAL,)
    server = server.removeprefix("nats://")
    host, _, port = server.rpartition(":")
    plain = host.replace(".", "").replace("-", "").isalnum() and port.isascii() and port.isdigit()
    if len(rest) < 2 or not plain or int(port) > 65_535 or any(map(os.environ.get, LOGIN)):
        return None
    try:
        group = wire.check_group(rest[0])
    except ValueError:
        return None
    return SendRequest(server, group, [os.fsencode(word) for word in rest[1:]])


class NodeConnection:
    """A connection to a node."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._parser = Parser()
        self._deadline = time.monotonic() + TIMEOUT_S

    def _events(self) -> list[Event]:
        """What the node says next."""
        self._line.settimeout(max(0.001, self._deadline - time.monotonic()))
        data = self._line.recv(READ)
        if not data:
            raise EOFError("it has closed the connection")
        return self._parser.feed(data)

    def lets_in(self, request: SendRequest) -> bool:
        """Whether the node takes messages of that size from who says nothing of itself."""
        try:
            while not (events := self._events()):
                pass
        except (OSError, EOFError, Malformed):
            return False
        if not isinstance(events[0], Info):
            return False
        told = events[0].fields
        most = told.get("max_payload")
        fits = isinstance(most, int) and max(map(len, request.messages)) <= most
        return fits and not (told.get("auth_required") or told.get("tls_required"))

    def hand_over(self, request: SendRequest) -> str:
        """Send messages; why they may be lost, empty if the node has taken them."""
        lines = [wire.publish(request.group, message) for message in request.messages]
        refusal = ""
        try:
            self._line.sendall(b"".join((CONNECT, *lines, b"PING\r\n")))
            while True:
                for event in self._events():
                    match event:
                        case Pong():
                            return refusal
                        case Refusal(reason):
                            refusal = reason
                        case Ping():
                            self._line.sendall(b"PONG\r\n")
        except (OSError, EOFError, Malformed) as error:
            return refusal or str(error)


def _say(request: SendRequest) -> None:
    count = len(request.messages)
    what = "1 message" if count == 1 else f"{count:,} messages"
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    mark = "\033[1;32m✓\033[0m" if coloured else "✓"
    try:
        print(f"{mark} {what} to {request.group}", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads any more
