"""What can go wrong for a user of the library: each message is a sentence that says what to do.

All of them are `OrdercastError`; where Python has a word for the kind of mistake, they are that too.
"""

from __future__ import annotations


class OrdercastError(Exception):
    """Something that the user of a node can do something about."""


class NodeClosed(OrdercastError):
    """The node has ended, or was never started: it takes no more work."""


class DuplicateNode(OrdercastError):
    """Another living node of the group has the same identifier."""


class OtherProtocol(OrdercastError):
    """The group that a node was to join runs another protocol."""


class KeyProblem(OrdercastError):
    """A group key, or the file that holds it, cannot be used as it is."""


class StorageProblem(OrdercastError):
    """The node cannot keep what it must not forget, and stops before it could break uniqueness."""


class SendTimeout(OrdercastError, TimeoutError):
    """A send waited longer than it was allowed to, because the window stayed full."""

    def __init__(self, message: str, holder: int | None = None) -> None:
        super().__init__(message)
        self.holder = holder
        """The node that holds the group up, where it is known."""

    def __reduce__(self) -> tuple[type[SendTimeout], tuple[str, int | None]]:
        return type(self), (str(self), self.holder)


class MessageTooLarge(OrdercastError, ValueError):
    """A payload is longer than the group carries in one message."""


class ConfigProblem(OrdercastError, ValueError):
    """A configuration says something that cannot be, or leaves out something that must be."""


class Evicted(OrdercastError):
    """A group goes on without one of its readers, which left too much unread for too long.

    The reader gets it behind everything that waited when it was dropped. Its node is still a member.
    """

    def __init__(self, message: str, group: str = "", messages: int = 0, bytes: int = 0) -> None:
        super().__init__(message)
        self.group = group
        self.messages = messages
        """How many were unread when the reader was dropped."""
        self.bytes = bytes
        """How much they counted for: their size, and a little for each."""

    def __reduce__(self) -> tuple[type[Evicted], tuple[str, str, int, int]]:
        return type(self), (str(self), self.group, self.messages, self.bytes)


class Excluded(OrdercastError):
    """The group went on without this node, which comes back as another life; what it sent is uncertain."""


class NotConnected(OrdercastError):
    """A client reaches no node, or lost the one it talked to before it was answered."""


class AccessDenied(OrdercastError):
    """A node does not let a client in, or does not let it do what it asked for."""


class ClientClosed(OrdercastError):
    """The client has ended, or was never started: it takes no more work."""


class NoResponders(OrdercastError):
    """Nobody receives in the group that a request was sent to."""


class RequestTimeout(OrdercastError, TimeoutError):
    """A request was not answered in time."""


class NotAcknowledged(OrdercastError):
    """A safe message of a client cannot be acknowledged: no log keeps it, or the log refuses it."""


class NoMajority(OrdercastError):
    """This node is not in the primary partition, the only one that goes on: nothing can be sent from here."""


class NotReplicated(OrdercastError):
    """A command was called on an object that is not replicated, or from within another command."""


class CommandFailed(OrdercastError):
    """A command of a replicated object raised an exception, the same at every replica.

    Derive your own from it: raised in a command, they reach the caller as they are, with their arguments.
    Other exceptions reach it as this one.
    """


class CommandUnknown(OrdercastError):
    """Not all replicas of an object know the command, as while nodes are upgraded: none carried it out."""


class Unanswered(OrdercastError):
    """A command was sent and not answered: it may have been carried out, or may yet be, or not."""


class AddressProblem(OrdercastError):
    """An address is not written as one, is taken, or is not one of this machine's."""


class MissingExtra(OrdercastError):
    """Something needs a package that is installed with an extra of ordercast only."""


class SparkProblem(OrdercastError):
    """Spark cannot be started, or cannot reach its master."""


class LogError(OrdercastError):
    """An ordered log cannot give what was asked of it."""


class Trimmed(LogError):
    """The position lies before what the replica still keeps: retention has taken it away."""


class SplitAway(LogError):
    """The replica's history has no such position: it went another way, in a partition."""


class NotThere(LogError):
    """The replica was not running, or not in the group, when that was delivered."""


class NotYet(LogError):
    """The replica has not come that far: wait, or ask another one."""


class Damaged(LogError):
    """The replica had it, but its files were damaged since: ask another one, and have it repaired."""


class Unreachable(LogError):
    """There is no replica to be asked there, or it does not answer."""
