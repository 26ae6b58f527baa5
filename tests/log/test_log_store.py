"""A log on disk: what is appended is read, by range and by group, and only by one node written."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from log_parts import MINUTE_US, at, delivered, installed, rows, store, told, transitional

from ordercast.core.addresses import address
from ordercast.core.identity import Batch, ConfigurationId, Guarantee
from ordercast.errors import LogError, NotThere, NotYet, SplitAway, StorageProblem, Trimmed, Unreachable
from ordercast.log import Position, Replica
from ordercast.log.compare import compare
from ordercast.log.store import Delivered, Installed, Store


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Store]:
    """A log to write, and to look at meanwhile."""
    log = store(tmp_path / "log")
    yield log
    log.close()


def look(path: Path) -> Replica:
    return Replica(str(path))


def test_what_is_appended_is_read_in_its_order(written: Store) -> None:
    written.append([installed("4.1", 1, 2, first=True), delivered(1, "a", "b"), delivered(3, "c")])
    written.append([transitional("6.1", 1), delivered(4, "d"), installed("8.1", 1)])
    with look(written.path) as replica:
        assert told(rows(replica, None, "8.1/0/0")) == [
            "4.1/0/0 regular",
            "4.1/1/0 a",
            "4.1/1/1 b",
            "4.1/3/0 c",
            "6.1/0/0 transitional",
            "6.1/4/0 d",
            "8.1/0/0 regular",
        ]
        assert told(rows(replica, "4.1/1/0", "6.1/0/0")) == [
            "4.1/1/1 b",
            "4.1/3/0 c",
            "6.1/0/0 transitional",
        ]
        assert rows(replica, "8.1/0/0", "8.1/0/0") == []
        bounds = replica.bounds()
    assert (bounds.oldest, bounds.head) == (at("4.1/0/0"), at("8.1/0/0"))
    assert (bounds.node, bounds.entries, bounds.since) == (1, 7, at("4.1/0/0"))


def test_messages_keep_what_their_sender_asked_for(written: Store) -> None:
    written.append(
        [
            installed("4.1", 1, first=True),
            delivered(
                2,
                "x",
                group="orders",
                sender=7,
                slot=3,
                guarantee=Guarantee.SAFE,
                at_us=99,
                sent_us=1_700_000_000_123_456,
            ),
        ]
    )
    with look(written.path) as replica:
        (_, row) = rows(replica, None, "4.1/2/3")
    assert row == {
        "config_seq": 4,
        "config_rep": 1,
        "seq": 2,
        "slot": 3,
        "kind": "message",
        "sender": 7,
        "group": "orders",
        "guarantee": "safe",
        "time_us": 99,
        "payload": b"x",
        "members": None,
        "sent_us": 1_700_000_000_123_000,
        "head": b"",
    }


def test_groups_are_told_apart_within_a_packet_and_what_is_for_none_is_left_out(written: Store) -> None:
    payloads = [
        address(0, ["a"]) + b"1",
        address(0, ["b"]) + b"2",
        b"\x03nothing for groups",
        address(0, ["a"]) + b"3",
        address(0, ["a"]) + b"4",
    ]
    batch = Batch(ConfigurationId(4, 1), 5, 0, 1, 0, 1, Guarantee.AGREED, payloads)
    written.append([installed("4.1", 1, first=True), Delivered(1, batch), delivered(6, "5", group="b")])
    with look(written.path) as replica:
        assert told(rows(replica, "4.1/0/0", "4.1/6/0")) == [
            "4.1/5/0 1",
            "4.1/5/1 2",
            "4.1/5/3 3",
            "4.1/5/4 4",
            "4.1/6/0 5",
        ]
        assert told(rows(replica, None, "4.1/6/0", "b")) == ["4.1/0/0 regular", "4.1/5/1 2", "4.1/6/0 5"]
        assert told(rows(replica, None, "4.1/6/0", "c")) == ["4.1/0/0 regular"]


def test_a_range_has_about_as_many_entries_as_are_asked_for_and_ranges_join(written: Store) -> None:
    written.append([installed("4.1", 1, first=True)])
    for seq in range(1, 120):
        written.append([delivered(seq, *"abc"[: 1 + seq % 3])])
    with look(written.path) as replica:
        head = replica.bounds().head
        whole = rows(replica, None, str(head))
        for count in (1, 7, 50, 1000):
            place: Position | None = None
            found = []
            while (end := replica.after(place, count)) is not None:
                part = rows(replica, str(place) if place else None, str(end))
                assert 1 <= len(part) <= count
                found += part
                place = end
            assert found == whole
            assert place == head


def test_the_last_entries_are_found_from_behind(written: Store) -> None:
    written.append([installed("4.1", 1, first=True)])
    for seq in range(1, 40):
        written.append([delivered(seq, "x", "y")])
    with look(written.path) as replica:
        whole = told(rows(replica, None, "4.1/39/1"))
        for count in (1, 2, 3, 16, 40, 78):
            start = replica.before(at("4.1/39/1"), count)
            assert told(rows(replica, str(start), "4.1/39/1")) == whole[-count:]
        assert replica.before(at("4.1/39/1"), 79) is None
        assert replica.before(at("4.1/39/1"), 10_000) is None


def test_a_log_of_many_small_appends_has_few_blocks(written: Store) -> None:
    written.append([installed("4.1", 1, first=True)])
    for seq in range(1, 600):
        written.append([delivered(seq, f"number {seq}")])
    with look(written.path) as replica:
        batches = list(replica.read(None, at("4.1/599/0")))
    assert [body for batch in batches for body in batch["payload"].to_pylist()] == [
        None,
        *(f"number {seq}".encode() for seq in range(1, 600)),
    ]
    assert len(batches) < 30


def test_large_appends_become_blocks_of_a_bounded_size(written: Store) -> None:
    many = [delivered(seq, *["x" * 1000] * 100) for seq in range(1, 61)]
    written.append([installed("4.1", 1, first=True), *many])
    with look(written.path) as replica:
        batches = list(replica.read(at("4.1/0/0"), at("4.1/60/99")))
    assert sum(batch.num_rows for batch in batches) == 6000
    assert max(batch.nbytes for batch in batches) < 4_000_000
    assert len(batches) > 2


def test_a_log_is_of_one_node_and_written_by_one_process(written: Store) -> None:
    with pytest.raises(StorageProblem, match=f"written by process {os.getpid()}: give each node a log"):
        store(written.path)
    written.close()
    other = store(written.path.parent / "other", node=2)
    other.append([installed("4.1", 1, first=True)])
    other.close()
    with pytest.raises(StorageProblem, match="is the log of node 2, and this is node 3"):
        store(written.path.parent / "other", node=3)


def test_a_configuration_that_is_not_later_stops_the_node(written: Store) -> None:
    written.append([installed("8.1", 1, first=True)])
    with pytest.raises(StorageProblem, match="Give the node an empty log directory"):
        written.append([installed("4.1", 1)])
    written.append([delivered(1, "still the old one")])
    with look(written.path) as replica:
        assert replica.bounds().head == at("8.1/1/0")


def test_a_new_log_is_empty_and_says_whose_it_is(written: Store) -> None:
    with look(written.path) as replica:
        assert replica.bounds() == (None, None, 1, 0, 0, None)
        assert replica.after(None, 10) is None
        with pytest.raises(NotYet, match="has nothing yet"):
            replica.after(at("4.1/0/0"), 10)


def test_a_directory_without_a_log_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="there is no ordered log in"):
        look(tmp_path)
    with pytest.raises(Unreachable, match="there is no ordered log in"):
        look(tmp_path / "nowhere")


def test_a_directory_that_cannot_be_made_stops_the_node(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageProblem, match=r"cannot be written: .* The node stops"):
        store(tmp_path / "file" / "log")


# --- what cannot be given, and why --------------------------------------------------------------


def test_what_retention_took_away_is_trimmed(tmp_path: Path) -> None:
    log = store(tmp_path, most_bytes=200_000)
    log.append([installed("4.1", 1, first=True)])
    for seq in range(1, 1001):
        log.append([delivered(seq, "x" * 1000)])
    with look(tmp_path) as replica:
        bounds = replica.bounds()
        assert bounds.bytes <= 200_000
        assert bounds.oldest is not None
        assert 700 < bounds.oldest.seq <= 1000
        with pytest.raises(Trimmed, match="no longer kept by the replica of node 1"):
            replica.after(at("4.1/5/0"), 10)
        with pytest.raises(Trimmed, match="log_bytes"):
            rows(replica, "4.1/5/0", "4.1/1000/0")
        kept = told(rows(replica, None, "4.1/1000/0"))
        assert kept[0].startswith(str(bounds.oldest))
        before = Position(4, 1, bounds.oldest.seq - 1, 0)
        assert told(rows(replica, str(before), "4.1/1000/0")) == kept
    log.close()


def test_what_is_trimmed_while_it_is_read_is_said_to_be(tmp_path: Path) -> None:
    log = store(tmp_path, most_bytes=1_100_000)
    log.append([installed("4.1", 1, first=True)])
    for seq in range(1, 11):
        log.append([delivered(seq, *["x" * 10_000] * 10)])
    with look(tmp_path) as replica:
        reading = replica.read(None, at("4.1/10/9"))
        next(reading)
        for seq in range(11, 41):
            log.append([delivered(seq, *["x" * 10_000] * 10)])
        with pytest.raises(Trimmed):
            list(reading)
    log.close()


def test_entries_go_when_they_are_old_and_the_head_stays_known(tmp_path: Path) -> None:
    now = time.time_ns() // 1000
    log = store(tmp_path, most_age_s=30.0)
    log.append([installed("4.1", 1, first=True, at_us=now - MINUTE_US)])
    log.append([delivered(1, "old", at_us=now - MINUTE_US)])
    with look(tmp_path) as replica:
        assert replica.bounds().oldest is None
        assert replica.bounds().head == at("4.1/1/0")
        assert replica.after(at("4.1/1/0"), 10) is None
        log.append([delivered(2, "new", at_us=now)])
        assert told(rows(replica, "4.1/1/0", "4.1/2/0")) == ["4.1/2/0 new"]
        with pytest.raises(Trimmed):
            replica.after(at("4.1/0/0"), 10)
    log.close()


def test_a_restart_is_a_gap_that_no_range_crosses(tmp_path: Path) -> None:
    log = store(tmp_path)
    log.append([installed("4.1", 1, 2, first=True), delivered(1, "a")])
    log.close()
    log = store(tmp_path)
    log.append([installed("12.1", 1, first=True), installed("16.1", 1, 2), delivered(1, "z")])
    with look(tmp_path) as replica:
        assert replica.after(None, 100) == at("4.1/1/0")
        with pytest.raises(NotThere, match=r"was away between 4\.1/1/0 and 12\.1/0/0"):
            replica.after(at("4.1/1/0"), 100)
        with pytest.raises(NotThere, match="Read that range from a replica that was there"):
            rows(replica, "4.1/0/0", "16.1/1/0")
        with pytest.raises(NotThere, match=r"was not there when 8\.2/3/0 was delivered"):
            replica.after(at("8.2/3/0"), 100)
        with pytest.raises(NotThere, match="was not there when"):
            replica.after(at("4.1/2/0"), 100)
        assert told(rows(replica, "12.1/0/0", "16.1/1/0")) == ["16.1/0/0 regular", "16.1/1/0 z"]
        assert replica.bounds().since == at("12.1/0/0")
    log.close()


def test_who_was_in_a_configuration_with_others_before_it_was_killed_may_have_missed_something(
    tmp_path: Path,
) -> None:
    log = store(tmp_path)
    log.append([installed("4.1", 1, first=True), delivered(1, "a")])
    log.join_others(True)  # and nothing of that configuration became final
    log.close()
    log = store(tmp_path)
    log.append([installed("12.1", 1, first=True)])
    with look(tmp_path) as replica, pytest.raises(NotThere):
        replica.after(at("4.1/1/0"), 10)
    log.close()


def test_who_was_alone_has_missed_nothing_when_it_comes_back(tmp_path: Path) -> None:
    log = store(tmp_path)
    log.append([installed("4.1", 1, 2, first=True), installed("8.1", 1), delivered(1, "a")])
    log.close()
    log = store(tmp_path)
    log.append([installed("12.1", 1, first=True), delivered(1, "b")])
    with look(tmp_path) as replica:
        assert told(rows(replica, "8.1/1/0", "12.1/1/0")) == ["12.1/0/0 regular", "12.1/1/0 b"]
        assert replica.bounds().since == at("4.1/0/0")
    log.close()


@pytest.fixture
def parted(tmp_path: Path) -> Iterator[tuple[Replica, Replica]]:
    """Nodes 1 and 2 were together, were parted, and came together again."""
    together: list[Delivered | Installed] = [installed("8.1", 1, 2, first=True), delivered(1, "both")]
    again: list[Delivered | Installed] = [installed("20.1", 1, 2), delivered(1, "both again")]
    one, two = store(tmp_path / "1", 1), store(tmp_path / "2", 2)
    one.append(
        [
            *together,
            delivered(2, "late"),
            transitional("10.1", 1),
            installed("12.1", 1),
            delivered(1, "one's"),
        ]
    )
    one.append([transitional("18.1", 1), *again])
    two.append(
        [
            *together,
            transitional("14.2", 2),
            delivered(2, "late"),
            installed("16.2", 2),
            delivered(1, "two's"),
        ]
    )
    two.append([transitional("18.2", 2), *again])
    with look(one.path) as first, look(two.path) as second:
        yield first, second
    one.close()
    two.close()


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("12.1/1/0", r"went from configuration 8\.1 to 14\.2, with the members 2"),
        ("10.1/0/0", r"10\.1/0/0 was delivered elsewhere"),
        ("8.1/2/0", r"had left configuration 8\.1 for 14\.2"),
        ("18.1/0/0", "entries of the two are not to be mixed"),
    ],
)
def test_a_history_that_split_away_is_refused(
    parted: tuple[Replica, Replica], place: str, sentence: str
) -> None:
    one, two = parted
    assert one.after(at(place), 100) == at("20.1/1/0")
    with pytest.raises(SplitAway, match=sentence):
        two.after(at(place), 100)
    with pytest.raises(SplitAway):
        rows(two, "8.1/1/0", place)
    with pytest.raises(SplitAway):
        rows(two, place, "20.1/1/0")


def test_where_histories_come_together_again_any_replica_serves(parted: tuple[Replica, Replica]) -> None:
    one, two = parted
    for replica in parted:
        assert told(rows(replica, "20.1/0/0", "20.1/1/0")) == ["20.1/1/0 both again"]
        assert told(rows(replica, "8.1/0/0", "8.1/1/0")) == ["8.1/1/0 both"]
    assert told(rows(one, "8.1/1/0", "12.1/1/0"))[-1] == "12.1/1/0 one's"
    assert told(rows(two, "8.1/1/0", "16.2/1/0"))[-1] == "16.2/1/0 two's"


@pytest.mark.parametrize("there_before", [True, False])
def test_who_was_away_did_not_split_away_though_it_began_with_a_lower_number(
    tmp_path: Path, there_before: bool
) -> None:
    log = store(tmp_path / "3", 3)
    if there_before:
        log.append([installed("8.1", 1, 3, first=True), delivered(1, "before")])
        log.close()
        log = store(tmp_path / "3", 3)
    came = "came back" if there_before else "began"
    log.append([installed("12.3", 3, first=True)])
    log.append([transitional("22.3", 3), installed("24.1", 1, 3), delivered(1, "after")])
    with look(log.path) as replica:
        for place in ("20.1/1/0", "22.1/1/0", "22.4/1/0"):  # the others', before 24.1
            with pytest.raises(NotThere, match=rf"was not there when .* {came} with 12\.3/0/0, alone"):
                replica.after(at(place), 10)
            with pytest.raises(NotThere):
                rows(replica, place, "24.1/1/0")
    log.close()


@pytest.mark.parametrize("alone", [True, False])
def test_who_came_back_and_has_a_history_of_its_own_split_away(tmp_path: Path, alone: bool) -> None:
    log = store(tmp_path / "3", 3)
    log.append([installed("8.1", 1, 3, first=True), delivered(1, "before")])
    log.close()
    log = store(tmp_path / "3", 3)
    own = [delivered(1, "its own")] if alone else [transitional("14.3", 3), installed("16.3", 3, 4)]
    log.append([installed("12.3", 3, first=True), *own])
    log.append([transitional("22.3", 3), installed("24.1", 1, 3), delivered(1, "after")])
    with look(log.path) as replica, pytest.raises(SplitAway, match="not to be mixed"):
        replica.after(at("20.1/1/0"), 10)
    log.close()


@pytest.mark.parametrize(
    ("place", "kind", "sentence"),
    [
        ("20.1/9/0", NotYet, r"everything up to 20\.1/1/0, and not 20\.1/9/0: wait"),
        ("24.1/0/0", NotYet, "or ask another replica"),
        ("4.1/0/0", NotThere, r"begins with 8\.1/0/0, and 4\.1/0/0 is before that"),
        ("20.1/0/5", SplitAway, "no position of its history"),
    ],
)
def test_each_reason_has_its_words(
    parted: tuple[Replica, Replica], place: str, kind: type[LogError], sentence: str
) -> None:
    for ask in (lambda: parted[0].after(at(place), 1), lambda: rows(parted[0], "8.1/0/0", place)):
        with pytest.raises(kind, match=sentence):
            ask()


def test_replicas_are_compared_where_both_have_entries(tmp_path: Path) -> None:
    entries: list[Delivered | Installed] = [
        installed("4.1", 1, 2, first=True),
        *(delivered(seq, "x", at_us=seq) for seq in range(1, 50)),
    ]
    others: list[Delivered | Installed] = [*entries[:30], *(delivered(seq, "y") for seq in range(30, 50))]
    late: list[Delivered | Installed] = [installed("2.3", 3, first=True), *entries[:20]]
    for name, some in {"a": entries, "b": others, "c": late}.items():
        log = store(tmp_path / name)
        log.append(some)
        log.close()
    with look(tmp_path / "a") as a, look(tmp_path / "b") as b, look(tmp_path / "c") as c:
        assert compare(a, a).equal
        differ = compare(a, b)
        assert (differ.equal, differ.differs_after, differ.entries) == (False, at("4.1/29/0"), 29)
        same = compare(a, c)
        assert (same.equal, same.begin, same.end) == (True, at("4.1/0/0"), at("4.1/19/0"))
