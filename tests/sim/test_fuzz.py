from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from careless import PROTOCOL
from toy_protocol import FRAGILE, Fragile, toy

from hunts import rounds
from ordercast.catalogue import LAB_TOTEM, lab_protocol
from ordercast.core.contract import Effect, Event, Install
from ordercast.mutants import MUTANTS
from ordercast.sequencers.member import Member
from ordercast.sim.campaign import Totals, explore
from ordercast.sim.faults import (
    IT,
    Action,
    At,
    Burst,
    Crash,
    Cut,
    Fault,
    Gone,
    Heal,
    Partition,
    Pause,
    Restart,
    Resume,
    When,
)
from ordercast.sim.fuzz import NO_MAJORITY, Case, Cuts, Result, cut, most_events, plan, restrict, run, shorten
from ordercast.sim.network import Lan
from ordercast.sim.workload import Workload
from ordercast.sim.world import World

NODES = (2, 5)
REGRESSIONS = Path(__file__).parents[1] / "regressions"


def case(*faults: Fault, nodes: tuple[int, ...] = (1, 2, 3), duration_us: int = 100_000) -> Case:
    return Case(
        seed=1,
        nodes=nodes,
        network=Lan(),
        settings={"nodes": len(nodes)},
        workload=Workload(rate=100.0),
        faults=faults,
        duration_us=duration_us,
    )


def test_a_seed_is_always_the_same_case() -> None:
    for seed in range(50):
        assert plan(PROTOCOL, seed, NODES) == plan(PROTOCOL, seed, NODES)


def test_seeds_differ_in_nodes_network_load_and_faults() -> None:
    cases = [plan(PROTOCOL, seed, NODES) for seed in range(60)]
    assert {len(each.nodes) for each in cases} == {2, 3, 4, 5}
    assert len({each.network for each in cases}) > 20
    assert len({each.workload for each in cases}) > 20
    assert len({each.faults for each in cases}) > 50


def test_a_group_at_rest_that_installs_one_configuration_after_the_other_has_not_converged() -> None:
    """A token that goes round with nothing to do was no progress: looks that found it at the same place said
    that the order stands still."""
    (file,) = REGRESSIONS.glob("dtp/two_at_rest*.json")
    at_rest = msgspec.json.decode(file.read_bytes(), type=Case)
    right = vars(Member)["progress"].fget
    assert run(lab_protocol("dtp"), at_rest)[0].converged
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Member, "progress", property(lambda self: right(self)[:-1]))
        assert not run(lab_protocol("dtp"), at_rest)[0].converged


def test_a_case_runs_the_same_every_time() -> None:
    for seed in range(3):
        (first, world), (second, again) = (run(PROTOCOL, plan(PROTOCOL, seed, NODES)) for _ in range(2))
        assert first == second
        assert world.rows == again.rows


def test_tracing_packets_changes_nothing_else() -> None:
    for seed in range(5):
        _, plain = run(PROTOCOL, plan(PROTOCOL, seed, NODES))
        _, traced = run(PROTOCOL, plan(PROTOCOL, seed, NODES), packets=True)
        told = [row for row in traced.rows if not row[4].startswith("packet")]
        without_step = [(*row[:2], *row[3:]) for row in told]
        assert without_step == [(*row[:2], *row[3:]) for row in plain.rows]
        assert len(told) < len(traced.rows)


# --- cuts ---------------------------------------------------------------------------------------


def test_cuts_that_leave_everything_change_nothing() -> None:
    for seed in range(200):
        assert plan(PROTOCOL, seed, NODES, Cuts()) == plan(PROTOCOL, seed, NODES)


def test_faults_are_kept_by_their_numbers_and_ended_anew() -> None:
    drawn = case(
        At(10, Crash(1)),
        At(20, Pause(2)),
        At(100_000, Resume(2)),
        *(At(100_000, Restart(n)) for n in (1, 2, 3)),
    )
    kept = cut(drawn, Cuts(faults=(1,)))
    assert kept.faults == (At(20, Pause(2)), *(At(100_000, Resume(node)) for node in (1, 2, 3)))


