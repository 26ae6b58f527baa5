"""Filters of a query over a table, as far as whole blocks of a log can be left out because of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from ordercast.core.identity import GROUPS_BETWEEN
from ordercast.log import Selection

_GROUP = (("group",), ("topic",))
_TIME = ("timestamp",)
_CONFIGURATION = ("position", "configuration")
_OF_MESSAGES = ("sender", "group", "key", "payload", "timestamp", "topic", "value")
"""Columns that a change of the configuration does not have."""


def narrowed(selected: Selection, filters: Iterable[Filter]) -> Selection:
    """What is left of a selection when filters hold, or more."""
    for each in filters:
        selected = _narrowed(selected, each)
    return selected


def _narrowed(selected: Selection, given: Filter) -> Selection:
    if isinstance(given, IsNotNull) and given.attribute[0] in _OF_MESSAGES:
        return _with(selected, changes=False)
    if isinstance(given, EqualTo | In) and given.attribute in _GROUP:
        values = [given.value] if isinstance(given, EqualTo) else list(given.value)
        names = [name for value in values for name in str(value).split(GROUPS_BETWEEN)]
        wanted = tuple(name for name in dict.fromkeys(names) if selected.wants(name))
        return _with(selected, names=wanted, patterns=(), changes=False)
    if isinstance(given, EqualTo) and given.attribute == ("kind",) and given.value == "message":
        return _with(selected, changes=False)
    if not isinstance(given, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return selected
    if given.attribute == _TIME and isinstance(given.value, datetime):
        return _with(selected, changes=False, sent_us=_between(selected.sent_us, given, _us(given.value)))
    if given.attribute == _CONFIGURATION and isinstance(given.value, int):
        return _with(selected, configurations=_between(selected.configurations, given, given.value))
    return selected


def _between(
    bounds: tuple[int, int],
    given: EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual,
    value: int,
) -> tuple[int, int]:
    """Bounds, and within them what a comparison with a value lets through."""
    first, last = bounds
    if not isinstance(given, LessThan | LessThanOrEqual):
        first = max(first, value)
    if not isinstance(given, GreaterThan | GreaterThanOrEqual):
        last = min(last, value)
    return first, last


def _us(time: datetime) -> int:
    since = (time if time.tzinfo else time.astimezone(UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return round(since.total_seconds() * 1_000_000)


def _with(selected: Selection, **changed: Any) -> Selection:
    told = {name: getattr(selected, name) for name in selected.__struct_fields__}
    return Selection(**{**told, **changed})
