"""The configuration: defaults that hold together, and mistakes answered with what to do."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise

import msgspec
import pytest
from totem_parts import data

from ordercast.core.identity import ConfigurationId
from ordercast.core.packing import LENGTH_SIZE
from ordercast.core.wire import MAX_PACKET
from ordercast.totem import config as module
from ordercast.totem.config import TotemConfig
from ordercast.totem.packets import MAX_MEMBERS, MAX_REQUESTS, encode_recovered

FIELDS = TotemConfig.__struct_fields__
MAY_BE_ZERO = {
    "round_trip_us",
    *(
        "hold_us",
        "long_hold_us",
        "consensus_member_us",
        "accelerated_window",
        "eager_requests",
        "packing",
        "forming_loss_us",
    ),
}


def configured(**values: int) -> TotemConfig:
    return TotemConfig(**values)  # type: ignore[arg-type]


def test_every_field_says_what_it_is_for() -> None:
    (body,) = (
        node.body
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef) and node.name == "TotemConfig"
    )
    explained = set()
    for field, below in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
            and len(below.value.value.split()) > 3
        ):
            explained.add(field.target.id)
    assert explained == set(FIELDS)


def test_the_defaults_hold_together_and_are_not_changed_by_accident() -> None:
    made = TotemConfig()
    with pytest.raises(AttributeError, match="immutable"):
        made.join_us = 1  # type: ignore[misc]
    assert made == TotemConfig()


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in MAY_BE_ZERO])
def test_a_field_that_must_be_positive_says_so(name: str) -> None:
    for value in (0, -1):
        with pytest.raises(ValueError, match=rf"^{name} is {value}: give it a positive number"):
            configured(**{name: value})


@pytest.mark.parametrize("name", sorted(MAY_BE_ZERO))
def test_zero_turns_off_what_can_be_turned_off(name: str) -> None:
    assert getattr(configured(**{name: 0}), name) == 0
    with pytest.raises(ValueError, match=f"^{name} is -1: "):
        configured(**{name: -1})


@pytest.mark.parametrize(
    ("small", "large", "why"),
    [
        ("token_retransmission_us", "token_loss_us", "sent again before the ring is given up"),
        ("join_us", "consensus_us", "repeated before its sender is regarded as failed"),
        ("hold_us", "token_retransmission_us", "must not look like a lost one"),
        ("max_message_size", "send_queue", "has to fit into the queue"),
    ],
)
def test_one_bound_within_another(small: str, large: str, why: str) -> None:
    """000 §6.2.2: the Join timeout is shorter than the Consensus timeout; and so for the others."""
    bound = getattr(TotemConfig(), large)
    assert getattr(configured(**{small: bound - 1}), small) == bound - 1
    for value in (bound, bound + 1):
        with pytest.raises(ValueError, match=rf"^{small} \({value}\) must be smaller than {large} .*{why}"):
            configured(**{small: value})


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("packet_size", 256, MAX_PACKET), ("max_requests", 1, MAX_REQUESTS), ("max_members", 1, MAX_MEMBERS)],
)
def test_what_the_wire_can_carry_is_a_limit(name: str, low: int, high: int) -> None:
    for value in (low, high):
        assert getattr(configured(**{name: value}), name) == value
    for value in {low - 1, high + 1} - {0}:
        with pytest.raises(ValueError, match=f"^{name} is {value}: choose between {low} and {high}$"):
            configured(**{name: value})


def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="token_los_us"):
        msgspec.convert({"token_los_us": 1}, TotemConfig)
    with pytest.raises(TypeError, match="token_los_us"):
        configured(token_los_us=1)


def test_a_mistake_in_a_file_is_told_in_the_same_words() -> None:
    with pytest.raises(msgspec.ValidationError, match="a held token must not look like a lost one"):
        msgspec.json.decode(b'{"hold_us": 50000}', type=TotemConfig)


def test_a_stranger_counts_as_heard_for_three_announcements() -> None:
    assert TotemConfig(announce_us=7).heard_us == 21


@pytest.mark.parametrize(
    ("max_members", "window_size", "most"), [(10, 128, 10), (128, 16, 16), (16, 16, 16), (1, 1, 1)]
)
def test_no_ring_has_more_members_than_its_window_has_packets(
    max_members: int, window_size: int, most: int
) -> None:
    """Every member has one packet of the window for itself, or the last ones would never send."""
    assert TotemConfig(max_members=max_members, window_size=window_size).ring_limit == most


@pytest.mark.parametrize("packet_size", [256, 1400, MAX_PACKET])
def test_a_full_packet_in_the_envelope_of_a_recovery_is_just_packet_size(packet_size: int) -> None:
    """000 §7.2: an old ring's message is encapsulated; it must not outgrow the network for that."""
    space = TotemConfig(packet_size=packet_size).chunk_space
    full = data(1, bytes(space - LENGTH_SIZE))
    assert len(encode_recovered(ConfigurationId(8, 1), 1, 1, full).raw) == packet_size
