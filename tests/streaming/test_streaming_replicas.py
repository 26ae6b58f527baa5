"""Several replicas of one log: any of them goes on where another one stopped, or says why it cannot."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_files import Writer, configuration, numbers, place

from hunts import rounds
from ordercast.errors import ConfigProblem, Unreachable
from ordercast.log import Position, Replica
from ordercast.log.selection import ALL as EVERYTHING
from ordercast.log.selection import Selection
from ordercast.streaming import replicas as module
from ordercast.streaming.options import Access, SentAt, reading, writing
from ordercast.streaming.ranges import Limit, Place
from ordercast.streaming.replicas import NoReplica, Replicas

ALL = list(range(1000))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPLICA_TIMEOUT_S", 0.2)
    monkeypatch.setattr(module, "UNKNOWN_S", 0.2)
    monkeypatch.setattr(module, "AGAIN_S", 0.01)


def of(*where: str) -> Replicas:
    return Replicas(Access(where, None))


def written(path: Path, node: int) -> str:
    """A log of a thousand messages in two configurations."""
    log = Writer(path / str(node), node).install(configuration(4, 1, 1, 2, 3)).packets(60)
    return log.install(configuration(8, 1, 1, 2, 3)).packets(40, 600).done()


# --- offsets ------------------------------------------------------------------------------------


@given(st.tuples(*[st.integers(0, 2**31 - 1)] * 4), st.booleans())
def test_an_offset_is_a_position_that_is_found_again(
    numbers: tuple[int, int, int, int], with_it: bool
) -> None:
    there = Place(Position(*numbers), with_it)
    assert Place.of(there.offset) == there


def test_before_there_is_anything_the_offset_is_the_beginning() -> None:
    assert Place.of(Place().offset) == Place()


# --- ranges -------------------------------------------------------------------------------------


def test_a_range_is_read_from_any_of_them(tmp_path: Path) -> None:
    for node in (1, 2, 3):
        replicas = of(written(tmp_path, node))
        batches = replicas.read(Place.after(place("4.1/10/4")), place("8.1/2/3"))
        assert numbers(batches) == ALL[95:614]


def test_a_range_is_the_same_in_one_part_or_in_many(tmp_path: Path) -> None:
    replicas = of(written(tmp_path, 1))
    start = replicas.oldest()
    end = replicas.furthest(start)
    assert start == Place(place("4.1/0/0"))
    assert end == place("8.1/40/9")
    ends = replicas.split(start, end, Limit(150))
    assert len(ends) > 3
    parts = zip([start, *map(Place.after, ends)], ends, strict=False)
    assert [number for at, upto in parts for number in numbers(replicas.read(at, upto))] == ALL


def test_a_batch_has_no_more_rows_than_it_may(tmp_path: Path) -> None:
    replicas = of(written(tmp_path, 1))
    at = replicas.oldest()
    found: list[int] = []
    while (end := replicas.end_of(at, Limit(70))) is not None:
        batches = list(replicas.read(at, end))
        assert sum(batch.num_rows for batch in batches) <= 70
        found += numbers(batches)
        at = Place.after(end)
    assert found == ALL


def test_the_beginning_is_where_messages_begin(tmp_path: Path) -> None:
    """Not where a node was alone, before it had found the others: they do not have that."""
    one = Writer(tmp_path / "one", 1).install(configuration(4, 1, 1)).install(configuration(12, 1, 1, 2))
    two = Writer(tmp_path / "two", 2).install(configuration(8, 2, 2)).install(configuration(12, 1, 1, 2))
    replicas = of(one.packets(2).done(), two.packets(2).done())
    assert replicas.oldest() == Place(place("12.1/0/0"))


# --- one goes -----------------------------------------------------------------------------------


class Breaking(Replica):
    """A replica that ends while it is read, after so many batches."""

    left = 1

    def read(
        self,
        start: Position | None,
        end: Position,
        group: str | Selection | None = None,
        *,
        heads: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        for batch in super().read(start, end, group, heads=heads):
            for row in range(0, batch.num_rows, 100):
                if self.where.endswith("/1"):
                    if not Breaking.left:
                        raise Unreachable("the node ended")
                    Breaking.left -= 1
                yield batch.slice(row, 100)


@pytest.mark.parametrize("batches", range(7))
def test_a_range_that_one_began_is_finished_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    both = written(tmp_path, 1), written(tmp_path, 2)
    monkeypatch.setattr(module, "Replica", Breaking)
    monkeypatch.setattr(Breaking, "left", batches)
    replicas = of(*both)
    assert numbers(replicas.read(replicas.oldest(), place("8.1/40/9"))) == ALL
    assert Breaking.left == 0


def test_one_that_is_away_is_passed_over_and_the_other_is_asked_first_from_then_on(tmp_path: Path) -> None:
    there = written(tmp_path, 1)
    replicas = of(str(tmp_path / "nowhere"), there)
    assert replicas.end_of(replicas.oldest()) == place("4.1/60/9")
    assert replicas.first == there


def test_one_that_has_nothing_new_is_not_the_only_one_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be cut off from the others, which go on."""
    monkeypatch.setattr(module, "ELSEWHERE_S", 0.0)
    alone = Writer(tmp_path / "alone", 1).install(configuration(4, 1, 1, 2)).packets(3).done()
    others = Writer(tmp_path / "others", 2).install(configuration(4, 1, 1, 2)).packets(5).done()
    replicas = of(alone, others)
    ends = {replicas.end_of(Place.after(place("4.1/3/9"))) for _ in range(2)}
    assert ends == {None, place("4.1/5/9")}


