from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from cli_parts import ordercast, process

from ordercast.catalogue import lab_protocol
from ordercast.groups.api import Node
from ordercast.protocols import PROTOCOLS
from ordercast.runtime.config import NodeConfig, load
from ordercast.runtime.config_values import toml_value
from ordercast.runtime.ring_settings import RingSettings
from ordercast.totem.config import TotemConfig


def test_the_printed_file_explains_everything_and_changes_nothing(tmp_path: Path) -> None:
    said = process("config")
    assert (said.code, said.err) == (0, "")
    file = tmp_path / "ring.toml"
    file.write_text(said.out)
    assert load(file) == NodeConfig()
    assert ordercast("config", "--check", file).code == 0
    for name in (*NodeConfig.__struct_fields__, *TotemConfig.__struct_fields__):
        assert name in ("protocol_settings", "ring") or f"\n#{name} = " in said.out


def test_the_rings_of_a_gateway_are_printed_as_an_example(tmp_path: Path) -> None:
    said = ordercast("config", "--protocol", "rings")
    assert load_text(tmp_path, said.out) == NodeConfig(protocol="rings")
    tables = said.out.partition("\n#[[ring]]")
    lines = [line.removeprefix("#") for line in "".join(tables[1:]).split("\n[rings]")[0].splitlines()]
    written = [line for line in lines if line[:1].strip() and not line.startswith("peers")]
    config = load_text(tmp_path, 'protocol = "rings"\n' + "\n".join(written))
    assert [ring.network for ring in config.ring] == [1, 2]
    one, two = config.by_network().values()
    assert (one.listen, two.listen) == ("10.0.1.9:4801", "10.0.2.9:4801")
    assert {name for name in RingSettings.__struct_fields__ if f"\n#{name} = " not in said.out} == set()


def load_text(directory: Path, text: str) -> NodeConfig:
    file = directory / "printed.toml"
    file.write_text(text)
    return load(file)


def test_every_field_as_json() -> None:
    document = ordercast("config", "--json").document
    fields = {field["name"]: field for field in document["fields"]}
    assert list(fields) == [name for name in NodeConfig.__struct_fields__ if name != "protocol_settings"]
    assert fields["mtu"]["default"] == 1500
    assert fields["listen"]["default"] is None
    assert fields["listen"]["example"] == "0.0.0.0:4801"
    assert "brackets" in fields["listen"]["meaning"]
    totem = [field["name"] for field in document["protocols"]["totem"]]
    assert totem == list(TotemConfig.__struct_fields__)


def told(profile: str) -> Any:
    """What `ordercast config` says of a profile: defaults of the node's fields, and of each protocol's."""
    document = ordercast("config", "--profile", profile, "--json").document
    assert document["profile"] == profile

    def defaults(fields: list[dict[str, Any]]) -> dict[str, Any]:
        return {field["name"]: field["default"] for field in fields}

    protocols = {name: defaults(fields) for name, fields in document["protocols"].items()}
    return defaults(document["fields"]), protocols


