"""Right runs, and what can be made wrong in them: one trace with hundreds of runs, most of them broken.

The runs are fuzzed ones of all protocols, with crashes, partitions and restarts in them. A *plant* takes a
run's rows and breaks something at random; which properties that breaks is for the auditors to say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import cast

import pyarrow.parquet as pq

from ordercast.catalogue import LAB_PROTOCOLS, lab_protocol
from ordercast.sim.fuzz import plan, run
from ordercast.trace.schema import ABOUT, ONE_CLOCK, SCHEMA, Row
from ordercast.trace.writer import record_batch

COLUMN = {name: place for place, name in enumerate(SCHEMA.names[1:])}

Plant = Callable[[Random, list[Row]], list[Row] | None]
"""From a run's rows to those of a broken one; None if there is nothing in it to break that way."""

PLANTS: list[Plant] = []


def row_of(*values: object) -> Row:
    """A row, of values whose number and types are right."""
    return cast(Row, values)


def plants(plant: Plant) -> Plant:
    PLANTS.append(plant)
    return plant


def edited(row: Row, **columns: object) -> Row:
    values: list[object] = list(row)
    for name, value in columns.items():
        values[COLUMN[name]] = value
    return row_of(*values)


def of(rows: Sequence[Row], *events: str) -> list[int]:
    """The places of the rows of these events."""
    return [at for at, row in enumerate(rows) if row[4] in events]


def _one(rng: Random, rows: Sequence[Row], *events: str) -> int | None:
    places = of(rows, *events)
    return rng.choice(places) if places else None


def _neighbours(rows: list[Row], distance: int = 1) -> list[tuple[int, int]]:
    """Deliveries of one stay, with the one that many deliveries later."""
    by_stay: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    for at in of(rows, "deliver"):
        by_stay[(*rows[at][:2], *rows[at][5:8])].append(at)
    return [pair for places in by_stay.values() for pair in zip(places, places[distance:], strict=False)]


def _last_of_stays(rows: list[Row]) -> list[int]:
    """The last delivery of each stay."""
    last = {(*rows[at][:2], *rows[at][5:8]): at for at in of(rows, "deliver")}
    return list(last.values())


def _every(rows: list[Row], like: Row, **columns: object) -> list[Row]:
    """Change what every row of a message says."""
    return [edited(row, **columns) if row[9:12] == like[9:12] and row[4] != "submit" else row for row in rows]


# --- deliveries --------------------------------------------------------------------------------


@plants
def swap_deliveries(rng: Random, rows: list[Row]) -> list[Row] | None:
    pairs = _neighbours(rows, rng.choice((1, 1, 2, 5)))
    if not pairs:
        return None
    one, other = rng.choice(pairs)
    first, second = rows[one], rows[other]
    rows[one] = row_of(*first[:9], *second[9:])
    rows[other] = row_of(*second[:9], *first[9:])
    return rows


@plants
def drop_a_delivery(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "deliver")
    return None if at is None else rows[:at] + rows[at + 1 :]


@plants
def drop_the_last_delivery_of_a_stay(rng: Random, rows: list[Row]) -> list[Row] | None:
    places = _last_of_stays(rows)
    if not places:
        return None
    at = rng.choice(places)
    return rows[:at] + rows[at + 1 :]


@plants
def drop_an_own_delivery(rng: Random, rows: list[Row]) -> list[Row] | None:
    own = [at for at in of(rows, "deliver") if rows[at][0] == rows[at][9]]
    at = rng.choice(own) if own else None
    return None if at is None else rows[:at] + rows[at + 1 :]


@plants
def drop_the_last_own_delivery(rng: Random, rows: list[Row]) -> list[Row] | None:
    own = [at for at in _last_of_stays(rows) if rows[at][0] == rows[at][9]]
    at = rng.choice(own) if own else None
    return None if at is None else rows[:at] + rows[at + 1 :]


@plants
def drop_everywhere_but_once(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "deliver")
    if at is None:
        return None
    return [
        row
        for place, row in enumerate(rows)
        if place == at or row[4] != "deliver" or row[9:12] != rows[at][9:12]
    ]


@plants
def deliver_again(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "deliver")
    if at is None:
        return None
    row = rows[at]
    later = [other for other in of(rows, "deliver", "install") if other >= at and rows[other][0] == row[0]]
    where = rows[rng.choice(later)]
    copy = edited(row, step=where[2] + 1, incarnation=where[1])
    copy = edited(copy, config_seq=where[5], config_rep=where[6], config_kind=where[7])
    return [*rows, copy]


