"""The ordered log and Spark: read as a stream or a table, written to, each row once, and followed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ordercast.replicated.replicated import Replicated


def replica(log: DataFrame, make: Callable[[], Replicated]) -> DataFrame:
    """Objects in Spark that follow replicated ones: one for each group of a stream of the log in which a
    history is told (``history=`` of `ordercast.Node.replicate`).

    `make` makes an object as those at the nodes were made, as in ``replica(log, Accounts)``. The rows have
    the ``group``; the ``position`` of what was carried out last (`Replicated.position`), and its ``time``;
    and either a ``fingerprint`` that was taken there (`Replicated.fingerprint`), or, at the end of a batch,
    the ``state``: its fields in JSON.
    """
    from ordercast.streaming.following import follow

    return follow(log, make)
