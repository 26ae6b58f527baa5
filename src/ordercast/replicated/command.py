"""Commands: methods of a replicated object that are carried out at every replica, at one place in the order.

Arguments and results travel as their annotations say (msgspec, MessagePack), and are decoded anew at each
replica: no replica's state shares an object with its caller, or with another replica.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    TypeVar,
    get_type_hints,
    overload,
)

import msgspec

from ordercast.errors import ConfigProblem
from ordercast.process_groups.views import Process

if TYPE_CHECKING:
    from ordercast.replicated.replicated import Replicated

P = ParamSpec("P")
R = TypeVar("R")
Owner = TypeVar("Owner")
_KINDS = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)
encode = msgspec.msgpack.Encoder().encode


def annotations_of(annotated: Any, owner: type, where: str) -> dict[str, Any]:
    """The types that a class, or a method of it, is annotated with.

    Raises `ConfigProblem` if one is not known; `where` names the class or method for people."""
    try:
        return get_type_hints(annotated, localns={owner.__name__: owner}, include_extras=True)
    except NameError as error:
        raise ConfigProblem(
            f"{where} has an annotation that is not known: {error}; define types at the top of a module"
        ) from None


class CallId(NamedTuple):
    """Identifies a command that was called: the same in all histories that have it."""

    caller: Process
    time_us: int
    """When it was sent first, by the caller's clock: no two messages of a caller have the same time."""
    number: int
    """The command's number in its session."""


