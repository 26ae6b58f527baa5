"""Rows of a DataFrame as messages: payload, and where there are such columns key, headers and group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from ordercast.core.headers import head_of
from ordercast.errors import ConfigProblem
from ordercast.process_groups.notes import head

_PAYLOAD, _GROUP = ("payload", "value"), ("group", "topic")
_NO_HEAD = head(b"")


class Form(NamedTuple):
    """Which column says what."""

    payload: str
    key: str | None
    headers: str | None
    group: str | None

    @property
    def headed(self) -> bool:
        """Whether something may be said beside messages."""
        return self.key is not None or self.headers is not None

    @classmethod
    def of(cls, schema: StructType) -> Self:
        """The form of these columns; raises what cannot be written."""
        kinds = {field.name: field.dataType for field in schema.fields}
        payload = next((name for name in _PAYLOAD if name in kinds), None)
        group = next((name for name in _GROUP if name in kinds), None)
        key, headers = ("key" if "key" in kinds else None), ("headers" if "headers" in kinds else None)
        known = {name for name in (payload, key, headers, group) if name is not None}
        fits = payload is not None and set(kinds) == known and all(map(_fits, kinds, kinds.values()))
        if not fits or len(schema.fields) != len(known):
            told = ", ".join(f"{name} {kind.simpleString()}" for name, kind in kinds.items())
            raise ConfigProblem(
                "a row is a message, so there is a column, payload (or value), binary or string, and there "
                "may be key, binary or string, headers, array<struct<key string, value binary>> or "
                f"map<string,string>, and group (or topic), string; this has {told}: "
                "select them, as in df.select(to_json(struct('*')).alias('payload'))"
            )
        assert payload is not None
        return cls(payload, key, headers, group)


def _fits(name: str, kind: DataType) -> bool:
    if name in _GROUP:
        return isinstance(kind, StringType)
    if name != "headers":
        return isinstance(kind, BinaryType | StringType)
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    element = kind.elementType if isinstance(kind, ArrayType) else None
    if not isinstance(element, StructType) or element.fieldNames() != ["key", "value"]:
        return False
    return all(isinstance(field.dataType, BinaryType | StringType) for field in element.fields)


def rows_by_group(batch: pa.RecordBatch, form: Form, group: str | None) -> Iterator[tuple[str, list[bytes]]]:
    """The messages of a batch for each group, in order, with their heads where the form has them."""
    messages = _messages(batch, form)
    if group is not None:
        if messages:
            yield group, messages
        return
    assert form.group is not None, "a column says it"
    groups: dict[str, list[bytes]] = {}
    for name, message in zip(_column(batch, form.group, pa.string()), messages, strict=True):
        groups.setdefault(name, []).append(message)
    yield from groups.items()


def _messages(batch: pa.RecordBatch, form: Form) -> list[bytes]:
    payloads: list[bytes] = _column(batch, form.payload, pa.binary())
    if not form.headed:
        return payloads
    nothing: list[Any] = [None] * len(payloads)
    keys = nothing if form.key is None else batch.column(form.key).cast(pa.binary()).to_pylist()
    headers = nothing if form.headers is None else batch.column(form.headers).to_pylist()
    return [_head(*said) + payload for payload, *said in zip(payloads, keys, headers, strict=True)]


def _head(key: bytes | None, headers: list[Any] | None) -> bytes:
    if key is None and not headers:
        return _NO_HEAD
    try:
        words = head_of(None if key is None else key.decode(), _fields(headers))
    except (ValueError, TypeError) as error:
        raise ConfigProblem(f"what a row says beside its message cannot be sent: {error}") from error
    return _NO_HEAD if words is None else head(words)


def _fields(headers: list[Any] | None) -> Mapping[str, str]:
    fields: dict[str, str] = {}
    for each in headers or ():
        name, value = each.values() if isinstance(each, dict) else each
        fields[name] = value.decode() if isinstance(value, bytes) else value
    return fields


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> list[Any]:
    column = batch.column(name)
    if column.null_count:
        raise ConfigProblem(
            f"{column.null_count} rows have no {name}: leave them out, as in df.where('{name} is not null')"
        )
    values: list[Any] = column.cast(kind).to_pylist()
    return values
