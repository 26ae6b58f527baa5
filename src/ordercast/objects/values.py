"""Values of ready-made objects as bytes: what is equal has the same bytes, so it can be compared."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from ordercast.replicated.command import check_type

V = TypeVar("V")
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Values(Generic[V]):
    """How values of one type are encoded. The state has bytes, which are decoded where they are read."""

    def __init__(self, where: str, kind: Any) -> None:
        """`where` names the object for people. Raises what is wrong with the type."""
        check_type(f"the values of a {where}", kind)
        self._plain = kind is Any
        self._decode = msgspec.msgpack.Decoder(kind)

    def encode(self, value: V) -> bytes:
        """Raises `TypeError` if it is not of the type."""
        data = _encode(value)
        if self._plain:
            return data
        try:
            return _encode(self._decode.decode(data))  # so that 1 is 1.0 where floats are kept
        except msgspec.ValidationError as error:
            raise TypeError(f"the value is not of the type that the object was made for: {error}") from None

    def decode(self, data: bytes) -> V:
        """Raises `TypeError` if another node has put in what is not of the type."""
        try:
            value: V = self._decode.decode(data)
        except msgspec.ValidationError as error:
            raise TypeError(
                f"another node has put in a value of another type: {error}; make the object for one type "
                "at all nodes"
            ) from None
        return value
