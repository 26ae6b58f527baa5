"""Blocks: what is written comes back, in Arrow, whole or in part, alone or merged."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.core.identity import Configuration, ConfigurationId, Guarantee, Kind
from ordercast.log import LOG_SCHEMA, Position
from ordercast.log.blocks import MessageRun, Messages, batch_of, change, checked_batch_of, head_of
from ordercast.log.selection import Selection, selection

HERE = ConfigurationId(8, 3)
CHANGE = Configuration(ConfigurationId(12, 2), Kind.TRANSITIONAL, (2, 5))

calm = settings(deadline=None, max_examples=60)

packets = st.lists(
    st.tuples(
        st.integers(1, 3),  # how far the next packet's number is ahead
        st.integers(0, 5),  # the first slot
        st.integers(1, 9),
        st.sampled_from(list(Guarantee)),
        st.sampled_from(["orders", "payments", "ü"]),
        st.integers(0, 2**40),
        st.integers(0, 2**48),
        st.lists(st.binary(max_size=40), min_size=1, max_size=7),
    ),
    min_size=1,
    max_size=12,
)


def made(drawn: list[Any], seq: int = 0) -> tuple[Messages, list[dict[str, Any]]]:
    """A block, and the rows that it stands for."""
    runs, payloads, rows = [], [], []
    for ahead, slot, sender, guarantee, group, time_us, sent_us, bodies in drawn:
        seq += ahead
        runs.append(MessageRun(seq, slot, sender, guarantee, group, time_us, len(bodies), sent_us))
        payloads += bodies
        for place, body in enumerate(bodies):
            rows.append(
                {
                    "config_seq": 8,
                    "config_rep": 3,
                    "seq": seq,
                    "slot": slot + place,
                    "kind": "message",
                    "sender": sender,
                    "group": group,
                    "guarantee": guarantee.value,
                    "time_us": time_us,
                    "payload": body,
                    "members": None,
                    "sent_us": sent_us,
                }
            )
    return Messages.of(HERE, runs, pa.array(payloads, pa.binary())), rows


@calm
@given(packets)
def test_a_block_says_what_was_put_into_it(drawn: list[Any]) -> None:
    block, rows = made(drawn)
    encoded = block.encoded()
    batch = batch_of(encoded, 0, len(rows))
    assert batch.schema == LOG_SCHEMA
    batch.validate(full=True)
    assert batch.to_pylist() == rows
    head = head_of(encoded)
    assert (head.rows, tuple(head.first)) == (len(rows), tuple(rows[0].values())[:4])
    assert tuple(head.last) == tuple(rows[-1].values())[:4]


@calm
@given(packets, st.data())
def test_a_part_of_a_block_is_that_part(drawn: list[Any], data: st.DataObject) -> None:
    block, rows = made(drawn)
    begin = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(begin, len(rows)))
    group = data.draw(st.sampled_from([None, "orders", "nobody's"]))
    batch = Messages.decoded(block.encoded()).batch(begin, end, selection(group))
    assert batch.to_pylist() == [row for row in rows[begin:end] if group in (None, row["group"])]


@calm
@given(st.lists(packets, min_size=1, max_size=4))
def test_merged_blocks_say_what_each_of_them_said(drawn: list[list[Any]]) -> None:
    blocks, rows, seq = [], [], 0
    for some in drawn:
        block, said = made(some, seq)
        blocks.append(Messages.decoded(block.encoded()))
        rows += said
        seq = said[-1]["seq"]
    merged = Messages.decoded(Messages.joined(blocks).encoded())
    assert merged.batch().to_pylist() == rows


@calm
@given(st.lists(st.tuples(packets, st.booleans()), min_size=1, max_size=4), st.data())
def test_heads_are_kept_beside_their_messages(
    drawn: list[tuple[list[Any], bool]], data: st.DataObject
) -> None:
    blocks, heads, seq = [], [], 0
    for some, headed in drawn:
        block, said = made(some, seq)
        words = data.draw(st.lists(st.binary(max_size=9), min_size=len(said), max_size=len(said)))
        block.heads = pa.array(words, pa.binary()) if headed else None
        heads += words if headed else [b""] * len(said)
        encoded = block.encoded()
        checked = checked_batch_of(memoryview(encoded), 0, len(said), heads=True)
        assert checked.column("head").to_pylist() == heads[-len(said) :]
        assert batch_of(encoded, 0, len(said)).schema == LOG_SCHEMA, "who does not ask does not get them"
        blocks.append(Messages.decoded(encoded))
        seq = said[-1]["seq"]
    merged = Messages.decoded(Messages.joined(blocks).encoded())
    assert merged.batch(heads=True).column("head").to_pylist() == heads


def test_heads_that_lead_beyond_a_block_are_refused() -> None:
    block, rows = made([(1, 0, 1, Guarantee.SAFE, "orders", 0, 0, [b"a", b"b"])])
    block.heads = pa.array([b"one", b"another"], pa.binary())
    whole = block.encoded()
    ends = block.heads.buffers()[1].to_pybytes()[:12]
    at = whole.index(ends)
    for wrong in (
        whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :],
        whole[: at + 8] + b"\xff" + whole[at + 9 :],
    ):
        with pytest.raises((ValueError, ArithmeticError)):
            checked_batch_of(memoryview(wrong), 0, len(rows))


@calm
@given(packets, st.data())
def test_rows_are_found_by_position(drawn: list[Any], data: st.DataObject) -> None:
    block, rows = made(drawn)
    places = [Position(*list(row.values())[:4]) for row in rows]
    for number, place in enumerate(places):
        assert block.position(number) == place
        assert block.rows_up_to(place) == number + 1
    seq = data.draw(st.integers(0, rows[-1]["seq"] + 1))
    slot = data.draw(st.integers(0, 15))
    anywhere = Position(8, 3, seq, slot)
    assert block.rows_up_to(anywhere) == sum(place <= anywhere for place in places)


@calm
@given(packets, st.data())
def test_payloads_may_be_a_part_of_a_larger_array(drawn: list[Any], data: st.DataObject) -> None:
    block, rows = made(drawn)
    around = pa.array([b"before", *(row["payload"] for row in rows), b"behind"], pa.binary())
    block.payloads = around.slice(1, len(rows))
    assert Messages.decoded(block.encoded()).batch().to_pylist() == rows


def test_a_change_of_the_configuration_is_an_entry() -> None:
    batch = batch_of(change(CHANGE, 77), 0, 1, Selection(("any group",)))
    assert batch.schema == LOG_SCHEMA
    (row,) = batch.to_pylist()
    assert row["kind"] == "transitional"
    assert row["members"] == [2, 5]
    assert (row["config_seq"], row["config_rep"], row["seq"], row["slot"]) == (12, 2, 0, 0)
    assert row["time_us"] == 77
    assert [row[name] for name in ("sender", "group", "guarantee", "payload")] == [None] * 4


@pytest.mark.parametrize("text", ["8.1/17/0", "7145366400000.2147483647/9223372036854775807/2147483647"])
def test_positions_are_written_and_read(text: str) -> None:
    place = Position.parse(text)
    assert str(place) == text
    assert Position.unpacked(place.packed) == place


@pytest.mark.parametrize("text", ["", "8.1", "8.1/17", "8/17/0", "8.1/-1/0", "8.1/1/9999999999", "latest"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"as in 8\.1/17/0"):
        Position.parse(text)


@calm
@given(st.lists(st.tuples(*[st.integers(0, 300)] * 4), min_size=2, max_size=2))
def test_packed_positions_sort_as_positions_do(two: list[tuple[int, int, int, int]]) -> None:
    one, other = (Position(*numbers) for numbers in two)
    assert (one < other) == (one.packed < other.packed)