def test_who_is_down_for_good_stays_so() -> None:
    drawn = case(At(10, Crash(1)), At(20, Pause(2)), At(100_000, Crash(3)), At(100_000, Restart(1)))
    kept = cut(drawn, Cuts(faults=(0,)))
    assert At(100_000, Crash(3)) in kept.faults
    assert At(100_000, Restart(1)) in kept.faults


def test_without_a_node_nothing_happens_to_it() -> None:
    drawn = case(At(10, Crash(1)), At(20, Crash(3)), At(30, Cut(1, 3)), At(40, Partition(((1, 3), (2,)))))
    kept = cut(drawn, Cuts(members=(1, 2)))
    assert kept.nodes == (1, 2)
    assert kept.faults[:2] == (At(10, Crash(1)), At(40, Partition(((1,), (2,)))))
    assert kept.faults[2:] == (At(100_000, Heal()), At(100_000, Restart(1)), At(100_000, Restart(2)))


@pytest.mark.parametrize(
    ("fault", "left"),
    [
        (At(10, Crash(1)), At(10, Crash(1))),
        (At(50, Crash(1)), None),
        (At(10, Burst(0.5, 20)), At(10, Burst(0.5, 20))),
        (At(10, Burst(0.5, 500)), At(10, Burst(0.5, 40))),
        (When(None, "quiet", Crash(IT)), When(None, "quiet", Crash(IT), before_us=50)),
        (When(1, "quiet", Crash(IT), before_us=30), When(1, "quiet", Crash(IT), before_us=30)),
        (When(1, "quiet", Crash(IT), before_us=90), When(1, "quiet", Crash(IT), before_us=50)),
    ],
)
def test_nothing_goes_wrong_after_faults_have_ended(fault: Fault, left: Fault | None) -> None:
    assert shorten(fault, 50) == left


@pytest.mark.parametrize(
    ("action", "stays"), [(Crash(1), True), (Crash(3), False), (Crash(IT), True), (Cut(3, 1), False)]
)
def test_a_trigger_is_for_nodes_that_are_there(action: Action, stays: bool) -> None:
    fault = When(None, "quiet", action)  # type: ignore[arg-type]
    assert (restrict(fault, (1, 2)) is not None) is stays
    assert restrict(When(3, "quiet", Crash(1)), (1, 2)) is None


# --- judging ------------------------------------------------------------------------------------


def judged(*faults: Fault) -> tuple[Result, World]:
    return run(PROTOCOL, case(*faults))


def test_a_quiet_run_is_fine() -> None:
    result, world = judged()
    assert result.failed is None
    assert result.converged
    assert (result.events, result.receptions) == (world.handled, world.receptions)
    assert result.rows == len(world.rows) > 0


def test_what_a_machine_raises_is_a_finding() -> None:
    result, _ = judged(At(1_000, Crash(2)), At(2_000, Restart(2)))
    assert result.failed == "exception"
    assert result.sentences == ["RuntimeError: node 2 cannot start twice"]


def test_a_group_that_stays_apart_has_not_converged() -> None:
    result, _ = judged(At(1_000, Crash(3)))
    assert not result.converged
    assert result.failed == "live-membership"


def test_what_happened_is_counted() -> None:
    result, _ = judged(
        When(3, "running", Crash(IT), delay_us=10), At(2_000, Restart(3)), At(90_000, Crash(1))
    )
    assert result.coverage["crash"] == 2
    assert result.coverage["restart"] == 1
    assert result.coverage["crash in running"] + result.coverage["crash in quiet"] == 2
    assert all(" -> " in name or ":" not in name for name in result.coverage)


@pytest.mark.campaign
def test_totem_keeps_every_property_on_the_first_seeds() -> None:
    from ordercast.catalogue import lab_protocol
    from ordercast.sim.campaign import Campaign

    totals = Totals()
    for done in explore(Campaign(protocol="totem", nodes=(2, 5), seeds=range(rounds(4, 200))), lab_protocol):
        totals.add(done)
    assert not totals.failures


