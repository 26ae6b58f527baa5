"""A row group of a trace as columns of numbers: what the passes compute of every row, all rows at once.

Arrow reads a row group's words as places in a dictionary, so that a word is looked at once and not once a
row. A message's place (``seq``, ``slot``) is one number here, its *rank*, with `BITS` of it for the slot;
rows whose places do not fit are *bad*, and their run is judged by the reference. So is its timestamp with its
source ring, its *birth*, with `RING_BITS` for the ring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.core.identity import Guarantee
from ordercast.storage import Location
from ordercast.trace.contents import opened_parquet
from ordercast.trace.schema import EVENTS
from ordercast.trace.seal import Seal

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

BITS = 20
HIGHEST = 2**42
RING_BITS = 10
LATEST = 2**52
"""Timestamps are below this."""
NOTHING = -1
"""The rank before the first."""

NULL = -(2**63)
"""What stands for no value."""

OTHER, DELIVER, ORIGINATE, UNKNOWN = 0, 1, 2, 3
REGULAR, TRANSITIONAL = 0, 1

_WORDS = ("event", "config_kind", "guarantee", "group")
_ALWAYS = ("node", "incarnation", "step", "event")
_HERE = ("config_seq", "config_rep", "config_kind")
_FACTS = ("origin", "origin_incarnation", "number", "origin_config_seq", "origin_config_rep")
_PLACE = ("seq", "slot")
_BIRTH = ("timestamp", "ring")
_CHECKSUM = "checksum"
_COLUMNS = (*_ALWAYS, *_HERE, *_FACTS, *_PLACE, "guarantee")
_VIEWS_COLUMNS = (*_COLUMNS, "group", "size")

_EVENT_CODES = dict.fromkeys(EVENTS, OTHER) | {"deliver": DELIVER, "originate": ORIGINATE}
_KIND_CODES = {"regular": REGULAR, "transitional": TRANSITIONAL}


@dataclass(frozen=True)
class Lives:
    """All rows of a row group, by run, node and life."""

    run: Numbers
    node: Numbers
    incarnation: Numbers
    rows: Numbers
    first_step: Numbers
    unknown: Numbers
    """Rows of an event that is none, or that lack what every row has."""


@dataclass(frozen=True)
class Chunk:
    """The deliveries and originations of a row group: each a column, all of one length."""

    runs: list[str]
    """Names of the runs that `run` counts through."""
    lives: Lives
    run: Numbers
    node: Numbers
    incarnation: Numbers
    step: Numbers
    config_seq: Numbers
    config_rep: Numbers
    kind: Numbers
    delivery: Numbers
    origin: Numbers
    origin_incarnation: Numbers
    number: Numbers
    origin_config_seq: Numbers
    origin_config_rep: Numbers
    rank: Numbers
    bad: Numbers
    safe: Numbers
    time: Numbers
    """The row's time, where times are asked for; else `NULL`."""
    content: Numbers
    """A hash of what the message is, its place aside."""
    placed: Numbers
    """The same with its place."""
    birth: Numbers
    """The message's timestamp and ring as one number; `NULL` where it has none."""


