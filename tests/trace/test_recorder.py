from __future__ import annotations

from zlib import crc32

import pytest

from ordercast.audit.history import History
from ordercast.audit.properties import audit
from ordercast.core.addresses import address, withheld
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Ended, Guarantee, Kind
from ordercast.trace.metrics import measure
from ordercast.trace.recorder import STEPS_OF_A_LIFE, Describe, Recorder
from ordercast.trace.schema import COLUMNS as ALL_COLUMNS
from ordercast.trace.schema import OPTIONAL, Row

COLUMNS = list(ALL_COLUMNS)[1:]
RING = ConfigurationId(8, 1)
NONE = dict.fromkeys(COLUMNS)


def as_dict(row: Row) -> dict[str, object]:
    return dict(zip(COLUMNS, row, strict=True))


def batch(*payloads: bytes, number: int = 5, slot: int = 0) -> Batch:
    return Batch(RING, 40, slot, 2, 1, number, Guarantee.SAFE, payloads)


def recorder(packets: bool = False) -> tuple[Recorder, list[Row]]:
    rows: list[Row] = []
    return Recorder(3, rows, packets, lambda data: "token" if data.startswith(b"T") else "data"), rows


def test_a_delivered_message_has_every_column_of_its_place_and_identity() -> None:
    record, rows = recorder()
    record.install(10, Configuration(RING, Kind.REGULAR, (1, 2, 3)))
    record.deliver(20, batch(b"abc"))
    assert as_dict(rows[1]) == {
        **NONE,
        "node": 3,
        "incarnation": 0,
        "step": 1,
        "time_us": 20,
        "event": "deliver",
        "config_seq": 8,
        "config_rep": 1,
        "config_kind": "regular",
        "origin": 2,
        "origin_incarnation": 1,
        "number": 5,
        "origin_config_seq": 8,
        "origin_config_rep": 1,
        "seq": 40,
        "slot": 0,
        "guarantee": "safe",
        "size": 3,
        "checksum": crc32(b"abc"),
    }


def test_a_batch_becomes_a_row_a_message_with_numbers_and_slots_that_follow() -> None:
    record, rows = recorder()
    record.originate(20, batch(b"a", b"bb", b"ccc", number=7, slot=2))
    seen = [
        (row["event"], row["step"], row["number"], row["slot"], row["size"]) for row in map(as_dict, rows)
    ]
    assert seen == [("originate", 0, 7, 2, 1), ("originate", 1, 8, 3, 2), ("originate", 2, 9, 4, 3)]


@pytest.mark.parametrize("describe", [None, lambda payload: (None, len(payload))])
def test_the_checksum_of_contents_is_told_by_who_has_them(describe: Describe | None) -> None:
    rows: list[Row] = []
    record = Recorder(2, rows, describe=describe)
    payload = address(1, ["orders"]) + b"three pears"
    record.originate(20, batch(payload))
    record.deliver(20, batch(payload))
    record.deliver(20, batch(withheld(payload)))
    record.stable(20, [batch(payload)])
    told = crc32(payload)
    assert [as_dict(row)["checksum"] for row in rows] == [told, told, None, None]


@pytest.mark.parametrize("describe", [None, lambda payload: (None, len(payload))])
def test_an_origination_without_a_place_yet_has_null_for_it(describe: Describe | None) -> None:
    rows: list[Row] = []
    record = Recorder(2, rows, describe=describe)
    record.install(1, Configuration(RING, Kind.REGULAR, (1, 2)))
    placed = batch(b"a", b"bb", number=7)
    record.originate(20, placed._replace(seq=0))
    record.originate(20, placed)
    seen = list(map(as_dict, rows[1:]))
    assert [row["step"] for row in seen] == [1, 2, 3, 4]
    for unplaced, other in zip(seen[:2], seen[2:], strict=True):
        assert (other["seq"], unplaced["seq"], unplaced["slot"]) == (40, None, None)
        assert unplaced | {"seq": 40, "slot": other["slot"], "step": other["step"]} == other


def test_a_batch_of_one_has_the_same_columns_as_a_batch_of_many() -> None:
    one, ones = recorder()
    many, manys = recorder()
    one.deliver(1, batch(b"a", number=5, slot=0))
    one.deliver(1, batch(b"b", number=6, slot=1))
    many.deliver(1, batch(b"a", b"b"))
    assert ones == manys


