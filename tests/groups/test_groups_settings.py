"""The settings of a `Node` by name: what the type checker knows is what there is."""

from __future__ import annotations

import inspect
import typing

import pytest

from ordercast import ConfigProblem, Node, threads
from ordercast.groups.settings import MoreSettings, NodeSettings
from ordercast.runtime.config import NodeConfig


def test_every_field_of_a_configuration_can_be_given_by_name_with_its_type() -> None:
    fields = typing.get_type_hints(NodeConfig)
    own = set(inspect.signature(Node).parameters) - {"more"}
    more = typing.get_type_hints(MoreSettings)
    assert set(typing.get_type_hints(NodeSettings)) == own | set(more)
    assert set(fields) - own - {"protocol_settings"} == set(more), "`settings` are the protocol's"
    assert {name: fields[name] for name in more} == more


def test_what_node_and_settings_call_alike_has_the_same_type() -> None:
    from ordercast.groups import api, settings

    known = typing.get_type_hints(api.Node.__init__)
    told = vars(settings.NodeSettings)["__annotations__"]
    for name in set(inspect.signature(Node).parameters) - {"more"}:
        assert typing.get_type_hints(settings.NodeSettings)[name] == known[name], (name, told[name])


def test_an_unknown_setting_is_refused_by_the_type_checker_and_at_run_time() -> None:
    """The type checker complains here if it would not have found the mistake: the comment would be unused."""
    with pytest.raises(ConfigProblem, match="mtuu"):
        Node(mtuu=1400)  # type: ignore[call-arg]
    with pytest.raises(ConfigProblem, match="mtuu"):
        threads.Node(mtuu=1400)  # type: ignore[call-arg]
