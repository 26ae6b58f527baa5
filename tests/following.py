"""Which files of ordercast a message passes through in a running node, found by watching its bytes.

Every call in the watched thread is noted with the byte strings that go in and come out, directly or within
lists and tuples. A call handles the message if one of them has the message in it. Sealing hides it: so what a
call makes of bytes that have the message in them has it, too, and so has what a call made such bytes of.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import ordercast

SOURCES = str(Path(ordercast.__file__).parent) + "/"


class Call(NamedTuple):
    """A call of a function of ours."""

    file: str
    function: str
    given: tuple[bytes, ...]
    answered: tuple[bytes, ...]


class Following:
    """Follows a message through the calls of this thread."""

    def __init__(self, message: bytes) -> None:
        """`message` must be longer than most of what is sent beside it, and like nothing else."""
        self.calls: list[Call] = []
        """In the order in which they began."""
        self._message = message
        self._open: dict[FrameType, int] = {}

    def __enter__(self) -> Following:
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(SOURCES):
            return
        if event == "call" and frame not in self._open:
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            given = tuple(self._large(frame.f_locals.get(name) for name in names if name != "effects"))
            if code.co_name == "_carry_out":
                given = tuple(self._large([frame.f_locals["effects"]]))
            self._open[frame] = len(self.calls)
            self.calls.append(Call(code.co_filename.removeprefix(SOURCES), code.co_qualname, given, ()))
        elif event == "return" and frame in self._open:
            at = self._open.pop(frame)
            self.calls[at] = self.calls[at]._replace(answered=tuple(self._large([value])))

    def _large(self, values: Any, depth: int = 4) -> Iterator[bytes]:
        """The byte strings in there that are large enough to have the message in them."""
        for value in values:
            if isinstance(value, bytes | bytearray | memoryview):
                if len(value) >= len(self._message):
                    yield bytes(value)
            elif isinstance(value, list | tuple) and depth:
                yield from self._large(value, depth - 1)

    @property
    def handling(self) -> list[Call]:
        """The calls that handle the message, in order."""
        having = [self._message]
        while True:
            found = [call for call in self.calls if _any(having, call.given) or _any(having, call.answered)]
            more = [
                data for call in found for data in (*call.given, *call.answered) if not _any(having, (data,))
            ]
            if not more:
                return found
            having.append(more[0])


def _any(having: list[bytes], several: tuple[bytes, ...]) -> bool:
    return any(part in data or data in part for data in several for part in having)
