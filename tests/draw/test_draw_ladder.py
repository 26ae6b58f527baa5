from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

from ordercast.draw.ladder import Flight, Lane, Mark, draw

SVG = "{http://www.w3.org/2000/svg}"
LANES = [Lane(1, "p"), Lane(2, "q"), Lane(3, "r")]
FLIGHTS = [
    Flight(1_000, 1, 2, 2_000, "msg a & b"),
    Flight(1_000, 1, 3, None, "msg a & b"),
    Flight(2_000, 2, 1, 3_000, "ack 1=a → r"),
    Flight(2_000, 2, 3, 3_000, "ack 1=a → r"),
    Flight(99_000, 3, 1, 99_500, "msg later"),
]
MARKS = [
    Mark(3_000, 1, "deliver", "b"),
    Mark(3_000, 1, "deliver", "a"),
    Mark(4_000, 3, "crash", "crash"),
    Mark(5_000, 2, "install", "pq"),
    Mark(6_000, 3, "restart", "restart"),
]


def drawn(
    flights: list[Flight] = FLIGHTS, marks: list[Mark] = MARKS, end_us: int = 8_000
) -> ElementTree.Element:
    return ElementTree.fromstring(draw(flights, marks, LANES, (0, end_us), "What p said"))


def lines(root: ElementTree.Element, style: str) -> list[tuple[float, ...]]:
    found = [line for line in root.iter(f"{SVG}line") if line.get("class") == style]
    return [tuple(float(line.get(name, "")) for name in ("x1", "y1", "x2", "y2")) for line in found]


def labels(root: ElementTree.Element) -> dict[str, tuple[float, float]]:
    return {
        text.text or "": (float(text.get("x", "")), float(text.get("y", "")))
        for text in root.iter(f"{SVG}text")
    }


def test_an_arrow_goes_from_when_a_packet_was_sent_to_when_it_arrived() -> None:
    root = drawn()
    place = labels(root)
    arrows = [line for line in lines(root, "flight") if line[1] != line[3]]  # the legend's are level
    assert len(arrows) == 3
    x1, y1, x2, y2 = arrows[0]
    assert x1 < x2
    assert y1 < y2, "from p down to q"
    assert place["p"][1] < place["q"][1] < place["r"][1]


def test_a_lost_packet_ends_on_the_way_in_a_cross() -> None:
    root = drawn()
    [(_, y1, _, y2)] = lines(root, "lost")
    bottom = max(y for *_, y in lines(root, "lane"))
    assert y1 < y2 < bottom
    assert sum(path.get("class") == "gone" for path in root.iter(f"{SVG}path")) == 2, "and one of the crash"


def test_what_a_packet_says_stands_once_where_it_was_sent() -> None:
    place = labels(drawn())
    assert place["msg a & b"][0] < place["ack 1=a → r"][0]
    assert "msg later" not in place, "it is behind the end of the drawing"


def test_deliveries_of_one_moment_are_told_in_their_order() -> None:
    assert "b a" in labels(drawn())


def test_a_node_that_is_down_has_a_dashed_lane() -> None:
    root = drawn()
    [(x1, y1, x2, _)] = lines(root, "down")
    crash, restart = labels(root)["crash"], labels(root)["restart"]
    assert abs(x1 - crash[0]) < 5
    assert abs(x2 - restart[0]) < 5
    later = drawn(marks=[Mark(-5, 3, "crash", "crash")])
    assert [line[1] for line in lines(later, "down")] == [y1], "it was down before"


def test_labels_at_one_lane_do_not_lie_on_each_other() -> None:
    many = [Flight(1_000 + at, 1, 2, 2_000, f"msg number {at}") for at in range(3)]
    places = [labels(drawn(many, []))[f"msg number {at}"][1] for at in range(3)]
    assert all(abs(one - other) > 9 for one, other in pairwise(sorted(places)))


def test_each_kind_has_its_colour_and_the_legend_tells() -> None:
    root = drawn()
    colours = {
        line.get("stroke") for line in root.iter(f"{SVG}line") if line.get("class") in ("flight", "lost")
    }
    assert len(colours) == 2
    assert {"msg", "ack", "delivered", "installed"} <= labels(root).keys()
    assert "installed" not in labels(drawn(marks=MARKS[:1]))


def test_an_empty_drawing_is_one_all_the_same() -> None:
    assert {"p", "q", "r"} <= labels(drawn([], [])).keys()
    assert lines(drawn([Flight(1, 1, 2, None, "msg")], []), "lost"), "even if nothing ever arrived"
