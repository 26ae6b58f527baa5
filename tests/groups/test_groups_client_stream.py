"""The stream of clients after a restart: what the log says of its messages, their numbers and identifiers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ordercast.clients.stream import Stream
from ordercast.core.addresses import address
from ordercast.core.headers import write_head
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.groups import client_stream
from ordercast.groups.client_stream import KeptStream, OlderInLog, reopened
from ordercast.groups.logged_stream import LoggedStream
from ordercast.log.store import Delivered, Installed, Store
from ordercast.process_groups.notes import head
from ordercast.process_groups.views import Recounted

SUBJECTS = ("a.>",)


class Life:
    """A life of a node, whose log is written by hand: each step is a commit."""

    def __init__(self, path: Path) -> None:
        self.store = Store(path, 1, most_bytes=1 << 30, sync=False)
        self.notes: dict[bytes, bytes | None] = {}
        self.kept = KeptStream(self.store.notes(), self.notes.update)
        self.number = self.kept.counted
        self.first = True
        self.seq = 0

    def install(self, seq: int, *members: int, base: int | None = None) -> None:
        """A configuration; with `base`, its messages are counted from there on."""
        here = Configuration(ConfigurationId(seq, 1), Kind.REGULAR, members)
        self.store.append([Installed(1, here, self.first)])
        self.seq = 0
        if self.first or base is not None:
            base = self.number if base is None else base
            self.kept.recounted(Recounted(here.id, self.number, base))
            self.number = base
        self.first = False

    def deliver(self, group: str, *bodies: bytes, identifier: str = "", written: bool = True) -> None:
        """Messages; those that are not `written` are counted, and lost."""
        self.seq += 1
        self.number += len(bodies)
        self.kept.reached(self.number)
        front = address(0, [group])
        if identifier:
            headers = f"NATS/1.0\r\nNats-Msg-Id: {identifier}\r\n\r\n".encode()
            front = address(0, [group], headed=True) + head(write_head("inbox", headers))
        batch = Batch(
            ConfigurationId(0, 0), self.seq, 0, 1, 0, 1, Guarantee.SAFE, [front + body for body in bodies]
        )
        if written:
            notes = dict(self.notes)
            self.notes.clear()
            self.store.append([Delivered(7, batch, notes)])

    def die(self) -> None:
        self.store.close()


def logged(path: Path, life: Life) -> LoggedStream:
    return LoggedStream(path, lambda: life.kept.recounts, SUBJECTS)


def after(path: Path) -> Stream:
    """The stream as the next life has it."""
    life = Life(path)
    found = reopened(logged(path, life), life.kept, SUBJECTS, 1 << 20, time.time_ns)
    life.die()
    return found


def numbers(stream: Stream) -> list[tuple[int, bytes]]:
    return [(entry.number, entry.body) for entry in stream.following(0)]


def test_messages_have_their_numbers_headers_and_identifiers_again(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.install(4, 1)
    life.deliver("a.x", b"1", b"2")
    life.deliver("other", b"3")
    life.deliver("a.y", b"4", identifier="me-1")
    life.deliver("a.y", b"5", identifier="me-1")
    life.die()
    stream = after(tmp_path)
    assert numbers(stream) == [(1, b"1"), (2, b"2"), (4, b"4")], "a repetition is none of the stream's"
    assert (stream.first, stream.last, stream.known("me-1")) == (1, 5, 4)
    entry = stream.get(4)
    assert entry is not None
    assert (entry.headers, entry.time_ns) == (b"NATS/1.0\r\nNats-Msg-Id: me-1\r\n\r\n", 7_000)


def test_a_life_goes_on_with_the_numbers_of_the_one_before(tmp_path: Path) -> None:
    for number in range(3):
        life = Life(tmp_path)
        life.install(4 * number + 4, 1)
        life.deliver("a.x", b"%d" % number)
        life.die()
    assert numbers(after(tmp_path)) == [(1, b"0"), (2, b"1"), (3, b"2")]


def test_where_others_had_counted_further_the_stream_begins_anew(tmp_path: Path) -> None:
    """They had messages that are not in this log: who reads must not be given a gap."""
    life = Life(tmp_path)
    life.install(4, 1)
    life.deliver("a.x", b"alone", b"too")
    life.install(8, 1, 2, base=100)
    life.deliver("a.x", b"together")
    life.install(12, 1, 2, 3)
    life.deliver("a.x", b"with a third")
    life.die()
    assert numbers(after(tmp_path)) == [(101, b"together"), (102, b"with a third")]
    life = Life(tmp_path)
    life.install(16, 1, 2, 3, base=200)
    life.deliver("a.x", b"at last")
    life.die()
    stream = after(tmp_path)
    assert (numbers(stream), stream.first, stream.last) == ([(201, b"at last")], 201, 201)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_only_the_end_of_the_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Wherever it begins, the first message has its number."""
    life = Life(tmp_path)
    life.install(4, 1)
    life.deliver("a.x", b"1", b"2", b"3")
    life.install(8, 1, 2)
    life.deliver("a.x", b"4")
    life.deliver("a.x", b"5")
    life.die()
    monkeypatch.setattr(client_stream, "MOST_ROWS", rows)
    assert numbers(after(tmp_path)) == [(number, b"%d" % number) for number in range(6 - rows, 6)]


