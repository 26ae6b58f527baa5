"""The configuration explained, from the docstrings below its fields."""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import msgspec

from ordercast.runtime.config import EXAMPLES, NodeConfig
from ordercast.runtime.config_values import toml_value
from ordercast.runtime.ring_settings import EXAMPLES as OF_A_RING
from ordercast.runtime.ring_settings import RINGS, RingSettings

HEAD = """Configuration of a node of ordercast. Every field is here with its meaning and its default, as a
comment: this file changes nothing as it is. Uncomment what you want to change. Defaults of the protocol's
settings are those of a node on this machine: windows and packet_size follow from mtu, and from the
socket_buffer that the system grants."""
SIMULATED = """Settings of simulated nodes, each with its meaning and its default: `ordercast sim run --set
NAME=VALUE` changes one."""


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
    """By field, also of the settings that these are an extension of."""
    base = cls.__base__
    inherited = {} if base is None or base is msgspec.Struct else _docstrings(base)
    definition = _definition(cls)
    found = dict(inherited)
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


def _definition(cls: type) -> ast.ClassDef:
    """A class of a module as it is in the source, which is beside the module where that is compiled."""
    name = cls.__module__.rpartition(".")[2]
    source = Path(sys.modules[cls.__module__].__file__ or "").with_name(f"{name}.py")
    classes = (node for node in ast.parse(source.read_text("utf-8")).body if isinstance(node, ast.ClassDef))
    return next(found for found in classes if found.name == cls.__name__)


def annotated(config: NodeConfig, settings: msgspec.Struct) -> str:
    """A configuration file with every field, its default and its meaning.

    As it is, it changes nothing but the protocol and the profile, if those of ``config`` are not the default
    ones. ``settings`` are those that a node with this configuration uses where nothing is set.
    """
    default = NodeConfig()
    told = [name for name in ("protocol", "profile") if getattr(config, name) != getattr(default, name)]
    head = (
        HEAD.replace("nothing as it is", f"the {' and the '.join(told)} and nothing else") if told else HEAD
    )
    lines = [*_comment(head), ""]
    for field in explain(default):
        if field.name in told:  # the table below is that of this protocol, its defaults are this profile's
            lines += [
                *_comment(field.meaning),
                f"{field.name} = {toml_value(getattr(config, field.name))}",
                "",
            ]
        elif field.name == "protocol_settings":
            own = field
        elif field.name == "ring":
            rings = field
        else:
            lines += _setting(field)
    if config.protocol == RINGS:
        lines += [*_comment(rings.meaning), *_rings()]
    lines += [*_comment(own.meaning), *_table(config.protocol, settings)]
    return "\n".join(lines).rstrip("\n") + "\n"


def annotated_settings(protocol: str, settings: msgspec.Struct) -> str:
    """The settings of simulated nodes of a protocol, with their meanings and defaults."""
    lines = [*_comment(SIMULATED), "", *_table(protocol, settings)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _rings() -> list[str]:
    """The tables of a gateway between two rings, as an example: every field once, with its meaning."""
    lines = ["", "#[[ring]]", ""]
    for field, meaning in _docstrings(RingSettings).items():
        lines += [*_comment(meaning), f"#{field} = {toml_value(OF_A_RING[field])}  # an example", ""]
    other = {"network": 2, "listen": "10.0.2.9:4801", "seeds": ("10.0.2.1:4801",), "key": "ring-2.key"}
    return [*lines, "#[[ring]]", *(f"#{name} = {toml_value(value)}" for name, value in other.items()), ""]


def _table(protocol: str, settings: msgspec.Struct) -> list[str]:
    lines = [f"[{protocol}]", ""]
    for field in explain(settings):
        lines += _setting(field)
    return lines


def _setting(field: Explained) -> list[str]:
    unset = field.default is None or (field.default == () and field.example is not None)
    value = toml_value(field.example if unset else field.default)
    return [
        *_comment(field.meaning),
        f"#{field.name} = {value}{'  # an example: not set' if unset else ''}",
        "",
    ]


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, width=98, initial_indent="# ", subsequent_indent="# ")
