"""ordercast: the same messages, in the same order, at every member of a group."""

from ordercast.core.identity import Configuration, ConfigurationId, Ended, Kind, MessageId
from ordercast.errors import (
    AddressProblem,
    ConfigProblem,
    DuplicateNode,
    Evicted,
    Excluded,
    KeyProblem,
    MessageTooLarge,
    NodeClosed,
    OrdercastError,
    OtherProtocol,
    SendTimeout,
    StorageProblem,
)
from ordercast.groups.api import Group, Node, Receipt
from ordercast.groups.events import ConfigurationChange, Delivery, Message, Rejoined
from ordercast.keys import Keyring
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.config import load as load_config

__version__ = "0.1.0"

__all__ = [
    "AddressProblem",
    "ConfigProblem",
    "Configuration",
    "ConfigurationChange",
    "ConfigurationId",
    "Delivery",
    "DuplicateNode",
    "Ended",
    "Evicted",
    "Excluded",
    "Group",
    "KeyProblem",
    "Keyring",
    "Kind",
    "Message",
    "MessageId",
    "MessageTooLarge",
    "Node",
    "NodeClosed",
    "NodeConfig",
    "OrdercastError",
    "OtherProtocol",
    "Receipt",
    "Rejoined",
    "SendTimeout",
    "StorageProblem",
    "load_config",
]
