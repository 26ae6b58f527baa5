"""A node's figures for Prometheus: its status, read when it is scraped.

The HTTP server has threads of its own; the status belongs to the event loop's thread and is read there.
Import this module only where metrics are wanted: the library behind it is not needed otherwise.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from ordercast.errors import AddressProblem
from ordercast.runtime.config import format_address, parse_address

PATIENCE_S = 2.0
"""How long a scrape waits for the event loop."""

Status = Mapping[str, Any]


class Metrics:
    """Serves a node's metrics at ``http://host:port/metrics`` until it is closed."""

    def __init__(self, address: str, status: Callable[[], dict[str, Any]]) -> None:
        self.address = address
        """Where they are, with the real port once it is started."""
        self._status = status
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None

    async def start(self) -> None:
        """Listen. The address may have port 0: any that is free."""
        host, port = parse_address(self.address)
        registry = CollectorRegistry()
        registry.register(Reading(asyncio.get_running_loop(), self._status))
        try:
            server, self._thread = await asyncio.to_thread(start_http_server, port, host, registry)
        except OSError as error:
            raise AddressProblem(
                f"metrics cannot be served at {self.address}: {error.strerror or error}; choose another "
                "address, or stop what uses this one"
            ) from error
        self.address = format_address(host, server.server_port)
        self._server = server

    async def close(self) -> None:
        """Serve no more."""
        if self._server is None or self._thread is None:
            return
        server, self._server = self._server, None
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        await asyncio.to_thread(self._thread.join)


class Reading:
    """What the HTTP server collects from: one reading of the status a scrape."""

    def __init__(self, loop: asyncio.AbstractEventLoop, status: Callable[[], dict[str, Any]]) -> None:
        self._loop = loop
        self._status = status

    def describe(self) -> list[Metric]:
        """Nothing beforehand: the node is asked at a scrape, not when this is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics of now. A node whose loop does not answer is not up."""
        status = self._read()
        yield GaugeMetricFamily("ordercast_up", "Whether the node answers.", float(status is not None))
        if status is not None:
            yield from families(status)

    def _read(self) -> Status | None:
        future: concurrent.futures.Future[Status] = concurrent.futures.Future()

        def read() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._status())
                except Exception as error:  # noqa: BLE001 - told to who asked, in the other thread
                    future.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(read)
        except RuntimeError:  # the loop is closed
            return None
        try:
            return future.result(PATIENCE_S)
        except TimeoutError:
            future.cancel()
            return None


COUNTERS: tuple[tuple[str, str, str], ...] = (
    ("delivered", "delivered_messages", "Messages handed to the application."),
    ("sent", "sent_messages", "Messages that this node broadcast."),
    ("retransmissions", "retransmissions", "Packets that this node sent again because a member missed them."),
    ("token_retransmissions", "token_retransmissions", "Tokens that this node sent again."),
    ("stops", "stops", "Times that the process was found to have been stopped."),
)
GAUGES: tuple[tuple[str, str, str, float], ...] = (
    ("uptime_s", "uptime_seconds", "Since the node was started.", 1),
    ("rotation_us", "rotation_seconds", "Of the token, on average of late.", 1e-6),
    ("rotation_us_max", "rotation_max_seconds", "Of the token, at most of late.", 1e-6),
    ("lag_us", "lag_seconds", "How late the node's event loop is.", 1e-6),
    ("queued_bytes", "queued_bytes", "Accepted from the application and not yet broadcast.", 1),
    ("unread_bytes", "unread_bytes", "Delivered to the application and not yet read.", 1),
)


def families(status: Status) -> Iterator[Metric]:
    """A status as metrics. What it does not tell is left out."""
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
    yield from _group(status)
    yield from _log(status)
    yield from _others(status)
    buffers = GaugeMetricFamily(
        "ordercast_receive_buffer_bytes", "Of the kernel: asked for and granted.", labels=["which"]
    )
    for which, size in status.get("buffers", {}).items():
        buffers.add_metric([which], size)
    yield buffers


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


def _log(status: Status) -> Iterator[Metric]:
    kept = status.get("log")
    if kept:
        yield GaugeMetricFamily("ordercast_log_entries", "In the ordered log.", kept["entries"])
        yield GaugeMetricFamily("ordercast_log_bytes", "Of the ordered log.", kept["bytes"])
        yield GaugeMetricFamily("ordercast_log_clients", "Who read it over TCP.", kept["clients"])
        yield GaugeMetricFamily(
            "ordercast_log_braking", "Whether the disk does not keep up.", float(kept["braking"])
        )
        drops = CounterMetricFamily(
            "ordercast_log_drops", "Connections to the log that were ended, by reason.", labels=["reason"]
        )
        for reason, count in kept["drops"].items():
            drops.add_metric([reason], count)
        yield drops


def _others(status: Status) -> Iterator[Metric]:
    """What is told of each node."""
    linked = GaugeMetricFamily("ordercast_peer_linked", "Whether its address is known.", labels=["node"])
    silent = GaugeMetricFamily("ordercast_peer_silent_seconds", "Since it was heard.", labels=["node"])
    for peer in status.get("peers", ()):
        node = str(peer["node"])
        linked.add_metric([node], float(peer["linked"]))
        if peer.get("silent_s") is not None:
            silent.add_metric([node], peer["silent_s"])
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
