"""Of a trace without its beginning the rest can be audited: no false alarm, and none missed that it shows."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from ordercast.audit.properties import audit
from ordercast.catalogue import LAB_TOTEM
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.sim.fuzz import plan, run
from ordercast.trace.recorder import Recorder
from ordercast.trace.schema import Row
from ordercast.trace.trimmed import beyond_falls, common_part

RING = Configuration(ConfigurationId(8, 1), Kind.REGULAR, (1, 2, 3))


def quiet_group(messages: int = 30) -> dict[int, list[Row]]:
    """Three nodes in one configuration for all of their lives; they send in turn, and all deliver all."""
    rows: dict[int, list[Row]] = {node: [] for node in RING.members}
    records = {node: Recorder(node, rows[node]) for node in rows}
    for record in records.values():
        record.install(1, RING)
    for number in range(messages):
        sender = 1 + number % 3
        sent = Batch(RING.id, number + 1, 0, sender, 0, 1 + number // 3, Guarantee.SAFE, (b"x",))
        records[sender].originate(2, sent)
        for record in records.values():
            record.deliver(3, sent)
    return rows


def flat(rows: dict[int, list[Row]]) -> list[Row]:
    return [row for its in rows.values() for row in its]


def delivered(rows: list[Row], node: int) -> list[int | None]:
    return [row[14] for row in rows if row[0] == node and row[4] == "deliver"]


def test_a_whole_trace_stays_whole() -> None:
    rows = flat(quiet_group())
    assert common_part(rows) == rows
    assert common_part([]) == []


def test_of_a_group_that_never_changed_the_part_that_all_have_is_left() -> None:
    rows = quiet_group()
    cut = {1: rows[1], 2: rows[2][20:], 3: rows[3][11:]}
    assert not audit(flat(cut)).clean, "the auditor takes it for a whole one"
    part = common_part(flat(cut))
    assert audit(part, whole=False).properties == audit(flat(rows)).properties
    assert delivered(part, 1) == delivered(part, 2) == delivered(part, 3) == [*range(15, 31)]
    assert {row[8] for row in part if row[4] == "install"} == {(1, 2, 3)}


def test_where_numbers_fall_the_part_begins_beyond_them() -> None:
    numbers = {1: [90, 95], 2: [90, 40, 95], 3: [40, 95]}
    joined = [(90, (1, 2)), (40, (2, 3)), (95, (1, 2, 3))]
    assert beyond_falls(30, {1: [90, 95], 2: [90, 95], 3: [40, 95]}, joined[::2], [3]) == 30
    assert beyond_falls(30, numbers, joined, [3]) == 91, "node 2 lost its disk after ring 90"
    assert beyond_falls(40, numbers | {2: [40, 95]}, joined, [2]) == 91, "and ring 90 is missing there"


def test_members_that_no_install_tells_of_are_those_that_were_seen_there() -> None:
    cut = {node: its[9:] for node, its in quiet_group().items()}
    assert {row[8] for row in common_part(flat(cut)) if row[4] == "install"} == {(1, 2, 3)}


def test_a_violation_in_what_is_left_is_found() -> None:
    rows = quiet_group()
    del rows[2][-5]
    cut = {node: its[10:] for node, its in rows.items()}
    assert audit(common_part(flat(cut)), whole=False).properties["gap-free"]


def test_who_is_said_to_have_all_its_rows_moves_no_bound() -> None:
    rows = quiet_group()
    late: list[Row] = []
    record = Recorder(4, late)
    record.begin_life(9, 200_000_000)
    record.install(9, Configuration(ConfigurationId(400, 4), Kind.REGULAR, (4,)))
    everything = flat(rows) + late
    assert common_part(everything) == late[1:]
    assert common_part(everything, whole=[4]) == flat(rows) + late[1:]


def test_nodes_with_nothing_in_common_leave_nothing() -> None:
    rows = quiet_group()
    lost: list[Row] = []
    record = Recorder(3, lost)
    record.begin_life(9, 1, crashed=True)
    assert common_part([*rows[1], *rows[2], *lost]) == []


@pytest.mark.parametrize("seed", [*range(12), 17])  # in 17 numbers fall at a node
def test_a_run_with_faults_cut_anywhere_is_as_clean_as_the_whole(seed: int) -> None:
    _, world = run(LAB_TOTEM, plan(LAB_TOTEM, seed, (3, 6)))
    by_node: defaultdict[int, list[Row]] = defaultdict(list)
    for row in world.rows:
        by_node[row[0]].append(row)
    stream = random.Random(f"{seed}/cutmore")
    for _ in range(6):
        cut = {node: its[stream.randrange(len(its)) :] for node, its in by_node.items()}
        part = common_part(flat(cut))
        assert audit(part, whole=False, one_clock=True).violations == ()
