"""Which types have values that nothing can change: these can be kept instead of copied.

It is read from annotations, so it holds where values are what the annotations say.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

SCALARS = (
    inspect.NoneType,
    inspect.BoolType,
    inspect.IntType,
    inspect.FloatType,
    inspect.StrType,
    inspect.BytesType,
    inspect.DecimalType,
    inspect.DateTimeType,
    inspect.DateType,
    inspect.TimeType,
    inspect.TimeDeltaType,
    inspect.UUIDType,
    inspect.EnumType,
    inspect.LiteralType,
)
"""Types of values that are one thing, and have no parts."""


def is_immutable(kind: Any) -> bool:
    """Whether values of this type cannot change, nor anything that is in them."""
    return _is(inspect.type_info(kind), set())


def _is(info: inspect.Type, within: set[type]) -> bool:
    """`within`: classes of which it is being found out: a class may have itself as a part."""
    match info:
        case inspect.Metadata(type=inner):
            return _is(inner, within)
        case inspect.UnionType(types=kinds) | inspect.TupleType(item_types=kinds):
            return all(_is(each, within) for each in kinds)
        case inspect.VarTupleType(item_type=item) | inspect.FrozenSetType(item_type=item):
            return _is(item, within)
        case inspect.StructType(cls=cls) | inspect.DataclassType(cls=cls) | inspect.NamedTupleType(cls=cls):
            if cls in within:
                return True
            return _is_frozen(cls) and all(_is(each.type, within | {cls}) for each in info.fields)
    return isinstance(info, SCALARS)


def _is_frozen(cls: type) -> bool:
    """Whether the fields of an object of a class stay as they are."""
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_config__.frozen
    return issubclass(cls, tuple) or getattr(cls, "__dataclass_params__").frozen  # noqa: B009
