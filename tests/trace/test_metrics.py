from __future__ import annotations

import random
from itertools import count

import pytest

from ordercast.trace.metrics import Metrics, measure
from ordercast.trace.schema import Row

STEPS = count()


def row(
    node: int,
    time_us: int,
    event: str,
    message: tuple[int, int, int] | tuple[None, None, None] = (None, None, None),
    *,
    guarantee: str | None = "agreed",
    size: int | None = 100,
    config: tuple[int, int, str] = (8, 1, "regular"),
) -> Row:
    head = (node, 0, next(STEPS), time_us, event, *config, None)
    return (*head, *message, 8, 1, None, None, guarantee, None, size, None)


def one_message(number: int, at: int, after: list[int], guarantee: str = "agreed") -> list[Row]:
    """Submitted by node 1, broadcast 10 µs later, delivered by nodes 1, 2, … after so long."""
    message = (1, 0, number)
    return [
        row(1, at, "submit", message, guarantee=guarantee),
        row(1, at + 10, "originate", message, guarantee=guarantee),
        *(
            row(node, at + late, "deliver", message, guarantee=guarantee)
            for node, late in enumerate(after, 1)
        ),
    ]


def test_a_message_counts_once_and_each_of_its_deliveries_too() -> None:
    found = measure(one_message(0, 0, [100, 200]) + one_message(1, 1_000_000, [100, 200]))
    assert (found.submitted, found.originated, found.delivered, found.ordered) == (2, 2, 4, 2)
    assert found.ordered_bytes == 200
    assert found.events == 8


def test_throughput_is_over_the_time_in_which_something_was_delivered() -> None:
    """Half a second of silence before the first delivery does not slow the run down."""
    rows = [row(1, 0, "install")]
    for number in range(11):
        rows += one_message(number, 500_000 + 100_000 * number, [0])
    found = measure(rows)
    assert found.delivering_us == 1_000_000
    assert found.messages_per_s == pytest.approx(11)
    assert found.bytes_per_s == pytest.approx(1100)


def test_latency_is_of_every_delivery_by_guarantee() -> None:
    rows = one_message(0, 0, [100, 300]) + one_message(1, 50, [1000], guarantee="safe")
    found = measure(rows)
    agreed, safe = found.from_submit["agreed"], found.from_submit["safe"]
    assert (agreed.count, agreed.mean_us, agreed.p50_us, agreed.p99_us) == (2, 200.0, 100, 300)
    assert (safe.count, safe.mean_us, safe.max_us) == (1, 1000.0, 1000)
    assert found.from_originate["agreed"].mean_us == 190.0


def test_percentiles_are_by_nearest_rank() -> None:
    rows: list[Row] = []
    for number in range(200):
        rows += one_message(number, 0, [number + 1])
    random.Random(3).shuffle(rows)
    latency = measure(rows).from_submit["agreed"]
    assert (latency.p50_us, latency.p99_us, latency.max_us) == (100, 198, 200)
    assert latency.mean_us == 100.5


def test_the_order_of_rows_does_not_matter() -> None:
    rows = one_message(0, 0, [100, 300]) + one_message(1, 50, [1000], guarantee="safe")
    assert measure(reversed(rows)) == measure(rows)


def test_a_message_of_another_life_is_another_message() -> None:
    rows = [
        row(1, 0, "submit", (1, 0, 5)),
        row(1, 900, "submit", (1, 1, 5)),
        row(2, 1000, "deliver", (1, 1, 5)),
        row(2, 1000, "deliver", (1, 0, 5)),
    ]
    found = measure(rows)
    assert found.ordered == 2
    assert (found.from_submit["agreed"].p50_us, found.from_submit["agreed"].max_us) == (100, 1000)


def test_a_delivery_without_its_submission_is_counted_and_has_no_latency() -> None:
    found = measure([row(2, 1000, "deliver", (1, 0, 5)), row(1, 700, "originate", (1, 0, 5))])
    assert (found.delivered, dict(found.from_submit)) == (1, {})
    assert found.from_originate["agreed"].mean_us == 300
    assert found.messages_per_s == 0.0  # a single instant has no rate


def test_counts_are_kept_by_node_and_configurations_counted_once() -> None:
    nothing = (None, None, None)
    rows = [
        row(2, 0, "install", nothing, config=(8, 1, "regular")),
        row(1, 0, "install", nothing, config=(8, 1, "regular")),
        row(1, 5, "install", nothing, config=(11, 1, "transitional")),
        row(1, 5, "install", nothing, config=(12, 1, "regular")),
        row(1, 6, "stable", (1, 0, 0)),
        row(2, 7, "crash"),
        row(2, 8, "restart"),
        row(2, 9, "halt"),
        row(2, 9, "packet_sent"),
    ]
    found = measure(rows)
    assert (found.regular, found.transitional) == (2, 1)
    assert list(found.nodes) == [1, 2]
    one, two = found.nodes[1], found.nodes[2]
    assert (one.regular, one.transitional, one.stable) == (2, 1, 1)
    assert (two.regular, two.crashes, two.restarts, two.halts) == (1, 1, 1, 1)
    assert found.events == 9


def test_nothing_happened() -> None:
    found = measure([])
    assert isinstance(found, Metrics)
    assert (found.events, found.delivered, found.delivering_us, found.bytes_per_s) == (0, 0, 0, 0.0)
