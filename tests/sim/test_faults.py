from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_sequencer import QUIET_US, Sequencer, kind_of, sequencers

from hunts import rounds
from ordercast.core.identity import Guarantee
from ordercast.sim import swarm
from ordercast.sim.faults import (
    IT,
    Actions,
    At,
    Begin,
    Brake,
    Burst,
    Clock,
    Clog,
    Crash,
    Cut,
    Distance,
    Fault,
    Gone,
    Heal,
    Leave,
    Lose,
    Partition,
    Pause,
    Restart,
    Resume,
    Send,
    Slow,
    Unbrake,
    Unclog,
    Uncut,
    Unslow,
    When,
    apply,
    schedule,
    time_text,
)
from ordercast.sim.host import MOST_WRITES_AGO
from ordercast.sim.network import Lan, preset
from ordercast.sim.reading import parse_time
from ordercast.sim.scenario import parse
from ordercast.sim.swarm import draw, ending
from ordercast.sim.workload import Workload, drive
from ordercast.sim.world import World

NODES = (1, 2, 3)
ALL: list[Actions] = [
    Begin(3),
    Clock(2, 1_500),
    Crash(1),
    Crash(2, 3),
    Restart(1),
    Restart(2, keep_disk=False),
    Restart(2, writes_ago=2),
    Pause(1),
    Resume(1),
    Slow(1, 1500),
    Unslow(1),
    Leave(3),
    Brake(2),
    Unbrake(2),
    Gone(3, 1),
    Distance(2, 30_000),
    Partition(((1, 2), (3,))),
    Heal(),
    Cut(1, 2),
    Uncut(1, 2),
    Clog(1, 2),
    Clog(1, 2, 5000),
    Unclog(1, 2),
    Lose(1, 2, "ask"),
    Lose(1, 2, "ask", 3),
    Burst(0.3, 20_000),
    Send(1, ("a", "x*3"), 50, Guarantee.SAFE),
]


def world(nodes: Sequence[int] = NODES) -> World:
    group = World(sequencers(nodes), nodes, Lan(base_us=100, tail_us=0), 5, kind_of=kind_of)
    group.start()
    return group


def read(text: str) -> list[Fault]:
    return parse(f"nodes 1 2 3\n{text}\nuntil 1s").faults


@pytest.mark.parametrize("action", ALL, ids=str)
def test_a_fault_is_read_back_from_its_text(action: Actions) -> None:
    for fault in (
        At(1234, action),
        When(2, "recovery", action, 3, 250, 900_000),
        When(None, "x", action),
        When(1, "ack", action, 2, event="sends"),
    ):
        assert read(str(fault)) == [fault]
        assert msgspec.json.decode(msgspec.json.encode(fault), type=Fault) == fault


def test_it_is_the_node_that_entered_the_state() -> None:
    fault = When(None, "recovery", Crash(IT))
    assert str(fault) == "when any enters recovery crash it"
    assert str(fault.do) == "crash it"
    assert read(str(fault)) == [fault]


@given(st.integers(0, 10**12))
def test_times_are_read_back(time_us: int) -> None:
    assert parse_time(time_text(time_us)) == time_us


