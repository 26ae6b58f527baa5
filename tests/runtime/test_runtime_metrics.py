"""Metrics: the node's status, as Prometheus reads it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ordercast.errors import AddressProblem
from ordercast.runtime.metrics import Metrics, families
from ordercast.totem.declared import STATISTICS
from ordercast.transport.address import parse_address

STATUS: dict[str, Any] = {
    "node": 1,
    "incarnation": 2,
    "address": "127.0.0.1:4801",
    "state": "operational",
    "sealed": False,
    "uptime_s": 1.5,
    "configuration": {"seq": 8, "rep": 1, "kind": "regular", "members": [1, 2, 3]},
    "peers": [
        {"node": 2, "address": "127.0.0.1:4803", "linked": True, "silent_s": 0.25},
        {"node": 3, "address": None, "linked": False, "silent_s": None},
    ],
    "rotation_us": 310.0,
    "throughput": {"delivered_per_s": 3.0, "sent_per_s": 1.0, "bytes_per_s": 300.0},
    "delivered": 1234,
    "sent": 400,
    "statistics": {
        "retransmissions": 5,
        "token_retransmissions": 1,
        "rotation_us_total": 2_000_000,
        "rotation_us_max": 900,
    },
    "packets_sent": {"token": 40, "data": 0},
    "drops": {"bad seal": 7, "replayed": 2},
    "slow": {"node": 3, "waits_us": 1200},
    "waits_us": {"1": 30, "3": 1200},
    "held_up_by": 2,
    "stops": 4,
    "unread_bytes": 11,
    "lag_us": 120,
    "buffers": {"asked": 4194304, "granted": 425984},
    "offload": {"send": True, "receive": True},
    "queued_bytes": 10,
}

Samples = dict[tuple[str, str], float]


def samples(text: str) -> Samples:
    """Every sample by its name and the value of its one label."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            label = "" if sample.name.endswith("_info") else ",".join(sample.labels.values())
            found[sample.name, label] = sample.value
    return found


def scraped(
    status: Callable[[], dict[str, Any]], scrape: Callable[[str], Any], address: str = "127.0.0.1:0"
) -> Any:
    async def main() -> Any:
        server = Metrics(address, status, STATISTICS)
        await server.start()
        try:
            return await asyncio.to_thread(scrape, f"http://{server.address}/metrics")
        finally:
            await server.close()

    return asyncio.run(main())


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0"])
def test_the_status_is_what_prometheus_reads(address: str) -> None:
    asked_in = []

    def status() -> dict[str, Any]:
        asked_in.append(threading.current_thread())
        return STATUS

    text = scraped(status, read, address)
    assert asked_in == [threading.main_thread()], "the loop's own thread, once a scrape"
    found = samples(text)
    assert 'ordercast_node_info{address="127.0.0.1:4801",incarnation="2",node="1",sealed="false"} 1.0' in text
    expected = {
        ("ordercast_up", ""): 1,
        ("ordercast_delivered_messages_total", ""): 1234,
        ("ordercast_sent_messages_total", ""): 400,
        ("ordercast_retransmissions_total", ""): 5,
        ("ordercast_token_retransmissions_total", ""): 1,
        ("ordercast_drops_total", "bad seal"): 7,
        ("ordercast_drops_total", "replayed"): 2,
        ("ordercast_state", "operational"): 1,
        ("ordercast_members", ""): 3,
        ("ordercast_configuration_seq", ""): 8,
        ("ordercast_peer_linked", "2"): 1,
        ("ordercast_peer_linked", "3"): 0,
        ("ordercast_peer_silent_seconds", "2"): 0.25,
        ("ordercast_rotation_seconds", ""): 310e-6,
        ("ordercast_rotation_max_seconds", ""): 900e-6,
        ("ordercast_rotation_seconds_total", ""): 2,
        ("ordercast_packets_sent_total", "token"): 40,
        ("ordercast_packets_sent_total", "data"): 0,
        ("ordercast_waits_seconds", "3"): 1200e-6,
        ("ordercast_slow", "3"): 1,
        ("ordercast_held_up", "2"): 1,
        ("ordercast_stops_total", ""): 4,
        ("ordercast_unread_bytes", ""): 11,
        ("ordercast_lag_seconds", ""): 120e-6,
        ("ordercast_queued_bytes", ""): 10,
        ("ordercast_receive_buffer_bytes", "granted"): 425984,
        ("ordercast_uptime_seconds", ""): 1.5,
    }
    assert {name: found.get(name) for name in expected} == pytest.approx(expected)
    assert ("ordercast_peer_silent_seconds", "3") not in found


def test_a_status_that_tells_little_is_told_as_far_as_it_goes() -> None:
    little = {"node": 1, "configuration": None, "rotation_us": None, "slow": None, "held_up_by": None}
    names = {sample.name for family in families(little, STATISTICS) for sample in family.samples}
    assert names == {"ordercast_node_info"}


def test_a_mistake_in_the_status_is_no_silence() -> None:
    def status() -> dict[str, Any]:
        raise LookupError("no such thing")

    def scrape(url: str) -> int:
        with pytest.raises(urllib.error.HTTPError) as raised:
            read(url)
        return raised.value.code

    assert scraped(status, scrape) == 500


def said(address: str, request: bytes) -> bytes:
    """What a server says to a request, until it ends the connection."""
    with socket.create_connection(parse_address(address), timeout=10) as line:
        line.sendall(request)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while part := line.recv(65_536):
                answer += part
    return answer


@pytest.mark.parametrize(
    ("request_", "begin"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"HEAD /metrics HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /tea HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"\x16\x03\x01\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 300_000 + b"\r\n\r\n", b""),
    ],
    ids=["get", "head", "elsewhere", "post", "no HTTP", "a header without end"],
)
def test_whatever_is_asked_is_answered_or_refused(request_: bytes, begin: bytes) -> None:
    async def main() -> bytes:
        server = Metrics("127.0.0.1:0", lambda: STATUS, STATISTICS)
        await server.start()
        try:
            answer = await asyncio.to_thread(said, server.address, request_)
            assert (await asyncio.to_thread(read, f"http://{server.address}/metrics")) != ""
            return answer
        finally:
            await server.close()

    answer = asyncio.run(main())
    assert answer.startswith(begin)
    assert bool(answer) == bool(begin)


def test_metrics_are_made_once_however_often_they_are_asked_for() -> None:
    made = []

    def status() -> dict[str, Any]:
        made.append(1)
        return STATUS

    async def main() -> None:
        server = Metrics("127.0.0.1:0", status, STATISTICS)
        await server.start()
        server._made = time.monotonic() + 1000, b"as they were\n"
        try:
            assert await asyncio.to_thread(read, f"http://{server.address}/metrics") == "as they were\n"
        finally:
            await server.close()

    asyncio.run(main())
    assert not made


def test_an_address_that_is_taken_is_told() -> None:
    async def twice() -> None:
        first = Metrics("127.0.0.1:0", dict, STATISTICS)
        await first.start()
        try:
            with pytest.raises(AddressProblem, match=r"metrics cannot be served at 127\.0\.0\.1:\d+: "):
                await Metrics(first.address, dict, STATISTICS).start()
        finally:
            await first.close()
            await first.close()

    asyncio.run(twice())
