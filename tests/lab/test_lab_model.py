"""The model of the latency on a Totem ring: what can be computed by hand, and what can be played through."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Literal

import numpy as np
import pytest

from ordercast.lab.grid import Run
from ordercast.lab.totem_hosts import EIGHT, HOSTS, PAPER, SPARC20, model_of, network_of
from ordercast.lab.totem_model import (
    Density,
    LoadTooHigh,
    RingModel,
    agreed_mean_us,
    distance,
    ethernet_ring,
    latency,
    messages_in_a_rotation,
    safe_mean_us,
)
from ordercast.lab.under_load import conduct
from ordercast.sim.network import Ethernet

Arrivals = Literal["poisson", "deterministic"]


def ring(
    nodes: int = 4,
    rate: float = 5_000,
    arrivals: Arrivals = "poisson",
    message_us: float = 50.0,
    loss: float = 0.0,
    eager: bool = True,
    first_us: float = 0.0,
) -> RingModel:
    """Hops of 100 µs, 60 µs to reach the others, and nothing beside."""
    return RingModel(
        nodes=nodes,
        rate=rate,
        arrivals=arrivals,
        hop_us=100.0,
        message_us=message_us,
        reach_us=60.0,
        loss=loss,
        eager=eager,
        first_us=first_us,
    )


# --- by hand -------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrivals", ["poisson", "deterministic"])
@pytest.mark.parametrize(
    ("nodes", "rate", "loss"), [(1, 900, 0.0), (2, 3000, 0.01), (8, 9000, 0.0), (8, 9000, 0.1)]
)
def test_all_probabilities_add_up_to_one(arrivals: Arrivals, nodes: int, rate: float, loss: float) -> None:
    density = latency(ring(nodes, rate, arrivals, loss=loss))
    assert density.probabilities.sum() == pytest.approx(1)
    assert density.probabilities.min() >= 0
    assert density.buckets(100, 10_000).sum() == pytest.approx(1)


def test_a_rotation_is_longer_by_what_is_sent_in_it() -> None:
    """400 µs of hops; a quarter of the time is spent on messages: 400 / (1 - 1/4)."""
    model = ring(nodes=4, rate=5_000)
    assert model.load == pytest.approx(0.25)
    assert model.rotation_us == pytest.approx(1600 / 3)
    numbers = messages_in_a_rotation(model)
    assert numbers @ np.arange(len(numbers)) == pytest.approx(0.005 * 1600 / 3)


@pytest.mark.parametrize("rate", [1, 3_000, 18_000])
def test_what_the_first_message_of_a_visit_costs_is_shared_out_without_rest(rate: float) -> None:
    """As much as n·(h + e·P(k > 0)) and the messages take; with few messages each is a first one."""
    model = ring(rate=rate, first_us=30.0)
    some = 1 - math.exp(-model.each)
    assert 4 * model.walk_us + model.cost_us * 4 * model.each == pytest.approx(model.rotation_us)
    assert model.rotation_us == pytest.approx(4 * (100 + 30 * some) + 50 * 4 * model.each)
    assert 50 < model.cost_us <= 80
    assert ring(rate=1, first_us=30.0).cost_us == pytest.approx(80, rel=1e-3)


def test_alone_a_node_sends_what_came_in_the_last_rotation() -> None:
    """One node: K' is Poisson of λ(h + aK), so E K = λh / (1 - λa) and Var K = E K / (1 - (λa)²)."""
    model = ring(nodes=1, rate=10_000)
    numbers = messages_in_a_rotation(model)
    k = np.arange(len(numbers))
    mean = numbers @ k
    assert mean == pytest.approx(2.0)
    assert numbers @ (k - mean) ** 2 == pytest.approx(2.0 / (1 - 0.5**2))


def test_with_hardly_any_messages_a_rotation_has_poissons_number() -> None:
    model = ring(rate=10)
    assert messages_in_a_rotation(model)[:2] == pytest.approx([math.exp(-0.004), 0.004], rel=1e-2)


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_on_an_idle_ring_a_message_waits_for_half_a_rotation(nodes: int) -> None:
    """And then reaches the others; who sends it delivers it at once."""
    expected = nodes * 50 + 60 * (nodes - 1) / nodes
    for arrivals in ("poisson", "deterministic"):
        assert latency(ring(nodes, 1.0, arrivals)).mean_us == pytest.approx(expected, abs=1)


