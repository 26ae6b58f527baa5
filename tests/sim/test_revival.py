"""Machines that end their own lives, and the supervisor that begins the next."""

from __future__ import annotations

import pytest
from toy_protocol import FRAGILE, toy

from ordercast.sim.network import Lan
from ordercast.sim.protocol import REVIVE_US
from ordercast.sim.world import World


def world(revive_us: int | None = 5_000) -> World:
    made = FRAGILE.world({"nodes": 3}, (1, 2, 3), Lan(tail_us=0), 1, revive_us=revive_us)
    made.start()
    made.run_until(1_000)
    return made


def events(made: World, node: int) -> list[tuple[int, str]]:
    return [(row[1], row[4]) for row in made.rows if row[0] == node]


def test_a_machine_that_halts_by_itself_begins_another_life_a_little_later() -> None:
    made = world()
    made.tell_gone(2, 2)
    assert not made.up(2)
    assert made.living(2)
    made.run_until(5_999)
    assert not made.up(2)
    made.run_until(6_000)
    assert made.up(2)
    assert events(made, 2) == [(0, "install"), (0, "halt"), (1, "restart"), (1, "install")]
    assert made.halt_reasons == {"excluded": 1}
    assert made.hosts[2].disk == b"01", "what it persisted is still there"


def test_one_that_was_told_to_go_stays_away() -> None:
    made = world()
    made.leave(2)
    made.run_until(100_000)
    assert not made.living(2)
    assert made.halt_reasons == {"asked to": 1}


def test_a_node_that_was_told_to_go_in_an_earlier_life_comes_back_from_a_later_one() -> None:
    made = world()
    made.leave(2)
    made.restart(2)
    made.tell_gone(2, 2)
    made.run_until(100_000)
    assert made.up(2)


@pytest.mark.parametrize("how", ["crash", "leave"])
def test_what_ends_a_node_while_it_is_between_lives_ends_it(how: str) -> None:
    made = world()
    made.tell_gone(2, 2)
    getattr(made, how)(2)
    assert not made.living(2)
    made.run_until(100_000)
    assert not made.up(2)
    assert made.starts == 3


def test_a_restart_in_between_is_the_new_life() -> None:
    made = world()
    made.tell_gone(2, 2)
    made.restart(2)
    made.run_until(100_000)
    assert made.hosts[2].incarnation == 1
    made.tell_gone(2, 2)
    made.run_until(made.now + 4_999)
    assert not made.up(2), "the first halt's alarm is not the second's"


def test_without_a_supervisor_it_stays_down() -> None:
    made = world(revive_us=None)
    made.tell_gone(2, 2)
    made.run_until(100_000)
    assert not made.living(2)


def test_only_protocols_whose_machines_come_back_have_a_supervisor() -> None:
    for protocol, comes_back in ((FRAGILE, True), (toy(make=FRAGILE.make), False)):
        settings = {"nodes": 3, "founders": 2}
        made = protocol.world(settings, (1, 2, 3), Lan(), 1)
        made.start()
        made.tell_gone(2, 2)
        made.run_until(REVIVE_US)
        assert made.up(2) is comes_back


def test_crashes_are_counted_by_the_role_of_who_crashed() -> None:
    made = world()
    for node in (1, 2, 3, 3):
        made.crash(node)
    assert made.roles_lost == {"sequencer": 1, "next": 1, "member": 1}


def test_the_latest_configuration_of_anybody_is_known() -> None:
    made = world()
    assert made.latest is not None
    assert (made.latest.id.seq, made.latest.members) == (1, (1, 2, 3))
