"""ordercast: the same messages, in the same order, at every member of a group.

What is named here is loaded when it is first used: who wants the name of an error, or runs a command that
starts no node, does not wait for sockets and cryptography.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ordercast import client, errors, threads
    from ordercast.client.api import Client
    from ordercast.core.identity import Configuration, ConfigurationId, Ended, Kind, MessageId
    from ordercast.errors import (
        AccessDenied,
        AddressProblem,
        ClientClosed,
        CommandFailed,
        CommandUnknown,
        ConfigProblem,
        DuplicateNode,
        Evicted,
        Excluded,
        KeyProblem,
        MessageTooLarge,
        NodeClosed,
        NoMajority,
        NoResponders,
        NotAcknowledged,
        NotConnected,
        NotReplicated,
        OrdercastError,
        OtherProtocol,
        RequestTimeout,
        SendTimeout,
        StorageProblem,
        Unanswered,
    )
    from ordercast.groups.api import Group, Node
    from ordercast.groups.events import (
        ConfigurationChange,
        Delivery,
        Joined,
        Left,
        Message,
        PrimaryLost,
        PrimaryRegained,
        Rejoined,
    )
    from ordercast.groups.receipts import Receipt
    from ordercast.keys import Keyring
    from ordercast.objects.barrier import Barrier, BarrierBroken
    from ordercast.objects.counter import Counter
    from ordercast.objects.election import Election
    from ordercast.objects.holding import Held
    from ordercast.objects.lock import Holder, Lock
    from ordercast.objects.map import Change, Conflict, Entry, Map
    from ordercast.objects.queue import NotInHand, Queue, QueueFull
    from ordercast.objects.set import Set
    from ordercast.process_groups.views import Cause, Member, Process
    from ordercast.replicated.command import CallId, Command, command
    from ordercast.replicated.replicated import Replicated, watch
    from ordercast.replicated.session import Session
    from ordercast.replicated.watching import Missed
    from ordercast.runtime.config import NodeConfig
    from ordercast.runtime.config import load as load_config
    from ordercast.runtime.ring_settings import RingSettings

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "AddressProblem",
    "Barrier",
    "BarrierBroken",
    "CallId",
    "Cause",
    "Change",
    "Client",
    "ClientClosed",
    "Command",
    "CommandFailed",
    "CommandUnknown",
    "ConfigProblem",
    "Configuration",
    "ConfigurationChange",
    "ConfigurationId",
    "Conflict",
    "Counter",
    "Delivery",
    "DuplicateNode",
    "Election",
    "Ended",
    "Entry",
    "Evicted",
    "Excluded",
    "Group",
    "Held",
    "Holder",
    "Joined",
    "KeyProblem",
    "Keyring",
    "Kind",
    "Left",
    "Lock",
    "Map",
    "Member",
    "Message",
    "MessageId",
    "MessageTooLarge",
    "Missed",
    "NoMajority",
    "NoResponders",
    "Node",
    "NodeClosed",
    "NodeConfig",
    "NotAcknowledged",
    "NotConnected",
    "NotInHand",
    "NotReplicated",
    "OrdercastError",
    "OtherProtocol",
    "PrimaryLost",
    "PrimaryRegained",
    "Process",
    "Queue",
    "QueueFull",
    "Receipt",
    "Rejoined",
    "Replicated",
    "RequestTimeout",
    "RingSettings",
    "SendTimeout",
    "Session",
    "Set",
    "StorageProblem",
    "Unanswered",
    "client",
    "command",
    "errors",
    "load_config",
    "threads",
    "watch",
]

_HOMES = {
    "ordercast.core.identity": "Configuration ConfigurationId Ended Kind MessageId",
    "ordercast.client.api": "Client",
    "ordercast.errors": (
        "AccessDenied AddressProblem ClientClosed CommandFailed CommandUnknown ConfigProblem DuplicateNode "
        "Evicted Excluded KeyProblem "
        "MessageTooLarge NoMajority NoResponders NodeClosed NotAcknowledged NotConnected NotReplicated "
        "OrdercastError "
        "OtherProtocol "
        "RequestTimeout SendTimeout StorageProblem Unanswered"
    ),
    "ordercast.groups.api": "Group Node",
    "ordercast.groups.receipts": "Receipt",
    "ordercast.groups.events": (
        "ConfigurationChange Delivery Joined Left Message PrimaryLost PrimaryRegained Rejoined"
    ),
    "ordercast.keys": "Keyring",
    "ordercast.objects.barrier": "Barrier BarrierBroken",
    "ordercast.objects.counter": "Counter",
    "ordercast.objects.election": "Election",
    "ordercast.objects.holding": "Held",
    "ordercast.objects.lock": "Holder Lock",
    "ordercast.objects.map": "Change Conflict Entry Map",
    "ordercast.objects.queue": "NotInHand Queue QueueFull",
    "ordercast.objects.set": "Set",
    "ordercast.process_groups.views": "Cause Member Process",
    "ordercast.replicated.command": "CallId Command command",
    "ordercast.replicated.replicated": "Replicated watch",
    "ordercast.replicated.session": "Session",
    "ordercast.replicated.watching": "Missed",
    "ordercast.runtime.config": "NodeConfig load",
    "ordercast.runtime.ring_settings": "RingSettings",
}
"""Modules, and what comes from each."""
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}
_RENAMED = {"load_config": "load"}


if not TYPE_CHECKING:  # a type checker knows all names, and what is none of them

    def __getattr__(name: str) -> Any:
        """Load what is asked for the first time, and keep it."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        inner = _RENAMED.get(name, name)
        if inner in _HOME:
            globals()[name] = getattr(import_module(_HOME[inner]), inner)
        else:
            import_module(f"{__name__}.{name}")
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