def test_each_kind_of_fault_changes_the_world() -> None:
    group = world()
    host, links = group.hosts[1], group.network.links
    apply(group, Pause(1))
    assert host.paused
    apply(group, Resume(1))
    assert not host.paused
    apply(group, Slow(1, 30))
    assert host.slow_us == 30
    apply(group, Unslow(1))
    assert host.slow_us == 0
    assert host.machine is not None
    apply(group, Brake(1))
    assert host.machine.laggard == 1
    apply(group, Unbrake(1))
    assert host.machine.laggard is None
    apply(group, Gone(3, 1))
    assert isinstance(host.machine, Sequencer)
    assert host.machine.believed_gone == [3]
    apply(group, Distance(1, 30_000))
    assert host.machine.round_trip_us == 30_000
    apply(group, Partition(((1,), (2, 3))))
    assert not links.reach(1, 2)
    apply(group, Heal())
    assert links.calm
    apply(group, Cut(1, 2))
    assert not links.reach(1, 2)
    assert links.reach(2, 1)
    apply(group, Uncut(1, 2))
    apply(group, Clog(1, 2))
    assert not links.calm
    apply(group, Unclog(1, 2))
    assert links.calm
    apply(group, Burst(0.5, 100))
    assert not links.calm
    group.run_until(100)
    assert links.calm
    apply(group, Crash(1, 2))
    assert host.effects_left == 2
    apply(group, Crash(1))
    assert not host.up
    apply(group, Restart(1, keep_disk=False))
    assert host.up
    assert host.disk == b"1"
    apply(group, Crash(1))
    apply(group, Restart(1))
    assert host.disk == b"12"
    apply(group, Leave(1))
    assert not host.up
    apply(group, Send(2, ("a", "x*2")))
    assert list(group.applications.names.values()) == ["a", "x1", "x2"]


@pytest.mark.parametrize(
    "action", [Crash(1), Crash(1, 0), Pause(1), Resume(1), Leave(1), Gone(2, 1), Send(1, ("a",))]
)
def test_what_does_not_apply_does_nothing(action: Actions) -> None:
    group = world()
    group.crash(1)
    rows = list(group.rows)
    apply(group, action)
    apply(group, Resume(2))
    apply(group, Restart(2))
    assert group.rows == rows


def test_a_when_happens_once_at_the_nth_time_with_its_delay() -> None:
    group = world()
    schedule(group, [When(1, "quiet", Crash(3), nth=2, delay_us=70), When(None, "quiet", Pause(IT), nth=2)])
    group.run_until(400_000)
    assert [(row[0], row[3]) for row in group.rows if row[4] == "crash"] == [(3, 2 * QUIET_US + 70)]
    assert [node for node in NODES if group.hosts[node].paused] == [2]


def test_a_when_may_wait_for_a_packet() -> None:
    group = world()
    schedule(group, [When(2, "ask", Crash(IT), nth=2, delay_us=70, event="sends")])
    for at_us in (10, 20, 30):
        group.at(at_us, lambda: group.applications.submit(2, 50))
    group.run_until(400)
    assert [(row[0], row[3]) for row in group.rows if row[4] == "crash"] == [(2, 90)]


def test_one_packet_of_a_kind_is_lost_in_one_direction() -> None:
    """Nodes 2 and 3 ask node 1 three times each; it orders what it is asked for, and they hear of that."""
    group = world()
    schedule(group, [At(0, Lose(2, 1, "ask", 2)), At(0, Lose(1, 3, "order", 5)), At(0, Lose(1, 2, "no", 1))])
    for at_us in (1, 1001, 2001):
        for node in (2, 3):
            group.at(at_us, partial(group.applications.submit, node, 50))
    group.run_until(50_000)
    delivered = Counter(row[0] for row in group.rows if row[4] == "deliver")
    assert delivered == {1: 5, 2: 5, 3: 4}, "the asking of 2 got lost, and 3 was not told of the last"
    assert group.drops["lose"] == 2
    left = [each.link for each in group.network.links.planned_losses]
    assert left == [(1, 2)], "there was no such packet"


def test_when_all_packets_that_were_to_be_lost_are_lost_nothing_stands_in_the_way() -> None:
    group = world()
    apply(group, Lose(2, 1, "ask"))
    assert not group.network.links.calm
    group.applications.submit(2, 50)
    assert group.network.links.calm
    group.applications.submit(2, 50)
    group.run_until(1_000)
    assert group.drops["lose"] == 1


def test_a_when_does_not_happen_too_late() -> None:
    group = world()
    schedule(group, [When(1, "quiet", Crash(1), before_us=50_000), When(2, "quiet", Crash(2), 1, 9, 50_010)])
    group.run_until(300_000)
    assert [node for node in NODES if not group.up(node)] == [2]


# --- drawn ------------------------------------------------------------------------------------------

SEEDS = range(150)
DURATION = 1_000_000


