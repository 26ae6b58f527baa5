"""The ordered log: what a node delivered, durable, in the one order, to be read by range at any replica."""

from ordercast.errors import Damaged, LogError, NotThere, NotYet, SplitAway, Trimmed, Unreachable
from ordercast.log.blocks import LOG_SCHEMA
from ordercast.log.position import Position
from ordercast.log.replica import Replica
from ordercast.log.selection import Selection
from ordercast.log.view import Bounds

__all__ = [
    "LOG_SCHEMA",
    "Bounds",
    "Damaged",
    "LogError",
    "NotThere",
    "NotYet",
    "Position",
    "Replica",
    "Selection",
    "SplitAway",
    "Trimmed",
    "Unreachable",
]