class Form:
    """How the arguments and the result of a command travel."""

    def __init__(self, where: str, signature: inspect.Signature, hints: Mapping[str, Any]) -> None:
        """`where` names the command for people. Raises what is wrong with its annotations."""
        self._signature = signature
        self._made_of = where, signature, hints
        names = list(signature.parameters)[1:]
        for name in (*names, "return"):
            if name not in hints:
                what = "its result" if name == "return" else f"its argument {name}"
                raise ConfigProblem(
                    f"{where} has no annotation for {what}: give it one, since arguments and results travel "
                    "as "
                    "their types say; a command without a result returns None"
                )
            check_type(where, hints[name])
        self._names = names
        self._argument_decoder = msgspec.msgpack.Decoder(tuple[tuple(hints[name] for name in names)])  # type: ignore[misc]
        self._call_decoder = msgspec.msgpack.Decoder(
            list[tuple[tuple(hints[name] for name in names)]]  # type: ignore[misc]
        )
        self.result = msgspec.msgpack.Decoder(hints["return"]).decode
        """The result that was encoded so."""
        self._positional = sum(
            signature.parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY for name in names
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """For classes of notebooks and scripts, which go to other processes by value."""
        return Form, self._made_of

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Arguments of a call as they travel. Raises `TypeError` if they do not fit, at the caller."""
        if kwargs or not len(args) == self._positional == len(self._names):
            bound = self._signature.bind(None, *args, **kwargs)
            bound.apply_defaults()
            args = tuple(bound.arguments.values())[1:]
        data = encode(args)
        try:
            self._argument_decoder.decode(data)
        except msgspec.ValidationError as error:
            raise TypeError(f"the arguments are not of the types that are annotated: {error}") from None
        return data

    def calls(self, data: msgspec.Raw) -> Sequence[tuple[Any, ...] | Exception]:
        """The arguments of each of some calls (`listed`), or why they are none."""
        try:
            return self._call_decoder.decode(data)  # type: ignore[no-any-return]
        except msgspec.ValidationError:
            return [self._call(each) for each in several(data)]

    def _call(self, data: msgspec.Raw) -> tuple[Any, ...] | Exception:
        try:
            return self._argument_decoder.decode(data)  # type: ignore[no-any-return]
        except msgspec.ValidationError as error:
            return error

    def callee(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A command's function as it is called with its owner and all arguments in a row."""
        count = self._positional
        if count == len(self._names):
            return function
        names = self._names[count:]

        def called(owner: Any, *values: Any) -> Any:
            return function(owner, *values[:count], **dict(zip(names, values[count:], strict=True)))

        return called


def listed(items: Sequence[bytes]) -> msgspec.Raw:
    """A list, in MessagePack, of what is encoded already."""
    return msgspec.Raw(b"\xdd" + len(items).to_bytes(4, "big") + b"".join(items))


def length(items: msgspec.Raw) -> int | None:
    """How many items such a list has; None if it is none."""
    data = bytes(memoryview(items)[:5])
    return int.from_bytes(data[1:], "big") if data[:1] == b"\xdd" and len(data) == 5 else None


several = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
"""The items of a list, as they are encoded."""


def check_type(where: str, kind: Any) -> None:
    """Raise it if values of a type cannot travel."""
    try:
        found = _custom(msgspec.inspect.type_info(kind))
    except Exception as error:  # noqa: BLE001 - msgspec says in many ways that it does not know a type
        raise ConfigProblem(f"{where} uses {kind!r}, which cannot travel: {error}; {_ADVICE}") from None
    if found is not None:
        raise ConfigProblem(f"{where} uses {found!r}, which cannot travel: {_ADVICE}")


_ADVICE = (
    "use numbers, texts, bytes, lists, tuples, dicts, sets, dataclasses, msgspec.Struct and whatever else "
    "msgspec encodes"
)


def _custom(info: Any, depth: int = 0) -> Any:
    """The first type within one that msgspec does not know; None if there is none."""
    if isinstance(info, msgspec.inspect.CustomType):
        return info.cls
    if depth > 20 or not isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
        return None
    for name in getattr(info, "__struct_fields__", ()):
        value = getattr(info, name)
        for each in value if isinstance(value, tuple) else (value,):
            found = _custom(each, depth + 1)
            if found is not None:
                return found
    return None


def _command(function: Callable[..., Any], form: Form | None) -> Command[Any, Any, Any]:
    made = Command[Any, Any, Any](function)
    made._form = form
    return made


class Command(Generic[Owner, P, R]):
    """A method that is called at one replica and carried out at all; see `command`."""

    def __init__(self, function: Callable[Concatenate[Owner, P], R]) -> None:
        self.function = function
        """The plain method: for tests of a class without any node, as in ``Bank.pay.function(bank, 5)``."""
        self.name = function.__name__
        self.shape = f"{self.name}({','.join(list(inspect.signature(function).parameters)[1:])})"
        """Name and arguments: replicas whose commands differ in this do not have the same command."""
        self.__doc__ = function.__doc__
        self._form: Form | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _command, (self.function, self._form)

    def form(self, owner: type) -> Form:
        """How its arguments and its result travel; `owner` is the class that it is found in."""
        if self._form is None:
            function, where = self.function, f"the command {owner.__name__}.{self.name}"
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                raise ConfigProblem(
                    f"{where} is async: a command is carried out at once, the same at all replicas; make it "
                    "a "
                    "plain def, and wait outside of it"
                )
            signature = inspect.signature(function)
            if any(each.kind not in _KINDS for each in signature.parameters.values()):
                raise ConfigProblem(f"{where} has *args or **kwargs: name its arguments")
            self._form = Form(where, signature, annotations_of(function, owner, where))
        return self._form

    @overload
    def __get__(self, instance: None, owner: type) -> Command[Owner, P, R]: ...

    @overload
    def __get__(self, instance: Replicated, owner: type) -> Callable[P, Awaitable[R]]: ...

    def __get__(
        self, instance: Replicated | None, owner: type
    ) -> Command[Owner, P, R] | Callable[P, Awaitable[R]]:
        if instance is None:
            return self
        return partial(instance._call, self)


def command(function: Callable[Concatenate[Owner, P], R]) -> Command[Owner, P, R]:
    """Make a method a command of a `Replicated` class.

    ``await accounts.transfer("a", "b", 5)`` is then carried out at every replica, at one place in the order,
    and answered once with the result that it has here. It is sent when it is called, and calls of one turn of
    the event loop travel together: many that are awaited together (``asyncio.gather``) cost a fraction of as
    many one by one. It may change the state and do nothing else: what it
    does has to follow from its arguments and the state alone, so no clock (`Replicated.now_us` is one), no
    chance, no files, and no iterating over sets, whose order differs from process to process. An exception
    that it raises reaches the caller as `CommandFailed`, and what it had changed by then stays changed, at
    all replicas alike.
    """
    return Command(function)
