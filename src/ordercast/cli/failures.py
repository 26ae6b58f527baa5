"""Files that cannot be read or written, and Spark that fails: told in a sentence, whichever command it was.

A verdict is exit code 0 or 1; whatever keeps a command from giving one is another code, and never 1.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from ordercast.errors import OrdercastError

_SPARK = ("pyspark", "py4j")
_PYTHON_ERROR = re.compile(r"^\s*(?:\w+\.)*(\w+): (\S.*)$", re.MULTILINE)
"""The last line of a traceback, wherever it stands in what Spark says."""
_LONGEST = 500
"""Letters of Spark's own words that are repeated."""


@contextmanager
def telling() -> Iterator[None]:
    """Ends the command with a sentence where something outside of ordercast fails; a defect is raised."""
    try:
        yield
    except BrokenPipeError:
        from ordercast.cli.screen import Code

        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads any more
        raise typer.Exit(Code.OK) from None
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        from ordercast.cli.screen import STDERR, Code
        from ordercast.sim.process_pool import WorkerDied

        sentence = sentence_of(error)
        if sentence is None:
            raise
        STDERR.print("[bold red]error:[/]", end=" ")
        STDERR.print(sentence, soft_wrap=True, markup=False)
        code = Code.BROKEN if isinstance(error, WorkerDied) else Code.USAGE
        raise typer.Exit(code) from error


def sentence_of(error: Exception) -> str | None:
    """What went wrong, and what to do; None if it is a defect of ordercast."""
    from ordercast.extras import missing_of
    from ordercast.sim.process_pool import WorkerDied
    from ordercast.trace.schema import TraceError

    if isinstance(error, OrdercastError | TraceError | WorkerDied):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        missing = missing_of(error, "this command", "lab")
        return None if missing is None else str(missing)
    if isinstance(error, OSError):
        return _of_system(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory: end other programs, or use a larger machine"
    if isinstance(error, UnicodeDecodeError):
        return f"a file that was read holds text that is none ({error}): it is damaged; get it anew"
    origin = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    if origin & set(_SPARK):
        return f"Spark failed: {_gist(str(error))}"
    if "pyarrow" in origin:
        return (
            f"a file cannot be read or written as Parquet ({_gist(str(error))}): it is damaged; get it anew"
        )
    return None


def _of_system(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    what = error.strerror or str(error) or type(error).__name__
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}{what}: make room on the disk, and run it again"
    if isinstance(error, ConnectionError) and "pyspark" in sys.modules:
        return f"Spark has ended ({what}): see whether its master still runs, and run it again"
    return f"{where}{what}: see that it is there, and may be read and written"


def _gist(text: str) -> str:
    """The sentence that matters in what Spark says: of a task's Python, the last line; else the first."""
    _, _, trace = text.partition("Traceback (most recent call last)")
    of_python = [match.group(0).strip() for match in _PYTHON_ERROR.finditer(trace.partition("\n\tat ")[0])]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = of_python[-1] if of_python else lines[0] if lines else "it does not say why"
    found = re.sub(r"^(?:\w+\.)+(?=\w+: )", "", found)
    return found if len(found) <= _LONGEST else f"{found[:_LONGEST]} …"