@plants
def deliver_in_the_next_configuration(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "deliver")
    if at is None:
        return None
    row = rows[at]
    installs = [other for other in of(rows, "install") if other > at and rows[other][0] == row[0]]
    if not installs:
        return None
    where = rows[installs[0]]
    moved = edited(row, step=where[2] + 1, incarnation=where[1])
    if rng.random() < 0.5:
        moved = edited(moved, config_seq=where[5], config_rep=where[6], config_kind=where[7])
    return [*rows[:at], *rows[at + 1 :], moved]


@plants
def deliver_at_a_stranger(rng: Random, rows: list[Row]) -> list[Row] | None:
    one, other = _one(rng, rows, "deliver"), _one(rng, rows, "deliver", "install")
    if one is None or other is None:
        return None
    where = rows[other]
    copy = row_of(*where[:4], "deliver", *where[5:8], None, *rows[one][9:])
    return [*rows, edited(copy, step=where[2] + 1)]


@plants
def claim_something_else(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "deliver", "originate")
    if at is None:
        return None
    row = rows[at]
    name = rng.choice(
        ("origin", "number", "seq", "slot", "origin_config_seq", "origin_config_rep", "origin_incarnation")
    )
    value = row[COLUMN[name]]
    assert isinstance(value, int | None)
    rows[at] = edited(row, **{name: (value or 0) + rng.choice((1, 1, 7))})
    return rows if value is not None else None


@plants
def claim_another_guarantee(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "deliver", "originate")
    if at is None:
        return None
    rows[at] = edited(rows[at], guarantee="agreed" if rows[at][16] == "safe" else "safe")
    return rows


@plants
def claim_another_size(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "deliver", "originate")
    if at is None:
        return None
    column = rng.choice(("size", "group"))
    rows[at] = edited(rows[at], **{column: 12_345 if column == "size" else "somebody's"})
    return rows


@plants
def say_it_was_in_another_configuration(rng: Random, rows: list[Row]) -> list[Row] | None:
    one, other = _one(rng, rows, "deliver", "originate"), _one(rng, rows, "install")
    if one is None or other is None:
        return None
    seq, rep, kind = rows[other][5:8]
    rows[one] = edited(rows[one], config_seq=seq, config_rep=rep, config_kind=kind)
    return rows


# --- messages, everywhere ----------------------------------------------------------------------