def test_a_group_that_falls_apart_at_every_loss_is_noticed() -> None:
    """Without retransmission a ring is formed anew for each packet that is lost; in the end it converges."""
    mutant = MUTANTS["requests-not-answered"]
    case = plan(LAB_TOTEM, mutant.shown_by, (2, 7))
    assert not run(LAB_TOTEM, case)[0].failed
    with mutant.planted():
        assert run(LAB_TOTEM, case)[0].failed


# --- primary partitions and lives that end by themselves ----------------------------------------


def fragile(*faults: Fault) -> tuple[Result, World]:
    return run(FRAGILE, case(*faults))


def test_a_machine_that_halts_by_itself_comes_back_and_has_to_converge() -> None:
    result, world = fragile(At(99_999, Gone(2, 2)))
    assert result.failed is None
    assert world.hosts[2].incarnation == 1
    assert world.halt_reasons == {"excluded": 1}
    assert result.coverage["wrong suspicion"] == result.coverage["halt"] == result.coverage["restart"] == 1


def test_a_node_that_is_about_to_come_back_is_waited_for() -> None:
    """What is looked at first, when faults end, is a group without it: the others do not count as all."""
    result, world = fragile(At(99_999, Gone(3, 3)))
    assert result.failed is None
    assert world.up(3)


def test_without_a_majority_of_the_last_view_nothing_is_asked_for() -> None:
    result, world = fragile(At(1_000, Crash(1)), At(2_000, Crash(3)))
    assert result.failed is None
    assert result.coverage[NO_MAJORITY] == 1
    assert world.latest is not None
    assert world.latest.members == (1, 2, 3)


def test_with_one_the_group_has_to_go_on() -> None:
    result, _ = fragile(At(1_000, Crash(3)))
    assert result.failed == "live-membership"
    assert NO_MAJORITY not in result.coverage


def test_where_any_part_goes_on_a_majority_means_nothing() -> None:
    anywhere = toy(FRAGILE.product._replace(primary_partition=False))
    result, _ = run(anywhere, case(At(1_000, Crash(1)), At(2_000, Crash(3))))
    assert result.failed == "live-membership"


def test_a_group_that_never_began_needs_a_majority_of_all() -> None:
    """Two of five have never installed anything: they may wait for a third for ever."""
    faults = [When(None, "starting", Crash(node), delay_us=0) for node in (3, 4, 5)]
    silent = FRAGILE._replace(make=lambda settings: lambda node: Silent(node, range(1, 6)))
    result, _ = run(silent, case(*faults, nodes=(1, 2, 3, 4, 5)))
    assert (result.failed, result.coverage[NO_MAJORITY]) == (None, 1)
    result, _ = run(silent, case(nodes=(1, 2, 3, 4, 5)))
    assert result.failed == "live-membership"


class Silent(Fragile):
    """One that never installs anything."""

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        return [effect for effect in super().handle(now_us, event) if not isinstance(effect, Install)]


def test_who_crashed_is_counted_by_role_and_what_never_happened_is_listed() -> None:
    result, _ = fragile(
        At(1_000, Crash(1)), At(2_000, Restart(1)), At(3_000, Crash(3)), At(4_000, Restart(3))
    )
    assert result.coverage["sequencer lost"] == 1
    assert result.coverage["next sequencer lost"] == 0
    assert result.coverage["simple member lost"] == 1
    assert result.coverage["nothing heard"] > 0, "a reason for changes of state"
    assert result.coverage["wrong suspicion"] == 0


def test_levels_of_resilience_are_drawn_for_protocols_that_have_them() -> None:
    levels = {plan(FRAGILE, seed, NODES).workload.levels for seed in range(30)}
    assert levels == {0.0, 0.3, 1.0}
    assert {plan(PROTOCOL, seed, NODES).workload.levels for seed in range(30)} == {0.0}
    for seed in range(30):
        with_levels, without = (plan(protocol, seed, NODES).workload for protocol in (FRAGILE, PROTOCOL))
        assert msgspec.structs.replace(with_levels, levels=0.0) == without, "all else is drawn as before"


def test_more_nodes_may_have_more_events_before_packets_count_as_multiplying() -> None:
    """Ten nodes that sent 800 messages of many packets each had 430,000, and nothing was wrong."""
    assert most_events(2) == most_events(7) == 400_000
    assert 430_657 < most_events(10) < 1_000_000
