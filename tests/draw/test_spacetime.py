from __future__ import annotations

import random
from itertools import pairwise

import pytest
from told_run import Pen, told_run

from ordercast.core.identity import Configuration, ConfigurationId, Kind
from ordercast.draw.palette import GREY, LIGHT, colours
from ordercast.draw.spacetime import Ending, Life, Moment, MomentKind, Timeline, moments, timeline_of


@pytest.fixture(scope="module")
def story() -> Timeline:
    return timeline_of(told_run())


def life(story: Timeline, node: int, number: int = 0) -> Life:
    return next(lane for lane in story.lanes if lane.node == node).lives[number]


def installs(told: list[Moment]) -> list[tuple[list[int], str]]:
    return [
        (list(moment.nodes), f"{moment.configuration.kind} {moment.configuration.id}")
        for moment in told
        if moment.configuration
    ]


def test_lanes_are_nodes_in_ascending_order(story: Timeline) -> None:
    assert [lane.node for lane in story.lanes] == [1, 2, 3, 4, 5]
    assert (story.start_us, story.end_us) == (0, 2_497_800)


def test_a_life_ends_with_a_crash_and_the_next_begins_with_the_restart(story: Timeline) -> None:
    first, second = life(story, 5, 0), life(story, 5, 1)
    assert (first.start_us, first.end_us, first.ending) == (0, 400_000, Ending.CRASH)
    assert (second.incarnation, second.start_us, second.ending) == (1, 1_500_000, None)
    assert second.end_us == story.end_us


def test_a_halt_is_told_from_a_crash(story: Timeline) -> None:
    assert life(story, 2).ending == Ending.HALT


def test_segments_follow_each_other_without_a_gap(story: Timeline) -> None:
    for lane in story.lanes:
        for each in lane.lives:
            for before, after in pairwise(each.segments):
                assert before.end_us == after.start_us
            assert each.segments[-1].end_us == each.end_us


def test_deliveries_are_counted_where_they_happened(story: Timeline) -> None:
    ring = next(s for s in life(story, 1).segments if s.configuration.id == ConfigurationId(8, 1))
    assert ring.delivered == {"agreed": 90, "safe": 30}
    between = next(s for s in life(story, 1).segments if s.configuration.id == ConfigurationId(11, 1))
    assert (between.configuration.kind, between.delivered) == (Kind.TRANSITIONAL, {"safe": 1})
    assert between.start_us == between.end_us
    assert between.total == 1


def test_the_story_does_not_depend_on_the_order_of_rows(story: Timeline) -> None:
    rows = told_run()
    random.Random(1).shuffle(rows)
    assert timeline_of(rows) == story


def test_a_restart_without_a_crash_row_ends_the_life_in_silence() -> None:
    """A process that was killed could not write that it was."""
    pen = Pen()
    pen.install(0, [1], [1], 4)
    pen.deliver(700, 1, (1, 0, 0))
    pen.restart(9_000, 1)
    pen.install(9_000, [1], [1], 8)
    first, second = timeline_of(pen.rows).lanes[0].lives
    assert (first.ending, first.end_us) == (Ending.SILENCE, 700)
    assert second.start_us == 9_000
    assert [moment.what for moment in moments(timeline_of(pen.rows))] == [
        MomentKind.INSTALL,
        MomentKind.SILENCE,
        MomentKind.RESTART,
        MomentKind.INSTALL,
    ]


def test_a_clock_that_steps_back_does_not_turn_a_lane_round() -> None:
    pen = Pen()
    pen.install(5_000, [1], [1], 4)
    pen.install(4_000, [1], [1], 8)
    pen.crash(4_500, 1)
    (only,) = timeline_of(pen.rows).lanes[0].lives
    assert [(segment.start_us, segment.end_us) for segment in only.segments] == [(5_000, 5_000)] * 2


def test_nothing_happened_is_a_story_too() -> None:
    assert timeline_of([]) == Timeline((), 0, 0)
    assert moments(timeline_of([])) == []


