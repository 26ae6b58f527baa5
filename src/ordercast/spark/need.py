"""Spark is an extra: who needs it and has it not is told how to get it."""

from __future__ import annotations

from importlib.util import find_spec

from ordercast.errors import SparkProblem

PARTS = ("pyspark", "pandas", "pyarrow")


def has_spark() -> bool:
    """Whether the extra is installed."""
    return not _missing()


def need_spark() -> None:
    """Raise `SparkProblem` if the extra is not installed."""
    missing = _missing()
    if missing:
        raise SparkProblem(
            f"this runs on Spark, and {' and '.join(missing)} cannot be found: "
            "pip install 'ordercast[spark]' brings all that is needed, Java included."
        )


def _missing() -> list[str]:
    return [name for name in PARTS if find_spec(name) is None]