def drawn(seed: int) -> list[Fault]:
    return draw(seed, range(1, 2 + seed % 6), DURATION, states=("running", "quiet"))


def test_seeds_draw_every_kind_and_differ_in_the_kinds_they_draw() -> None:
    kinds = [frozenset(type(fault.do) for fault in drawn(seed)) for seed in SEEDS]
    everything: frozenset[type] = frozenset().union(*kinds)
    assert everything == {type(action) for action in ALL} - {Lose}  # which is of one protocol's packets
    assert len(set(kinds)) > 50
    assert any(isinstance(fault, When) for seed in SEEDS for fault in drawn(seed))
    assert any(
        isinstance(fault.do, Crash) and fault.do.after_effects is not None
        for seed in SEEDS
        for fault in drawn(seed)
    )


def test_a_disk_is_lost_only_where_asked_for() -> None:
    def losses(amnesia: bool) -> int:
        every = (fault.do for seed in SEEDS for fault in draw(seed, NODES, DURATION, amnesia=amnesia))
        return sum(isinstance(action, Restart) and not action.keep_disk for action in every)

    assert losses(False) == 0
    assert losses(True) > 0


def test_a_disk_returns_an_old_state_only_where_asked_for() -> None:
    def old(amnesia: bool) -> set[int]:
        every = (fault.do for seed in SEEDS for fault in draw(seed, NODES, DURATION, amnesia=amnesia))
        return {action.writes_ago for action in every if isinstance(action, Restart)}

    assert old(False) == {0}
    assert old(True) == set(range(MOST_WRITES_AGO + 1))


def test_half_of_the_groups_do_not_start_together() -> None:
    late = lone = stalled = 0
    for seed in SEEDS:
        nodes = range(1, 3 + seed % 6)
        faults = [fault for fault in draw(seed, nodes, DURATION) if isinstance(fault, At)]
        begun = {fault.do.node: fault.at_us for fault in faults if isinstance(fault.do, Begin)}
        late += bool(begun)
        lone += len(begun) == len(nodes) - 1
        stalled += any(
            isinstance(fault.do, Pause) and fault.at_us == begun.get(fault.do.node, 0) for fault in faults
        )
    assert 30 < late < 80
    assert lone > 10
    assert stalled > 15


def test_clocks_go_forward_and_back_from_one_life_to_the_next() -> None:
    forward = back = wrong_at_once = 0
    for seed in SEEDS:
        ahead_us: dict[int, int] = {}
        for fault in draw(seed, NODES, DURATION):
            if isinstance(fault, At) and isinstance(fault.do, Clock):
                before_us = ahead_us.get(fault.do.node, 0)
                wrong_at_once += fault.at_us == 0
                forward += fault.do.ahead_us > before_us
                back += fault.do.ahead_us < before_us
                ahead_us[fault.do.node] = fault.do.ahead_us
    assert min(forward, back, wrong_at_once) > 30


def test_some_nodes_begin_two_lives_within_a_millisecond() -> None:
    def flaps(seed: int) -> bool:
        restarts = [
            f for f in drawn(seed) if isinstance(f, At) and isinstance(f.do, Restart) and f.at_us < DURATION
        ]
        return any(
            one.do == other.do and 0 <= other.at_us - one.at_us < 1_000
            for index, one in enumerate(restarts)
            for other in restarts[index + 1 :]
        )

    assert sum(map(flaps, SEEDS)) > 12


def test_word_of_an_end_follows_crashes_in_some_seeds_and_is_sometimes_wrong() -> None:
    told = right = wrong = 0
    for seed in SEEDS:
        down: set[int] = set()
        faults = [fault for fault in drawn(seed) if isinstance(fault, At)]
        told += any(isinstance(fault.do, Gone) for fault in faults)
        for fault in faults:
            match fault.do:
                case Crash(node):
                    down.add(node)
                case Restart(node):
                    down.discard(node)
                case Gone(node):
                    assert fault.at_us < DURATION, "wrong word has ended when liveness is judged"
                    right += node in down
                    wrong += node not in down
    assert len(SEEDS) / 8 < told < len(SEEDS) / 2
    assert right / 10 < wrong < 2 * right  # who flaps lives again when the word comes


