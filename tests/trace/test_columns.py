"""The names of a row's fields are those of the schema's columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ordercast.trace import columns
from ordercast.trace.schema import COLUMNS


def test_every_column_behind_the_run_has_its_place_and_no_other_name_has_one() -> None:
    places = {name: value for name, value in vars(columns).items() if name.isupper()}
    assert places == {name.upper(): place for place, name in enumerate(list(COLUMNS)[1:])}


def test_groups_of_columns_are_those_that_their_names_say() -> None:
    names = list(COLUMNS)[1:]
    row: Any = tuple(names)
    groups: dict[Callable[[Any], Any], str] = {
        columns.life_of: "node incarnation",
        columns.configuration_of: "config_seq config_rep",
        columns.kind_and_configuration_of: "config_seq config_rep config_kind",
        columns.message_of: "origin origin_incarnation number",
        columns.origin_configuration_of: "origin_config_seq origin_config_rep",
        columns.place_of: "seq slot",
        columns.birth_of: "timestamp ring",
        columns.facts_of: " ".join(names[columns.ORIGIN : columns.GROUP]),
    }
    for pick, expected in groups.items():
        assert pick(row) == tuple(expected.split())
