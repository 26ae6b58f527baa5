"""Serves processes that are no members, over the NATS client protocol, at one address of a node."""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ordercast.clients import wire
from ordercast.clients.buckets.held import Objects
from ordercast.clients.buckets.requests import Requests
from ordercast.clients.buckets.settings import SUBJECTS
from ordercast.clients.connection import ClientConnection
from ordercast.clients.identifiers import STREAM
from ordercast.clients.jetstream import PREFIX, JetStream
from ordercast.clients.node import Processes, StreamLog
from ordercast.clients.parser import Publish
from ordercast.clients.stream import Stream
from ordercast.clients.wire import Options
from ordercast.core.identity import Batch, Configuration, Guarantee, NodeId
from ordercast.core.subjects import LONGEST_SUBJECT, is_subject
from ordercast.errors import ConfigProblem, OrdercastError
from ordercast.process_groups.interface import LocalProcess
from ordercast.process_groups.views import (
    Cause,
    Member,
    Numbered,
    Process,
    Received,
    Recounted,
    Unheard,
    View,
)
from ordercast.runtime.client_listener import UNIX, ClientListener, Listen, listen_for_clients
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.connections import HANDSHAKE_S, Connections
from ordercast.runtime.direct_connections import Served
from ordercast.transport.address import parse_address

LOG = logging.getLogger("ordercast")

SPOKEN = "2.9.10"
"""The version of the NATS server whose client protocol is spoken: clients look at it to know what to ask."""
NODES = "$ORDERCAST.NODES"
"""The group of the nodes that serve clients: each says there where."""
ADDRESS = "clients"
"""The property by which it does."""
STATUS = "$ORDERCAST.STATUS"
"""Who sends a request there is answered what `ordercast status` shows."""
MEMBERS = "$ORDERCAST.MEMBERS."
"""Before a group's name: who subscribes to it is told of the group's views, and who sends a request there is
answered its members."""
RESERVED = "$ORDERCAST."
TICK_S = 1.0
PING_S = 60.0
"""A client that says nothing for so long is asked whether it is there,"""
MOST_PINGS = 2
"""and after so many questions without an answer it is cut off."""
UNANSWERED_S = 5.0
"""A PING is answered after so long even if what came before it is not ordered yet."""
MOST_BESIDE = 3 * LONGEST_SUBJECT
"""Bytes of a message that are neither headers nor body, at most: subject, reply and how they are written."""
GRACE_S = 0.5
"""How long clients that are told to go elsewhere have for it, when the node stops."""


