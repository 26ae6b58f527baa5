"""A node's figures for Prometheus: its status, read when it is scraped.

A small HTTP server on the node's own event loop: whoever asks is told the metrics, once a connection. They
are made at most once in `FRESH_S`, whoever asks and however often.
Import this module only where metrics are wanted: the library behind it is not needed otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from ordercast.core.declared import Sort, Statistic
from ordercast.runtime.connections import HANDSHAKE_S, Connection, Connections, Listener, bound
from ordercast.transport.address import format_address, parse_address

LOG = logging.getLogger("ordercast")

FRESH_S = 0.25
"""Metrics are not made anew for who asks within this time."""

Status = Mapping[str, Any]


class Metrics:
    """Serves a node's metrics at ``http://host:port/metrics`` until it is closed."""

    def __init__(
        self,
        address: str,
        status: Callable[[], dict[str, Any]],
        statistics: Sequence[Statistic],
        connections: Connections | None = None,
    ) -> None:
        """`statistics` are those that the protocol declares; `connections`: where they are counted, with
        those of the node's other services."""
        self.address = address
        """Where they are, with the real port once it is started."""
        self.drops: Counter[str] = Counter()
        """Requests that were not answered with metrics, by reason."""
        self._status = status
        self._statistics = statistics
        self._connections = Connections() if connections is None else connections
        self._listener: Listener | None = None
        self._made: tuple[float, bytes] = (-FRESH_S, b"")

    async def start(self) -> None:
        """Listen. The address may have port 0: any that is free."""
        host, port = parse_address(self.address)
        advice = "choose another address, or stop what uses this one"
        listening = await bound(host, port, "metrics", advice)
        self._listener = Listener(listening, self._connections, self._serve)
        self.address = format_address(host, self._listener.address[1])

    async def close(self) -> None:
        """End all connections and listen no more."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection
    ) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                asked = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(asked.split(b"\r\n", 1)[0].split()))
                await writer.drain()
        except asyncio.LimitOverrunError:
            self.drops["request too large"] += 1
        except TimeoutError:
            self.drops["silent"] += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            self.drops["gone"] += 1

    def _answer(self, asked: list[bytes]) -> bytes:
        """What HTTP says to a request line."""
        if len(asked) != 3 or not asked[2].startswith(b"HTTP/1."):
            return self._refused("400 Bad Request")
        if asked[0] not in (b"GET", b"HEAD"):
            return self._refused("405 Method Not Allowed")
        if asked[1].partition(b"?")[0] not in (b"/metrics", b"/"):
            return self._refused("404 Not Found")
        try:
            text = self._text()
        except Exception:
            LOG.critical("metrics cannot be told: a defect in ordercast", exc_info=True)
            return self._refused("500 Internal Server Error")
        return _http("200 OK", text, with_body=asked[0] == b"GET")

    def _refused(self, code: str) -> bytes:
        self.drops[code] += 1
        return _http(code, f"{code}: metrics are at /metrics\n".encode())

    def _text(self) -> bytes:
        now = time.monotonic()
        if now - self._made[0] >= FRESH_S:
            registry = CollectorRegistry(auto_describe=False)
            registry.register(Reading(self._status(), self._statistics))
            self._made = now, generate_latest(registry)
        return self._made[1]


def _http(code: str, body: bytes, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {code}\r\nContent-Type: {CONTENT_TYPE_LATEST}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")


class Reading:
    """One reading of the status, as metrics are collected from it."""

    def __init__(self, status: Status, statistics: Sequence[Statistic]) -> None:
        self._status, self._statistics = status, statistics

    def describe(self) -> list[Metric]:
        """No metrics are described before they are collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics of this status."""
        yield GaugeMetricFamily("ordercast_up", "Whether the node answers.", 1.0)
        yield from families(self._status, self._statistics)


COUNTERS: tuple[tuple[str, str, str], ...] = (
    ("delivered", "delivered_messages", "Messages handed to the application."),
    ("sent", "sent_messages", "Messages that this node broadcast."),
    ("stops", "stops", "Times that the process was found to have been stopped."),
)
GAUGES: tuple[tuple[str, str, str, float], ...] = (
    ("uptime_s", "uptime_seconds", "Since the node was started.", 1),
    ("rotation_us", "rotation_seconds", "Of the token, on average of late.", 1e-6),
    ("lag_us", "lag_seconds", "How late the node's event loop is.", 1e-6),
    ("queued_bytes", "queued_bytes", "Accepted from the application and not yet broadcast.", 1),
    ("unread_bytes", "unread_bytes", "Delivered to the application and not yet read.", 1),
)


def families(status: Status, statistics: Sequence[Statistic]) -> Iterator[Metric]:
    """A status as metrics, with the statistics that the protocol declares. What is not told is left out."""
    about = {
        name: status[name]
        for name in ("node", "incarnation", "address", "protocol", "sealed")
        if name in status
    }
    yield InfoMetricFamily("ordercast_node", "Who this is.", {name: _text(about[name]) for name in about})
    for name, metric, help_ in COUNTERS:
        if status.get(name) is not None:
            yield CounterMetricFamily(f"ordercast_{metric}", help_, status[name])
    for name, metric, help_, scale in GAUGES:
        if status.get(name) is not None:
            yield GaugeMetricFamily(f"ordercast_{metric}", help_, status[name] * scale)
    drops = CounterMetricFamily("ordercast_drops", "Packets not used, by reason.", labels=["reason"])
    for reason, count in status.get("drops", {}).items():
        drops.add_metric([reason], count)
    yield drops
    yield from _of_machine(status, statistics)
    yield from _group(status)
    yield from _topology(status)
    yield from _connections(status)
    yield from _log(status)
    yield from _clients(status)
    yield from _others(status)
    buffers = GaugeMetricFamily(
        "ordercast_receive_buffer_bytes", "Of the kernel: asked for and granted.", labels=["which"]
    )
    for which, size in status.get("buffers", {}).items():
        buffers.add_metric([which], size)
    yield buffers


def _of_machine(status: Status, statistics: Sequence[Statistic]) -> Iterator[Metric]:
    """What the protocol's machine counts, and the packets that it sent."""
    found = status.get("statistics", {})
    for each in statistics:
        if each.name in found:
            name, scale = metric_of(each)
            family = CounterMetricFamily if each.sort is Sort.COUNT else GaugeMetricFamily
            yield family(name, each.help, found[each.name] * scale)
    sent = CounterMetricFamily("ordercast_packets_sent", "Packets of the protocol, by kind.", labels=["kind"])
    for kind, count in status.get("packets_sent", {}).items():
        sent.add_metric([kind], count)
    yield sent


