"""What stands in front of a message: written, found and read; and the runs of messages that have one."""

from __future__ import annotations

import pytest

from ordercast.core.addresses import (
    LOOK,
    MESSAGE,
    Address,
    address,
    address_of,
    groups_part,
    is_withheld_front,
    names_of,
    read_address,
    runs_of,
    withheld,
)
from ordercast.core.fronted import FEWEST, Fronted
from ordercast.core.identity import GROUPS_BETWEEN
from ordercast.core.subjects import subscription

HERE = ("addresses.one", "addresses.two")


def test_an_address_is_found_in_front_of_a_message() -> None:
    found = address(7, HERE)
    assert address_of(found + b"contents") == found
    assert read_address(found) == Address(7, HERE)
    assert names_of(found) == GROUPS_BETWEEN.join(HERE)
    assert groups_part(found + b"contents") == groups_part(address(8, HERE))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        bytes((MESSAGE, 0, 0, 0)),
        bytes((9,)) + address(1, HERE)[1:],
        address(1, HERE)[:-1],
        address(1, HERE)[:7],
        bytes((MESSAGE, 0, 0, 0, 0, 1)),
        bytes((MESSAGE, 0, 0, 0, 0, 0)),
        bytes((MESSAGE, 0, 0, 0, 0, 1, 2, 0xFF, 0xFE)),
        bytes((MESSAGE, 0, 0, 0, 0, 1, 0)),
        address(1, ("addresses.twice",))[:5] + b"\x02" + 2 * address(1, ("addresses.twice",))[6:],
    ],
)
def test_what_is_no_message_has_no_address(payload: bytes) -> None:
    assert address_of(payload) is None
    assert groups_part(payload) == b""


def test_nothing_is_sent_to_a_subscription() -> None:
    with pytest.raises(ValueError, match="name the subject"):
        address(1, [subscription("addresses.*")])


def test_a_message_without_its_contents_is_its_address_alone() -> None:
    front = withheld(address(7, HERE) + b"contents")
    assert is_withheld_front(front)
    assert not is_withheld_front(front + b"contents")
    assert not is_withheld_front(address(7, HERE))
    assert groups_part(front) == groups_part(address(7, HERE))


def test_messages_with_one_address_that_follow_each_other_are_a_run() -> None:
    one, two = address(1, ("addresses.run",)), address(2, ("addresses.run",))
    payloads = [one + b"x"] * (LOOK + 3) + [two + b"x"] * 2 + [b"note", b"note", one]
    assert list(map(len, runs_of(payloads))) == [LOOK + 3, 2, 1, 1, 1]
    assert list(map(len, runs_of(Fronted(one, [b"x"] * FEWEST)))) == [FEWEST]
    assert list(map(len, runs_of(Fronted(b"no address", [b"x"] * 2)))) == [1, 1]
    assert list(runs_of([])) == []
