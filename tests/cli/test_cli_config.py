from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_parts import ordercast, process

from ordercast.groups.api import Node
from ordercast.protocols import PROTOCOLS
from ordercast.runtime.config import NodeConfig, load
from ordercast.totem.config import TotemConfig


def test_the_printed_file_explains_everything_and_changes_nothing(tmp_path: Path) -> None:
    said = process("config")
    assert (said.code, said.err) == (0, "")
    file = tmp_path / "ring.toml"
    file.write_text(said.out)
    assert load(file) == NodeConfig()
    assert ordercast("config", "--check", file).code == 0
    for name in (*NodeConfig.__struct_fields__, *TotemConfig.__struct_fields__):
        assert name == "protocol_settings" or f"\n#{name} = " in said.out


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


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_defaults_that_are_told_are_those_that_a_node_uses(protocol: str) -> None:
    async def used() -> Any:
        async with Node(protocol=protocol, listen="127.0.0.1:0") as node:
            member: Any = node._member
            machine = member.driver.machine
            return msgspec.to_builtins(machine.config)

    told = ordercast("config", "--json").document["protocols"][protocol]
    assert {field["name"]: field["default"] for field in told} == asyncio.run(used())


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
        ('protocol = "paxos"', "[paxos]: no protocol 'paxos'; there are totem"),
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
