"""The states of the membership protocol, and every way from one to another (000 §6.2, Fig. 2)."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The four states (000 §6.2.2)."""

    OPERATIONAL = "operational"
    """Messages are broadcast and delivered."""
    GATHER = "gather"
    """Nodes look for each other and for consensus on a membership."""
    COMMIT = "commit"
    """The Commit token makes its first rotation: all members commit themselves."""
    RECOVERY = "recovery"
    """The old rings' messages are exchanged on the new ring."""


_ABANDON = {
    "token lost": State.GATHER,
    "join heard": State.GATHER,
    "member left": State.GATHER,
    "member gone": State.GATHER,
}
_DEAF = {"failure to receive": State.GATHER}
"""Where the regular token goes round: in Commit it is discarded (Fig. 5), so nobody counts its visits."""

NEXT: dict[State, dict[str, State]] = {
    State.OPERATIONAL: {"started": State.GATHER, "merge": State.GATHER, **_ABANDON, **_DEAF},
    State.GATHER: {
        "news": State.GATHER,
        "no consensus": State.GATHER,
        "no commit token": State.GATHER,
        "member left": State.GATHER,
        "member gone": State.GATHER,
        "consensus": State.COMMIT,
        "commit token": State.COMMIT,
    },
    State.COMMIT: {"commit token returned": State.RECOVERY, **_ABANDON},
    State.RECOVERY: {"recovered": State.OPERATIONAL, **_ABANDON, **_DEAF},
}
"""Which reason leads from which state to which; anything else is a defect."""
