"""A client of a group's nodes: it sends and receives, and is no member.

It speaks the NATS client protocol, to nodes with `clients = "HOST:PORT"` and to nats-servers alike. What is
named here is loaded when it is first used, as in `ordercast`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ordercast.client.api import Client
    from ordercast.client.events import Acknowledged, Message
    from ordercast.client.subscription import Subscription

__all__ = ["Acknowledged", "Client", "Message", "Subscription"]

_WHERE = {"Client": "api", "Acknowledged": "events", "Message": "events", "Subscription": "subscription"}


if not TYPE_CHECKING:  # a type checker knows all names, and what is none of them

    def __getattr__(name: str) -> Any:
        """Load what is asked for the first time."""
        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
