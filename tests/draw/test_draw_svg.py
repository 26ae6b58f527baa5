from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from told_run import NOTES, Pen, told_run

from ordercast.draw import svg, words
from ordercast.draw.palette import LIGHT, colours
from ordercast.draw.scale import Scale
from ordercast.draw.spacetime import Note, Timeline, timeline_of

SVG = "{http://www.w3.org/2000/svg}"


def drawn(story: Timeline, notes: list[Note], title: str = "") -> ElementTree.Element:
    """Parsed, so that a drawing that is no XML fails."""
    return ElementTree.fromstring(svg.draw(story, notes, title=title))


def texts(root: ElementTree.Element, style: str | None = None) -> list[str]:
    return [t.text or "" for t in root.iter(f"{SVG}text") if style is None or t.get("class") == style]


def bars(root: ElementTree.Element) -> dict[str, ElementTree.Element]:
    """The bars of the lanes, by the first line of what they tell on hovering."""
    found = {}
    for group in root.iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        if title is not None and rect is not None and rect.get("class") != "halt":
            found[(title.text or "").splitlines()[0]] = rect
    return found


@pytest.fixture(scope="module")
def story() -> Timeline:
    return timeline_of(told_run())


def test_every_segment_is_a_bar_in_its_lane_and_colour(story: Timeline) -> None:
    root = drawn(story, NOTES)
    found = bars(root)
    chosen = colours(story)
    assert len(found) == sum(len(list(lane.segments())) for lane in story.lanes)
    tops: dict[int, set[str]] = {}
    for lane in story.lanes:
        for segment in lane.segments():
            configuration = segment.configuration
            rect = found[f"node {lane.node}: {words.kind(configuration)} {words.members(configuration)}"]
            tops.setdefault(lane.node, set()).add(rect.get("y", ""))
            if configuration.kind == "regular":
                assert rect.get("fill") == LIGHT[chosen[configuration]]
                assert rect.get("stroke-dasharray") is None
            else:
                assert rect.get("stroke-dasharray")
    assert all(len(heights) == 1 for heights in tops.values())
    assert len(set.union(*tops.values())) == 5


def test_a_transitional_configuration_that_took_no_time_is_still_seen(story: Timeline) -> None:
    rect = bars(drawn(story, []))["node 1: transitional 11.1 {1 2 3 4}"]
    assert float(rect.get("width", "0")) >= svg.SLIVER


def test_bars_of_a_lane_do_not_overlap(story: Timeline) -> None:
    root = drawn(story, NOTES)
    for node in range(1, 6):
        spans = sorted(
            (float(rect.get("x", "")), float(rect.get("width", "")))
            for told, rect in bars(root).items()
            if told.startswith(f"node {node}:")
        )
        for (left, width), (following, _) in pairwise(spans):
            assert left + width <= following + 0.2


def test_crash_halt_and_restart_are_drawn_and_told(story: Timeline) -> None:
    told = [title.text for title in drawn(story, []).iter(f"{SVG}title")]
    assert "node 5: crash at 400.0 ms" in told
    assert "node 2: halt at 1,700.0 ms" in told
    assert "node 5 restarts at 1,500.0 ms" in told


def test_members_and_deliveries_stand_in_the_bars(story: Timeline) -> None:
    written = texts(drawn(story, []))
    assert "{1 2 3 4 5}" in written
    assert written.count("120") == 5


def test_notes_are_lines_with_their_text(story: Timeline) -> None:
    root = drawn(story, NOTES)
    assert texts(root, "note") == [text for _, text in NOTES]
    assert len([line for line in root.iter(f"{SVG}line") if line.get("class") == "fault"]) == len(NOTES)


def test_notes_that_find_no_room_are_numbered_and_listed(story: Timeline) -> None:
    many = [(1_000_000 + 300 * place, f"burst loss number {place}") for place in range(8)]
    labels = texts(drawn(story, many), "note")
    assert labels[8:] == [
        f"{place + 1}: {1000 + 0.3 * place:,.1f} ms, burst loss number {place}" for place in range(8)
    ]
    assert labels[:8] == [str(place + 1) for place in range(8)]


def test_long_lists_are_cut_and_say_so(story: Timeline) -> None:
    many = [(1_000_000 + place, "loss") for place in range(svg.MOST_LISTED + 5)]
    assert "and 5 more" in texts(drawn(story, many))


def test_the_legend_lists_rings_with_their_first_install(story: Timeline) -> None:
    written = texts(drawn(story, []))
    assert "16.3 {3 4} from 1,043.0 ms" in written
    assert not any("{5} from" in text for text in written)


def test_what_comes_from_outside_is_escaped(story: Timeline) -> None:
    root = drawn(story, [(100, "a < b & c")], title="<script>")
    assert texts(root, "note") == ["a < b & c"]
    assert texts(root, "title") == ["<script>"]


def test_the_file_needs_nothing_else_and_is_the_same_every_time(story: Timeline) -> None:
    file = svg.draw(story, NOTES)
    assert file == svg.draw(timeline_of(told_run()), list(reversed(NOTES)))
    assert not re.search(r"href|url\(|@import|<script", file)


def test_nothing_happened_can_be_drawn() -> None:
    assert texts(drawn(timeline_of([]), [], "Silence"), "title") == ["Silence"]


def test_forty_nodes_for_a_minute_stay_within_the_sheet() -> None:
    pen = Pen()
    everyone = list(range(1, 41))
    pen.install(0, everyone, everyone, 8)
    for minute in range(40):
        pen.install(1_500_000 * minute + 40_000, everyone, everyone, 12 + 4 * minute)
    pen.crash(60_000_000, 40)
    root = drawn(timeline_of(pen.rows), [])
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    assert width < svg.WIDEST + 200
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x", "")) <= width
        assert 0 <= float(text.get("y", "")) <= height


# --- the axis ----------------------------------------------------------------------------------


def test_the_axis_is_monotone_and_gives_room_to_changes() -> None:
    """Forty milliseconds of change in a minute: readable, though it is less than a pixel's share."""
    x = Scale([0, 30_000_000, 30_040_000, 60_000_000], left=100, narrowest=1000, widest=6000)
    places = [x(time) for time in range(0, 60_000_001, 10_000)]
    assert places == sorted(places)
    assert x(0) == 100
    assert x(60_000_000) == x.right == pytest.approx(1100)
    assert x(30_040_000) - x(30_000_000) > 30
    assert x(-5) == x(0)
    assert x(10**9) == x.right


def test_the_axis_is_never_wider_than_allowed() -> None:
    x = Scale(range(0, 10**9, 10**6), left=0, narrowest=1000, widest=6000)
    assert x.right == pytest.approx(6000)


@pytest.mark.parametrize("zero_us", [0, 1_234_567])
def test_labels_are_round_times_and_keep_their_distance(zero_us: int) -> None:
    times = [zero_us, zero_us + 45_000, zero_us + 400_000, zero_us + 2_500_000]
    x = Scale(times, left=0, narrowest=1000, widest=6000)
    ticks = x.ticks(60, zero_us)
    assert len(ticks) > 5
    assert all(after[0] - before[0] >= 60 for before, after in pairwise(ticks))
    assert all(x(time + zero_us) == place and time % 10_000 == 0 for place, time in ticks)
