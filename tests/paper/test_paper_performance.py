"""000 §9, "Implementation and Performance": the paper's own figures, in virtual time."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest
from suns import (
    NODES,
    TokenLoss,
    first_us,
    group,
    installs,
    latency_us,
    measured,
    rotation_us,
    saturated,
)

from ordercast.audit.properties import audit

MODERATE = (200, 400, 625)
"""Messages a second. §9 calls 400 low, and 625 "50% useful utilization of the Ethernet"."""


def test_more_than_800_messages_of_1024_bytes_are_ordered_a_second() -> None:
    """§9: "With 1024 byte messages, more than 800 messages are ordered per second.\""""
    figures = saturated()
    assert figures.clean
    assert figures.metrics.ordered / figures.experiment.seconds > 800
    # Flow control does its work: "adjusted to the maximum values for which message loss is negligible".
    assert figures.drops.get("overflow", 0) == 0
    assert figures.stats["retransmissions"] < 0.01 * figures.stats["packets"]


@pytest.mark.parametrize("rate", MODERATE)
def test_agreed_delivery_takes_about_half_a_token_rotation(rate: int) -> None:
    """§9: "the latency to agreed delivery is approximately half the token rotation time"."""
    figures = measured(rate)
    assert figures.clean
    assert latency_us(figures, "agreed") == pytest.approx(rotation_us(figures) / 2, rel=0.3)


@pytest.mark.parametrize("rate", MODERATE)
def test_safe_delivery_takes_about_two_token_rotations(rate: int) -> None:
    """§9: "the latency to safe delivery is approximately twice the token rotation time"."""
    figures = measured(rate, safe=1.0)
    assert figures.clean
    assert latency_us(figures, "safe") == pytest.approx(2 * rotation_us(figures), rel=0.3)


def test_at_400_messages_a_second_agreed_delivery_takes_less_than_10_ms() -> None:
    """§9: "At low loads (e.g., 400 ordered messages per second …), the latency … is under 10 ms.\""""
    figures = measured(400)
    assert figures.metrics.ordered / figures.experiment.seconds == pytest.approx(400, rel=0.05)
    assert latency_us(figures, "agreed") < 10_000


def test_at_625_messages_a_second_agreed_delivery_takes_about_13_ms() -> None:
    """§9: "Even at 50% useful utilization of the Ethernet (625 ordered messages per second), … about 13"."""
    figures = measured(625)
    assert figures.metrics.ordered / figures.experiment.seconds == pytest.approx(625, rel=0.05)
    assert latency_us(figures, "agreed") == pytest.approx(13_000, rel=0.2)


def test_latency_grows_with_the_load_and_by_queueing_when_it_is_too_much() -> None:
    """§9: "except at very high loads where the latency is dominated by queueing delays in the buffers"."""
    agreed = [latency_us(measured(rate), "agreed") for rate in MODERATE]
    assert agreed == sorted(agreed)
    assert latency_us(saturated(), "agreed") > 10 * agreed[-1]


# --- loss of the token -----------------------------------------------------------------------------


@pytest.mark.parametrize("at_us", [1_503_000, 1_611_000, 1_700_500, 1_808_200, 1_909_900])
def test_a_lost_token_costs_about_the_token_retransmission_timeout(at_us: int) -> None:
    """§9: "With the token retransmission mechanism enabled, the time to return to normal operation after loss
    of the token is on average 16 milliseconds."
    """
    timeout_us = 15_000
    world = group({"token_retransmission_us": timeout_us, "token_loss_us": 100_000, "hold_us": 5_000}, seed=1)
    loss = TokenLoss(world, at_us)
    world.run_until(at_us + 500_000)
    assert loss.lost_us is not None
    resumed_us = first_us(world, "packet_received", loss.lost_us, loss.to)
    # The timer began when the token was handed to the network, behind the sender's messages.
    assert timeout_us - 2_000 <= resumed_us - loss.lost_us <= timeout_us + 5_000
    ordered_us = first_us(world, "originate", loss.lost_us)
    assert timeout_us - 2_000 <= ordered_us - loss.lost_us <= timeout_us + 15_000
    assert not installs(world, 1_000_000), "the ring stays"
    assert audit(world.rows).clean


