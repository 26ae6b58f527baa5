"""A node's groups: each gets its own of every batch, and what waits to be read is bounded."""

from __future__ import annotations

import asyncio
import pickle
from copy import copy, deepcopy

import pytest
from group_nodes import run
from hypothesis import given, settings
from hypothesis import strategies as st
from lone_readers import ALONE, RING, LoneReaders, to

from ordercast import (
    Configuration,
    ConfigurationChange,
    ConfigurationId,
    Delivery,
    Ended,
    Evicted,
    Excluded,
    Joined,
    Kind,
    Left,
    Message,
    MessageId,
    Rejoined,
)
from ordercast.core.addresses import LONGEST_NAME, address, address_of
from ordercast.core.identity import Batch, Guarantee
from ordercast.groups import reader as reader_module
from ordercast.groups.reader import ENTRY_OVERHEAD, MOST_FULL
from ordercast.process_groups.notes import check_name, describe
from ordercast.process_groups.views import Cause, Member, View, ViewId
from ordercast.runtime.driver import Outgoing


def batch(payloads: list[bytes], *, number: int = 1, origin: int = 1, seq: int = 1, slot: int = 0) -> Batch:
    return Batch(RING, seq, slot, origin, 0, number, Guarantee.AGREED, payloads)


def some_readers(limit: int = 10_000) -> tuple[LoneReaders, list[tuple[str, ...]]]:
    """The readers of a node, and what they say of slow groups, each time that this may have changed."""
    told: list[tuple[str, ...]] = []
    readers = LoneReaders(limit, lambda: told.append(readers.slow_groups))
    return readers, told


# --- addresses ----------------------------------------------------------------------------------


@given(st.text(min_size=1, max_size=30), st.binary(max_size=30))
def test_an_address_is_found_again(name: str, body: bytes) -> None:
    try:
        check_name(name)
    except ValueError:
        return
    front = address(7, [name])
    assert address_of(front + body) == front
    assert describe(front + body) == (name, len(body))


@given(st.binary(max_size=300))
def test_any_payload_can_be_looked_at(payload: bytes) -> None:
    front = address_of(payload)
    assert front is None or payload.startswith(front)
    describe(payload)


def test_the_longest_name() -> None:
    longest = address(0, ["x" * LONGEST_NAME])
    assert address_of(longest) == longest
    with pytest.raises(ValueError, match="cannot be a group's name"):
        check_name("x" * (LONGEST_NAME + 1))


# --- who gets what ------------------------------------------------------------------------------

names = st.sampled_from(["a", "ab", "b", "not joined"])
addressed = st.builds(to, names, st.binary(max_size=3))
strange = st.sampled_from([b"", b"\x04", b"\x02\x01a", to("a")[:-1], to("a", b"")[:5] + b"\x02\x01a\x01a"])


@given(st.lists(st.lists(addressed | strange, min_size=1, max_size=12), max_size=6))
@settings(max_examples=150, deadline=None)
def test_each_group_gets_its_own_in_order(batches: list[list[bytes]]) -> None:
    async def main() -> None:
        readers, _ = some_readers()
        inboxes = {name: readers.reader(name) for name in ("a", "ab", "b")}
        expected: dict[str, list[Message]] = {name: [] for name in inboxes}
        number = 1
        for seq, payloads in enumerate(batches, 1):
            readers.deliver(batch(payloads, number=number, seq=seq, slot=2))
            for place, payload in enumerate(payloads):
                group, size = describe(payload)
                if group in expected:
                    body = payload[len(payload) - size :]
                    own = MessageId(1, 0, number + place)
                    message = Message(body, 1, group, False, own, RING, seq, 2 + place, (group,))
                    expected[group].append(message)
            number += len(payloads)
        for name, inbox in inboxes.items():
            found = [
                message
                for entry, _ in inbox.entries
                if isinstance(entry, Delivery)
                for message in entry.messages()
            ]
            assert found == expected[name]
        assert readers.unread == sum(size for inbox in inboxes.values() for _, size in inbox.entries)
        assert readers.delivered_bytes == sum(len(m.payload) for found in expected.values() for m in found)

    asyncio.run(main())


