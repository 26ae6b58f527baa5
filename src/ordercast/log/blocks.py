"""Blocks: many entries as one value, columns as raw buffers, so that no row is touched when they are read.

A block of *messages* holds messages of one configuration, in order. What is the same for the messages of one
packet (its number, sender, group, guarantee, times) is said once for the *run* that they are; a message has
its bytes and where they end, and its *head* where senders say something beside their messages. Reading a
block repeats the runs, in Arrow, and takes the payloads as they lie. A *change* of the configuration is a
block by itself.

A block begins with the length of its head and the head (msgpack), and behind it stand the buffers that the
head tells the sizes of, each at a multiple of eight bytes.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import ge
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.core.identity import Configuration, ConfigurationId, Guarantee, Kind
from ordercast.log.arrays import buffers_of, constant, counting, exactly, no_heads, numbers
from ordercast.log.position import Position
from ordercast.log.selection import ALL, Selection

LOG_SCHEMA = pa.schema(
    [
        pa.field("config_seq", pa.int64(), nullable=False),
        pa.field("config_rep", pa.int32(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("slot", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("sender", pa.int32()),
        pa.field("group", pa.string()),
        pa.field("guarantee", pa.string()),
        pa.field("time_us", pa.int64(), nullable=False),
        pa.field("payload", pa.binary()),
        pa.field("members", pa.list_(pa.field("item", pa.int32()))),
        pa.field("sent_us", pa.int64()),
    ]
)
"""What reading a log gives. ``kind`` is ``message``, or ``regular`` or ``transitional`` for a change of the
configuration, which has ``members`` and nothing else that a message has. ``time_us`` is when the replica that
was read delivered it, in microseconds since the epoch: all other columns are the same at every replica.
``sent_us`` is when its sender's node sent it, 0 if that is not known."""

HEADS = pa.field("head", pa.binary(), nullable=False)
"""One more column, for who asks for it: what the sender said beside a message, empty if it said nothing."""
MESSAGE = "message"
GUARANTEES: tuple[str, ...] = tuple(str(guarantee.value) for guarantee in Guarantee)
"""Blocks name a guarantee by its place here: add at the end only."""
_PLACE: dict[Guarantee, int] = {guarantee: place for place, guarantee in enumerate(Guarantee)}

_LENGTH = struct.Struct("<I")
_ALIGNED = 8
_NULLS_OF_A_CHANGE = {"sender": None, "group": None, "guarantee": None, "payload": None, "sent_us": None}


class Head(msgspec.Struct, array_like=True, frozen=True):
    """What a block tells of itself before its buffers are looked at."""

    first: Position
    last: Position
    rows: int
    time_us: int
    """When its last entry was delivered."""
    groups: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    """Bytes of each buffer."""
    kind: str = MESSAGE
    members: tuple[int, ...] = ()
    """The members of the configuration, of a change."""
    sent_us: tuple[int, int] = (0, 0)
    """When the first and when the last sent of its messages were sent."""


_decode_head = msgspec.msgpack.Decoder(Head).decode
_encode_head = msgspec.msgpack.Encoder().encode


class MessageRun(NamedTuple):
    """Messages that came in one packet, were sent at one time, and are for the same groups."""

    seq: int
    slot: int
    """The slot of the first message."""
    sender: int
    guarantee: Guarantee
    group: str
    time_us: int
    length: int
    sent_us: int = 0


_RUN_COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("ends", pa.int32()),
    ("seq", pa.int64()),
    ("bias", pa.int32()),
    ("sender", pa.int32()),
    ("guarantee", pa.int8()),
    ("group", pa.int32()),
    ("time_us", pa.int64()),
    ("sent_us", pa.int64()),
)
"""One value a run. ``ends``: how many messages there are up to its end. ``bias``: what is added to the place
of a message in the block to have its slot."""


def head_of(block: Any) -> Head:
    """What a block, or its beginning, tells of itself."""
    view = memoryview(block)
    (length,) = _LENGTH.unpack_from(view)
    return _decode_head(view[_LENGTH.size : _LENGTH.size + length])


def change(configuration: Configuration, time_us: int) -> bytes:
    """The block of a change of the configuration."""
    place = Position.beginning(configuration.id)
    head = Head(place, place, 1, time_us, kind=str(configuration.kind.value), members=configuration.members)
    return _with_head(head, [])


def _with_head(head: Head, buffers: Sequence[Any]) -> bytes:
    packed = _encode_head(head)
    parts: list[Any] = [_LENGTH.pack(len(packed)), packed, _padding(_LENGTH.size + len(packed))]
    for buffer in buffers:
        parts += (buffer, _padding(len(buffer)))
    return b"".join(parts)