def test_one_that_has_not_come_that_far_is_waited_for_and_then_it_is_said(tmp_path: Path) -> None:
    behind = Writer(tmp_path / "behind", 1).install(configuration(4, 1, 1, 2)).packets(3).done()
    replicas = of(behind)
    assert replicas.end_of(Place.after(place("4.1/5/9"))) is None
    with pytest.raises(NoReplica, match=r"everything up to 4.1/3/9, and not 4.1/5/9"):
        list(replicas.read(Place.after(place("4.1/1/0")), place("4.1/5/9")))


# --- none can -----------------------------------------------------------------------------------


def test_a_replica_that_split_away_is_refused_with_an_explanation(tmp_path: Path) -> None:
    """Configuration 12.1 was of nodes 1 and 2; node 3 went another way, and came back in 16.1."""
    ours = Writer(tmp_path / "ours", 1).install(configuration(4, 1, 1, 2, 3)).packets(3)
    ours.install(configuration(12, 1, 1, 2)).packets(3, 30).install(configuration(16, 1, 1, 2, 3)).packets(
        1, 60
    )
    theirs = Writer(tmp_path / "theirs", 3).install(configuration(4, 1, 1, 2, 3)).packets(3)
    theirs.install(configuration(8, 3, 3)).packets(9, 500).install(configuration(16, 1, 1, 2, 3)).packets(
        1, 60
    )
    here, there = ours.done(), theirs.done()
    within = Place.after(place("12.1/1/4"))
    with pytest.raises(NoReplica, match=r"(?s)no replica can go on after 12.1/1/4:.*theirs: .*split away"):
        of(there).end_of(within)
    both = of(there, here)
    assert both.end_of(within) == place("12.1/3/9")
    assert both.end_of(Place.after(place("12.1/3/9"))) == place("16.1/1/9")
    assert numbers(both.read(within, place("16.1/1/9"))) == ALL[35:70]


# --- replicas that were parted --------------------------------------------------------------------


def parted(path: Path) -> tuple[str, str]:
    """Two nodes of four, of which the second was cut off before it had the last packet of 4.1."""
    with_all = Writer(path / "with-all", 2).install(configuration(4, 1, 1, 2, 3, 4)).packets(10)
    with_all.packets(1, 100).install(configuration(6, 1, 1, 2, 4, transitional=True))
    cut_off = Writer(path / "cut-off", 3).install(configuration(4, 1, 1, 2, 3, 4)).packets(10)
    cut_off.install(configuration(10, 3, 3, transitional=True)).install(configuration(12, 3, 3))
    cut_off.install(configuration(14, 3, 3, transitional=True))
    with_all.install(configuration(8, 1, 1, 2, 4)).install(configuration(14, 1, 1, 2, 4, transitional=True))
    for log in (with_all, cut_off):
        log.install(configuration(16, 1, 1, 2, 3, 4)).packets(5, 110)
    return with_all.done(), cut_off.done()


def stream(replicas: Replicas, start: Place, rows: int | None = None) -> list[int]:
    """The messages that a stream reads."""
    found: list[int] = []
    at = start
    while (end := replicas.end_of(at, Limit(rows or 2**62))) is not None:
        found += numbers(replicas.read(at, end))
        at = Place.after(end)
    return found


@pytest.mark.parametrize("rows", [None, 7, 50])
def test_a_stream_does_not_pass_by_what_the_replica_that_it_goes_on_with_was_cut_off_from(
    tmp_path: Path, rows: int | None
) -> None:
    """The replica that was read ends just where the two that are left went different ways."""
    with_all, cut_off = parted(tmp_path)
    start = Place.after(place("4.1/10/9"))
    assert stream(of(cut_off, with_all), start, rows) == list(range(100, 160))
    assert stream(of(cut_off), start, rows) == list(range(110, 160)), "which is its own history"


