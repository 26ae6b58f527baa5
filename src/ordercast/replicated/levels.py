"""What has to be on disk before a command is carried out, and so before it is answered."""

from __future__ import annotations

from enum import Enum

from ordercast.errors import ConfigProblem


class Level(Enum):
    """What the answer of a command promises."""

    MEMORY = "memory"
    """All replicas that are here have it: it is lost if all of them end at once."""
    DISK = "disk"
    """It is on this node's disk, too."""
    MAJORITY_DISK = "majority-disk"
    """It is on the disks of a majority of the voters: nothing is lost if all nodes end at once, and less than
    half of the disks never come back."""


def level_of(name: str | None, *, durable: bool) -> Level:
    """The level of this name; left out, the strongest that the node has. Raises what is wrong with it."""
    if name is None:
        return Level.MAJORITY_DISK if durable else Level.MEMORY
    try:
        level = Level(name)
    except ValueError:
        names = ", ".join(each.value for each in Level)
        raise ConfigProblem(f"level is {name!r}: choose one of {names}") from None
    if level is Level.DISK and not durable:
        raise ConfigProblem(
            "level is 'disk', and nothing of the object is on this node's disk: give `durable`, a directory"
        )
    return level
