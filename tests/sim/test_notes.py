from __future__ import annotations

from ordercast.sim.faults import IT, At, Crash, Cut, Heal, Partition, When
from ordercast.sim.notes import notes
from ordercast.sim.world import Change
from ordercast.trace.recorder import Recorder
from ordercast.trace.schema import Row

CHANGES = (
    Change(10, 1, "gather", "started"),
    Change(15, 2, "gather", "started"),
    Change(30, 1, "recovery", "committed"),
    Change(40, 1, "gather", "token lost"),
)


def test_a_fault_at_a_time_is_told_at_that_time() -> None:
    assert notes([At(20, Heal()), At(5, Crash(3))], ()) == [(5, "crash 3"), (20, "heal")]


def test_faults_of_one_instant_are_told_together_in_their_order() -> None:
    assert notes([At(5, Cut(2, 1)), At(5, Cut(1, 2))], ()) == [(5, "cut 2 -> 1, cut 1 -> 2")]


def test_a_fault_that_waits_for_a_state_is_told_when_it_was_entered() -> None:
    fault = When(1, "gather", Crash(IT), nth=2, delay_us=3)
    assert notes([fault], CHANGES) == [(43, "crash 1 (1 entered gather)")]


def test_anybody_counts_where_nobody_is_named() -> None:
    fault = When(None, "gather", Partition(((1,), (2,))), nth=2)
    assert notes([fault], CHANGES) == [(15, "partition 1 | 2 (2 entered gather)")]


def test_a_fault_that_waits_for_a_packet_is_told_when_it_was_sent() -> None:
    rows: list[Row] = []
    for time_us in (10, 20):
        Recorder(2, rows, True, bytes.decode).packet(time_us, "packet_sent", b"ack")
    fault = When(2, "ack", Crash(IT), nth=2, delay_us=3, event="sends")
    assert notes([fault], CHANGES, rows) == [(23, "crash 2 (2 sent ack)")]
    assert notes([fault], CHANGES) == []


def test_what_never_came_about_is_not_told() -> None:
    assert notes([When(2, "recovery", Crash(IT))], CHANGES) == []
    assert notes([When(1, "recovery", Crash(IT), before_us=30)], CHANGES) == []