def test_a_table_is_read_where_its_configurations_followed_each_other(tmp_path: Path) -> None:
    """Both replicas hold both ends: what is between them is that of the one that planned, whoever reads."""
    logs = parted(tmp_path)
    start, end = Place.after(place("4.1/9/9")), place("16.1/5/9")
    for planned in logs:
        path = of(planned).path(start, end)
        right = numbers(of(planned).read(start, end))
        assert [
            numbers(of(*order).read(start, end, EVERYTHING, True, path)) for order in (logs, logs[::-1])
        ] == [
            right,
            right,
        ]
        (other,) = set(logs) - {planned}
        with pytest.raises(NoReplica, match=r"went another way from after 4.1/9/9 to 16.1/5/9"):
            list(of(other).read(start, end, EVERYTHING, True, path))
    assert of(logs[1]).path(start, place("4.1/10/9")) == ()
    whole = of(*logs[::-1])
    assert whole.furthest(Place.after(place("4.1/10/9"))) == end


def test_who_may_have_more_of_a_configuration_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = Writer(tmp_path / "behind", 2).install(configuration(4, 1, 1, 2, 3)).packets(10)
    ahead = Writer(tmp_path / "ahead", 3).install(configuration(4, 1, 1, 2, 3)).packets(10)
    ahead.install(configuration(8, 3, 3)).packets(1, 500)
    replicas, start = of(ahead.done(), behind.where), Place.after(place("4.1/10/9"))
    assert replicas.end_of(start) is None
    behind.packets(1, 100)
    assert replicas.end_of(start) == place("4.1/11/9")
    behind.done()
    before = of(ahead.where, behind.where)
    monkeypatch.setattr(module, "PARTED_S", 0.0)
    assert before.end_of(Place.after(place("4.1/11/9"))) is None, "there is no more of it"
    late = Writer(tmp_path / "late", 1).install(configuration(4, 1, 1, 2, 3)).packets(4).done()
    assert of(ahead.where, late).end_of(start) == place("8.3/1/9"), "not for ever"


class Histories:
    """Logs of three nodes that are parted again and again, and meet again."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.logs = {node: Writer(path / str(node), node) for node in (1, 2, 3)}
        self.of: dict[int, list[int]] = {node: [] for node in self.logs}
        """The messages that each delivered."""
        self._chance = chance
        self._numbers = count(0, 10)

    def part_and_meet(self, turn: int) -> None:
        common, chance = 16 * turn, self._chance
        for node in self.logs:
            self._install(node, common + 4, (1, 2, 3))
        self._deliver((1, 2, 3), chance.randint(0, 3))
        nodes = chance.sample((1, 2, 3), 3)
        at = chance.randint(1, 3)
        sides = [tuple(sorted(side)) for side in (nodes[:at], nodes[at:]) if side]
        self._deliver(sides[0], chance.randint(0, 2))  # which the others never got
        for number, side in enumerate(sides):
            for node in side:
                self._install(node, common + 8 + 4 * number, side)
            self._deliver(side, chance.randint(0, 2))

    def _install(self, node: int, seq: int, members: tuple[int, ...]) -> None:
        if self.of[node] or seq > 4:
            together = members if seq % 16 != 4 else (node,)
            self.logs[node].install(configuration(seq - 2, node, *together, transitional=True))
        self.logs[node].install(configuration(seq, members[0], *members))

    def _deliver(self, nodes: tuple[int, ...], packets: int) -> None:
        for first in (next(self._numbers) for _ in range(packets)):
            for node in nodes:
                self.logs[node].packets(1, first)
                self.of[node] += range(first, first + 10)


@pytest.mark.parametrize("seed", range(rounds(6, 300)))
def test_whichever_replica_a_stream_goes_on_with_it_reads_the_history_of_one_side(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each place another is asked first, or has ended: each range is the same at all that serve it."""
    monkeypatch.setattr(module, "PARTED_S", 0.0)
    chance = random.Random(seed)
    histories = Histories(tmp_path, chance)
    for turn in range(4):
        histories.part_and_meet(turn)
    logs = [log.done() for log in histories.logs.values()]
    at, found = of(*logs).oldest(), list[int]()
    while True:
        asked = of(*chance.sample(logs, chance.choice((1, 3, 3))))
        try:
            end = asked.end_of(at, Limit(chance.choice((2**62, 3, 15))))
        except NoReplica:  # it was on another side
            continue
        if end is None:
            break
        served = []
        for where in logs:
            with contextlib.suppress(NoReplica):
                served.append(numbers(of(where).read(at, end)))
        assert served
        assert all(rows == served[0] for rows in served)
        found += served[0]
        at = Place.after(end)
    common = set.intersection(*map(set, histories.of.values()))
    assert [number for number in found if number in common] == sorted(common)
    assert found == sorted(set(found))


