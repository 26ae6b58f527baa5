"""Nodes and clients for programs without an event loop: the same API, with calls that block.

Each runs on an event loop in a thread of its own. Every method may be called from any thread.
"""

from __future__ import annotations

from ordercast.threads.clients import Client, Subscription
from ordercast.threads.nodes import Group, Node, Receipt
from ordercast.threads.objects import Election, Held, Lock, Replica

__all__ = [
    "Client",
    "Election",
    "Group",
    "Held",
    "Lock",
    "Node",
    "Receipt",
    "Replica",
    "Subscription",
]
