"""Sessions of callers that outlive their node: what they ask for again, anywhere, is carried out once."""

from __future__ import annotations

from collections import Counter
from contextvars import Context, ContextVar, Token, copy_context
from hashlib import blake2b
from types import TracebackType
from typing import Self

from ordercast.errors import ConfigProblem

LONGEST = 1_024
"""Characters of a session's name."""
_current: ContextVar[Session | None] = ContextVar("ordercast session", default=None)


class Session:
    """Commands that are called within it are carried out once, however often and wherever they are repeated.

    ``with ordercast.Session("order 4711"): await accounts.transfer("a", "b", 5)`` may raise, since the node
    has ended, or nobody answers; the same lines at another node, or in another process, then give the result
    of the first time if the transfer was carried out, and carry it out if it was not. A command is the same
    if its name and its arguments are; the second of two equal ones within a ``with`` is the second one again
    when they are repeated.

    What was answered is remembered by the object itself, at all nodes: for the sessions that were used last,
    10,000 of them and 64 MiB of results at most, and up to 8,192 commands of each. So take a name for what is
    to be done, not for who does it, and repeat it soon.
    """

    def __init__(self, name: str) -> None:
        """`name`: of what is to be done, the same wherever it is repeated, and of nothing else."""
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST:
            raise ConfigProblem(
                f"the name of a session is a text of 1 to {LONGEST:,} characters, not {name!r:.80}: take one "
                "for what is to be done, as in Session('order 4711')"
            )
        self.name = name
        self.number = _digest(name.encode(), b"")
        """Identifies the session among all of an object."""
        self._counts: Counter[bytes] = Counter()
        self._tokens: list[Token[Session | None]] = []

    def number_of(self, shape: str, arguments: bytes) -> int:
        """The number of a command that is called now: its own, of this session."""
        call = len(shape).to_bytes(4) + shape.encode() + arguments
        self._counts[call] += 1
        return _digest(call, self._counts[call].to_bytes(8))

    def __enter__(self) -> Self:
        if not self._tokens:
            self._counts.clear()
        self._tokens.append(_current.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._tokens.pop())


def current() -> Session | None:
    """The session within which a command is called now."""
    return _current.get()


def outside() -> Context:
    """The running context, but within no session: for what the library itself does in a task of its own."""
    context = copy_context()
    context.run(_current.set, None)
    return context


def _digest(what: bytes, salt: bytes) -> int:
    return int.from_bytes(blake2b(what, digest_size=8, salt=salt).digest()) >> 2
