"""Identities as people read them."""

from __future__ import annotations

import pytest

from ordercast.core.identity import HIGHEST_LEVEL, ConfigurationId, Guarantee


def test_a_configuration_is_written_as_its_number_and_its_representative() -> None:
    """000 §5.1: a ring_id consists of a ring sequence number and the representative's identifier."""
    assert str(ConfigurationId(12, 3)) == "12.3"


def test_configurations_are_ordered_by_number_first() -> None:
    assert ConfigurationId(4, 9) < ConfigurationId(8, 1) < ConfigurationId(8, 2)


def test_how_many_members_have_to_have_a_message() -> None:
    assert [Guarantee.AGREED.needed(members) for members in range(1, 7)] == [1, 2, 2, 3, 3, 4]
    assert [Guarantee.SAFE.needed(members) for members in range(1, 7)] == [1, 2, 3, 4, 5, 6]
    assert [Guarantee.of(3).needed(members) for members in range(1, 7)] == [1, 2, 3, 3, 3, 3]


@pytest.mark.parametrize("level", [-1, 0, HIGHEST_LEVEL + 1])
def test_there_is_no_other_level_of_resilience(level: int) -> None:
    with pytest.raises(ValueError, match=f"no level of resilience {level}: choose 1 to 7"):
        Guarantee.of(level)
