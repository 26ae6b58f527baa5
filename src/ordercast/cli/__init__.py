"""The command line: one module per command, no logic. A module is loaded when its command is used."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ordercast.cli.commands import app

__all__ = ["app", "main"]

CLIENTS = ("send", "listen", "status")
"""Commands that are clients of a node."""
NICENESS = 5
"""The niceness of client commands, by which they give way to nodes on the same machine."""


if not TYPE_CHECKING:  # a type checker knows all names, and what is none of them

    def __getattr__(name: str) -> Any:
        """Load what is asked for the first time."""
        if name != "app":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from ordercast.cli.commands import app

        return app


def main() -> None:
    """The command `ordercast`.

    Clients may be started often, and for a moment: they give way to nodes, which others wait for, and a plain
    `send` loads nothing that it does not need.
    """
    words = sys.argv[1:]
    if words[:1] and words[0] in CLIENTS and "--member" not in words:
        with suppress(OSError):
            os.nice(NICENESS)
        if words[0] == "send":
            from ordercast.cli.quick_send import send

            if send(words[1:]):
                return
    from ordercast.cli.commands import run

    run()
