"""One validated object of settings; what is wrong is said with what to do instead."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ordercast.viewsync.config import GroupConfig


def config(name: str, value: Any) -> GroupConfig:
    return GroupConfig(**{name: value})


def test_the_defaults_are_right() -> None:
    right = GroupConfig()
    assert right.heartbeat_us < right.aggressive_us < right.conservative_us


@pytest.mark.parametrize("name", ["window", "heartbeat_us", "max_members"])
@pytest.mark.parametrize("value", [0, -1])
def test_what_has_to_be_positive_is(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"^{name} is {value}: give it a positive number$"):
        config(name, value)


@pytest.mark.parametrize("name", ["resilience", "keep_bytes"])
def test_some_may_be_nought(name: str) -> None:
    assert getattr(config(name, 0), name) == 0
    with pytest.raises(ValueError, match=f"^{name} is -1: give it a positive number$"):
        config(name, -1)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"heartbeat_us": 60_000},
            "heartbeat_us (60000) must be smaller than aggressive_us (60000): a heart",
        ),
        (
            {"aggressive_us": 200_000},
            "aggressive_us (200000) must be smaller than conservative_us (200000): ",
        ),
        (
            {"change_us": 50_000},
            "change_us (50000) must be smaller than round_us (40000): what a coordinator",
        ),
        (
            {"send_queue": 1_000},
            "max_message_size (16777216) must be smaller than send_queue (1000): the lar",
        ),
    ],
)
def test_what_belongs_together_fits_together(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(text)):
        GroupConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"packet_size": 255}, "packet_size is 255: choose between 256 and 65507"),
        ({"packet_size": 70_000}, "packet_size is 70000: choose between 256 and 65507"),
        ({"resilience": 8}, "resilience is 8: choose between 0 and 7"),
        ({"max_requests": 1025}, "max_requests is 1025: choose between 1 and 1024"),
        ({"max_members": 1025}, "max_members is 1025: choose between 1 and 1024"),
    ],
)
def test_what_has_bounds_keeps_to_them(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        GroupConfig(**settings)
