"""Nodes and clients for programs without an event loop: the same API, with calls that block.

Each runs on an event loop in a thread of its own. Every method may be called from any thread.
"""

from __future__ import annotations

from ordercast.threads.clients import Client, Subscription
from ordercast.threads.nodes import Group, Node, Receipt

__all__ = ["Client", "Group", "Node", "Receipt", "Subscription"]
