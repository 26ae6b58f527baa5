"""What a reader selects: ranges, counts and entries are those that looking at each entry would give."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from log_parts import at, delivered, installed, store

from ordercast.core.identity import Guarantee
from ordercast.log import Position, Replica, Selection, blocks
from ordercast.log.arrays import binary

GROUPS = ["orders.eu", "orders.us", "billing", "gossip"]
packets = st.lists(
    st.tuples(st.sampled_from(GROUPS), st.integers(1, 6), st.integers(0, 9), st.integers(0, 5)),
    min_size=1,
    max_size=25,
)
selections = st.sampled_from(
    [
        Selection(),
        Selection(("billing",)),
        Selection(("billing", "gossip"), changes=False),
        Selection((), ("orders.*",)),
        Selection(("gossip",), ("orders.>",), changes=False),
        Selection(("nobody",), changes=False),
        Selection(()),
    ]
)


def a_log(path: Path, drawn: list[tuple[str, int, int, int]]) -> list[dict[str, Any]]:
    """A log with these packets, written a few at a time; its entries as somebody reads them who wants all."""
    log = store(path)
    log.append([installed("4.1", 1, 2, first=True)])
    written = []
    for seq, (group, count, size, late) in enumerate(drawn, 1):
        sent_us = (100 + 10 * seq - late * 7) * 1000
        written.append(delivered(seq, *["x" * size] * count, group=group, sent_us=sent_us))
        if seq % 3 == 0:
            log.append(written)
            written = []
        if seq == 12:
            log.append([*written, installed("8.1", 1, 2, 3)])
            written = []
    log.append(written)
    log.close()
    with Replica(str(path)) as replica:
        head = replica.bounds().head
        assert head is not None
        return [row for batch in replica.read(None, head) for row in batch.to_pylist()]


def place(row: dict[str, Any]) -> Position:
    return Position(*(row[name] for name in ("config_seq", "config_rep", "seq", "slot")))


def wanted(row: dict[str, Any], selected: Selection) -> bool:
    return selected.changes if row["kind"] != "message" else selected.wants(row["group"])


@settings(deadline=None, max_examples=25)
@given(packets, selections, st.data())
def test_ranges_counts_and_entries_of_a_selection(
    drawn: list[tuple[str, int, int, int]], selected: Selection, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        entries = a_log(Path(directory), drawn)
        begin = data.draw(st.integers(0, len(entries) - 1))
        end = data.draw(st.integers(begin, len(entries) - 1))
        rows, most_bytes = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 60))
        time_us = data.draw(st.integers(50, 400)) * 1000
        with Replica(directory) as replica:
            between = [row for row in entries[begin + 1 : end + 1] if wanted(row, selected)]
            start, upto = place(entries[begin]), place(entries[end])
            found = [row for batch in replica.read(start, upto, selected) for row in batch.to_pylist()]
            assert found == between
            size = sum(len(row["payload"] or b"") for row in between)
            assert replica.count(start, upto, selected) == (len(between), size)
            last = replica.after(start, rows, selected, most_bytes)
            behind = [row for row in entries[begin + 1 :] if wanted(row, selected)]
            if last is None:
                assert begin == len(entries) - 1
            else:
                here = [row for row in behind if place(row) <= last]
                size = sum(len(row["payload"] or b"") for row in here)
                assert len(here) <= max(rows, 1)
                assert size <= most_bytes or sum(row["kind"] == "message" for row in here) == 1
                assert here or not behind
            sent = next((row for row in entries if row["sent_us"] and row["sent_us"] >= time_us), None)
            assert replica.sent_at(time_us) == (None if sent is None else place(sent))
            assert replica.groups() == sorted({row["group"] for row in entries if row["group"]})


def test_a_range_goes_beyond_what_nobody_asked_for(tmp_path: Path) -> None:
    """Five messages among a hundred thousand others are one range, not one for each thousand entries."""
    log = store(tmp_path)
    log.append([installed("4.1", 1, first=True)])
    for seq in range(1, 101):
        group = "rare" if seq % 20 == 0 else "busy"
        log.append([delivered(seq, *["x"] * (1 if group == "rare" else 1000), group=group)])
    log.close()
    with Replica(str(tmp_path)) as replica:
        assert replica.after(at("4.1/0/0"), 1000, "rare") == at("4.1/100/0")
        assert replica.count(at("4.1/0/0"), at("4.1/100/0"), "rare") == (5, 5)


def test_whole_blocks_of_other_times_and_configurations_are_left_out(tmp_path: Path) -> None:
    log = store(tmp_path)
    for turn in range(4):
        log.append([installed(f"{4 + 4 * turn}.1", 1, first=turn == 0)])
        log.append([delivered(1, *["x"] * 10, sent_us=turn * 1_000_000 + 1_000)])
    log.close()
    with Replica(str(tmp_path)) as replica:
        head = replica.bounds().head
        assert head is not None

        def told(**given: Any) -> list[int]:
            batches = replica.read(None, head, Selection(changes=False, **given))
            return [row["config_seq"] for batch in batches for row in batch.slice(0, 1).to_pylist()]

        assert told() == [4, 8, 12, 16]
        assert told(sent_us=(1_000_000, 2_500_000)) == [8, 12]
        assert told(configurations=(12, 2**62)) == [12, 16]


def without_times(whole: bytes) -> bytes:
    """A block as earlier versions wrote it."""
    head = blocks.head_of(whole)
    at = 4 + int.from_bytes(whole[:4], "little")
    buffers = []
    for size in head.sizes:
        at += -at % 8
        buffers.append(whole[at : at + size])
        at += size
    del buffers[7]
    head = msgspec.structs.replace(head, sizes=tuple(map(len, buffers)), sent_us=(0, 0))
    return blocks._with_head(head, buffers)


def test_blocks_of_earlier_versions_do_not_say_when_messages_were_sent() -> None:
    runs = [blocks.MessageRun(1, 0, 1, Guarantee.SAFE, "g", 5, 2, 7000)]
    here = Position(4, 1, 0, 0).configuration
    for heads in (None, binary([b"h", b""])):
        whole = blocks.Messages.of(here, runs, binary([b"a", b"b"]), heads).encoded()
        for block, sent_us in ((whole, 7000), (without_times(whole), 0)):
            batches = blocks.batch_of(block, 0, 2), blocks.checked_batch_of(memoryview(block), 0, 2)
            for batch in batches:
                assert batch.column("sent_us").to_pylist() == [sent_us] * 2
                assert batch.column("payload").to_pylist() == [b"a", b"b"]
        parts = [blocks.Messages.decoded(each) for each in (whole, without_times(whole))]
        merged = blocks.Messages.decoded(blocks.Messages.joined(parts).encoded()).batch()
        assert merged.column("sent_us").to_pylist() == [7000, 7000, 0, 0]
