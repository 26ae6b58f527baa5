from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from told_run import NOTES, Pen, told_run

from ordercast.draw.palette import INK
from ordercast.draw.spacetime import moments, timeline_of
from ordercast.draw.terminal import Drawing, sentence


def printed(drawing: Drawing, width: int = 100, colour: bool = False) -> list[str]:
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, color_system="truecolor" if colour else None
    )
    console.print(drawing)
    return out.getvalue().splitlines()


def row(lines: list[str], part: str) -> str:
    (found,) = [line for line in lines if part in line]
    return found


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return printed(Drawing(timeline_of(told_run()), NOTES))


def test_an_install_names_time_nodes_members_and_kind(lines: list[str]) -> None:
    line = row(lines, "(transitional 11.1)")
    assert " ".join(line.split()) == "540.3 ms ◌ ◌ ◌ ◌ · 1 2 3 4 install {1 2 3 4} (transitional 11.1)"


def test_crash_halt_and_restart_have_their_sign_in_their_lane(lines: list[str]) -> None:
    heading = row(lines, "node  1")
    for text, sign, node in (("5 crashes", "✗", "5"), ("2 halts", "■", "2"), ("5 restarts", "↻", "5")):
        assert row(lines, text).index(sign) == heading.index(node, heading.index("node") + 4)


def test_a_lane_is_solid_dashed_or_gone(lines: list[str]) -> None:
    assert row(lines, "delivered 1 safe").split()[:5] == ["╏1", "╏1", "╏1", "╏1", "·"]
    assert row(lines, "2 halts").split()[2:7] == ["┃", "■", "┃", "┃", "┃"]


def test_what_was_delivered_stands_before_the_change_that_ends_it(lines: list[str]) -> None:
    crash = next(place for place, line in enumerate(lines) if "5 crashes" in line)
    assert "┃120" in lines[crash - 1]
    assert lines[crash - 1].endswith("delivered 90 agreed + 30 safe")
    assert lines[crash + 1].endswith("delivered 90 agreed + 30 safe each")


def test_a_note_is_a_line_across_the_lanes_at_its_time(lines: list[str]) -> None:
    line = row(lines, "partition 1 2 | 3 4")
    assert line.startswith("  900.0 ms  ┿━━━━━━┿━━━━━━┿━━━━━━┿━━━━━━━━━━━━━")
    places = [place for place, text in enumerate(lines) if "12.1" in text or "15.1" in text]
    assert places[0] < lines.index(line) < places[1]


def test_one_configuration_has_one_colour_on_all_its_lanes() -> None:
    (line,) = [
        line for line in printed(Drawing(timeline_of(told_run())), colour=True) if "(regular 12.1)" in line
    ]
    red, green, blue = (int(INK[2][i : i + 2], 16) for i in (1, 3, 5))
    assert line.count(f"38;2;{red};{green};{blue}m●") == 4


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("nodes", [1, 5, 12, 40, 100])
def test_no_line_is_wider_than_the_terminal(width: int, nodes: int) -> None:
    pen = Pen()
    everyone = list(range(1, nodes + 1))
    for node in everyone:
        pen.install(0, [node], [node], 4)
    pen.install(40_000, everyone, everyone, 8)
    pen.stream(50_000, 90_000, everyone, 3)
    pen.crash(100_000, nodes)
    lines = printed(Drawing(timeline_of(pen.rows), [(60_000, "burst loss of everything " * 4)]), width)
    assert max(map(cell_len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    assert f"{nodes} crashes" in text
    if nodes > width:
        assert "no room for" in text


def test_names_of_narrow_lanes_are_written_downwards() -> None:
    pen = Pen()
    pen.install(0, list(range(1, 31)), list(range(1, 31)), 4)
    heading = printed(Drawing(timeline_of(pen.rows)), 90)[:2]
    assert heading[0].strip() == "11111111112222222222" + "3"
    assert heading[1].split() == ["node", "123456789012345678901234567890"]


def test_a_long_story_is_cut_and_says_so() -> None:
    lines = printed(Drawing(timeline_of(told_run()), most_rows=3))
    assert lines[-1].endswith("further moments")
    assert not any("end of the trace" in line for line in lines)


def test_what_many_do_together_names_them_once() -> None:
    pen = Pen()
    everyone = list(range(1, 11))
    pen.install(0, everyone, everyone, 8)
    (moment,) = moments(timeline_of(pen.rows))
    assert sentence(moment) == "all of {1–10} install it (regular 8.1)"


def test_a_moment_that_took_its_time_says_how_long() -> None:
    pen = Pen()
    pen.install(0, [1], [1, 2], 8)
    pen.install(12_340, [2], [1, 2], 8)
    (moment,) = moments(timeline_of(pen.rows))
    assert sentence(moment) == "1 2 install {1 2} (regular 8.1) within 12.3 ms"


def test_a_real_run_is_shown_from_its_start() -> None:
    pen = Pen()
    start = 1_700_000_000_000_000
    pen.install(start, [1], [1], 8)
    pen.crash(start + 2_500, 1)
    assert row(printed(Drawing(timeline_of(pen.rows))), "1 crashes").startswith("    2.5 ms")


def test_a_change_says_after_which_place_it_comes() -> None:
    pen = Pen()
    pen.install(0, [1, 2], [1, 2], 8)
    pen.install(50_000, [1, 2], [1, 2], 11, "transitional", place=17)
    pen.install(100_000, [1], [1, 2], 12, place=17)
    pen.install(100_000, [2], [1, 2], 12, place=19)
    pen.install(200_000, [1, 2], [1, 2], 15, "transitional", place=0)
    told = [sentence(moment) for moment in moments(timeline_of(pen.rows))]
    assert told == [
        "1 2 install {1 2} (regular 8.1)",
        "1 2 install {1 2} (transitional 11.1) after place 17",
        "1 2 install {1 2} (regular 12.1)",
        "1 2 install {1 2} (transitional 15.1)",
    ], "a place is told where all agree about it and something was delivered"
