"""004, told of whole groups: what its figures say of RBP holds for every protocol that has to do with it.

The figures themselves are golden scenarios (``tests/scenarios/rbp_fig_*``).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.sim.faults import At, Pause, Resume, schedule
from ordercast.sim.network import Lan
from ordercast.sim.scenario import parse, run
from ordercast.sim.workload import Workload, drive
from ordercast.sim.world import World

SCENARIOS = Path(__file__).parent.parent / "scenarios"
MOVING = ("cm", "rbp", "irbp", "pinwheel", "dtp")
FAMILY = ("total", *MOVING, "primary-backup")


RAISING = ("irbp", "primary-backup")
"""Those with i-views, which raise levels of resilience."""


def told(name: str, protocol: str) -> str:
    """A figure of RBP, with another protocol."""
    text = (SCENARIOS / f"{name}.txt").read_text(encoding="utf-8")
    return text.replace("protocol rbp\n", f"protocol {protocol}\n")


@pytest.mark.parametrize("protocol", [name for name in MOVING if name != "dtp"])
def test_a_step_of_communication_is_two_messages(protocol: str) -> None:
    """004 §3.1.3, Fig. 13: the message, and an acknowledgement that is everything else at once.

    While there is always something to number, that is: nobody passes the token without.
    """
    settings = {"batch": 1, "window": 1, "founders": 4}
    world = LAB_PROTOCOLS[protocol].world(settings, (1, 2, 3, 4), Lan(tail_us=0), 1, packets=True)
    drive(world, Workload(arrivals="saturating", size=1_000, start_us=200_000, stop_us=250_000))
    world.start()
    world.run_until(240_000)
    sent = Counter(row[19] for row in world.rows if row[4] == "packet_sent" and row[3] > 200_000)
    assert sent["msg"] > 100
    assert abs(sent["ack"] - sent["msg"]) <= 4, "those on the way"
    assert sent["req"] == sent["copy"] == 0


@pytest.mark.parametrize("protocol", FAMILY)
def test_a_sequencer_that_is_cut_off_delivers_nothing_that_the_others_do_not(protocol: str) -> None:
    """004 §4.2, Fig. 26: agreed waits for a majority, in all of them."""
    text = told("rbp_fig_26_partition", protocol).replace("expect p sends ack\n", "")
    report = run(parse(text), LAB_PROTOCOLS)
    assert report.ok, str(report)


@pytest.mark.parametrize("protocol", [name for name in FAMILY if name not in RAISING])
def test_unless_it_is_asked_to_deliver_at_once(protocol: str) -> None:
    """004 §4.2: "Unreliable deliver such provided by RMP" leaves the others without the message."""
    report = run(parse(told("rbp_fig_26_unreliable", protocol)), LAB_PROTOCOLS)
    assert report.ok, str(report)


@pytest.mark.parametrize("protocol", RAISING)
def test_those_with_i_views_do_not_deliver_at_once_whatever_is_asked(protocol: str) -> None:
    """004 §4.2, "there is a lower bound on the RBP resiliency": here it is a majority, or all."""
    text = told("rbp_fig_26_unreliable", protocol).replace(
        "expect p delivers m in pqrs", "expect p never delivers m"
    )
    report = run(parse(text), LAB_PROTOCOLS)
    assert report.ok, str(report)


@pytest.mark.parametrize("protocol", MOVING)
@pytest.mark.parametrize(
    "figure", ["rbp_fig_18_next_sequencer_fails", "rbp_fig_19_ack_not_received", "rbp_fig_26_crash"]
)
def test_what_somebody_knows_of_the_order_survives_who_made_it(figure: str, protocol: str) -> None:
    """004 §3.2.1: the failures of the sequencer and of the next, whatever the membership makes of them.

    iRBP does without the failed member first, and changes its view later.
    """
    text = told(figure, protocol)
    if protocol == "irbp":
        text = text.replace("at 600ms", "at 900ms").replace("until 1s", "until 1.2s")
    report = run(parse(text), LAB_PROTOCOLS)
    assert report.ok, str(report)


# --- §4.3.5 ----------------------------------------------------------------------------------------

AGGRESSIVE_US, CONSERVATIVE_US = 60_000, 400_000


def paused(protocol: str, pause_us: int, seed: int) -> World:
    """Five members under load, of which one stands still for a while."""
    settings = {"aggressive_us": AGGRESSIVE_US, "conservative_us": CONSERVATIVE_US, "silence_us": 10_000}
    world = LAB_PROTOCOLS[protocol].world(settings, (1, 2, 3, 4, 5), Lan(), seed)
    node = 1 + seed % 5
    schedule(world, [At(600_000, Pause(node)), At(600_000 + pause_us, Resume(node))])
    drive(world, Workload(rate=200.0, size=200, start_us=300_000))
    world.start()
    world.run_until(1_800_000)
    return world


@pytest.mark.parametrize("pause_us", [80_000, 200_000, 350_000])
@pytest.mark.parametrize("protocol", RAISING)
def test_a_member_that_is_slow_for_less_than_the_conservative_timeout_is_never_killed_where_there_are_i_views(
    protocol: str, pause_us: int
) -> None:
    """004 §4.3.5: i-views "do not force the crash of processes"."""
    for seed in range(3):
        world = paused(protocol, pause_us, seed)
        assert world.halts == 0, f"seed {seed}"
        delivered = Counter(row[0] for row in world.rows if row[4] == "deliver")
        assert max(delivered.values()) - min(delivered.values()) < 10, "it has caught up"


def test_with_views_of_one_kind_it_is() -> None:
    """004 §4.3.4: an aggressive timeout has its price; "incorrect suspicions must be avoided"."""
    assert any(paused("cm", 200_000, seed).halts for seed in range(3))
    assert any(paused("rbp", 350_000, seed).halts for seed in range(3))
