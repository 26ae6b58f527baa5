"""The states of the layer above the rings."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a node stands."""

    OPERATIONAL = "operational"
    """A component configuration is installed: messages are sent, forwarded and delivered."""
    FORMING = "forming"
    """The topology has changed, or may have: not all nodes of it have reported yet."""
    RECOVERING = "recovering"
    """All have reported: they share what is left of the configurations before."""