def test_on_an_idle_ring_the_wait_is_uniform_over_the_rotation() -> None:
    density = latency(ring(nodes=1, rate=0.001))
    for share in (0.1, 0.5, 0.9):
        assert density.quantile_us(share) == pytest.approx(100 * share, abs=2)


@pytest.mark.parametrize("rate", [100, 2_000, 6_000])
def test_where_senders_take_turns_the_wait_does_not_depend_on_the_load(rate: float) -> None:
    density = latency(ring(rate=rate, arrivals="deterministic"))
    assert density.mean_us == pytest.approx(200 + 60 * 3 / 4, abs=1)
    assert density.above(400 + 60 + 1) == pytest.approx(0)


def test_an_arriving_message_finds_the_long_rotations() -> None:
    """The residual time of a renewal: E C² / (2 E C), with the variance known for one node."""
    model = ring(nodes=1, rate=10_000)
    mean, variance = 200.0, 50.0**2 * 2.0 / (1 - 0.25)
    assert latency(model).mean_us == pytest.approx((variance + mean**2) / (2 * mean), rel=1e-3)


@pytest.mark.parametrize("arrivals", ["poisson", "deterministic"])
@pytest.mark.parametrize("rate", [100, 5_000, 12_000])
def test_the_mean_is_that_of_the_density(arrivals: Arrivals, rate: float) -> None:
    model = ring(rate=rate, arrivals=arrivals)
    assert agreed_mean_us(model) == pytest.approx(latency(model).mean_us, rel=2e-3)


@pytest.mark.parametrize("nodes", [1, 4, 8])
def test_safe_delivery_takes_half_a_rotation_one_and_the_way(nodes: int) -> None:
    """000 §9: "approximately twice the token rotation time". The token is at the k-th node after 1 + k/n, and
    the message itself has to be sent before."""
    rotation = nodes * 100.0
    expected = rotation * (1 / 2 + 1 + (nodes - 1) / (2 * nodes)) + 50.0
    assert safe_mean_us(ring(nodes, rate=0.01)) == pytest.approx(expected, rel=1e-2)


def test_the_more_is_lost_the_later_is_late_and_later_without_eager_requests() -> None:
    means = [latency(ring(loss=loss)).mean_us for loss in (0.0, 1e-3, 1e-2, 1e-1)]
    assert means == sorted(means)
    assert means[-1] > 1.3 * means[0]
    assert latency(ring(loss=1e-2, eager=False)).mean_us > means[2]


def test_what_an_ethernet_costs_is_computed_from_its_figures() -> None:
    """100 Mb/s: 80 ns a byte; frames have 66 bytes of headers, a token of eight 63 + 32, a message 45."""
    model = model_of(EIGHT, 1000)
    assert model.hop_us == pytest.approx(20 + (63 + 32 + 66) * 0.08 + 5 + 260)
    assert model.message_us == pytest.approx((1000 + 45 + 66) * 0.08)
    assert model.first_us == pytest.approx(40 - (63 + 32 + 66) * 0.08)
    assert model.reach_us == pytest.approx(20 + (1000 + 45 + 66) * 0.08 + 5 + 40)


def test_who_needs_longest_for_a_packet_decides() -> None:
    slow = Ethernet(receive_us=5_000, send_us=100, unicast_us=10)
    assert ethernet_ring(slow, nodes=3, rate=10, size=100).message_us == 5_000


def test_more_than_the_ring_can_carry_is_refused() -> None:
    with pytest.raises(LoadTooHigh, match="20000/s: choose a lower rate"):
        ring(rate=20_001)


def test_messages_that_the_network_splits_are_refused() -> None:
    with pytest.raises(ValueError, match="split by the network"):
        ethernet_ring(network_of(EIGHT), nodes=8, rate=10, size=1_500)


def test_distance_is_the_largest_gap_of_the_distribution_functions() -> None:
    assert distance(np.array([0.5, 0.5]), np.array([0.5, 0.5])) == 0
    assert distance(np.array([1.0]), np.array([0.0, 1.0])) == 1
    assert distance(np.array([0.3, 0.3, 0.4]), np.array([0.5, 0.1, 0.4])) == pytest.approx(0.2)


