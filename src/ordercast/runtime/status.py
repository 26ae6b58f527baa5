"""How a node is doing: one document, for people, programs and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ordercast.core.identity import Configuration, NodeId
from ordercast.core.protocol import Protocol as OrderProtocol
from ordercast.runtime.driver import Driver

SLOW_US = 1_000
"""Who keeps the token waiting for less than this is not called slow."""


class Counted(Protocol):
    """Where deliveries are counted."""

    @property
    def configuration(self) -> Configuration | None:
        """The configuration installed last; None before the first."""

    @property
    def delivered_bytes(self) -> int:
        """Bytes of all messages delivered so far."""

    @property
    def unread(self) -> int:
        """Bytes that wait for the application."""


class StatusSource(Protocol):
    """What a status is made from."""

    id: NodeId
    driver: Driver
    started_us: int
    """By the driver's clock."""

    @property
    def incarnation(self) -> int:
        """Which of its lives this is."""

    @property
    def readers(self) -> Counted:
        """Where the deliveries of all groups are counted."""

    @property
    def rates(self) -> Rates:
        """Figures of the last second."""

    @property
    def trace_problem(self) -> str | None:
        """Why the trace broke off, if it did."""

    @property
    def queued(self) -> int:
        """Bytes that wait to be sent."""

    @property
    def protocol(self) -> OrderProtocol:
        """What orders its messages."""

    @property
    def settled(self) -> bool:
        """Whether the node is in a configuration in which messages are ordered."""


class Rates:
    """Figures a second, from what was counted about a second apart."""

    def __init__(self, now_us: int) -> None:
        self._last = (now_us, 0, 0, 0, 0.0, 0.0)
        self.delivered_per_s = self.sent_per_s = self.bytes_per_s = 0.0
        self.rotation_us: float | None = None

    def note(self, driver: Driver, counted: Counted) -> None:
        """Called about once a second."""
        stats = driver.machine.stats
        now = (
            driver.now_us(),
            driver.delivered,
            driver.sent,
            counted.delivered_bytes,
            stats.get("rotations", 0.0),
            stats.get("rotation_us_total", 0.0),
        )
        elapsed_us, delivered, sent, size, rotations, took = (
            new - old for new, old in zip(now, self._last, strict=True)
        )
        self._last = now
        elapsed = elapsed_us / 1_000_000
        if elapsed > 0:
            self.delivered_per_s = delivered / elapsed
            self.sent_per_s = sent / elapsed
            self.bytes_per_s = size / elapsed
        self.rotation_us = took / rotations if rotations else None


def status(node: StatusSource) -> dict[str, Any]:
    """The status of a node; everything in it can be written as JSON."""
    driver, rates = node.driver, node.rates
    machine = driver.machine
    stats = machine.stats
    waits = {str(member): waited for member, waited in sorted(machine.waits.items())}
    slowest = max(machine.waits.items(), key=lambda item: item[1], default=None)
    configuration = node.readers.configuration
    return {
        "node": node.id,
        "incarnation": node.incarnation,
        "protocol": node.protocol.name,
        "state": driver.state,
        "because": driver.because,
        "settled": node.settled,
        "role": machine.role or None,
        "uptime_s": round((driver.now_us() - node.started_us) / 1_000_000, 3),
        **driver.transport.status(),
        "configuration": None
        if configuration is None
        else {
            "seq": configuration.id.seq,
            "rep": configuration.id.rep,
            "kind": str(configuration.kind),
            "members": list(configuration.members),
        },
        "rotation_us": None if rates.rotation_us is None else round(rates.rotation_us, 1),
        "throughput": {
            "delivered_per_s": round(rates.delivered_per_s, 1),
            "sent_per_s": round(rates.sent_per_s, 1),
            "bytes_per_s": round(rates.bytes_per_s, 1),
        },
        "delivered": driver.delivered,
        "sent": driver.sent,
        "statistics": {each.name: stats.get(each.name, 0.0) for each in node.protocol.statistics},
        "packets_sent": _by_kind(node.protocol, driver.packets_sent),
        "drops": dict(sorted({**driver.drops, **driver.transport.lost()}.items())),
        "waits_us": waits,
        "slow": {"node": slowest[0], "waits_us": slowest[1]} if slowest and slowest[1] > SLOW_US else None,
        "held_up_by": machine.laggard,
        "lag_us": round(driver.lag.us),
        "stops": driver.lag.stops,
        "trace_problem": node.trace_problem,
        "queued_bytes": node.queued,
        "unread_bytes": node.readers.unread,
        **node.protocol.report(machine),
    }


def _by_kind(protocol: OrderProtocol, sent: Mapping[bytes, int]) -> dict[str, int]:
    """Packets that the machine sent, by the name of their kind, those of which there were none included."""
    found = {kind.name: 0 for kind in protocol.kinds.values()}
    for number, count in sent.items():
        kind = protocol.kinds.get(number[0]) if number else None
        name = "unknown" if kind is None else kind.name
        found[name] = found.get(name, 0) + count
    return found
