"""Identities as people read them."""

from __future__ import annotations

from ordercast.core.identity import ConfigurationId


def test_a_configuration_is_written_as_its_number_and_its_representative() -> None:
    """000 §5.1: a ring_id consists of a ring sequence number and the representative's identifier."""
    assert str(ConfigurationId(12, 3)) == "12.3"


def test_configurations_are_ordered_by_number_first() -> None:
    assert ConfigurationId(4, 9) < ConfigurationId(8, 1) < ConfigurationId(8, 2)