def test_a_density_can_be_asked_for_its_quantiles_and_buckets() -> None:
    density = Density(10.0, np.array([0.25, 0.25, 0.5]))
    assert density.mean_us == pytest.approx(0.25 * 5 + 0.25 * 15 + 0.5 * 25)
    assert density.quantile_us(0.5) == 20
    assert density.above(20) == pytest.approx(0.5)
    assert density.above(25) == pytest.approx(0.25)
    assert density.buckets(15, 2) == pytest.approx([0.375, 0.625])


# --- played through ------------------------------------------------------------------------------


def played(model: RingModel, visits: int, seed: int) -> list[float]:
    """Latencies of a ring that follows the model's assumptions step by step, message by message."""
    draw = random.Random(seed)
    n, gap_us = model.nodes, 1e6 * model.nodes / model.rate
    arrivals = [draw.expovariate(1 / gap_us) for _ in range(n)]
    begins_us = [0.0]
    again = Counter[int]()  # by visit, how many messages are sent again in it
    sent: list[tuple[int, int, float, dict[int, int]]] = []
    for visit in range(visits):
        node, now_us, k = visit % n, begins_us[-1], again[visit]
        while arrivals[node] < now_us:
            missed: dict[int, int] = {}  # by hops to the receiver, the visit in which it gets the message
            for hops in range(1, n):
                back = visit + hops + 1 + (0 if model.eager else n)
                if draw.random() < model.loss:
                    again[back] += 1
                    while draw.random() < model.loss:
                        back += n
                        again[back] += 1
                    missed[hops] = back
            sent.append((visit, k, arrivals[node], missed))
            arrivals[node] += draw.expovariate(1 / gap_us)
            k += 1
        begins_us.append(now_us + model.hop_us + k * model.message_us + (model.first_us if k else 0.0))
    took: list[float] = []
    for receiver in range(n):
        all_until_us = 0.0
        for visit, k, arrived_us, missed in sent[: len(sent) * 9 // 10]:
            hops = (receiver - visit) % n
            heard_us = begins_us[visit] + (model.reach_us + k * model.message_us if hops else 0.0)
            if hops in missed:
                heard_us = begins_us[missed[hops]] + model.reach_us
            all_until_us = max(all_until_us, heard_us)
            took.append(all_until_us - arrived_us)
    return took


@pytest.mark.parametrize(
    ("model", "within"),
    [
        (ring(nodes=4, rate=10_000), 0.012),
        (ring(nodes=8, rate=12_000), 0.02),
        (ring(nodes=8, rate=8_000, first_us=60.0), 0.012),
        (ring(nodes=8, rate=4_000, loss=0.01), 0.012),
        (ring(nodes=4, rate=4_000, loss=0.01, eager=False), 0.012),
    ],
)
def test_the_density_is_that_of_a_ring_played_through(model: RingModel, within: float) -> None:
    """Independent of the generating function: a token, queues, and losses, one by one."""
    took = played(model, visits=40_000, seed=1)
    density = latency(model)
    width = model.rotation_us / 50
    buckets = int(max(*took, density.times_us[-1]) / width) + 2
    simulated = np.bincount((np.array(took) / width).astype(int), minlength=buckets) / len(took)
    assert distance(simulated, density.buckets(width, buckets)) < within
    assert density.mean_us == pytest.approx(float(np.mean(took)), rel=0.02)


@pytest.mark.parametrize(("arrivals", "within"), [("deterministic", 0.01), ("poisson", 0.04)])
def test_the_density_is_that_of_the_simulated_protocol(arrivals: Arrivals, within: float) -> None:
    run = Run(
        protocol="totem",
        nodes=8,
        arrivals=arrivals,
        rate=1_000,
        size=1_000,
        seconds=2.0,
        network=HOSTS[EIGHT]["network"],
        net=SPARC20,
        settings=PAPER,
        bucket_us=25,
        seed=3,
    )
    counts = conduct(run).histograms["agreed"]
    simulated = np.zeros(max(counts) + 1)
    for bucket, number in counts.items():
        simulated[bucket] = number
    density = latency(model_of(EIGHT, 1_000, arrivals))
    assert distance(simulated / simulated.sum(), density.buckets(25, 2 * len(simulated))) < within
