"""What comes of a command: a result, or an exception, as bytes that are the same at every replica."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.errors import CommandFailed, CommandUnknown, Unanswered

if TYPE_CHECKING:
    from ordercast.replicated.command import Form

LOG = logging.getLogger("ordercast")

_RESULT, _FAILED, _UNKNOWN, _FORGOTTEN = (bytes((each,)) for each in range(4))
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, str, list[Any] | None]).decode


NOTHING = _RESULT + _encode(None)
"""The outcome of a command that was carried out and returned None."""


def succeeded(result: object) -> bytes:
    """The outcome of a command with this result, which is encoded at once. Raises what msgspec says of one
    that cannot be."""
    return _RESULT + _encode(result)


def failed(error: Exception) -> bytes:
    """The outcome of a command that raised this exception."""
    kind, text = type(error), _text(error)
    if isinstance(error, CommandFailed):
        try:
            return _FAILED + _encode((_name(kind), text, list(error.args)))
        except (TypeError, ValueError, OverflowError):
            return _FAILED + _encode((_name(kind), text, None))
    LOG.error("a command of a replicated object raised %r, at every replica", error, exc_info=error)
    return _FAILED + _encode(("", f"{kind.__name__}: {text}", None))


def _text(error: Exception) -> str:
    """What an exception says, as it can travel: of one that cannot say it, nothing."""
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except Exception:  # noqa: BLE001 - a mistake in a class of the application, the same at all replicas
        return ""


def unknown(shape: str) -> bytes:
    """The outcome of a command that not all replicas know, so that none carried it out."""
    return _UNKNOWN + shape.encode()


def forgotten() -> bytes:
    """The outcome of a command that may have been carried out, which nobody remembers."""
    return _FORGOTTEN


def result_of(outcome: bytes, form: Form) -> Any:
    """What the caller gets: the result, or the exception, which is raised."""
    kind, inside = outcome[:1], outcome[1:]
    if kind == _RESULT:
        try:
            return form.result(inside)
        except msgspec.ValidationError as error:
            raise CommandFailed(
                f"it was carried out, and its result is not of the type that is annotated: {error}"
            ) from None
    if kind == _FAILED:
        raise _error(*_decode(inside))
    if kind == _UNKNOWN:
        raise CommandUnknown(
            f"not all replicas know the command {inside.decode()}, so none carried it out: upgrade the nodes "
            "that run an earlier version of the class, then call it again"
        )
    raise Unanswered(
        "the command was called long ago, and nobody remembers its result: it may have been carried out; "
        "look "
        "at the state, and call it again if it was not"
    )


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _error(name: str, text: str, args: list[Any] | None) -> CommandFailed:
    kind = next((each for each in _all(CommandFailed) if _name(each) == name), CommandFailed)
    try:
        return kind(text) if args is None else kind(*args)
    except Exception:  # noqa: BLE001 - it cannot be made of its arguments alone
        return CommandFailed(text)


def _all(kind: type[CommandFailed]) -> list[type[CommandFailed]]:
    return [kind, *(each for child in kind.__subclasses__() for each in _all(child))]
