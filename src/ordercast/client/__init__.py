"""A client of a group's nodes: it sends and receives, and is no member.

It speaks the NATS client protocol, to nodes with `clients = "HOST:PORT"` and to nats-servers alike.
"""

from __future__ import annotations

from ordercast.client.api import Client
from ordercast.client.events import Acknowledged, Message
from ordercast.client.subscription import Subscription

__all__ = ["Acknowledged", "Client", "Message", "Subscription"]