def in_force(configs: list[NodeConfig]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What real nodes that are told this go by: their configurations, and the settings of their machines."""

    async def used(config: NodeConfig) -> Any:
        async with Node(config=config.with_changes(listen="127.0.0.1:0")) as node:
            member: Any = node._member
            return [
                json.loads(msgspec.json.encode(each, enc_hook=str))
                for each in (member.config, member.driver.machine.config)
            ]

    async def all_at_once() -> Any:
        return await asyncio.gather(*map(used, configs))

    return asyncio.run(all_at_once())


@pytest.mark.parametrize("profile", ["auto", "lan", "wan"])
def test_the_defaults_that_are_told_are_those_that_a_node_uses(profile: str) -> None:
    fields, protocols = told(profile)
    assert set(protocols) == set(PROTOCOLS)
    found = in_force([NodeConfig(protocol=name).with_changes(profile=profile) for name in protocols])
    for (protocol, expected), (config, settings) in zip(protocols.items(), found, strict=True):
        assert settings == expected
        given = {"protocol": protocol, "profile": profile, "listen": "127.0.0.1:0"}
        assert {name: config[name] for name in fields} == {**fields, **given}


def other_value(make: type[msgspec.Struct], settings: dict[str, Any], name: str) -> Any:
    """One that a setting may have beside the others."""
    value = settings[name]
    if isinstance(value, list):
        return [each + 1 for each in value]
    if isinstance(value, str):  # of a few words
        return next(word for word in get_args(get_type_hints(make)[name]) if word != value)
    for other in (not value,) if isinstance(value, bool) else (value + 1, value - 1):
        with suppress(ValueError):
            make(**{**settings, name: other})
            return other
    raise AssertionError(f"no other value of {name} is right")


@pytest.mark.parametrize("profile", ["lan", "wan"])
def test_every_setting_of_a_file_is_in_force(tmp_path: Path, profile: str) -> None:
    """Each is given another value than the one that `ordercast config` tells."""
    _, protocols = told(profile)
    configs = []
    for protocol, settings in protocols.items():
        printed = ordercast("config", "--protocol", protocol, "--profile", profile).out
        for name, value in list(settings.items()):
            if name == "founders":
                continue  # a node alone would wait for the others
            settings[name] = other_value(PROTOCOLS[protocol].settings, settings, name)
            line = f"#{name} = {toml_value(value)}\n"
            assert printed.count(line) == 1
            printed = printed.replace(line, f"{name} = {toml_value(settings[name])}\n")
        file = tmp_path / f"{protocol}.toml"
        file.write_text(printed)
        checked = ordercast("config", "--check", file, "--json").document
        assert (checked["problem"], checked["config"]["profile"]) == (None, profile)
        assert checked["config"]["protocol_settings"] == settings
        configs.append(load(file))
    for (protocol, expected), (config, settings) in zip(protocols.items(), in_force(configs), strict=True):
        assert (config["protocol"], config["profile"], settings) == (protocol, profile, expected)


def test_the_defaults_of_simulated_nodes_are_those_that_the_simulator_uses() -> None:
    fields, protocols = told("sim")
    assert fields == {}
    for protocol, expected in protocols.items():
        machine: Any = lab_protocol(protocol).make({})(1)
        assert json.loads(msgspec.json.encode(machine.config)) == expected
    printed = ordercast("config", "--profile", "sim").out
    assert "sim run --set" in printed
    assert "#token_loss_us = 200_000\n" in printed


def test_a_profile_that_is_none_is_told_those_there_are(tmp_path: Path) -> None:
    said = ordercast("config", "--profile", "moon")
    assert said.code == 2
    assert 'write "auto", "lan" or "wan"' in said.sentence
    file = tmp_path / "ring.toml"
    file.write_text("")
    assert ordercast("config", "--check", file, "--profile", "wan").code == 0
    assert ordercast("config", "--check", file, "--profile", "moon").code == 1


def test_a_right_file_is_right(tmp_path: Path) -> None:
    file = tmp_path / "ring.toml"
    file.write_text('id = 3\ndata = "state"\n[totem]\ntoken_loss_us = 300_000\n')
    said = ordercast("config", "--check", file)
    assert said.code == 0
    assert "ring.toml is right" in said.out.replace("\n", "")
    document = ordercast("config", "--check", file, "--json").document
    assert (document["ok"], document["problem"]) == (True, None)
    assert document["config"]["data"] == str(tmp_path / "state")
    settings = document["config"]["protocol_settings"]
    assert settings["token_loss_us"] == 300_000
    assert set(settings) == set(TotemConfig.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lisen = 1", "there is no field lisen: did you mean listen?"),
        ('listen = "0.0.0.0:4801"', "ordercast keygen"),
        ('protocol = "paxos"', "no protocol 'paxos'; there are totem"),
        (
            "[totem]\nhold_us = 400_000",
            "hold_us (400000) must be smaller than token_retransmission_us (100000)",
        ),
        ("[totem]\npacket_size = 1_000_000", "packet_size is 1000000: choose at most"),
        ("[totem]\nwindow = 5", "window"),
    ],
)
def test_a_wrong_file_is_told_what_is_wrong(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "ring.toml"
    file.write_text(text)
    said = ordercast("config", "--check", file)
    assert said.code == 1
    assert sentence in said.out
    assert said.out.startswith(f"✗ {file}: ")
    document = ordercast("config", "--check", file, "--json").document
    assert document["ok"] is False
    assert document["config"] is None
    assert sentence in document["problem"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    said = ordercast("config", "--check", tmp_path / "ring.toml")
    assert said.code == 1
    assert "cannot be read: No such file" in said.out


def test_a_word_that_is_no_command_is_corrected() -> None:
    said = ordercast("confg")
    assert said.code == 2
    assert "Did you mean 'config'" in said.sentence


def test_a_command_loads_no_more_than_it_needs() -> None:
    code = (
        "import sys\nfrom ordercast.cli import main\n"
        "try: main()\nfinally: assert not {'pyarrow', 'ordercast.cli.run'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, "config"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_how_many_found_a_group_is_not_told_before_the_addresses_are_known(tmp_path: Path) -> None:
    file = tmp_path / "group.toml"
    peers = 'peers = ["127.0.0.1:4801", "127.0.0.1:4802"]\n'
    file.write_text('protocol = "total"\n' + peers)
    assert (
        ordercast("config", "--check", file, "--json").document["config"]["protocol_settings"]["founders"]
        is None
    )
    file.write_text('protocol = "total"\n' + peers + "[total]\nfounders = 2\n")
    assert (
        ordercast("config", "--check", file, "--json").document["config"]["protocol_settings"]["founders"]
        == 2
    )