def _padding(size: int) -> bytes:
    return bytes(-size % _ALIGNED)


class Messages:
    """A block of messages of one configuration."""

    __slots__ = ("configuration", "groups", "heads", "payloads", "runs")

    def __init__(
        self,
        configuration: ConfigurationId,
        runs: dict[str, pa.Array],
        groups: tuple[str, ...],
        payloads: pa.BinaryArray,
        heads: pa.BinaryArray | None = None,
    ) -> None:
        """`heads`: what was said beside each message; None if nothing was beside any."""
        self.configuration = configuration
        self.runs = runs
        self.groups = groups
        self.payloads = payloads
        self.heads = heads

    # --- making ---------------------------------------------------------------------------------

    @classmethod
    def of(
        cls,
        configuration: ConfigurationId,
        runs: Sequence[MessageRun],
        payloads: pa.BinaryArray,
        heads: pa.BinaryArray | None = None,
    ) -> Messages:
        """A block of these messages, in order; the payloads come without the tags of their groups."""
        names: dict[str, int] = {}
        columns: tuple[list[int], ...] = ([], [], [], [], [], [], [], [])
        end = 0
        for seq, slot, sender, guarantee, group, time_us, length, sent_us in runs:
            place = names.setdefault(group, len(names))
            row = (end + length, seq, slot - end, sender, _PLACE[guarantee], place, time_us, sent_us)
            for column, value in zip(columns, row, strict=True):
                column.append(value)
            end += length
        assert end == len(payloads), f"{end} messages in runs, {len(payloads)} payloads"
        arrays = {
            name: numbers(column, kind) for (name, kind), column in zip(_RUN_COLUMNS, columns, strict=True)
        }
        return cls(configuration, arrays, tuple(names), payloads, heads)

    @classmethod
    def joined(cls, blocks: Sequence[Messages]) -> Messages:
        """Blocks that follow each other in one configuration, as one."""
        names: dict[str, int] = {}
        parts: dict[str, list[pa.Array]] = {name: [] for name, _ in _RUN_COLUMNS}
        before = 0
        for block in blocks:
            places = [names.setdefault(name, len(names)) for name in block.groups]
            changed = {
                "ends": numbers([end + before for end in block._column("ends", "i")], pa.int32()),
                "bias": numbers([bias - before for bias in block._column("bias", "i")], pa.int32()),
                "group": numbers([places[group] for group in block._column("group", "i")], pa.int32()),
            }
            for name, kept in parts.items():
                kept.append(changed.get(name, block.runs[name]))
            before += len(block.payloads)
        runs = {name: pa.concat_arrays(arrays) for name, arrays in parts.items()}
        payloads = pa.concat_arrays([block.payloads for block in blocks])
        heads = None
        if any(block.heads is not None for block in blocks):
            heads = pa.concat_arrays([block.all_heads for block in blocks])
        return cls(blocks[0].configuration, runs, tuple(names), payloads, heads)

    @property
    def all_heads(self) -> pa.BinaryArray:
        """The head of each message, also where no message has one."""
        return no_heads(len(self.payloads)) if self.heads is None else self.heads

    def encoded(self) -> bytes:
        """The block as it is stored."""
        rows = len(self.payloads)
        buffers = [
            *(exactly(self.runs[name], kind) for name, kind in _RUN_COLUMNS),
            *(() if self.heads is None else buffers_of(self.heads)),
            *buffers_of(self.payloads),
        ]
        times = self.runs["time_us"]
        head = Head(
            self.position(0),
            self.position(rows - 1),
            rows,
            times[len(times) - 1].as_py(),
            self.groups,
            tuple(map(len, buffers)),
            sent_us=(min(sent := self._column("sent_us", "q")), max(sent)),
        )
        return _with_head(head, buffers)

    @classmethod
    def decoded(cls, block: bytes | memoryview) -> Messages:
        """What was `encoded`: nothing is copied, the arrays are in the block."""
        head = head_of(block)
        whole = pa.py_buffer(block)
        (length,) = _LENGTH.unpack_from(block)
        at = _LENGTH.size + length
        found = []
        for size in head.sizes:
            at += -at % _ALIGNED
            found.append(whole.slice(at, size))
            at += size
        count, headed = _layout(head.sizes)
        runs = {
            name: pa.Array.from_buffers(kind, len(buffer) // (kind.bit_width // 8), [None, buffer])
            for (name, kind), buffer in zip(_RUN_COLUMNS[:count], found, strict=False)
        }
        if count < len(_RUN_COLUMNS):
            runs["sent_us"] = numbers([0] * len(runs["ends"]), pa.int64())
        payloads = pa.Array.from_buffers(pa.binary(), head.rows, [None, *found[-2:]])
        heads = None
        if headed:
            heads = pa.Array.from_buffers(pa.binary(), head.rows, [None, *found[-4:-2]])
        return cls(head.first.configuration, runs, head.groups, payloads, heads)

    # --- looking --------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.payloads)

    def position(self, row: int) -> Position:
        """Where a message stands."""
        run = bisect_right(self._column("ends", "i"), row)
        return Position(
            *self.configuration, self.runs["seq"][run].as_py(), row + self.runs["bias"][run].as_py()
        )

    def rows_up_to(self, place: Position) -> int:
        """How many of its messages stand at a place of its configuration or before."""
        ends, seqs, biases = self._column("ends", "i"), self._column("seq", "q"), self._column("bias", "i")

        def begin(run: int) -> tuple[int, int]:
            return seqs[run], biases[run] + (ends[run - 1] if run else 0)

        run = bisect_right(range(len(seqs)), (place.seq, place.slot), key=begin) - 1
        if run < 0:
            return 0
        if seqs[run] != place.seq:
            return ends[run]
        return min(ends[run], place.slot - biases[run] + 1)

    def _column(self, name: str, code: Literal["i", "q"]) -> memoryview[int]:
        column = self.runs[name]
        whole = memoryview(column.buffers()[1]).cast("B").cast(code)
        return whole[column.offset : column.offset + len(column)]

    # --- reading --------------------------------------------------------------------------------

    def _mask(self, selected: Selection) -> pa.BooleanArray | None:
        """Which messages are wanted, by group; None if all are."""
        places = [place for place, names in enumerate(self.groups) if selected.wants(names)]
        if len(places) == len(self.groups):
            return None
        return pc.is_in(self._repeated(self.runs["group"]), pa.array(places, pa.int32()))

    def measure(self, begin: int, end: int, selected: Selection) -> tuple[int, int]:
        """How many messages of some rows are selected, and their bytes."""
        ends = self._payload_ends
        some = [(first, min(last, end)) for first, last in self._selected(begin, selected) if first < end]
        return sum(last - first for first, last in some), sum(
            ends[last] - ends[first] for first, last in some
        )

    def cut(self, begin: int, selected: Selection, rows: int, most_bytes: int) -> int:
        """How far messages from a row on go of which at most so many, and at least one, are selected."""
        ends, found = self._payload_ends, 0
        for first, last in self._selected(begin, selected):
            fits = min(last, first + rows - found)
            upto = bisect_right(ends, ends[first] + most_bytes, first, fits + 1) - 1
            if not found:
                upto = max(upto, first + 1)  # whatever its size
            if upto < last:
                return upto
            found += upto - first
            most_bytes -= ends[upto] - ends[first]
        return len(self)

    def _selected(self, begin: int, selected: Selection) -> Iterator[tuple[int, int]]:
        """Runs from a row on whose messages are selected: their first row, and the one behind their last."""
        wanted = [selected.wants(names) for names in self.groups]
        ends, groups = self._column("ends", "i"), self._column("group", "i")
        first = begin
        for run in range(bisect_right(ends, begin), len(ends)):
            if wanted[groups[run]]:
                yield first, ends[run]
            first = ends[run]

    @property
    def _payload_ends(self) -> memoryview[int]:
        """Where each message begins and the last ends, in bytes."""
        whole = memoryview(self.payloads.buffers()[1]).cast("B").cast("i")
        return whole[self.payloads.offset : self.payloads.offset + len(self) + 1]

    def first_sent_at(self, time_us: int) -> int:
        """The first message that was sent then or later; how many there are, if none was."""
        ends, sent = self._column("ends", "i"), self._column("sent_us", "q")
        run = next((run for run, each in enumerate(sent) if each >= time_us), None)
        return len(self) if run is None else ends[run - 1] if run else 0

    def batch(
        self, begin: int = 0, end: int | None = None, selected: Selection = ALL, *, heads: bool = False
    ) -> pa.RecordBatch:
        """The block's messages as an Arrow batch: those of some rows, and of some groups; with their `HEADS`
        if they are asked for."""
        rows = len(self.payloads)
        runs = self.runs
        slots = pc.add(counting()[:rows], self._repeated(runs["bias"]))
        columns = [
            constant(self.configuration.seq, "int64")[:rows],
            constant(self.configuration.rep, "int32")[:rows],
            self._repeated(runs["seq"]),
            slots,
            constant(MESSAGE, "string")[:rows],
            self._repeated(runs["sender"]),
            self._named(runs["group"], self.groups),
            self._named(runs["guarantee"], GUARANTEES),
            self._repeated(runs["time_us"]),
            self.payloads,
            pa.nulls(rows, LOG_SCHEMA.field("members").type),
            self._repeated(runs["sent_us"]),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=LOG_SCHEMA)
        if heads:
            batch = batch.append_column(HEADS, self.all_heads)
        wanted = self._mask(selected)
        stop = rows if end is None else end
        if begin or stop < rows:
            batch = batch.slice(begin, stop - begin)
            wanted = None if wanted is None else wanted.slice(begin, stop - begin)
        return batch if wanted is None else batch.filter(wanted)

    def _repeated(self, values: pa.Array) -> pa.Array:
        """The value of each message's run."""
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(self.runs["ends"], values))

    def _named(self, places: pa.Array, names: Sequence[str]) -> pa.Array:
        """The name of each message's run; mostly there is one for all."""
        there = places.unique()
        if len(there) == 1:
            return constant(names[there[0].as_py()], "string")[: len(self.payloads)]
        return self._repeated(pa.array(names, pa.string()).take(places))