def read_chunk(
    file: pq.ParquetFile, group: int, views: bool, wanted: Set[str], *, alone: bool, timed: bool
) -> Chunk:
    """Read the rows of the runs that are wanted; of one that is alone in its trace the name is not read."""
    columns = [*(() if alone else ("run",)), *(_VIEWS_COLUMNS if views else _COLUMNS)]
    columns += ("time_us",) if timed else ()
    optional = (_CHECKSUM,) if views else (*_BIRTH, _CHECKSUM)
    columns += [name for name in optional if name in file.schema_arrow.names]
    table = file.read_row_group(group, columns, use_threads=False)
    if alone:
        run, runs = np.zeros(table.num_rows, np.int32), list(wanted)
    else:
        run, runs = _coded(table.column("run"))
        ours = np.array([*(name in wanted for name in runs), False])[run]
        if not ours.all():
            table, run = table.filter(pa.array(ours)), run[ours]
    event = _translated(table.column("event"), _EVENT_CODES, UNKNOWN)
    for name in _ALWAYS[:3]:
        if table.column(name).null_count:
            event = np.where(_is_null(table.column(name)), UNKNOWN, event)
    lives = _lives(run, _values(table.column("node")), _values(table.column("incarnation")), table, event)
    kept = np.flatnonzero((event == DELIVER) | (event == ORIGINATE))
    of = {name: _values(table.column(name))[kept] for name in (*_ALWAYS[:3], *_HERE[:2], *_FACTS, *_PLACE)}
    of["kind"] = _translated(table.column("config_kind"), _KIND_CODES, 2)[kept]
    delivery = event[kept] == DELIVER
    guarantee = table.column("guarantee")
    content = _mixed(np.full(len(kept), 42, np.uint64), *(of[name] for name in _FACTS))
    content = _mixed(content, _hashed(guarantee)[kept])
    if views:
        content = _mixed(content, _values(table.column("size"))[kept], _hashed(table.column("group"))[kept])
    birth, unborn = _births(table, kept)
    if (birth != NULL).any():
        content = np.where(birth == NULL, content, _mixed(content, birth))
    if _CHECKSUM in table.column_names and table.column(_CHECKSUM).null_count < table.num_rows:
        checksum = _values(table.column(_CHECKSUM))[kept]
        content = np.where(checksum == NULL, content, _mixed(content, checksum))
    seq, slot = of["seq"], of["slot"]
    rank = np.where(seq == NULL, NULL, (seq << BITS) | np.where(slot == NULL, 0, slot))
    level = _translated(guarantee, {word: at for at, word in enumerate(Guarantee)}, -1)[kept]
    return Chunk(
        runs=runs,
        lives=lives,
        run=run[kept],
        delivery=delivery,
        rank=rank,
        bad=_bad(of, delivery, level, views) | _is_null(guarantee)[kept] | unborn,
        safe=delivery & (level == list(Guarantee).index(Guarantee.SAFE)),
        time=_values(table.column("time_us"))[kept] if timed else np.full(len(kept), NULL),
        content=content,
        placed=_mixed(content, seq, slot),
        birth=birth,
        **{name: of[name] for name in (*_ALWAYS[:3], *_HERE[:2], "kind", *_FACTS)},
    )


def _bad(of: Mapping[str, Numbers], delivery: Numbers, level: Numbers, views: bool) -> Numbers:
    """Whether a message's row lacks a fact, or is none that its node could have written.

    An origination is by the node and the life that the message names, in the regular configuration that it
    names; a delivery in a regular configuration is of a message of that one. In the sequencer family an
    origination has no place, every configuration is a regular one, and the levels of resilience are known.
    """
    bad: Numbers = np.zeros(len(delivery), bool)
    for name in _FACTS:
        bad |= of[name] == NULL
    seq, slot = of["seq"], of["slot"]
    misplaced = (seq < 0) | (seq >= HIGHEST) | (slot < 0) | (slot >= 2**BITS)  # NULL is below 0
    elsewhere = (of["config_seq"] != of["origin_config_seq"]) | (of["config_rep"] != of["origin_config_rep"])
    by_others = (of["origin"] != of["node"]) | (of["origin_incarnation"] != of["incarnation"])
    irregular = of["kind"] != REGULAR
    if views:
        bad |= irregular | (level < 0) | elsewhere
        bad |= np.where(delivery, misplaced, by_others)
        return bad
    bad |= misplaced | np.where(delivery, ~irregular & elsewhere, by_others | elsewhere | irregular)
    return bad


def _births(table: pa.Table, kept: Numbers) -> tuple[Numbers, Numbers]:
    """The births of some rows, and which of them have one that is none."""
    births: Numbers = np.full(len(kept), NULL)
    wrong: Numbers = np.zeros(len(kept), bool)
    if not all(name in table.column_names for name in _BIRTH):
        return births, wrong
    if all(table.column(name).null_count == table.num_rows for name in _BIRTH):
        return births, wrong
    timestamp, ring = (_values(table.column(name))[kept] for name in _BIRTH)
    known = (timestamp >= 0) & (timestamp < LATEST) & (ring >= 0) & (ring < 2**RING_BITS)
    births[known] = (timestamp[known] << RING_BITS) | ring[known]
    return births, ~known & ((timestamp != NULL) | (ring != NULL))