@pytest.mark.parametrize("seed", range(3))
def test_without_retransmission_a_lost_token_costs_the_token_loss_timeout_and_40_ms(seed: int) -> None:
    """§9: "With the token retransmission mechanism disabled, loss of the token triggers a Token Loss timeout
    and forces a complete reformation of the membership.\""""
    disabled = {"token_retransmission_us": 99_999, "least_retransmission_us": 99_999}
    world = group(REFORMING | disabled, seed)
    loss = TokenLoss(world, 1_500_000 + 1_000 * seed)
    world.run_until(2_000_000)
    assert loss.lost_us is not None
    found = installs(world, 1_000_000)
    assert list(found) == [NODES], "everyone is there again"
    assert max(found[NODES]) - loss.lost_us <= 140_000
    assert audit(world.rows).clean


# --- reformation -----------------------------------------------------------------------------------

REFORMING: dict[str, object] = {"token_loss_us": 100_000}
"""§9: "with the Token Loss timeout set to 100 milliseconds". All else is as by default."""


ROTATION_US = 20_000
"""The token takes less; and what was forwarded is not sent again as soon as that."""


class Reformed(NamedTuple):
    """When a ring lost a member, and how it went on; in microseconds."""

    crash_us: int
    lost_us: int
    """The token went on until then: the last time that anyone received it, copies apart; or the crash."""
    missed_us: int
    """The first Token Loss timeout."""
    installed_us: int
    """The last of the others had a new ring."""


@cache
def reformed(seed: int) -> Reformed:
    """A member crashes under load: what comes of it."""
    world = group(REFORMING, seed)
    victim = NODES[seed % len(NODES)]
    crash_us = 1_500_000 + 777 * seed
    world.at(crash_us, lambda: world.crash(victim))
    world.run_until(2_500_000)
    rest = tuple(node for node in NODES if node != victim)
    found = installs(world, crash_us)
    assert list(found) == [rest]
    assert len(found[rest]) == len(rest)
    missed_us = min(change.time_us for change in world.changes if change.time_us > crash_us)
    visits_us = (row[3] for row in world.rows if row[4] == "packet_received" and row[19] == "token")
    lost_us = max(
        (at_us for at_us in visits_us if crash_us < at_us < crash_us + ROTATION_US), default=crash_us
    )
    installed_us = max(found[rest])
    assert first_us(world, "originate", installed_us) - installed_us <= 15_000, "ordering goes on"
    assert audit(world.rows).clean
    return Reformed(crash_us, lost_us, missed_us, installed_us)


CRASHES = range(10)


@pytest.mark.parametrize("seed", CRASHES)
def test_a_ring_is_formed_anew_within_40_ms_of_the_token_loss_timeout(seed: int) -> None:
    """§9: "The time to form a new ring, generate a new token, recover messages from the old ring, and return
    to normal operation is on average the Token Loss timeout plus 40 milliseconds".
    """
    once = reformed(seed)
    assert once.installed_us - once.missed_us <= 40_000


@pytest.mark.parametrize("seed", CRASHES)
def test_a_token_lost_by_a_crash_costs_the_token_loss_timeout_and_at_most_40_ms(seed: int) -> None:
    """The same from the loss of the token on, of which §9 speaks; every time, not only on average."""
    once = reformed(seed)
    assert once.missed_us - once.lost_us <= 100_000, "nobody waits longer than the Token Loss timeout"
    assert once.installed_us - once.lost_us <= 140_000


def test_a_crash_costs_the_token_loss_timeout_and_40_ms_on_average() -> None:
    """The same from the crash on: the token goes on for a part of a rotation before it is lost, which §9 does
    not count, and which is why a single crash may take longer than the average of which §9 speaks."""
    took_us = [once.installed_us - once.crash_us for once in map(reformed, CRASHES)]
    assert sum(took_us) / len(took_us) <= 140_000


@pytest.mark.parametrize("seed", range(4))
def test_a_crash_soon_after_others_costs_no_more_than_they(seed: int) -> None:
    """Tokens that were sent again in vain, to who had crashed, are no reason to wait longer for the next."""
    world = group(REFORMING, seed)
    first_crash_us = 1_500_000 + 777 * seed
    crash_us = first_crash_us + 250_000
    for victim in (3, 4, 5):
        world.at(first_crash_us, lambda victim=victim: world.crash(victim))  # type: ignore[misc]
    world.at(crash_us, lambda: world.crash(1 + seed % 2))
    world.run_until(2_500_000)
    assert list(installs(world, first_crash_us)) == [(1, 2), (2 - seed % 2,)]
    missed_us = min(change.time_us for change in world.changes if change.time_us > crash_us)
    assert missed_us - crash_us <= 100_000 + ROTATION_US
    assert audit(world.rows).clean
