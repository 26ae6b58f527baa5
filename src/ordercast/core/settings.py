"""How the settings of a protocol are checked: each by itself, and those that have to fit each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec


def check_settings(
    settings: msgspec.Struct,
    may_be_zero: Collection[str],
    order: Iterable[tuple[str, str, str]],
    ranges: Iterable[tuple[str, int, int]],
) -> None:
    """Raise `ValueError`, with what to change, unless all settings are right.

    Each number is positive, or zero where it `may_be_zero`. Of each pair in `order` the first is smaller than
    the second, for the reason that stands third. Each of `ranges` is between its least and its most.
    """
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if isinstance(value, int | float) and value < (0 if name in may_be_zero else 1):
            raise ValueError(f"{name} is {value}: give it a positive number")
    for small, large, why in order:
        if getattr(settings, small) >= getattr(settings, large):
            raise ValueError(
                f"{small} ({getattr(settings, small)}) must be smaller than {large} "
                f"({getattr(settings, large)}): {why}"
            )
    for name, low, high in ranges:
        if not low <= getattr(settings, name) <= high:
            raise ValueError(f"{name} is {getattr(settings, name)}: choose between {low} and {high}")


def check_choices(kind: type[msgspec.Struct], given: Mapping[str, object]) -> None:
    """Raise `ValueError`, with the choices, for a given setting that is none of the words it may be."""
    for name, hint in get_type_hints(kind).items():
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        if choices and name in given and given[name] not in choices:
            *most, last = map(str, choices)
            raise ValueError(f"{name} is {given[name]!r}: choose {', '.join(most)} or {last}")


def setting_of(text: str) -> object:
    """A setting as people write it in a line: ``true`` and ``false`` as truth values, ``[1,2]`` as a list.

    Other values stay text, and are converted to what the setting is.
    """
    if text.startswith("["):
        try:
            found: object = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise ValueError(f"{text!r}: write a list as [1,2,3], without blanks") from error
        return found
    return {"true": True, "false": False}.get(text, text)
