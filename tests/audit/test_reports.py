"""Right histories spoiled at random, what liveness asks for, and what a report holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from story import Story, delivered, parted, random_story, three

from ordercast.audit.explain import KEPT, told_once
from ordercast.audit.findings import Findings
from ordercast.audit.page import write_page
from ordercast.audit.properties import (
    EXTENDED_VIRTUAL_SYNCHRONY,
    VIEW_SYNCHRONY,
    Expectation,
    History,
    Report,
    Violation,
    audit,
    audit_runs,
    promised,
)
from ordercast.trace.schema import TraceError


def again() -> Story:
    """Node 2 delivers its first message twice."""
    story, (a, *_) = delivered()
    story.deliver(2, a)
    return story


# --- spoiling right histories at random --------------------------------------------------------


def regular_deliveries(story: Story) -> Iterator[tuple[int, int]]:
    """Places of two deliveries, one directly after the other, at one node in a regular configuration."""
    last: dict[int, int] = {}
    for place, row in enumerate(story.rows):
        if row[4] != "deliver" or row[7] != "regular":
            if row[4] in ("install", "crash", "halt"):
                last.pop(row[0], None)
            continue
        if row[0] in last:
            yield last[row[0]], place
        last[row[0]] = place


def spoiled(seed: int) -> tuple[Story, int, int]:
    story = random_story(Random(seed))
    pairs = list(regular_deliveries(story))
    assume(pairs)
    return story, *Random(seed + 1).choice(pairs)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_no_swap_goes_unseen(seed: int) -> None:
    story, one, other = spoiled(seed)
    first, second = story.rows[one], story.rows[other]
    story.rows[one] = (*first[:9], *second[9:])
    story.rows[other] = (*second[:9], *first[9:])
    assert audit(story.rows).properties["gap-free"]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_no_drop_goes_unseen(seed: int) -> None:
    story, one, _ = spoiled(seed)
    del story.rows[one]
    assert audit(story.rows).properties["gap-free"]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_no_duplicate_goes_unseen(seed: int) -> None:
    story, one, other = spoiled(seed)
    first, second = story.rows[one], story.rows[other]
    story.rows[other] = (*second[:9], *first[9:])
    assert audit(story.rows).properties["deliver-once"]


# --- liveness ----------------------------------------------------------------------------------

ALL_THREE = Expectation((frozenset({1, 2, 3}),))


def live(story: Story, expectation: Expectation = ALL_THREE) -> Report:
    return audit(story.rows, expectation)


def test_liveness_is_not_judged_without_an_expectation() -> None:
    story, _ = three()
    report = audit(story.rows)
    assert report.unchecked == ("live-membership", "live-delivery")
    assert report.clean
    assert live(story).unchecked == ()


def test_a_run_that_came_to_rest_is_live() -> None:
    story, _ = delivered()
    assert live(story).clean


def test_nodes_that_end_apart_are_named() -> None:
    story, _ = delivered()
    parted(story)
    report = live(story)
    assert report.properties["live-membership"] == 1
    assert report.violations[0].nodes == (1, 2, 3)
    apart = Expectation((frozenset({1, 2}), frozenset({3})))
    assert live(story, apart).clean


def test_a_node_that_should_be_up_and_is_not_is_named() -> None:
    story, _ = delivered()
    story.crash(2)
    assert "node 2 in none" in live(story).violations[0].sentence


def test_a_configuration_that_came_too_late_is_named() -> None:
    story, _ = delivered()
    early = Expectation(ALL_THREE.components, quiet_since_us=0, bound_us=10)
    assert live(story, early).properties["live-membership"] == 1
    in_time = Expectation(ALL_THREE.components, quiet_since_us=0, bound_us=10_000)
    assert live(story, in_time).clean


def test_a_message_of_the_lasting_configuration_that_one_did_not_deliver_is_named() -> None:
    story, messages = three()
    story.deliver([1, 2], *messages)
    story.deliver(3, *messages[:-1])
    report = live(story)
    assert report.properties["live-delivery"] == 1
    assert report.violations[0].nodes == (3,)
    assert report.violations[0].messages == (messages[-1].id,)


def test_an_accepted_message_that_was_never_originated_is_named() -> None:
    story, _ = delivered()
    story.submit(2)
    report = live(story)
    assert report.properties["live-delivery"] == 1
    assert "not originated" in report.violations[0].sentence


def test_what_a_dead_life_accepted_is_not_owed() -> None:
    story = Story()
    story.alone(1)
    story.submit(1)
    story.crash(1)
    story.restart(1)
    story.alone(1, seq=8)
    assert live(story, Expectation((frozenset({1}),))).clean


# --- reports -----------------------------------------------------------------------------------


def test_a_report_counts_all_and_tells_some() -> None:
    story = Story()
    for node in range(1, KEPT + 10):
        story.regular(4, node, [node])
        story.regular(8, node, [node])
    report = audit(story.rows)
    assert report.properties["config-chain"] == KEPT + 9
    assert len(report.violations) == KEPT


def test_one_culprit_is_told_once_with_how_often() -> None:
    story = Story()
    for seq in (4, 8, 12, 16):
        story.regular(seq, 1, [1])
        story.regular(seq, 2, [2], at=[2] if seq < 12 else [])
    report = audit(story.rows)
    assert report.properties["config-chain"] == 4
    one, other = report.violations
    assert (one.culprit, one.times, other.culprit, other.times) == (1, 3, 2, 1)
    assert one.told() == f"{one.sentence} (And 2 more that concern node 1.)"
    assert other.told() == other.sentence


def test_who_is_beside_every_other_is_the_culprit() -> None:
    """Three pairs of nodes, with one node in all of them: that one is told of."""
    pairs = [(1, 2), (2, 3), (4, 2), (5, 6)]
    told = told_once([Violation("total-order", pair, (), (), f"{pair}.") for pair in pairs])
    assert [(each.nodes, each.culprit, each.times) for each in told] == [((1, 2), 2, 3), ((5, 6), 5, 1)]


def test_runs_are_audited_apart_and_added_up() -> None:
    right, wrong = delivered()[0].rows, again().rows
    report = audit_runs([("right", right), ("wrong", wrong), ("right again", right)])
    assert report.events == len(right) * 2 + len(wrong)
    assert report.properties["deliver-once"] == 1
    assert {violation.run for violation in report.violations} == {"wrong"}
    assert report.unchecked == ("live-membership", "live-delivery")
    assert report.promises == ("extended-virtual-synchrony",)
    assert report.runs == 3
    by_views = audit_runs([("right", right)], VIEW_SYNCHRONY)
    assert by_views.promises == ("view-synchrony",)
    assert by_views.properties.keys() == VIEW_SYNCHRONY.keys()


def test_a_run_tells_by_itself_what_it_was_promised() -> None:
    placed, unplaced, neither = three()[0], three()[0], Story()
    for row in list(unplaced.rows):
        if row[7] == "transitional" or row[4] == "originate":
            unplaced.rows.remove(row)
    neither.regular(1, 1, [1, 2])
    assert promised(placed.rows) is EXTENDED_VIRTUAL_SYNCHRONY
    assert promised(delivered()[0].rows) is EXTENDED_VIRTUAL_SYNCHRONY
    assert promised(unplaced.rows) is VIEW_SYNCHRONY
    assert promised(neither.rows) is VIEW_SYNCHRONY
    neither.originate(1, 1)
    assert promised(neither.rows) is EXTENDED_VIRTUAL_SYNCHRONY


def test_checks_of_ones_own_are_given_a_history() -> None:
    def objection(history: History) -> list[Violation]:
        return [Violation("objection", (1,), (), (), f"{len(history.messages)} messages.")]

    report = audit(delivered()[0].rows, None, {"objection": objection})
    assert report.properties == {"objection": 1}
    assert report.promises == ()


def test_a_report_goes_into_json() -> None:
    report = json.loads(json.dumps(audit(again().rows).as_dict()))
    assert report["properties"]["deliver-once"] == 1
    [violation] = [found for found in report["violations"] if found["property"] == "deliver-once"]
    assert violation["nodes"] == [2]
    assert violation["messages"] == [{"origin": 1, "incarnation": 0, "number": 1}]
    assert violation["configurations"] == [{"seq": 8, "rep": 1}]


def test_a_message_without_a_position_is_refused() -> None:
    story, (a, *_) = three()
    story.edit(story.find("originate", a.origin, a), seq=None)
    with pytest.raises(TraceError, match=r"message of node 1 .* without a value for its seq"):
        audit(story.rows)


def test_an_install_without_members_is_refused() -> None:
    story, _ = three()
    story.edit(story.find("install", 1), members=None)
    with pytest.raises(TraceError, match="node 1, step 0: an install needs"):
        audit(story.rows)


def test_the_drawing_of_a_page_tells_how_much_was_delivered(tmp_path: Path) -> None:
    rows = delivered()[0].rows
    findings = Findings.of("run", audit(rows), rows, shown=True)
    write_page(tmp_path / "page.html", "it", findings.report, [findings], "reference")
    assert "deliveries: 18." in (tmp_path / "page.html").read_text()