def _lives(run: Numbers, node: Numbers, life: Numbers, table: pa.Table, event: Numbers) -> Lives:
    """What is to be known of all rows, whatever they are about."""
    order, starts = grouped(run, node, life)
    return Lives(
        run[order][starts],
        node[order][starts],
        life[order][starts],
        np.diff(np.append(starts, len(order))),
        reduced(np.minimum, _values(table.column("step"))[order], starts),
        reduced(np.add, (event[order] == UNKNOWN).astype(np.int64), starts),
    )


# --- columns to numbers ------------------------------------------------------------------------


def _values(column: pa.ChunkedArray) -> Numbers:
    """A column of numbers, `NULL` where there is none."""
    if column.null_count:
        column = column.cast(pa.int64()).fill_null(NULL)
    values: Numbers = column.to_numpy()
    return values.astype(np.int64, copy=False)


def _is_null(column: pa.ChunkedArray) -> Numbers:
    if not column.null_count:
        return np.zeros(len(column), bool)
    null: Numbers = column.is_null().to_numpy()
    return null


def _coded(column: pa.ChunkedArray) -> tuple[Numbers, list[str]]:
    """A column of words, as places in a list of them; the last stands for none."""
    whole = column.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], column.type)
    words = [str(word) for word in whole.dictionary.to_pylist()]
    indices: Numbers = whole.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
    return indices, words


def _translated(column: pa.ChunkedArray, codes: Mapping[str, int], otherwise: int) -> Numbers:
    places, words = _coded(column)
    table = np.array([*(codes.get(word, otherwise) for word in words), otherwise], np.int8)
    found: Numbers = table[places]
    return found


def _hashed(column: pa.ChunkedArray) -> Numbers:
    """A number for each word, the same in every file; 0 for none."""
    places, words = _coded(column)
    hashes = [
        int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little", signed=True)
        for word in words
    ]
    found: Numbers = np.array([*hashes, 0], np.int64)[places]
    return found


_ODD = np.uint64(0x9E3779B185EBCA87)
_ODDER = np.uint64(0xC2B2AE3D27D4EB4F)


def _mixed(hashed: Numbers, *columns: Numbers) -> Numbers:
    """Mix numbers into 64-bit hashes, well enough that every bit of each depends on every bit of all."""
    for column in columns:
        hashed = (hashed ^ column.view(np.uint64)) * _ODD
        hashed ^= hashed >> np.uint64(29)
        hashed *= _ODDER
        hashed ^= hashed >> np.uint64(32)
    return hashed


# --- groups ------------------------------------------------------------------------------------


def grouped(*keys: Numbers) -> tuple[Numbers, Numbers]:
    """An order that brings rows with equal keys together, as they lie in each group; and where groups begin.

    Rows of one node come in stretches, so what has to be sorted is mostly one row of each stretch.
    """
    size = len(keys[0])
    if not size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    changes = np.zeros(size, bool)
    changes[0] = True
    for key in keys:
        changes[1:] |= key[1:] != key[:-1]
    stretches = np.flatnonzero(changes)
    codes = np.zeros(len(stretches), np.int64)
    for key in keys:
        _, inverse = np.unique(key[stretches], return_inverse=True)
        codes = codes * (int(inverse.max()) + 1) + inverse
    _, inverse = np.unique(codes, return_inverse=True)
    small = inverse.astype(np.int16) if int(inverse.max()) < 2**15 else inverse
    group = np.repeat(small, np.diff(np.append(stretches, size)))
    order = np.argsort(group, kind="stable")
    held = group[order]
    return order, np.flatnonzero(np.append([True], held[1:] != held[:-1]))


def reduced(function: np.ufunc, values: Numbers, starts: Numbers) -> Numbers:
    """One number for each group."""
    if not len(starts):
        return np.zeros(0, values.dtype)
    found: Numbers = function.reduceat(values, starts)
    return found


@contextmanager
def opened(path: str) -> Iterator[tuple[pq.ParquetFile, Seal | None]]:
    """A file of a trace, its words as places in dictionaries, and its seal."""
    with opened_parquet(Location.of(path), read_dictionary=["run", *_WORDS]) as found:
        yield found
