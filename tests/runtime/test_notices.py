"""What of a status is worth a line in the log."""

from __future__ import annotations

import logging
from typing import Any

from ordercast.core.declared import DropReason
from ordercast.runtime.notices import Notices

DROPS = (
    DropReason("duplicate", "It was here before.", everyday=True),
    DropReason("replayed", "Somebody sent it again."),
)


def status(**changes: Any) -> dict[str, Any]:
    return {"drops": {}, "slow": None, "held_up_by": None, **changes}


def told(notices: Notices, now: float, **changes: Any) -> list[str]:
    return [sentence for _, sentence in notices.look(now, status(**changes))]


def test_a_healthy_node_is_not_talked_about() -> None:
    notices = Notices(0, DROPS)
    for now in range(60):
        assert told(notices, now, drops={"duplicate": now}) == []


def test_drops_are_summed_up_at_most_every_ten_seconds() -> None:
    notices = Notices(0, DROPS)
    assert told(notices, 5, drops={"replayed": 3}) == []
    assert told(notices, 10, drops={"replayed": 1005, "duplicate": 9, "bad number": 1}) == [
        "packets not used in the last 10 s: 1 bad number, 1,005 replayed"
    ]
    assert told(notices, 11, drops={"replayed": 1006}) == []
    assert told(notices, 22, drops={"replayed": 1007}) == ["packets not used in the last 12 s: 2 replayed"]
    assert told(notices, 33, drops={"replayed": 1007}) == []


def test_who_is_slow_for_long_is_named_once_and_when_it_is_over() -> None:
    notices = Notices(0, DROPS)
    slow = {"node": 3, "waits_us": 40_000}
    lines = [line for now in range(60) for line in told(notices, now, slow=slow if 10 <= now < 40 else None)]
    assert lines == [
        "node 3 is slow: it keeps the token waiting for 40 ms",
        "node 3 is not slow any more",
    ]


def test_who_is_slow_for_a_moment_or_by_little_is_not() -> None:
    notices = Notices(0, DROPS)
    assert told(notices, 1, slow={"node": 3, "waits_us": 40_000}) == []
    for now in range(2, 20):
        assert told(notices, now, slow={"node": 3, "waits_us": 2_000}) == []


def test_one_slow_node_after_the_other() -> None:
    notices = Notices(0, DROPS)
    lines = [
        line
        for now in range(40)
        for line in told(notices, now, slow={"node": 2 if now < 20 else 4, "waits_us": 40_000})
    ]
    assert lines == [
        "node 2 is slow: it keeps the token waiting for 40 ms",
        "node 2 is not slow any more",
        "node 4 is slow: it keeps the token waiting for 40 ms",
    ]


def test_who_holds_the_group_up_is_a_warning() -> None:
    notices = Notices(0, DROPS)
    found = [notice for now in range(20) for notice in notices.look(now, status(held_up_by=2))]
    assert found == [(logging.WARNING, "the group waits for node 2, which does not keep up")]
    assert told(notices, 30) == []
    assert told(notices, 36) == ["the group does not wait for node 2 any more"]