def trimmed(path: Path) -> str:
    """A log that has let go of its beginning."""
    log = Writer(path / "trimmed", 1, most_bytes=4 * 1024 * 1024).install(configuration(4, 1, 1))
    for turn in range(30):
        log.packets(10, turn * 100, size=2000)
    return log.done()


def test_what_was_trimmed_is_an_error_that_says_so(tmp_path: Path) -> None:
    replicas = of(trimmed(tmp_path))
    with pytest.raises(NoReplica, match="is no longer kept by the replica of node 1"):
        replicas.end_of(Place.after(place("4.1/1/0")))
    with pytest.raises(NoReplica, match="is no longer kept by the replica of node 1"):
        list(replicas.read(Place.after(place("4.1/1/0")), place("4.1/300/9")))


def test_or_reading_goes_on_with_the_oldest_there_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replicas = of(trimmed(tmp_path))
    oldest = replicas.oldest()
    batches = replicas.read(Place.after(place("4.1/1/0")), place("4.1/300/9"), fail_on_loss=False)
    found = numbers(batches)
    assert found == list(range(found[0], 3000))
    assert oldest.position is not None
    assert found[0] == (oldest.position.seq - 1) * 10 + oldest.position.slot
    assert "are lost" in caplog.text


def test_a_replica_that_was_away_hands_over_where_it_went_and_takes_over_where_it_came_back(
    tmp_path: Path,
) -> None:
    """Node 1 was away in 8.2; node 2 joined only for that."""
    away = Writer(tmp_path / "away", 1).install(configuration(4, 1, 1, 2)).packets(2)
    away.install(configuration(12, 1, 1, 2), gap=True).packets(2, 40)
    short = Writer(tmp_path / "short", 2).install(configuration(4, 1, 1, 2)).packets(2)
    short.install(configuration(8, 2, 2)).packets(2, 20).install(configuration(12, 1, 1, 2))
    replicas = of(away.done(), short.done())
    start = replicas.oldest()
    end = replicas.furthest(start)
    assert end == place("12.1/2/9")
    ends = replicas.split(start, end, Limit(1000))
    parts = zip([start, *map(Place.after, ends)], ends, strict=False)
    assert [number for at, upto in parts for number in numbers(replicas.read(at, upto))] == ALL[:60]


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "use CREATE TEMPORARY VIEW"),
        ({"nodes": " , "}, "nodes is missing"),
        ({"nodes": "a:1", "startingPosition": "yesterday"}, "write earliest, latest, or the position"),
        ({"nodes": "a:1", "maxRowsPerTrigger": "0"}, "maxRowsPerTrigger is '0': write a number"),
        ({"nodes": "a:1", "failOnDataLoss": "perhaps"}, "write true or false"),
        ({"nodes": "a:1", "key": "x", "keyFile": "y"}, "both given"),
        ({"nodes": "a:1", "maxRows": "5"}, "did you mean maxRowsPerTrigger?"),
        ({"nodes": "a:1", "group": "a", "subscribe": "b"}, "for one purpose"),
        ({"nodes": "a:1", "subscribePattern": "a.>.b"}, r"write words with dots between"),
        ({"nodes": "a:1", "columns": "payload,offset"}, "there is no column offset"),
        ({"nodes": "a:1", "endingTimestamp": "noon"}, "write a time as in"),
        ({"nodes": "a:1", "startingPosition": "earliest", "startingTimestamp": "1"}, "both given"),
        ({"nodes": "a:1", "endingPosition": "earliest"}, "write latest, or the position of the last row"),
    ],
)
def test_a_mistake_in_the_options_is_explained(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigProblem, match=complaint):
        reading(options)


def test_rows_are_written_through_nodes_to_a_group() -> None:
    with pytest.raises(ConfigProblem, match="a directory"):
        writing({"nodes": "/var/log/ordercast", "group": "ledger"})
    assert writing({"nodes": "a:1, b:2", "group": "ledger"}).access.nodes == ("a:1", "b:2")


def test_what_is_selected_and_when_it_begins() -> None:
    told = reading({"nodes": "a:1", "subscribe": "orders, billing", "membership": "false"})
    assert told.selected == Selection(("orders", "billing"), changes=False)
    assert reading({"nodes": "a:1", "subscribePattern": "orders.*"}).selected == Selection(
        None, ("orders.*",)
    )
    for text in ("1700000000000", "2023-11-14T22:13:20Z", "2023-11-14T22:13:20"):
        assert reading({"nodes": "a:1", "startingTimestamp": text}).start == SentAt(1_700_000_000_000_000)
    assert reading({"nodes": "a:1", "columns": "kafka"}).columns[:2] == ("key", "value")