def test_submitted_messages_are_the_nodes_own_and_have_no_place_yet() -> None:
    record, rows = recorder()
    record.submit(5, [b"x", b"yy"], Guarantee.AGREED, 11)
    for row, number, size in zip(map(as_dict, rows), (11, 12), (1, 2), strict=True):
        assert row == {
            **NONE,
            "node": 3,
            "incarnation": 0,
            "step": number - 11,
            "time_us": 5,
            "event": "submit",
            "origin": 3,
            "origin_incarnation": 0,
            "number": number,
            "guarantee": "agreed",
            "size": size,
        }


def test_stable_names_every_message_of_every_batch() -> None:
    record, rows = recorder()
    record.stable(9, [batch(b"a", b"b"), batch(b"c", number=9)])
    assert [as_dict(row)["number"] for row in rows] == [5, 6, 9]
    assert {as_dict(row)["event"] for row in rows} == {"stable"}


def test_install_shows_the_members_and_later_rows_its_identifier_only() -> None:
    record, rows = recorder()
    record.install(1, Configuration(ConfigurationId(7, 2), Kind.TRANSITIONAL, (2, 3)))
    record.crash(2)
    install, crash = map(as_dict, rows)
    assert install["members"] == (2, 3)
    assert (crash["config_seq"], crash["config_rep"], crash["config_kind"]) == (7, 2, "transitional")
    assert crash["members"] is None


def test_an_install_names_what_it_ends() -> None:
    record, rows = recorder()
    between = Configuration(ConfigurationId(10, 2), Kind.TRANSITIONAL, (2, 3))
    record.install(1, Configuration(RING, Kind.REGULAR, (1, 2, 3)))
    record.install(2, between, Ended(RING, 17))
    record.deliver(3, batch(b"a"))
    names = [name for name in OPTIONAL if name.startswith("ended_")]
    first, change, delivery = ([row[name] for name in names] for row in map(as_dict, rows))
    assert change == [RING.seq, RING.rep, 17]
    assert first == delivery == [None] * 3


def test_messages_of_several_rings_have_their_timestamp_and_source_ring() -> None:
    record, rows = recorder()
    forwarded = batch(b"a", b"b")._replace(timestamp=9, ring=2)
    for say in (record.originate, record.deliver):
        say(1, forwarded)
    record.stable(1, [forwarded])
    record.deliver(2, batch(b"c"))
    said = [(row["event"], row["timestamp"], row["ring"]) for row in map(as_dict, rows)]
    each = [(event, 9, 2) for event in ("originate", "deliver", "stable") for _ in "ab"]
    assert said == [*each, ("deliver", None, None)]


def test_steps_go_on_over_lives_and_a_new_life_has_no_configuration() -> None:
    record, rows = recorder()
    record.install(1, Configuration(RING, Kind.REGULAR, (3,)))
    record.halt(2)
    record.restart(3, 1)
    record.crash(4)
    seen = [(row["event"], row["incarnation"], row["step"], row["config_seq"]) for row in map(as_dict, rows)]
    assert seen == [("install", 0, 0, 8), ("halt", 0, 1, 8), ("restart", 1, 2, None), ("crash", 1, 3, None)]
    assert record.steps == 4


def test_packets_are_rows_only_where_they_are_traced() -> None:
    silent, nothing = recorder()
    silent.packet(1, "packet_sent", b"T")
    assert nothing == []
    record, rows = recorder(packets=True)
    record.packet(1, "packet_sent", b"Txx")
    row = as_dict(rows[0])
    assert (row["event"], row["size"], row["packet"]) == ("packet_sent", 3, "token")


def test_rows_hold_plain_strings() -> None:
    record, rows = recorder()
    record.install(1, Configuration(RING, Kind.REGULAR, (3,)))
    record.deliver(1, batch(b"a"))
    assert {type(value) for row in rows for value in row if isinstance(value, str)} == {str}


# --- real nodes --------------------------------------------------------------------------------