def test_messages_that_are_not_in_memory_are_read_from_the_log(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.install(4, 1)
    for number in range(1, 30):
        life.deliver("a.x" if number % 3 else "other", b"%d" % number)
    life.kept.repeated(11)
    life.install(8, 1, 2)
    life.deliver("a.y", b"30", b"31")
    older = OlderInLog(logged(tmp_path, life), life.kept)
    wanted = [
        (number, b"%d" % number) for number in range(1, 32) if (number % 3 or number > 29) and number != 11
    ]

    async def case() -> None:
        assert await older.first() == 1
        for begin in (1, 7, 12, 30, 31):
            found, first, end = await older.read(begin, None)
            assert [(each.number, each.body) for each in found] == [
                each for each in wanted if each[0] >= begin
            ]
            assert (first, end) == (begin, 32)
        assert [each.number for each in (await older.read(1, "a.y")).entries] == [30, 31]
        assert await older.read(32, None) == ([], 32, 32)
        assert older.pending(1, 40, "a.y") == 2
        assert await older.at_time(7_000) == 1
        assert await older.at_time(8_000) == 32

    asyncio.run(case())
    life.die()


def test_repetitions_are_remembered_as_long_as_they_are_in_the_log() -> None:
    notes: dict[bytes, bytes | None] = {}
    kept = KeptStream({}, notes.update)
    for number in (3, 4095, 4096, 100_000):
        kept.repeated(number)
    again = KeptStream({name: note for name, note in notes.items() if note is not None}, notes.update)
    assert [number for number in (2, 3, 4, 4095, 4096, 100_000) if again.is_repeated(number)] == [
        3,
        4095,
        4096,
        100_000,
    ]
    again.forget_before(4096)
    left = KeptStream({name: note for name, note in notes.items() if note is not None}, notes.update)
    assert [number for number in (3, 4096, 100_000) if left.is_repeated(number)] == [4096, 100_000]


def test_what_was_counted_and_is_not_in_the_log_makes_numbers_before_it_unknown(tmp_path: Path) -> None:
    """A life within the process ended before its last messages were final."""
    life = Life(tmp_path)
    life.install(4, 1, 2)
    life.deliver("a.x", b"1")
    life.deliver("a.x", b"lost", written=False)
    life.kept.life_over()
    life.first = True
    life.install(8, 1, 2)
    life.deliver("a.x", b"3")
    life.die()
    assert numbers(after(tmp_path)) == [(3, b"3")]


def test_after_an_absence_the_stream_begins_where_the_node_came_back(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.install(4, 1, 2)
    life.deliver("a.x", b"1")
    life.die()
    life = Life(tmp_path)
    life.install(20, 1, 2, base=50)
    life.deliver("a.x", b"51", identifier="me-1")
    life.die()
    stream = after(tmp_path)
    assert (numbers(stream), stream.first, stream.last) == ([(51, b"51")], 51, 51)
    assert stream.known("me-1") == 51


def test_a_damaged_log_leaves_an_empty_stream_and_the_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(tmp_path)
    life.install(4, 1)
    life.deliver("a.x", b"x" * 5000)
    (tail,) = tmp_path.glob("*.tail")
    data = tail.read_bytes()
    tail.write_bytes(data.replace(b"x" * 5000, b"y" * 5000))
    stream = reopened(logged(tmp_path, life), life.kept, SUBJECTS, 1 << 20, time.time_ns)
    life.die()
    assert (numbers(stream), stream.first, stream.last) == ([], 2, 1)
    assert "what clients can read begins with the next message" in caplog.text


def test_notes_that_are_none_are_passed_over() -> None:
    told: Sequence[bytes] = (b"", b"x", b"9" * 30)
    for wrong in told:
        kept = KeptStream({client_stream.COUNTED: wrong, client_stream.RECOUNTED: wrong}, lambda notes: None)
        assert (kept.counted, kept.recounts) == (0, [])
