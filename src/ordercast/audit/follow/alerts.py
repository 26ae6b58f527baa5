"""How others learn what a follower of a trace finds: metrics for Prometheus, and a request to a web hook."""

from __future__ import annotations

import json
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from ordercast.audit.explain import Violation
from ordercast.audit.follow.follower import Follower

MOST_WAITING = 1_000
"""Violations that wait until the web hook takes them; of more, the first are sent."""

ATTEMPTS = 3
TIMEOUT_S = 5.0


class Hook:
    """Posts each violation to a URL, as JSON, in a thread of its own."""

    def __init__(self, url: str, failed: Callable[[str], None]) -> None:
        """`failed` is told in a sentence what could not be sent. Raises `ValueError` if that is no URL."""
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is no URL: it begins with http:// or https://")
        self._url = url
        self._failed = failed
        self._waiting: queue.Queue[Violation | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name="ordercast-hook", daemon=True)
        self._thread.start()

    def send(self, violation: Violation) -> None:
        """Post it when its turn comes."""
        try:
            self._waiting.put_nowait(violation)
        except queue.Full:
            self._failed(f"{self._url} takes too long: a violation of {violation.property} was not sent")

    def close(self) -> None:
        """Wait until all is sent, or given up."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (violation := self._waiting.get()) is not None:
            document = json.dumps({"violation": violation.as_dict()}).encode()
            for attempt in range(ATTEMPTS):
                time.sleep(attempt)
                problem = self._post(document)
                if problem is None:
                    break
            else:
                self._failed(
                    f"{self._url}: {problem}: a violation of {violation.property} was not sent there"
                )

    def _post(self, document: bytes) -> str | None:
        """Send it once; what was wrong, if something was."""
        headers = {"Content-Type": "application/json", "User-Agent": "ordercast"}
        request = urllib.request.Request(self._url, document, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S):
                return None
        except (urllib.error.URLError, OSError) as error:
            return str(error)


class Metrics:
    """What Prometheus is told of a follower."""

    def __init__(self, host: str, port: int) -> None:
        """Answer at that address. Raises `OSError` if it cannot be had."""
        registry = CollectorRegistry()
        self._events = Counter("ordercast_audit_events", "Rows that were read.", registry=registry)
        self._violations = Counter(
            "ordercast_audit_violations", "Breaches found.", ["property"], registry=registry
        )
        self._held = Gauge("ordercast_audit_held_rows", "Rows that are not settled.", registry=registry)
        self._behind = Gauge(
            "ordercast_audit_nodes_behind", "Nodes whose rows are not waited for.", registry=registry
        )
        self._last = Gauge(
            "ordercast_audit_last_row_timestamp_seconds",
            "Time of the latest row, by the clock of its node.",
            registry=registry,
        )
        self._judged = Gauge(
            "ordercast_audit_judged_timestamp_seconds", "When all was judged last.", registry=registry
        )
        self._seen: dict[str, int] = {}
        self._read = 0
        self._server, self._thread = start_http_server(port, host, registry)
        self.port: int = self._server.server_port
        """Where it answers."""

    def tell(self, follower: Follower) -> None:
        """Take over how far a follower is."""
        self._events.inc(follower.events - self._read)
        self._read = follower.events
        for code, count in follower.report().properties.items():
            self._violations.labels(code).inc(count - self._seen.get(code, 0))
            self._seen[code] = count
        self._held.set(follower.held)
        self._behind.set(sum(len(window.left_behind) for window in follower.windows.values()))
        self._last.set(follower.last_us / 1e6)
        self._judged.set(time.time())

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