def metric_of(statistic: Statistic) -> tuple[str, float]:
    """What a statistic is called in Prometheus, and what to multiply it by: times are seconds there.

    ``rotation_us_max`` is ``ordercast_rotation_max_seconds``. Counters get a ``_total`` behind their names.
    """
    words = statistic.name.removesuffix("_total").split("_")
    if "us" not in words:
        return "_".join(("ordercast", *words)), 1.0
    words.remove("us")
    return "_".join(("ordercast", *words, "seconds")), 1e-6


def _group(status: Status) -> Iterator[Metric]:
    if "state" in status:
        state = GaugeMetricFamily("ordercast_state", "1 for the state the node is in.", labels=["state"])
        state.add_metric([status["state"]], 1)
        yield state
    configuration = status.get("configuration")
    if configuration:
        yield GaugeMetricFamily(
            "ordercast_members", "Nodes in the configuration.", len(configuration["members"])
        )
        yield GaugeMetricFamily(
            "ordercast_configuration_seq", "Number of the configuration.", configuration["seq"]
        )


def _topology(status: Status) -> Iterator[Metric]:
    """Rings that gateways join, where there are such."""
    topology = status.get("topology")
    if not topology:
        return
    labels = ["network", "ring"]
    members = GaugeMetricFamily("ordercast_ring_members", "Nodes on a ring.", labels=labels)
    about = "Bundles of messages that wait for a word from a ring."
    waiting = GaugeMetricFamily("ordercast_ring_waiting", about, labels=[*labels, "guarantee"])
    queued = GaugeMetricFamily("ordercast_ring_queued_bytes", "To be broadcast on a ring.", labels=labels)
    for ring in topology["rings"]:
        names = [str(ring["network"]), f"{ring['seq']}.{ring['rep']}"]
        members.add_metric(names, len(ring["members"]))
        waiting.add_metric([*names, "agreed"], ring["waiting"])
        waiting.add_metric([*names, "safe"], ring["waiting_safe"])
        if ring["attached"]:
            queued.add_metric(names, ring["to_be_broadcast"])
    about = "Paths on which a gateway forwards from one ring to another."
    paths = GaugeMetricFamily("ordercast_paths", about, labels=["gateway"])
    for gateway, count in Counter(path["gateway"] for path in topology["paths"]).items():
        paths.add_metric([str(gateway)], count)
    yield from (members, waiting, queued, paths)