class ClientServer:
    """The clients of a node."""

    def __init__(
        self,
        config: NodeConfig,
        node: NodeId,
        processes: Processes,
        status: Callable[[], dict[str, Any]],
        stream: Stream | None = None,
        log: StreamLog | None = None,
        objects: Objects | None = None,
        listen: Listen = listen_for_clients,
    ) -> None:
        """`status` makes the document that `ordercast status` shows; `stream` is what JetStream is on, and
        `log` keeps it for later lives. `objects` replicates key-value buckets; None: there are none. `listen`
        is how connections come."""
        assert config.clients is not None, "the node serves clients"
        self.processes = processes
        self.most_payload = max(1, min(config.client_max_payload, processes.largest - MOST_BESIDE))
        self.most_pending = config.client_buffer
        self.connections = Connections(config.client_connections, spares_idle=True)
        self.clients: dict[int, ClientConnection] = {}
        """Clients that are served, by number."""
        self.unanswered: set[ClientConnection] = set()
        """Clients that have not answered a PING yet."""
        self.delivered = 0
        """Number of the last message of this node's life that was delivered here."""
        self.published = 0
        """Messages that clients published."""
        self.malformed: Counter[str] = Counter()
        """Clients that were cut off for what they sent, by reason."""
        self.refused: Counter[str] = Counter()
        """Clients that were cut off for other reasons."""
        self.address: str | None = None
        """Where clients connect."""
        self.jetstream = None
        if stream is not None:
            kept = None if log is None else log.kept
            self.jetstream = JetStream(
                stream, self.client_of, lambda: processes.alone, kept, self._nodes_process, self._tell_nodes
            )
        """None: the node has no log, or no stream of it."""
        self.buckets = None
        if objects is not None:
            self.buckets = Requests(objects, processes.members, NODES, self.jetstream)
        self._watchers: set[ClientConnection] = set()
        """Clients that are told of groups' views."""
        self._log = log
        self._by_process: dict[int, ClientConnection] = {}
        self._config = config
        self._node = node
        self._status = status
        self._listen = listen
        self._listener: ClientListener | None = None
        self._process: LocalProcess | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self._others: tuple[str, ...] = ()
        self._begun = 0
        self._leaving = False
        self._tick: asyncio.TimerHandle | None = None
        self._unanswered_s = 0.0
        self._tls = _tls_context(config)

    # --- beginning and end ----------------------------------------------------------------------

    async def start(self) -> None:
        """Serve clients from now on."""
        refusal = wire.error("maximum connections exceeded")
        self._listener = await self._listen(self._config, self.connections, self._begin, refusal)
        self.address = self._listener.address
        self._process = self.processes.begin(self)
        has_stream = {STREAM: "yes"} if self.jetstream is not None else {}
        self._process.join(NODES, {ADDRESS: self._advertised or "", **has_stream})
        if self.buckets is not None:
            self.buckets.start()
        self._tick = asyncio.get_running_loop().call_later(TICK_S, self._look)

    @property
    def _advertised(self) -> str | None:
        """Where other nodes' clients may go, if that can be told."""
        if self._config.client_advertise is not None:
            return self._config.client_advertise
        if self.address is None or self.address.startswith(UNIX):
            return None
        host, _ = parse_address(self.address)
        return None if host in ("0.0.0.0", "::") else self.address

    async def close(self) -> None:
        """Tell clients to go elsewhere, and end."""
        if self._listener is None:
            return
        self._leaving = True
        if self._tick is not None:
            self._tick.cancel()
        for task in self._telling:
            task.cancel()
        if self._process is not None:
            self._process.end()
        if self.buckets is not None:
            self.buckets.close()
        self._listener.refuse()
        for client in list(self.clients.values()):
            client.write(self.info(client))
        if self.clients:
            await asyncio.sleep(GRACE_S)
        for client in list(self.clients.values()):
            client.cut("closing")
        listener, self._listener = self._listener, None
        await listener.close()

    # --- connections ----------------------------------------------------------------------------

    def _begin(self, served: Served) -> ClientConnection:
        self._begun += 1
        return ClientConnection(self, served, self._begun)

    async def greet(self, client: ClientConnection) -> None:
        """Tell a client of this node, and go on with TLS where that is wanted, as NATS clients want it."""
        served = client.served
        if self._tls is None:
            client.write(self.info(client))
        else:
            assert served.transport is not None, "it is connected"
            served.transport.pause_reading()
            served.transport.write(self.info(client))
            try:
                await served.seal(self._tls, HANDSHAKE_S)
            except (OSError, TimeoutError) as error:
                self.refused["TLS handshake"] += 1
                raise ConnectionResetError("no TLS") from error
        if not client.ended:  # else it was cut off for what it sent meanwhile
            self.clients[client.number] = client

    def knows(self, options: Options) -> bool:
        """Whether a client has said who it is, as far as that is wanted."""
        config = self._config
        if config.client_token is not None:
            return _same(options.auth_token, config.client_token)
        if config.client_user is not None:
            password = _same(options.password, config.client_password or "")
            return _same(options.user, config.client_user) and password
        return True

    @property
    def guarded(self) -> bool:
        """Whether clients have to say who they are."""
        return self._config.client_token is not None or self._config.client_user is not None

    def info(self, client: ClientConnection) -> bytes:
        """What a client is told of this node."""
        told: dict[str, Any] = {
            "server_id": f"ORDERCAST{self._node}",
            "server_name": f"ordercast-{self._node}",
            "version": SPOKEN,
            "go": "",
            "proto": 1,
            "host": "0.0.0.0",
            "port": 4222,
            "headers": True,
            "max_payload": self.most_payload,
            "client_id": client.number,
            "jetstream": self._has_jetstream,
        }
        if self.address is not None and not self.address.startswith(UNIX):
            told["host"], told["port"] = parse_address(self.address)
        if self.guarded:
            told["auth_required"] = True
        if self._tls is not None:
            told["tls_required"] = True
        urls = [url for url in self._others if not (self._leaving and url == self._advertised)]
        if urls:
            told["connect_urls"] = urls
        if self._leaving:
            told["ldm"] = True
        return wire.info(told)

    def _look(self) -> None:
        """Once a second: who is silent, and who still waits."""
        self._tick = asyncio.get_running_loop().call_later(TICK_S, self._look)
        self._unanswered_s = self._unanswered_s + TICK_S if self.unanswered else 0.0
        if self._unanswered_s >= UNANSWERED_S:
            for client in list(self.unanswered):
                client.answer_pings(all_of_them=True)
        for service in self._services:
            service.look()
        for client in list(self.clients.values()):
            client.idle_s += TICK_S
            if not client.connected and client.idle_s >= HANDSHAKE_S:
                self.refused["silent"] += 1
                client.refuse("Authentication Timeout")
            elif client.idle_s >= PING_S * (client.pings + 1):
                if client.pings >= MOST_PINGS:
                    self.refused["stale"] += 1
                    client.refuse("Stale Connection")
                else:
                    client.pings += 1
                    client.write(wire.PING)

    # --- what this node answers itself ------------------------------------------------------------

    def serves(self, subject: str) -> bool:
        """Whether messages to a subject are for this node itself."""
        if subject.startswith(RESERVED) or (self._has_jetstream and subject.startswith(PREFIX)):
            return True
        return self.buckets is not None and subject.startswith(SUBJECTS)

    @property
    def _has_jetstream(self) -> bool:
        return self.jetstream is not None or self.buckets is not None

    def ask(self, client: ClientConnection, message: Publish) -> None:
        """A client asks the node itself."""
        if any(service.ask(client, message) for service in self._services):
            return
        if message.reply is None:
            return
        if message.subject == STATUS:
            client.tell(message.reply, b"", msgspec.json.encode(self._status(), enc_hook=str))
        elif message.subject.startswith(MEMBERS):
            group = message.subject.removeprefix(MEMBERS)
            client.tell(message.reply, b"", _members(group, self.processes.members(group)))
        elif client.options.no_responders:
            client.tell(message.reply, wire.status(503), b"")

    def guarantee(self, subject: str, reply: str | None) -> Guarantee:
        """How a message is sent."""
        return Guarantee.SAFE if self.acknowledges(subject, reply) else Guarantee.AGREED

    def acknowledges(self, subject: str, reply: str | None) -> bool:
        """Whether the node itself answers a message to a subject."""
        return self.jetstream is not None and self.jetstream.acknowledges(subject, reply)

    def client_of(self, process: int) -> ClientConnection | None:
        """The client that is a local process, by number."""
        found = self._by_process.get(process)
        if found is None or found.process_number != process:
            self._by_process = {client.process_number: client for client in self.clients.values()}
            found = self._by_process.get(process)
        return found

    def gone(self, client: ClientConnection) -> None:
        """A client is served no more."""
        self.clients.pop(client.number, None)
        self._by_process.pop(client.process_number, None)
        self.unanswered.discard(client)
        if client in self._watchers:
            self._watchers.remove(client)
            self.processes.watch(bool(self._watchers))
        for service in self._services:
            service.forget(client)

    @property
    def _services(self) -> list[Requests | JetStream]:
        """What answers requests, in the order in which it is asked."""
        return [each for each in (self.buckets, self.jetstream) if each is not None]

    def drained(self, client: ClientConnection) -> None:
        """A client takes messages again, or over another subscription."""
        for service in self._services:
            service.drained(client)

    def is_own(self, batch: Batch, sender: int, process: LocalProcess) -> bool:
        """Whether messages are from a client's own process."""
        return sender == process.number and (batch.origin, batch.incarnation) == self.processes.life

    # --- what the order says ----------------------------------------------------------------------

    def delivered_own(self, number: int) -> None:
        """Messages of this node, up to that number, were delivered here."""
        self.delivered = number
        if self.unanswered:
            for client in list(self.unanswered):
                client.answer_pings()

    def watches(self, client: ClientConnection, pattern: str) -> None:
        """A client subscribes to a pattern, which may describe groups that are watched."""
        if pattern.startswith(MEMBERS):
            self._watchers.add(client)
            self.processes.watch(True)

    def changed(self, view: View) -> None:
        """A group has a new view: tell those that watch it."""
        if self._watchers and is_subject(view.group) and not view.group.startswith(RESERVED):
            for client in tuple(self._watchers):
                client.tell(MEMBERS + view.group, b"", _members(view.group, view.members, view.cause))

    def numbered(self, numbered: Numbered) -> None:
        """Messages of the order, whoever gets them."""
        if self.jetstream is not None:
            batch = numbered.batch
            self.jetstream.numbered(numbered, (batch.origin, batch.incarnation) == self.processes.life)

    def recounted(self, recounted: Recounted) -> None:
        """Messages are counted anew from a configuration on."""
        if self._log is not None:
            self._log.recounted(recounted)

    def reached(self, number: int) -> None:
        """The last message that was delivered has this number among all of the order."""
        if self._log is not None:
            self._log.reached(number)

    def life_over(self) -> None:
        """The node begins another life: its messages are numbered anew."""
        self.delivered = 0
        if self.jetstream is not None:
            self.jetstream.learning.life_over()
        for client in list(self.clients.values()):
            client.life_over()

    def installed(self, view: View) -> None:
        """The nodes that serve clients are others: who is connected is told."""
        addresses = sorted({member.properties.get(ADDRESS, "") for member in view.members} - {""})
        if tuple(addresses) != self._others:
            self._others = tuple(addresses)
            for client in list(self.clients.values()):
                if client.options.protocol:
                    client.write(self.info(client))
        if self.jetstream is not None:
            self.jetstream.learning.installed(view)

    def received(self, received: Received) -> None:
        """Nodes that serve clients tell each other something."""
        if self.jetstream is not None:
            self.jetstream.learning.received(received)

    def _nodes_process(self) -> Process:
        """This node, as others know it that serve clients."""
        assert self._process is not None, "it serves clients"
        return Process(*self.processes.life, self._process.number)

    def _tell_nodes(self, payloads: Sequence[bytes]) -> None:
        """Send something to all nodes that serve clients."""
        task = asyncio.get_running_loop().create_task(self._send_to_nodes(payloads))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _send_to_nodes(self, payloads: Sequence[bytes]) -> None:
        assert self._process is not None, "it serves clients"
        with suppress(OrdercastError):  # who waits for it asks again, or another one
            for payload in payloads:
                await self._process.send((NODES,), (payload,), Guarantee.AGREED)

    def unheard(self, unheard: Unheard) -> None:
        """The node itself sends nothing."""

    def left(self, group: str, cause: Cause) -> None:
        """The node joins again in its next life."""

    def configuration(self, change: Configuration) -> None:
        """Another configuration of nodes: `installed` tells of those that serve clients."""

    # --- for people -----------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """What `ordercast status` shows of clients."""
        return {
            "address": self.address,
            "connected": len(self.clients),
            "subscriptions": sum(len(client.subscriptions) for client in self.clients.values()),
            "published": self.published,
            "malformed": dict(sorted(self.malformed.items())),
            "refused": dict(sorted(self.refused.items())),
            "consumers": 0 if self.jetstream is None else len(self.jetstream.consumers),
            "buckets": None if self.buckets is None else self.buckets.report(),
            "connections": self.connections.status(),
        }


def _members(group: str, members: Sequence[Member], cause: str | None = None) -> bytes:
    """Who is in a group, in JSON."""
    told = [
        {"process": str(each.process), "node": each.process.node, "properties": dict(each.properties)}
        for each in members
    ]
    why = {} if cause is None else {"cause": cause}
    return msgspec.json.encode({"group": group, **why, "members": told})


def _same(told: str | None, wanted: str) -> bool:
    return hmac.compare_digest((told or "").encode("utf-8", "surrogatepass"), wanted.encode())


def _tls_context(config: NodeConfig) -> ssl.SSLContext | None:
    if config.client_tls_cert is None or config.client_tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.client_tls_cert, config.client_tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigProblem(
            f"client_tls_cert {config.client_tls_cert} and client_tls_key {config.client_tls_key} cannot be "
            f"used: {error}; name the files of a certificate and its key in PEM"
        ) from error
    return context