def test_a_transitional_configuration_names_the_one_it_finishes(story: Timeline) -> None:
    finishes = {str(c.id): f and str(f.id) for c, f in story.configurations().items()}
    assert finishes["11.1"] == "8.1"
    assert finishes["15.3"] == "12.1"
    assert finishes["12.1"] is None


# --- moments -----------------------------------------------------------------------------------


def test_nodes_that_do_the_same_at_nearly_the_same_time_share_a_moment(story: Timeline) -> None:
    told = installs(moments(story))
    assert ([1, 2, 3, 4, 5], "regular 8.1") in told
    assert ([1, 3, 4, 5], "regular 24.1") in told


def test_a_moment_waits_for_what_its_nodes_do_before_it(story: Timeline) -> None:
    """Node 1 is in the new ring before 3 and 4 are in their transitional configuration."""
    told = installs(moments(story))
    assert told.index(([3, 4], "transitional 23.3")) < told.index(([1, 3, 4, 5], "regular 24.1"))


def test_each_alone_is_one_moment_without_one_configuration(story: Timeline) -> None:
    first = moments(story)[0]
    assert (list(first.nodes), first.alone, first.configuration) == ([1, 2, 3, 4, 5], Kind.REGULAR, None)


def test_what_is_far_apart_in_time_is_not_one_moment(story: Timeline) -> None:
    assert ([1, 2, 3, 4, 5], "regular 8.1") not in installs(moments(story, near_us=500))


def test_moments_that_cannot_be_told_whole_are_told_in_parts() -> None:
    """1 installs A then B, 2 installs B then A: no order of two moments is right for both."""
    pen = Pen()
    pen.install(0, [1], [1, 2], 4)
    pen.install(10, [2], [1, 2], 8)
    pen.install(20, [1], [1, 2], 8)
    pen.install(30, [2], [1, 2], 4)
    told = moments(timeline_of(pen.rows))
    for node, expected in ((1, ["4.1", "8.1"]), (2, ["8.1", "4.1"])):
        own = [str(m.configuration.id) for m in told if m.configuration and node in m.nodes]
        assert own == expected


def test_moments_keep_the_order_of_every_node() -> None:
    chance = random.Random(7)
    pen = Pen()
    for step in range(120):
        node = chance.randrange(1, 5)
        pen.install(step * 3_000, [node], [1, 2, 3, 4], chance.randrange(4, 12))
    story = timeline_of(pen.rows)
    told = moments(story)
    for lane in story.lanes:
        own = [moment.segments[lane.node] for moment in told if lane.node in moment.segments]
        assert own == list(lane.segments())


# --- colours -----------------------------------------------------------------------------------


def test_rings_that_exist_side_by_side_or_after_each_other_differ_in_colour(story: Timeline) -> None:
    chosen = {str(c.id): index for c, index in colours(story).items() if c.kind == Kind.REGULAR}
    several = [chosen[name] for name in ("8.1", "12.1", "16.1", "16.3", "24.1")]
    assert len(set(several)) == 5
    assert GREY not in several


def test_alone_is_grey_and_transitional_is_the_colour_of_what_it_finishes(story: Timeline) -> None:
    chosen = colours(story)
    alone = Configuration(ConfigurationId(4, 1), Kind.REGULAR, (1,))
    assert chosen[alone] == GREY
    by_name = {str(configuration.id): index for configuration, index in chosen.items()}
    assert by_name["11.1"] == by_name["8.1"]


def test_colours_last_however_many_configurations_there_are() -> None:
    pen = Pen()
    for ring in range(40):
        pen.install(ring * 1000, [1], [1, 2], 4 + ring)
    chosen = [index for _, index in sorted(colours(timeline_of(pen.rows)).items())]
    assert set(chosen) == set(range(1, len(LIGHT)))
    assert all(before != after for before, after in pairwise(chosen))