def _layout(sizes: Sequence[int]) -> tuple[int, bool]:
    """How many columns of runs a block has, and whether it has heads: blocks of earlier versions do not have
    when messages were sent."""
    columns = len(_RUN_COLUMNS)
    if len(sizes) in (columns + 1, columns + 3):
        columns -= 1
    return columns, len(sizes) == columns + 4


def batch_of_change(head: Head) -> pa.RecordBatch:
    """A change of the configuration as Arrow has it."""
    config_seq, config_rep, seq, slot = head.first
    row = {
        **_NULLS_OF_A_CHANGE,
        "config_seq": config_seq,
        "config_rep": config_rep,
        "seq": seq,
        "slot": slot,
        "kind": head.kind,
        "time_us": head.time_us,
        "members": list(head.members),
    }
    return pa.RecordBatch.from_pylist([row], schema=LOG_SCHEMA)


def batch_of(
    block: bytes | memoryview, begin: int, end: int, selected: Selection = ALL, *, heads: bool = False
) -> pa.RecordBatch:
    """Rows of a block as Arrow has them: of messages, those that are selected by group."""
    head = head_of(block)
    if head.kind != MESSAGE:
        batch = batch_of_change(head)
        if heads:
            batch = batch.append_column(HEADS, no_heads(1))
        return batch.slice(begin, end - begin)
    return Messages.decoded(block).batch(begin, end, selected, heads=heads)