def test_the_configuration_comes_first_and_in_its_place() -> None:
    async def main() -> None:
        readers, _ = some_readers()
        reader = readers.open("a", {"nick": "ann"})
        inbox = reader.inbox
        readers.deliver(batch([to("a", b"1")]))
        later = Configuration(ConfigurationId(8, 1), Kind.TRANSITIONAL, (1,))
        readers.install(later, Ended(RING, 1))
        readers.deliver(batch([to("a", b"2")], number=2))
        found = [await inbox.get() for _ in range(5)]
        assert found[0] == ALONE
        me = Member(reader.me, {"nick": "ann"})
        assert found[1] == Joined("a", me, Cause.JOINED, (me,))
        assert reader.members == (me,)
        assert found[3] == later
        assert isinstance(found[0], ConfigurationChange)
        assert found[0].ended is None
        assert isinstance(found[3], ConfigurationChange)
        assert found[3].ended == Ended(RING, 1)
        assert [entry.payloads for entry in found if isinstance(entry, Delivery)] == [[b"1"], [b"2"]]
        assert readers.unread == 0

    run(main)


def test_what_ends_is_read_to_the_end() -> None:
    async def main() -> None:
        readers, _ = some_readers()
        inbox = readers.reader("a")
        readers.deliver(batch([to("a", b"1")]))
        receipt = readers.receipts.expect(5)
        readers.end(None, RuntimeError("lost"))
        readers.receipts.fail(RuntimeError("lost"))
        assert isinstance(await inbox.get(), Delivery)
        assert await inbox.get() is None
        assert await inbox.get() is None
        assert isinstance(receipt.exception(), RuntimeError)

    run(main)


# --- slow groups --------------------------------------------------------------------------------

SIZE = 100 + ENTRY_OVERHEAD
"""What the messages below count for."""


def one(group: str) -> Batch:
    return batch([to(group, bytes(100))])


def test_a_group_is_slow_from_the_limit_on_until_half_of_it_is_read() -> None:
    async def main() -> None:
        readers, told = some_readers(10 * SIZE)
        reader = readers.open("a")
        inbox = reader.inbox
        inbox.clear()
        for _ in range(10):
            readers.deliver(one("a"))
        assert told == []
        readers.deliver(one("a"))
        readers.deliver(one("a"))
        assert told == [("a",)]
        while readers.unread * 2 >= 10 * SIZE:
            assert told == [("a",)]
            await inbox.get()
        assert told == [("a",), ()]
        for _ in range(12):
            readers.deliver(one("a"))
        assert told == [("a",), (), ("a",)]
        await reader.leave()
        assert told == [("a",), (), ("a",), ()]
        assert readers.unread == 0
        await reader.leave()
        assert readers.unread == 0

    run(main)


def test_each_reader_has_its_own_limit() -> None:
    async def main() -> None:
        readers, told = some_readers(10 * SIZE)
        for inbox in [readers.reader(name) for name in ("a", "b", "b")]:
            inbox.clear()  # the second reader of b was seen to join
        for _ in range(10):
            readers.deliver(one("a"))
            readers.deliver(one("b"))
        assert told == []
        readers.deliver(one("b"))
        assert told[-1] == ("b",)
        assert readers.unread_by_group() == {"a": 10 * SIZE, "b": 22 * SIZE}

    run(main)


