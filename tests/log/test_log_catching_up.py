"""A node that was away gets what its log missed from the others; what cannot be had is a gap, and told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from log_parts import delivered, installed, rows, store, told, transitional
from test_log_nodes import group, node, place, run, stop

from ordercast.errors import NotThere
from ordercast.keys import generate
from ordercast.log import Replica, catching_up
from ordercast.log.catching_up import catch_up
from ordercast.log.feed import Feed
from ordercast.log.store import Delivered, Installed

MISSED: list[Delivered | Installed] = [
    *(delivered(seq, f"missed {seq}", head=b"beside" if seq == 4 else None) for seq in range(3, 9)),
    transitional("10.1", 1, 3),
    installed("12.1", 1, 3),
    delivered(1, "in the next"),
    transitional("14.1", 1, 3),
    installed("16.1", 1, 2, 3),
    delivered(1, "together"),
]
BEFORE: list[Delivered | Installed] = [
    installed("8.1", 1, 2, 3, first=True),
    delivered(1, "a"),
    delivered(2, "b"),
]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catching_up, "PATIENCE_S", 0.3)


def written(path: Path, number: int, *parts: Sequence[Delivered | Installed]) -> Path:
    log = store(path / str(number), number)
    for part in parts:
        log.append(part)
    log.close()
    return path / str(number)


def returned(
    path: Path,
    others: Sequence[Path],
    entries: Sequence[Delivered | Installed],
    stop: Callable[[], bool] = lambda: False,
) -> list[str]:
    """The node of a log comes back and delivers this; what could not be had, and why."""
    found: list[str] = []

    async def main() -> None:
        log = store(path, 2)

        def missed(first: object, full: Callable[[], bool]) -> bool:
            found.extend(catch_up(log, first, lambda: [(str(each), None) for each in others], stop))  # type: ignore[arg-type]
            return not found

        last = next(each for each in reversed(entries) if isinstance(each, Installed))
        final = (last.configuration.id, 99)
        feed = Feed(
            log, lambda: final, lambda: None, lambda problem: pytest.fail(str(problem)), lambda: 1, missed
        )
        feed.start()
        for entry in entries:
            if isinstance(entry, Installed):
                feed.install(entry.configuration)
            else:
                feed.deliver(entry.batch)
        await feed.kept()
        await feed.close()

    asyncio.run(main())
    return found


BACK: list[Delivered | Installed] = [
    installed("4.2", 2),
    transitional("14.2", 2),
    installed("16.1", 1, 2, 3),
    delivered(1, "together"),
]


def test_it_has_afterwards_what_the_others_have(tmp_path: Path) -> None:
    other, mine = written(tmp_path, 1, BEFORE, MISSED), written(tmp_path, 2, BEFORE)
    assert returned(mine, [tmp_path / "nowhere", mine, other], BACK) == []
    with Replica(str(mine)) as one, Replica(str(other)) as two:
        assert str(one.bounds().since) == "8.1/0/0", "there is no gap"
        its = [rows(each, "8.1/0/0", "16.1/1/0") for each in (one, two)]
        for each in its:
            for row in each:
                del row["time_us"]
        assert its[0] == its[1]
        assert told(its[0])[5:] == [
            "8.1/6/0 missed 6",
            "8.1/7/0 missed 7",
            "8.1/8/0 missed 8",
            "10.1/0/0 transitional",
            "12.1/0/0 regular",
            "12.1/1/0 in the next",
            "14.1/0/0 transitional",
            "16.1/0/0 regular",
            "16.1/1/0 together",
        ]


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        (
            (installed("8.1", 1, 2, 3, first=True), delivered(1, "a"), installed("10.1", 1, 3), *MISSED[-2:]),
            "split away",
        ),
        ((installed("16.1", 1, 2, 3, first=True), delivered(1, "together")), "not"),
        ((*BEFORE, *MISSED[:-2]), "not"),
    ],
    ids=["who was on the other side", "who was away as well", "who is not that far"],
)
def test_who_has_it_not_says_so_and_there_is_a_gap(
    tmp_path: Path, entries: Sequence[Delivered | Installed], why: str
) -> None:
    other, mine = written(tmp_path, 1, entries), written(tmp_path, 2, BEFORE)
    (reason,) = returned(mine, [other], BACK)
    assert why in reason
    with Replica(str(mine)) as one:
        assert told(rows(one, "16.1/0/0", "16.1/1/0")) == ["16.1/1/0 together"]
        with pytest.raises(NotThere):
            rows(one, "8.1/2/0", "16.1/1/0")


def test_a_part_is_kept_where_the_rest_cannot_wait(tmp_path: Path) -> None:
    other, mine = written(tmp_path, 1, BEFORE, MISSED), written(tmp_path, 2, BEFORE)
    (reason,) = returned(mine, [other], BACK, stop=lambda: True)
    assert "more comes" in reason
    with Replica(str(mine)) as one:
        assert "8.1/8/0 missed 8" in told(rows(one, "8.1/0/0", "8.1/8/0"))
        with pytest.raises(NotThere):
            rows(one, "8.1/8/0", "16.1/0/0")
    reopened = store(mine, 2)
    assert reopened.head is not None
    reopened.close()


def test_who_delivers_alone_does_not_wait_for_others(tmp_path: Path) -> None:
    mine = written(tmp_path, 2, BEFORE)
    assert returned(mine, [], [installed("10.2", 2), delivered(1, "alone")]) == []
    with Replica(str(mine)) as one:
        assert told(rows(one, "10.2/0/0", "10.2/1/0")) == ["10.2/1/0 alone"]


@pytest.mark.parametrize("protocol", ["totem", "total"])
def test_a_node_that_was_restarted_can_serve_what_it_missed(tmp_path: Path, protocol: str) -> None:
    async def test() -> None:
        key = generate() if protocol == "total" else None
        one, two, three = await group(tmp_path, 3, protocol=protocol, key=key)
        sending = await one.join("orders", receive=False)
        await sending.send(b"before", safe=True)
        addresses = [each.status()["log"]["address"] for each in (one, three)]
        with Replica(addresses[0], key) as other:
            start = await place(other, b"before")
        with Replica(two.status()["log"]["address"], key) as mine:
            assert await place(mine, b"before") == start
        await two.stop()
        await sending.send_many([b"missed %d" % number for number in range(1000)])
        again = node(tmp_path, 2, [one], protocol=protocol, key=key, log_repair=addresses)
        await again.start()
        await again.wait_for(3)
        await sending.send(b"after", safe=True)
        with Replica(again.status()["log"]["address"], key) as mine, Replica(addresses[0], key) as other:
            end = await place(other, b"after")
            assert await place(mine, b"after") == end
            its = [await asyncio.to_thread(rows, each, str(start), str(end)) for each in (mine, other)]
            assert told(its[0]) == told(its[1])
            assert len(its[0]) > 1000
        await stop(one, again, three)

    run(test)