def checked_batch_of(
    block: memoryview, begin: int, end: int, selected: Selection = ALL, *, heads: bool = False
) -> pa.RecordBatch:
    """Rows, as Arrow has them, of a block that came over a network: `ValueError` if it is no block.

    Blocks on disk have checksums. What another process says can be anything, and Arrow reads beyond its
    buffers where offsets and lengths do not fit, which ends this one.
    """
    head = head_of(block)
    rows = head.rows
    if not 0 <= begin <= end <= rows:
        raise ValueError("rows that the block does not have")
    if head.kind != MESSAGE:
        Kind(head.kind)
        if rows != 1:
            raise ValueError("a change is one entry")
        return batch_of(block, begin, end, selected, heads=heads)
    (at,) = _LENGTH.unpack_from(block)
    at += _LENGTH.size
    for size in head.sizes:
        at += -at % _ALIGNED + size
    runs = head.sizes[0] // 4 if head.sizes else 0
    count, headed = _layout(head.sizes)
    widths = [runs * (kind.bit_width // 8) for _, kind in _RUN_COLUMNS[:count]]
    if headed:
        widths += (4 * (rows + 1), head.sizes[len(widths) + 1])  # of heads
    fitting = [*widths, 4 * (rows + 1)] == list(head.sizes[:-1])
    if not fitting or not runs or min(head.sizes) < 0 or at > len(block):
        raise ValueError("buffers that do not fit")
    messages = Messages.decoded(block)
    messages.payloads.validate(full=True)
    messages.all_heads.validate(full=True)
    ends = messages._column("ends", "i")
    if ends[0] < 1 or ends[-1] != rows or any(map(ge, ends, ends[1:])):
        raise ValueError("runs that do not follow each other")
    for name, names in (("group", messages.groups), ("guarantee", GUARANTEES)):
        bounds = pc.min_max(messages.runs[name])
        if bounds["min"].as_py() < 0 or bounds["max"].as_py() >= len(names):
            raise ValueError(f"no such {name}")
    return batch_of(block, begin, end, selected, heads=heads)


def configuration_of(head: Head) -> Configuration:
    """The configuration that a change leads to."""
    return Configuration(head.first.configuration, Kind(head.kind), head.members)