def test_what_describes_a_payload_fills_group_and_size_of_every_row_of_a_message() -> None:
    rows: list[Row] = []
    record = Recorder(3, rows, describe=lambda payload: (payload[:1].decode(), len(payload) - 1))
    record.submit(1, [b"axx"], Guarantee.AGREED, 1)
    record.originate(2, batch(b"axx", b"b", number=1))
    record.deliver(3, batch(b"axx", b"b", number=1))
    record.stable(4, [batch(b"axx", b"b", number=1)])
    seen = [(row["group"], row["size"]) for row in map(as_dict, rows)]
    assert seen == [("a", 2), *[("a", 2), ("b", 0)] * 3]


def test_all_other_columns_are_the_same_with_a_description() -> None:
    told: list[list[Row]] = []
    for describe in (None, lambda payload: (None, len(payload))):
        rows: list[Row] = []
        record = Recorder(3, rows, describe=describe)
        record.install(10, Configuration(RING, Kind.REGULAR, (1, 2, 3)))
        record.submit(11, [b"x"], Guarantee.SAFE, 1)
        record.originate(12, batch(b"abc", b"d", slot=3))
        record.stable(13, [batch(b"abc"), batch(b"d", number=6)])
        told.append(rows)
    assert told[0] == told[1]


def test_a_first_life_begins_without_a_row() -> None:
    record, rows = recorder()
    record.begin_life(5, 0)
    assert rows == []
    assert record.steps == 0
    with pytest.raises(ValueError, match="there was none before"):
        record.begin_life(5, 0, crashed=True)


def test_a_later_life_begins_at_a_step_of_its_own() -> None:
    record, rows = recorder()
    record.begin_life(5, 2)
    record.install(6, Configuration(RING, Kind.REGULAR, (3,)))
    seen = [(row["event"], row["incarnation"], row["step"]) for row in map(as_dict, rows)]
    assert seen == [("restart", 2, 2 * 2**32), ("install", 2, 2 * 2**32 + 1)]


def test_the_crash_of_the_life_before_is_told_by_the_next_one() -> None:
    record, rows = recorder()
    record.begin_life(5, 2, crashed=True)
    seen = [(row["event"], row["incarnation"], row["step"], row["config_seq"]) for row in map(as_dict, rows)]
    assert seen == [("crash", 1, 2 * 2**32 - 1, None), ("restart", 2, 2 * 2**32, None)]


def test_the_steps_of_the_last_possible_life_fit_their_column() -> None:
    assert 2**31 * STEPS_OF_A_LIFE - 1 == 2**63 - 1


@pytest.mark.parametrize("crashed", [False, True])
def test_a_trace_of_two_real_lives_is_clean(crashed: bool) -> None:
    """Two nodes; the second is killed after it delivered, comes back with a jump in step, and joins again."""
    rows: list[Row] = []
    lives: dict[int, int] = {1: 0, 2: 200_000_000}
    records = {node: Recorder(node, rows) for node in lives}
    for node, record in records.items():
        record.begin_life(1, lives[node])
        record.install(2, Configuration(ConfigurationId(4, node), Kind.REGULAR, (node,)))

    def together(old: int, new: int, number: int) -> None:
        ring = Configuration(ConfigurationId(new, 1), Kind.REGULAR, (1, 2))
        for node, record in records.items():
            record.install(3, Configuration(ConfigurationId(new - 1, node), Kind.TRANSITIONAL, (node,)))
            record.install(3, ring)
        sent = Batch(ring.id, 1, 0, 1, 0, number, Guarantee.AGREED, (b"x", b"y"))
        records[1].submit(4, sent.payloads, Guarantee.AGREED, number)
        records[1].originate(4, sent)
        for record in records.values():
            record.deliver(5, sent)

    together(4, 8, 1)
    records[1].install(6, Configuration(ConfigurationId(11, 1), Kind.TRANSITIONAL, (1,)))
    records[1].install(6, Configuration(ConfigurationId(12, 1), Kind.REGULAR, (1,)))
    records[2] = Recorder(2, rows)  # another process, that knows nothing of the first
    records[2].begin_life(7, 200_000_001, crashed=crashed)
    records[2].install(8, Configuration(ConfigurationId(12, 2), Kind.REGULAR, (2,)))
    together(12, 16, 3)
    report = audit(rows)
    assert report.violations == ()
    assert History(rows).alive == {1: 0, 2: 200_000_001}
    assert measure(rows).nodes[2].crashes == crashed
