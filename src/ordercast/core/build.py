"""Which build of ordercast runs: the pure one, or one whose hot modules are compiled (docs/building.md)."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES

from ordercast.core import contract


def build() -> str:
    """The build that runs: "pure" or "compiled"."""
    return "compiled" if contract.__file__.endswith(tuple(EXTENSION_SUFFIXES)) else "pure"
