"""The configuration explained, from the docstrings below its fields."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import NamedTuple

import msgspec

from ordercast.runtime.config import EXAMPLES, NodeConfig, toml_value

HEAD = """Configuration of a node of ordercast. Every field is here with its meaning and its default, as a
comment: this file changes nothing as it is. Uncomment what you want to change. Defaults of the protocol's
settings are those of a node on this machine: windows and packet_size follow from mtu, and from the
socket_buffer that the system grants."""


class Explained(NamedTuple):
    """A field, for people."""

    name: str
    default: object
    example: object
    """What could be written where the default is nothing."""
    meaning: str


def explain(defaults: msgspec.Struct) -> list[Explained]:
    """The fields of a struct of settings in their order, with the docstrings below them in its source.

    Each default is the field's value in ``defaults``: what a node uses need not be what the struct has.
    """
    meanings = _docstrings(type(defaults))
    examples = EXAMPLES if isinstance(defaults, NodeConfig) else {}
    return [
        Explained(name, getattr(defaults, name), examples.get(name), meanings[name])
        for name in defaults.__struct_fields__
    ]


def _docstrings(cls: type) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


def annotated(protocol: str, settings: msgspec.Struct) -> str:
    """A configuration file with every field, its default and its meaning. As it is, it changes nothing.

    ``settings`` are those that a node of the protocol uses where nothing is set.
    """
    fields = explain(NodeConfig())
    own = next(field for field in fields if field.name == "protocol_settings")
    chosen = protocol != NodeConfig().protocol
    head = HEAD.replace("nothing as it is", "the protocol and nothing else") if chosen else HEAD
    lines = [
        *_comment(head),
        "",
    ]
    for field in fields:
        if field.name == "protocol" and chosen:  # without it the table would not be known
            lines += [*_comment(field.meaning), f"protocol = {toml_value(protocol)}", ""]
        elif field is not own:
            lines += _setting(field)
    lines += [*_comment(own.meaning), f"[{protocol}]", ""]
    for field in explain(settings):
        lines += _setting(field)
    return "\n".join(lines).rstrip("\n") + "\n"


def _setting(field: Explained) -> list[str]:
    unset = field.default is None or field.default == ()
    value = toml_value(field.example if unset else field.default)
    return [
        *_comment(field.meaning),
        f"#{field.name} = {value}{'  # an example: not set' if unset else ''}",
        "",
    ]


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, width=98, initial_indent="# ", subsequent_indent="# ")