def test_who_died_in_a_part_is_missed_by_those_in_it() -> None:
    assert swarm._reached(2, (1, 2, 3, 4, 5), ()) == [1, 3, 4, 5]
    assert swarm._reached(2, (1, 2, 3, 4, 5), ((1, 2), (3,))) == [1]
    assert swarm._reached(4, (1, 2, 3, 4, 5), ((1, 2), (3,))) == [5]


def test_faults_come_in_clusters() -> None:
    """Most faults have another within 100 ms: the second hits while the first is dealt with."""
    close = total = 0
    for seed in SEEDS:
        times = [fault.at_us for fault in drawn(seed) if isinstance(fault, At) and fault.at_us < DURATION]
        close += sum(b - a <= 100_000 for a, b in pairwise(times))
        total += max(0, len(times) - 1)
    assert close / total > 0.7


@pytest.mark.campaign
def test_everything_has_ended_at_the_end_and_most_nodes_are_up() -> None:
    down = Counter[bool]()
    for seed in range(rounds(60, 600)):
        nodes = range(1, 2 + seed % 6)
        group = World(sequencers(nodes), nodes, preset(("lan", "lossy", "ethernet10")[seed % 3]), seed)
        group.start()
        drive(group, Workload(rate=300, size=10, size_to=3000, safe=0.5))
        schedule(group, drawn(seed))
        group.run_until(DURATION)
        assert group.network.links.calm
        for host in group.hosts.values():
            assert not host.paused
            assert not host.slow_us
            assert host.effects_left is None
            down[host.up] += 1
        assert any(host.up for host in group.hosts.values())
        group.run_until(DURATION + 100_000)
        assert group.applications.corrupt == []
    assert down[False] < down[True] / 4


def test_a_shrunk_list_of_faults_gets_its_own_ending() -> None:
    kept: list[Fault] = [At(5, Cut(1, 2)), When(None, "quiet", Pause(IT))]
    assert ending(kept, (1, 2), 100) == [At(100, Uncut(1, 2)), At(100, Resume(1)), At(100, Resume(2))]
    assert ending([At(1, Crash(1))], (1, 2), 9, dead=[2]) == [At(9, Restart(1)), At(9, Crash(2))]
    assert ending([], (1, 2), 9) == []


def test_drawn_faults_are_read_back_from_their_text() -> None:
    for seed in range(30):
        faults = draw(seed, NODES, DURATION, states=("running",), amnesia=True)
        assert read("\n".join(map(str, faults))) == faults


# --- determinism -------------------------------------------------------------------------------------

DIGEST = """
import hashlib, sys
sys.path[:0] = [{here!r}, {above!r}]
from test_faults import digest
print(digest())
"""


def digest() -> str:
    """Of the rows and counts of some runs with everything switched on."""
    seen = hashlib.sha256()
    for seed, network in enumerate(("lan", "lossy", "ethernet10", "ethernet100")):
        nodes = range(1, 6)
        group = World(
            sequencers(nodes, 20_000), nodes, preset(network, {"loss": 0.01}), seed, packets=bool(seed % 2)
        )
        group.start()
        drive(group, Workload(rate=400, size=1, size_to=2000, safe=0.3))
        drive(group, Workload(arrivals="saturating", senders=(3,), stop_us=300_000))
        schedule(group, draw(seed + 100, nodes, 500_000, states=("running", "quiet"), amnesia=True))
        group.run_until(600_000)
        seen.update(repr((group.rows, sorted(group.drops.items()), list(group.changes))).encode())
    return seen.hexdigest()


def test_the_same_seed_gives_the_same_rows_in_every_process() -> None:
    script = DIGEST.format(here=str(Path(__file__).parent), above=str(Path(__file__).parent.parent))
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("0", "4242")
    }
    assert digests == {digest()}
