from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from toy_sequencer import sequencers

from ordercast.sim.network import Lan
from ordercast.sim.workload import Workload, drive
from ordercast.sim.world import World
from ordercast.trace.schema import Row

QUICK = Lan(base_us=100, tail_us=0)


def submitted(load: Workload, seconds: float = 1, nodes: int = 4, room: int = 1 << 20) -> list[Row]:
    world = World(sequencers(range(1, nodes + 1), room), range(1, nodes + 1), QUICK, 3)
    world.start()
    drive(world, load)
    world.run_until(int(seconds * 1_000_000))
    assert world.applications.corrupt == []
    return [row for row in world.rows if row[4] == "submit"]


def test_poisson_arrivals_have_the_total_rate_and_exponential_gaps() -> None:
    rows = submitted(Workload(rate=2000), seconds=3)
    assert len(rows) == pytest.approx(6000, rel=0.05)
    times = [row[3] for row in rows if row[0] == 2]
    gaps = [b - a for a, b in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(2000, rel=0.08)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.1)


def test_senders_send_by_their_shares() -> None:
    rows = submitted(Workload(rate=2000, shares=(1.0, 2.0, 4.0, 13.0)), seconds=3)
    counts = Counter(row[0] for row in rows)
    assert [counts[node] / len(rows) for node in (1, 2, 3, 4)] == pytest.approx(
        [0.05, 0.1, 0.2, 0.65], abs=0.02
    )


@pytest.mark.parametrize(("shares", "problem"), [((1.0, 0.0), "above 0"), ((1.0, 1.0), "give each one")])
def test_wrong_shares_are_refused(shares: tuple[float, ...], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        submitted(Workload(shares=shares))


def test_deterministic_arrivals_take_turns_at_equal_distances() -> None:
    rows = submitted(Workload(arrivals="deterministic", rate=1000, start_us=500, stop_us=10_000))
    assert [(row[3], row[0]) for row in rows] == [(500 + 1000 * i, 1 + i % 4) for i in range(10)]


def test_saturating_senders_fill_whatever_room_there_is() -> None:
    rows = submitted(Workload(arrivals="saturating", size=100, senders=(2,), stop_us=10_000), room=1_000)
    assert {row[0] for row in rows} == {2}
    at_once = [row[3] for row in rows]
    assert at_once[:20] == [0] * 10 + [200] * 10
    assert max(at_once) < 10_200


def test_sizes_and_safe_share_are_as_asked_for() -> None:
    rows = submitted(Workload(rate=4000, size=10, size_to=20, safe=0.25))
    sizes = [row[18] for row in rows]
    assert set(sizes) == set(range(10, 21))
    share = sum(row[16] == "safe" for row in rows) / len(rows)
    assert share == pytest.approx(0.25, abs=0.03)


def test_asking_for_safe_does_not_move_arrivals() -> None:
    plain, safe = submitted(Workload(rate=500)), submitted(Workload(rate=500, safe=0.5))
    assert [row[3] for row in plain] == [row[3] for row in safe]


def test_only_senders_send_between_start_and_stop() -> None:
    rows = submitted(Workload(rate=1000, senders=(1, 3), start_us=200_000, stop_us=400_000))
    assert {row[0] for row in rows} == {1, 3}
    assert all(200_000 <= row[3] < 400_000 for row in rows)
    assert len(rows) == pytest.approx(200, rel=0.25)


def test_a_saturating_sender_goes_on_in_its_next_life() -> None:
    world = World(sequencers((1, 2), 1_000), (1, 2), QUICK, 0)
    drive(world, Workload(arrivals="saturating"))
    world.start()
    world.run_until(1_000)
    world.crash(2)
    world.run_until(2_000)
    world.restart(2)
    world.run_until(3_000)
    assert any(row[1] == 1 and row[4] == "submit" for row in world.rows if row[0] == 2)


@pytest.mark.parametrize(
    "wrong", [{"rate": 0}, {"size": 5, "size_to": 4}, {"size": -1}, {"safe": 1.5}, {"safe": -0.1}]
)
def test_a_workload_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"above 0|no range|between 0 and 1"):
        Workload(**wrong)  # type: ignore[arg-type]
