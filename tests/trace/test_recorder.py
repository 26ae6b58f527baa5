from __future__ import annotations

from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.trace.recorder import Recorder
from ordercast.trace.schema import COLUMNS as ALL_COLUMNS
from ordercast.trace.schema import Row

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
    }


def test_a_batch_becomes_a_row_a_message_with_numbers_and_slots_that_follow() -> None:
    record, rows = recorder()
    record.originate(20, batch(b"a", b"bb", b"ccc", number=7, slot=2))
    seen = [
        (row["event"], row["step"], row["number"], row["slot"], row["size"]) for row in map(as_dict, rows)
    ]
    assert seen == [("originate", 0, 7, 2, 1), ("originate", 1, 8, 3, 2), ("originate", 2, 9, 4, 3)]


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