def _connections(status: Status) -> Iterator[Metric]:
    there = status.get("connections")
    if there:
        yield GaugeMetricFamily("ordercast_connections", "To log and metrics.", there["open"])
        yield GaugeMetricFamily("ordercast_connections_most", "That there may be.", there["most"])
        yield GaugeMetricFamily("ordercast_connections_bytes", "Of memory for frames.", there["bytes"])
        yield _by_reason("ordercast_connections_ended", "Because of a limit, by reason.", there["ended"])


def _log(status: Status) -> Iterator[Metric]:
    kept = status.get("log")
    if kept:
        yield GaugeMetricFamily("ordercast_log_entries", "In the ordered log.", kept["entries"])
        yield GaugeMetricFamily("ordercast_log_bytes", "Of the ordered log.", kept["bytes"])
        yield GaugeMetricFamily("ordercast_log_clients", "Who read it over TCP.", kept["clients"])
        yield GaugeMetricFamily(
            "ordercast_log_braking", "Whether the disk does not keep up.", float(kept["braking"])
        )
        about = "Connections to the log that were ended, by reason."
        yield _by_reason("ordercast_log_drops", about, kept["drops"])


def _clients(status: Status) -> Iterator[Metric]:
    served = status.get("clients")
    if served:
        yield GaugeMetricFamily("ordercast_clients", "That are connected.", served["connected"])
        yield GaugeMetricFamily("ordercast_client_subscriptions", "Of all clients.", served["subscriptions"])
        yield GaugeMetricFamily("ordercast_client_consumers", "Of the stream.", served["consumers"])
        yield CounterMetricFamily("ordercast_client_published", "Messages of clients.", served["published"])
        about = "Clients that were cut off for what they sent, by reason."
        yield _by_reason("ordercast_client_malformed", about, served["malformed"])
        yield _by_reason("ordercast_client_refused", "Clients that were cut off.", served["refused"])


def _by_reason(name: str, about: str, counts: Mapping[str, int]) -> Metric:
    found = CounterMetricFamily(name, about, labels=["reason"])
    for reason, count in counts.items():
        found.add_metric([reason], count)
    return found


def _others(status: Status) -> Iterator[Metric]:
    """What is told of each node."""
    labels = ["node", "network"] if "networks" in status else ["node"]
    linked = GaugeMetricFamily("ordercast_peer_linked", "Whether its address is known.", labels=labels)
    silent = GaugeMetricFamily("ordercast_peer_silent_seconds", "Since it was heard.", labels=labels)
    for peer in status.get("peers", ()):
        where = [str(peer[label]) for label in labels]
        linked.add_metric(where, float(peer["linked"]))
        if peer.get("silent_s") is not None:
            silent.add_metric(where, peer["silent_s"])
    waits = GaugeMetricFamily("ordercast_waits_seconds", "How long it holds a token up.", labels=["node"])
    for node, wait_us in status.get("waits_us", {}).items():
        waits.add_metric([node], wait_us * 1e-6)
    slow = GaugeMetricFamily("ordercast_slow", "1 for the node that holds the others up.", labels=["node"])
    if status.get("slow"):
        slow.add_metric([str(status["slow"]["node"])], 1)
    holder = GaugeMetricFamily("ordercast_held_up", "1 for the node that all wait for.", labels=["node"])
    if status.get("held_up_by") is not None:
        holder.add_metric([str(status["held_up_by"])], 1)
    yield from (linked, silent, waits, slow, holder)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