@plants
def safe_and_not_delivered_by_one(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = rng.choice(_last_of_stays(rows)) if of(rows, "deliver") else None
    if at is None:
        return None
    return _every(rows[:at] + rows[at + 1 :], rows[at], guarantee="safe")


@plants
def never_originated(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "originate")
    return None if at is None else rows[:at] + rows[at + 1 :]


@plants
def originated_twice(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "originate")
    if at is None:
        return None
    again = edited(rows[at], step=rows[at][2] + 1)
    if rng.random() < 0.5 and again[14] is not None:
        again = edited(again, seq=again[14] + 1)
    return [*rows, again]


@plants
def originated_by_another(rng: Random, rows: list[Row]) -> list[Row] | None:
    one, other = _one(rng, rows, "originate"), _one(rng, rows, "deliver", "install")
    if one is None or other is None:
        return None
    where = rows[other]
    moved = row_of(*where[:4], "originate", *where[5:8], None, *rows[one][9:])
    return [*rows[:one], *rows[one + 1 :], edited(moved, step=where[2] + 1)]


@plants
def originated_after_what_follows(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "originate")
    if at is None:
        return None
    row = rows[at]
    later = [
        other
        for other in of(rows, "deliver")
        if other > at and rows[other][0] == row[0] and rows[other][5:8] == row[5:8]
    ]
    if not later:
        return None
    where = rows[rng.choice(later[:40])]
    rows[at] = edited(row, step=where[2] + 1)
    return rows


@plants
def two_at_one_place(rng: Random, rows: list[Row]) -> list[Row] | None:
    pairs = _neighbours(rows)
    if not pairs:
        return None
    one, other = rng.choice(pairs)
    return _every(rows, rows[other], seq=rows[one][14], slot=rows[one][15])


@plants
def another_place_everywhere(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "deliver")
    if at is None:
        return None
    return _every(rows, rows[at], seq=(rows[at][14] or 0) + rng.choice((3, 40)))


@plants
def of_another_configuration_everywhere(rng: Random, rows: list[Row]) -> list[Row] | None:
    one, other = _one(rng, rows, "deliver"), _one(rng, rows, "install")
    if one is None or other is None:
        return None
    return _every(rows, rows[one], origin_config_seq=rows[other][5], origin_config_rep=rows[other][6])


@plants
def out_of_nothing(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "deliver")
    if at is None:
        return None
    like = rows[at]
    return [
        *rows,
        *(
            edited(row, step=row[2] + 1, number=(row[11] or 0) + 100_000, slot=(row[15] or 0) + 500)
            for row in rows
            if row[4] == "deliver" and row[9:12] == like[9:12]
        ),
    ]


# --- configurations and lives ------------------------------------------------------------------


@plants
def other_members(rng: Random, rows: list[Row]) -> list[Row] | None:
    installs = of(rows, "install")
    shared = [at for at in installs if sum(rows[at][5:8] == rows[other][5:8] for other in installs) > 1]
    if not shared:
        return None
    at = rng.choice(shared)
    members = set(rows[at][8] or ())
    members ^= {rng.choice((rows[at][0], 99, *members))}
    rows[at] = edited(rows[at], members=tuple(sorted(members)))
    return rows


@plants
def other_members_for_all(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "install")
    if at is None:
        return None
    like = rows[at]
    members = set(like[8] or ())
    members ^= {rng.choice((like[0], 99, *members))}
    return [
        edited(row, members=tuple(sorted(members))) if row[4] == "install" and row[5:8] == like[5:8] else row
        for row in rows
    ]


@plants
def another_kind(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "install")
    if at is None:
        return None
    kind = "regular" if rows[at][7] == "transitional" else "transitional"
    return _renamed(rows, at, rng.random() < 0.5, config_kind=kind)


@plants
def another_identifier(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "install")
    if at is None:
        return None
    number = (rows[at][5] or 0) + rng.choice((-4, -1, 1, 1000))
    return _renamed(rows, at, rng.random() < 0.7, config_seq=number)


def _renamed(rows: list[Row], at: int, with_all_in_it: bool, **columns: object) -> list[Row]:
    like = rows[at]
    return [
        edited(row, **columns)
        if place == at or (with_all_in_it and row[:2] == like[:2] and row[5:8] == like[5:8])
        else row
        for place, row in enumerate(rows)
    ]


@plants
def another_transitional_between(rng: Random, rows: list[Row]) -> list[Row] | None:
    places = [at for at in of(rows, "install") if rows[at][7] == "transitional"]
    if not places:
        return None
    at = rng.choice(places)
    return _renamed(rows, at, True, config_rep=(rows[at][6] or 0) + 50)


@plants
def drop_an_install(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "install")
    return None if at is None else rows[:at] + rows[at + 1 :]


@plants
def install_again(rng: Random, rows: list[Row]) -> list[Row] | None:
    one, other = _one(rng, rows, "install"), _one(rng, rows, "deliver", "install")
    if one is None or other is None:
        return None
    where = rows[other]
    return [*rows, row_of(*where[:2], where[2] + 1, where[3], *rows[one][4:])]


@plants
def a_life_that_ends_unseen(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "crash", "restart", "halt")
    return None if at is None else rows[:at] + rows[at + 1 :]


@plants
def a_node_without_rows(rng: Random, rows: list[Row]) -> list[Row] | None:
    nodes = sorted({row[0] for row in rows})
    node = rng.choice(nodes)
    return [row for row in rows if row[0] != node] if len(nodes) > 1 else None


@plants
def a_crash_in_the_middle(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "deliver")
    if at is None:
        return None
    return [*rows, edited(row_of(*rows[at][:4], "crash", *(None,) * 21), step=rows[at][2] + 1)]


def _changes(rows: list[Row]) -> list[int]:
    """Installs that name what they end."""
    return [at for at in of(rows, "install") if rows[at][20] is not None]


@plants
def ends_elsewhere(rng: Random, rows: list[Row]) -> list[Row] | None:
    places = _changes(rows)
    if not places:
        return None
    at = rng.choice(places)
    column = rng.choice(("ended_config_seq", "ended_config_rep", "ended_place", "ended_place"))
    value = rows[at][COLUMN[column]]
    assert isinstance(value, int)
    rows[at] = edited(rows[at], **{column: value + rng.choice((-1, 1, 1, 9))})
    return rows


@plants
def ends_elsewhere_for_all(rng: Random, rows: list[Row]) -> list[Row] | None:
    places = _changes(rows)
    if not places:
        return None
    like, by = rows[rng.choice(places)], rng.choice((-1, 1, 9))
    return [
        edited(row, ended_place=row[22] + by)
        if row[4] == "install" and row[5:8] == like[5:8] and row[22] is not None
        else row
        for row in rows
    ]


@plants
def ends_nothing(rng: Random, rows: list[Row]) -> list[Row] | None:
    places = _changes(rows)
    if not places:
        return None
    at = rng.choice(places)
    rows[at] = edited(rows[at], ended_config_seq=None, ended_config_rep=None, ended_place=None)
    return rows


@plants
def installs_late(rng: Random, rows: list[Row]) -> list[Row] | None:
    """One of several members installs a configuration after a safe message was delivered in it."""
    first: dict[tuple[object, ...], int] = {}
    for at in of(rows, "deliver"):
        row = rows[at]
        if row[16] == "safe" and row[5:7] == row[12:14]:
            first[row[5:7]] = min(row[3], first.get(row[5:7], row[3]))
    places = [at for at in of(rows, "install") if rows[at][5:7] in first and len(rows[at][8] or ()) > 1]
    if not places:
        return None
    at = rng.choice(places)
    rows[at] = edited(rows[at], time_us=first[rows[at][5:7]] + rng.choice((0, 1, 1_000)))
    return rows


@plants
def another_checksum(rng: Random, rows: list[Row]) -> list[Row] | None:
    at = _one(rng, rows, "deliver", "originate")
    if at is None or rows[at][25] is None:
        return None
    rows[at] = edited(rows[at], checksum=(rows[at][25] or 0) ^ 1)
    return rows


# --- timestamps --------------------------------------------------------------------------------


def _born(rows: list[Row]) -> list[int]:
    """Deliveries with a timestamp."""
    return [at for at in of(rows, "deliver") if rows[at][23] is not None]


@plants
def another_timestamp(rng: Random, rows: list[Row]) -> list[Row] | None:
    """One node, or everybody, says that a message has a higher or a lower timestamp, or another ring."""
    places = _born(rows)
    if not places:
        return None
    row = rows[at := rng.choice(places)]
    later: dict[str, int | None] = {"timestamp": (row[23] or 0) + 1}
    wrong = rng.choice((later, {"timestamp": 1}, {"ring": 9}, {"timestamp": None, "ring": None}))
    if rng.random() < 0.5:
        return _every(rows, row, **wrong)
    rows[at] = edited(row, **wrong)
    return rows


@plants
def a_timestamp_from_before_the_configuration(rng: Random, rows: list[Row]) -> list[Row] | None:
    """The first message of a stay has, at all nodes, a lower timestamp than what was delivered before it."""
    firsts = {(*rows[at][:2], *rows[at][5:8]): at for at in reversed(_born(rows))}
    lives = {rows[at][:2] for at in firsts.values()}
    first_of_life = {life: min(at for at in firsts.values() if rows[at][:2] == life) for life in lives}
    places = sorted(set(firsts.values()) - set(first_of_life.values()))
    return _every(rows, rows[rng.choice(places)], timestamp=1) if places else None


OF_RINGS = (another_timestamp, a_timestamp_from_before_the_configuration)
"""Plants that concern rows of several rings alone."""

# --- traces ------------------------------------------------------------------------------------


def right_runs(
    seeds: Sequence[int], protocols: Sequence[str] = tuple(LAB_PROTOCOLS)
) -> Iterator[tuple[str, str, list[Row]]]:
    """Name, set of promises and rows of fuzzed runs, of some hundred to some thousand rows."""
    for name in protocols:
        which = lab_protocol(name)
        for seed in seeds:
            _, world = run(which, plan(which, seed, (6, 7) if name == "rings" else (3, 5)))
            # Every second step is free, for rows that are put in between.
            rows = [edited(row, step=2 * row[2]) for row in world.rows]
            yield f"{name}-{seed}", which.product.promises, rows


def broken(rng: Random, rows: list[Row], plant: Plant) -> list[Row] | None:
    """The run with that in it, and now and then with one thing more."""
    made = plant(rng, list(rows))
    if made is not None and rng.random() < 0.15:
        made = rng.choice(PLANTS)(rng, list(made)) or made
    return made


def write_runs(directory: Path, runs: Sequence[tuple[str, str, list[Row]]]) -> None:
    """One file for each set of promises, with all its runs."""
    directory.mkdir(parents=True, exist_ok=True)
    for promises in sorted({promises for _, promises, _ in runs}):
        about = {f"{ABOUT}promises": promises, f"{ABOUT}clock": ONE_CLOCK}
        schema = SCHEMA.with_metadata(about)
        with pq.ParquetWriter(directory / f"{promises}.parquet", schema, compression="zstd") as file:
            for name, its, rows in runs:
                if its == promises and rows:
                    file.write_batch(record_batch(name, rows).replace_schema_metadata(schema.metadata))