def test_empty_messages_count_too() -> None:
    async def main() -> None:
        readers, told = some_readers(1000)
        readers.reader("a")
        for _ in range(1000 // ENTRY_OVERHEAD + 1):
            readers.deliver(batch([to("a")]))
        assert told == [("a",)]

    run(main)


def test_what_nobody_joined_is_not_kept() -> None:
    async def main() -> None:
        readers, told = some_readers(100)
        readers.deliver(batch([to("a", bytes(1000))]))
        assert readers.unread == 0
        assert told == []

    run(main)


def test_sends_of_a_reader_that_wait_for_a_slow_group_look_again_when_its_own_inbox_gets_full() -> None:
    async def main() -> None:
        readers, _ = some_readers(SIZE)
        inbox = readers.reader("a")
        waiting, given_up = (asyncio.get_running_loop().create_future() for _ in range(2))
        given_up.cancel()
        inbox.watchers.update({waiting: None, given_up: None})
        readers.deliver(one("a"))
        assert not waiting.done()
        readers.deliver(one("a"))
        assert waiting.done()

    run(main)


def test_a_reader_that_is_put_out_of_its_group_is_told_and_comes_back_without_a_configuration() -> None:
    async def main() -> None:
        readers, _ = some_readers()
        reader = readers.open("a")
        me = Member(reader.me, {})
        reader.inbox.clear()
        for _ in range(2):
            reader.left("a", Cause.LOST)
        assert reader.members == ()
        reader.installed(View("a", ViewId(RING, 2), (me,), Cause.MERGED))
        entries = [entry for entry, _ in reader.inbox.entries]
        assert entries == [Left("a", me, Cause.LOST, ()), Joined("a", me, Cause.MERGED, (me,))]

    run(main)


def test_a_reader_that_stands_still_is_given_up_and_then_dropped() -> None:
    async def main() -> None:
        readers, _ = some_readers(10 * SIZE)
        stands, reads = readers.reader("a"), readers.reader("a")
        stands.clear()
        for _ in range(12):
            readers.deliver(one("a"))
        for _ in range(12):
            assert isinstance(await reads.get(), Delivery)
        for _ in range(3):
            readers.look_at_readers(2.0, 10.0)
        assert list(readers.slow_groups) == ["a"], "time since the last look at a reader that read counts not"
        readers.look_at_readers(2.0, 10.0)
        assert list(readers.slow_groups) == [], "half of the time: nobody waits for it any more"
        readers.deliver(one("a"))
        assert len(stands.entries) == 13, "but it still gets everything"
        for _ in range(2):
            readers.look_at_readers(2.0, 10.0)
        readers.deliver(one("a"))
        for _ in range(13):
            assert isinstance(await stands.get(), Delivery)
        for _ in range(2):
            with pytest.raises(Evicted, match=r"13 messages \(2,132 bytes\) unread: it had read") as told:
                await stands.get()
        assert (told.value.group, told.value.messages, told.value.bytes) == ("a", 13, 13 * SIZE)
        assert pickle.loads(pickle.dumps(told.value)).messages == 13
        assert isinstance(await reads.get(), Delivery)
        left = await reads.get()
        assert isinstance(left, Left)
        assert (left.cause, len(left.members)) == (Cause.DIED, 1)
        assert isinstance(await reads.get(), Delivery)
        assert readers.unread == 0

    run(main)


def test_a_reader_that_reads_however_slowly_is_not_dropped() -> None:
    async def main() -> None:
        readers, _ = some_readers(10 * SIZE)
        inbox = readers.reader("a")
        readers.deliver(batch([to("a", bytes(100))] * 30))
        readers.deliver(batch([to("a", bytes(100))] * 30, number=31))
        for _ in range(20):
            readers.look_at_readers(4.0, 10.0)
            inbox.moved = True  # by its reader, who goes through the first batch one by one
        assert readers.slow_groups == ("a",)
        assert not inbox.ended

    run(main)


def test_a_reader_with_more_than_can_be_on_its_way_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "IN_FLIGHT", 0)

    async def main() -> None:
        readers, _ = some_readers(10 * SIZE)
        slow, other = readers.reader("a"), readers.reader("b")
        most = (MOST_FULL * 10 + 2) * SIZE
        while not slow.ended:
            readers.deliver(one("a"))
            assert readers.unread <= most + SIZE
        readers.deliver(one("b"))
        had = [await slow.get() for _ in range(most // SIZE + 1)]
        assert all(isinstance(entry, Delivery) for entry in had)
        with pytest.raises(Evicted, match="raise receive_buffer"):
            await slow.get()
        assert isinstance(await other.get(), Delivery)
        assert readers.slow_groups == ()

    run(main)


def test_one_message_larger_than_all_limits_is_read() -> None:
    async def main() -> None:
        readers, _ = some_readers(1000)
        inbox = readers.reader("a")
        readers.deliver(batch([to("a", bytes(10**6))]))
        readers.deliver(batch([to("a", b"next")], number=2))
        assert [len((await inbox.get()).payloads[0]) for _ in range(2)] == [10**6, 4]  # type: ignore[union-attr]

    run(main)


# --- receipts -----------------------------------------------------------------------------------


def test_receipts_are_for_own_messages_of_this_life() -> None:
    async def main() -> None:
        readers, _ = some_readers()
        receipts = [readers.receipts.expect(number) for number in (2, 3, 5)]
        receipts[0].cancel()
        payloads = [to("g", b"%d" % number) for number in range(1, 4)]
        readers.deliver(batch(payloads, origin=2))
        readers.deliver(batch(payloads)._replace(incarnation=7))
        await asyncio.sleep(0)
        assert not any(receipt.done() for receipt in receipts[1:])
        readers.deliver(batch(payloads, seq=9, slot=4))
        assert receipts[1].result() == Message(b"3", 1, "g", False, MessageId(1, 0, 3), RING, 9, 6, ("g",))
        assert not receipts[2].done()

    run(main)


def test_a_receipt_that_was_given_up_changes_nothing_when_a_life_ends() -> None:
    async def main() -> None:
        readers, _ = some_readers()
        given_up, waited_for = readers.receipts.expect(1), readers.receipts.expect(2)
        given_up.cancel()
        readers.receipts.fail(Excluded("the group went on without this node"))
        assert given_up.cancelled()
        with pytest.raises(Excluded, match="went on without"):
            await waited_for

    run(main)


def test_a_receipt_whose_message_was_skipped_says_that_another_one_was_delivered_in_its_place() -> None:
    async def main() -> None:
        readers, _ = some_readers()
        receipt = readers.receipts.expect(1)
        readers.deliver(batch([to("g", b"5")], number=5))
        with pytest.raises(Excluded, match="message 1 of this node was not delivered here, but a later one"):
            await receipt

    run(main)


# --- on the way to the machine ------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.lists(st.binary(max_size=5), min_size=1, max_size=4), st.sampled_from(Guarantee))),
    st.lists(st.integers(0, 20), max_size=20),
)
def test_outgoing_messages_keep_their_order_and_fit(
    added: list[tuple[list[bytes], Guarantee]], rooms: list[int]
) -> None:
    outgoing = Outgoing()
    for payloads, guarantee in added:
        outgoing.add(payloads, guarantee)
    taken: list[tuple[bytes, Guarantee]] = []
    for room in [*rooms, *[1000] * (len(added) + 1)]:
        run_ = outgoing.take(room)
        if run_ is not None:
            assert run_[0]
            assert sum(map(len, run_[0])) <= room
            taken += [(payload, run_[1]) for payload in run_[0]]
    assert not outgoing
    assert taken == [(payload, guarantee) for payloads, guarantee in added for payload in payloads]


def test_a_change_is_a_configuration_that_says_what_it_ends() -> None:
    change = ConfigurationChange(*ALONE, Ended(ConfigurationId(4, 7), 19))
    assert change == ALONE
    assert hash(change) == hash(ALONE)
    number, kind, members = change
    assert (number, kind, members) == ALONE
    for again in (copy(change), deepcopy(change), pickle.loads(pickle.dumps(change))):
        assert type(again) is ConfigurationChange
        assert (again, again.ended) == (change, change.ended)
    assert "ended=Ended(configuration=ConfigurationId(seq=4, rep=7), place=19)" in repr(change)
    assert isinstance(Rejoined(*ALONE), ConfigurationChange)
    assert Rejoined(*ALONE).ended is None
