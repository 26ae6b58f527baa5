"""A configuration: what is understood, and what is refused with what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.errors import AddressProblem, ConfigProblem
from ordercast.runtime.config import EXAMPLES, NodeConfig, load, parse
from ordercast.runtime.explain import annotated, explain
from ordercast.runtime.ring_settings import RingSettings
from ordercast.totem.config import TotemConfig
from ordercast.transport.address import Place, format_address, is_loopback, parse_address

RING = """
id = 3
data = "state"
seeds = ["10.0.0.1:4801", "ring.example:4801"]
listen = "[::1]:4801"
key = "/etc/ordercast/group.key"
cipher = "chacha20-poly1305"
evict_after = 5
log = "kept"
log_level = "warning"

[totem]
token_loss_us = 300_000
"""


GATEWAY = """
protocol = "rings"
[[ring]]
network = 1
seeds = ["127.0.0.1:4801"]
key = "one.key"
"""


TWO = """
[[ring]]
network = 2
listen = "10.0.1.1:4801"
key = "two.key"
[[ring]]
network = 3
listen = "{}"
key = "two.key"
"""
SAME_GROUP = """
[[ring]]
network = 2
listen = "10.0.1.1:4801"
key = "two.key"
multicast = "239.1.2.3:4803"
[[ring]]
network = 3
listen = "10.0.1.1:4811"
key = "two.key"
multicast = "239.1.2.3:4803"
"""


def test_rings_are_read_and_each_is_a_network_with_a_key_of_its_own(tmp_path: Path) -> None:
    config = parse(
        GATEWAY + '[[ring]]\nnetwork = 7\nlisten = "127.0.0.1:4811"\n[rings]\nforwarding = 9', tmp_path
    )
    assert config.ring == (
        RingSettings(network=1, seeds=("127.0.0.1:4801",), key=tmp_path / "one.key"),
        RingSettings(network=7, listen="127.0.0.1:4811"),
    )
    one, seven = config.by_network().values()
    assert (one.key, one.seeds, one.listen) == (tmp_path / "one.key", ("127.0.0.1:4801",), None)
    assert (seven.key, seven.seeds, seven.listen) == (None, (), "127.0.0.1:4811")
    assert (one.sealed, seven.sealed, config.sealed) == (True, False, False)
    assert seven.protocol_settings == {"forwarding": 9, "networks": (7,)}
    assert list(seven.by_network()) == [7]
    assert list(NodeConfig(protocol="rings").by_network()) == [1]
    assert list(NodeConfig().by_network()) == [0]


def test_a_file_is_read_and_its_relative_paths_are_relative_to_it(tmp_path: Path) -> None:
    file = tmp_path / "ring.toml"
    file.write_text(RING)
    config = load(file)
    assert config == NodeConfig(
        id=3,
        data=tmp_path / "state",
        seeds=("10.0.0.1:4801", "ring.example:4801"),
        listen="[::1]:4801",
        key=Path("/etc/ordercast/group.key"),
        cipher="chacha20-poly1305",
        evict_after=5.0,
        log=tmp_path / "kept",
        log_level="warning",
        protocol_settings={"token_loss_us": 300_000},
    )
    assert config.sealed


def test_python_may_write_what_toml_would() -> None:
    told: dict[str, Any] = {"data": "state", "seeds": ["localhost:1"], "evict_after": 2}
    assert NodeConfig(**told) == NodeConfig(data=Path("state"), seeds=("localhost:1",), evict_after=2.0)


def test_nothing_needs_to_be_told() -> None:
    assert parse("") == NodeConfig()
    assert NodeConfig().datagram_size == 1452


def test_a_changed_configuration_is_checked_again() -> None:
    config = NodeConfig(id=3, seeds=("a:1",))
    assert config.with_changes(seeds=["b:2"], mtu=9000) == NodeConfig(id=3, seeds=("b:2",), mtu=9000)
    with pytest.raises(ConfigProblem, match="id is 0"):
        config.with_changes(id=0)
    with pytest.raises(ConfigProblem, match="no field sedes: did you mean seeds"):
        config.with_changes(sedes=[])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id = [", "this is not TOML: "),
        ('id = "three"', "id is 'three': write a whole number, as in id = 3"),
        ("id = 0", "id is 0: choose at least 1 and at most 2,147,483,647"),
        ("id = true", "id is True: write a whole number"),
        ("mtu = 1500.5", "mtu is 1500.5: write a whole number, as in mtu = 1_500"),
        ("mtu = 100", "mtu is 100: choose at least 576"),
        ("data = 5", 'data is 5: write a path in quotes, as in data = "/var/lib/ordercast"'),
        ('seeds = "a:1"', "seeds is 'a:1': write a list of texts in brackets, as in seeds = [\"10.0.0.1"),
        ("seeds = [4801]", "seeds is [4801]: write a list of texts in brackets"),
        ("insecure = 1", "insecure is 1: write true or false, as in insecure = false"),
        ('cipher = "rot13"', 'cipher is \'rot13\': write "aes-gcm" or "chacha20-poly1305", as in cipher'),
        (
            'log_level = "loud"',
            'log_level is \'loud\': write "debug", "info", "warning" or "error", as in log_level = "info"',
        ),
        ('log = "debug"', "log is 'debug': it is the directory of the ordered log; for how much"),
        ('log = "kept"\nlog_bytes = 5', "log_bytes is 5: choose at least 1,048,576"),
        ('evict_after = "5s"', "evict_after is '5s': write a number of seconds, as in evict_after = 10.0"),
        ("evict_after = 0", "evict_after is 0.0: choose at least 0.1 and no upper limit"),
        ("evict_after = nan", "evict_after is nan: choose at least 0.1"),
        ("seed = []", "there is no field seed: did you mean seeds?"),
        ("colour = 1", "there is no field colour: there are id, data, seeds"),
        ("[tottem]", "there is no table [tottem]: the only table is that of the protocol, [totem]"),
        ("totem = 5", "totem is 5: write a table of settings, which begins [totem]"),
        ("protocol_settings = {}", "there is no field protocol_settings: write the protocol's settings into"),
        ("[totem]\nlisten = 'x'", "listen stands in the table [totem], where it is not known: move it above"),
        ("protocol = 5", "protocol is 5: write a text in quotes"),
        ('seeds = ["a:1"]\npeers = ["b:1"]', "seeds and peers are both given"),
        ("peers = []", "peers is empty"),
        ('seeds = ["10.0.0.1"]', "seeds: '10.0.0.1' is no address: write host and port, as in 10.0.0.1:4801"),
        ('peers = ["a:0"]', "peers has 'a:0': name the port, as in a:4801"),
        ('listen = "0.0.0.0:65535"', "listen has port 65535, but data needs the next port"),
        ('listen = "239.1.2.3:4803"', "listen is '239.1.2.3:4803', a multicast group"),
        (
            'multicast = "10.0.0.1:4803"',
            "multicast is '10.0.0.1:4803': write an address of a multicast group",
        ),
        ('interface = "eth0"', "interface is for multicast, which is not used"),
        ('metrics = "9464"', "metrics: '9464' is no address"),
        (GATEWAY + "[[ring]]\nlisen = 1", "[[ring]] 2: there is no field lisen: did you mean listen?"),
        (GATEWAY + "[[ring]]\nid = 1", "[[ring]] 2: there is no field id: there are network, listen"),
        (GATEWAY + "[[ring]]\nseeds = []", "[[ring]] 2: network is missing: number the rings"),
        (GATEWAY + '[[ring]]\nnetwork = "2"', "[[ring]] 2: network is '2': write a whole number, as in net"),
        (GATEWAY + "[[ring]]\nnetwork = 1", "[[ring]] 2: network is 1, as in another table: each ring has"),
        (GATEWAY + "[[ring]]\nnetwork = 0", "[[ring]] 2: network is 0: number the rings from 1 to 1023"),
        (
            GATEWAY + TWO.format("10.0.1.1:4801"),
            "[[ring]] 3: listen is 10.0.1.1:4801, and [[ring]] 2 has",
        ),
        (
            GATEWAY + TWO.format("10.0.1.1:4802"),
            "each ring takes its port and the next one, so leave",
        ),
        (
            GATEWAY + TWO.format("0.0.0.0:4800"),
            "[[ring]] 3: listen is 0.0.0.0:4800, and [[ring]] 2 has",
        ),
        (
            GATEWAY + SAME_GROUP,
            "[[ring]] 3: multicast is 239.1.2.3:4803, as in [[ring]] 2: each ring has",
        ),
        (GATEWAY + '[[ring]]\nnetwork = 2\nlisten = "x"', "[[ring]] of network 2: listen: 'x' is no address"),
        (GATEWAY + "[rings]\nnetworks = [2]", "networks is [2] in [rings], and the [[ring]] tables have [1]"),
        ('listen = "127.0.0.1:1"\n' + GATEWAY, "listen stands outside of the [[ring]] tables: write it into"),
        ("[[ring]]\nnetwork = 1", "there are [[ring]] tables, and protocol is 'totem', which has one ring"),
        ('protocol = "rings"\n[ring]\nnetwork = 1', "write [[ring]], with two brackets on each side"),
        ('protocol = "rings"\nring = [1]', "[[ring]] 1 is 1: write [[ring]], with two brackets"),
        ('protocol = "rings"\n[rings]\nnetworks = [1, 2]', "needs a table [[ring]] for each of them"),
    ],
)
def test_a_mistake_is_named_with_what_to_write_instead(text: str, sentence: str) -> None:
    with pytest.raises(ConfigProblem) as raised:
        parse(text)
    assert sentence in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigProblem, match=r"ring\.toml cannot be read: No such file"):
        load(tmp_path / "ring.toml")
    (tmp_path / "ring.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigProblem, match="not text in UTF-8"):
        load(tmp_path / "ring.toml")
    (tmp_path / "ring.toml").write_text("id = 0")
    with pytest.raises(ConfigProblem, match=r"ring\.toml: id is 0"):
        load(tmp_path / "ring.toml")


# --- where it listens ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "place"),
    [
        (NodeConfig(), Place("127.0.0.1", 4801, exact=False)),
        (NodeConfig(seeds=("[::1]:4801",)), Place("::1", 4801, exact=False)),
        (NodeConfig(key=Path("k")), Place("0.0.0.0", 4801, exact=False)),
        (NodeConfig(key=Path("k"), seeds=("[fd00::1]:4801",)), Place("::", 4801, exact=False)),
        (NodeConfig(insecure=True), Place("0.0.0.0", 4801, exact=False)),
        (NodeConfig(listen="127.0.0.1:0"), Place("127.0.0.1", 0, exact=True)),
        (NodeConfig(listen="localhost:99"), Place("localhost", 99, exact=True)),
        (NodeConfig(listen="[::]:5000", key=Path("k")), Place("::", 5000, exact=True)),
        (NodeConfig(multicast="239.1.2.3:4803", interface="lo"), Place("127.0.0.1", 4801, exact=False)),
        (NodeConfig(multicast="[ff15::1]:4803", key=Path("k")), Place("::", 4801, exact=False)),
    ],
)
def test_without_a_key_a_node_listens_on_loopback_and_with_one_everywhere(
    config: NodeConfig, place: Place
) -> None:
    assert config.place() == place


def test_a_key_may_come_from_elsewhere_than_a_file() -> None:
    config = NodeConfig(listen="0.0.0.0:4801", seeds=("10.0.0.1:4801",))
    assert config.place(sealed=True) == Place("0.0.0.0", 4801, exact=True)
    with pytest.raises(ConfigProblem, match="ordercast keygen"):
        config.place()


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            NodeConfig(listen="0.0.0.0:4801"),
            r"listen is '0\.0\.0\.0:4801'.*ordercast keygen.*insecure = true",
        ),
        (NodeConfig(listen="[::]:4801"), r"listen is '\[::\]:4801'"),
        (NodeConfig(listen="node1:4801"), r"listen is 'node1:4801'"),
        (NodeConfig(multicast="239.1.2.3:4803"), r"multicast is .*ordercast keygen.*insecure = true"),
        (NodeConfig(seeds=("10.0.0.1:4801",)), r"seeds has '10\.0\.0\.1:4801' on another machine.*keygen"),
        (
            NodeConfig(peers=("10.0.0.1:4801",), listen="127.0.0.1:4801", key=Path("k")),
            r"peers has .* listen on an address that others can reach",
        ),
        (
            NodeConfig(seeds=("[fd00::1]:4801",), listen="0.0.0.0:4801", insecure=True),
            r"listens with IPv4 at 0\.0\.0\.0: write the IPv4 address of that node, or an IPv6 one",
        ),
    ],
)
def test_a_place_that_is_not_safe_or_reaches_nobody_is_refused(config: NodeConfig, sentence: str) -> None:
    with pytest.raises(ConfigProblem, match=sentence):
        config.place()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:4801", ("10.0.0.1", 4801)),
        ("localhost:0", ("localhost", 0)),
        ("node-1.example_2.org:65535", ("node-1.example_2.org", 65535)),
        ("[::1]:4801", ("::1", 4801)),
        ("[fe80::1%eth0]:4801", ("fe80::1%eth0", 4801)),
    ],
)
def test_addresses_are_read_and_written(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address
    assert format_address(*address) == text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "write host and port, as in 10.0.0.1:4801"),
        ("10.0.0.1", "write host and port"),
        (":4801", "write host and port"),
        ("10.0.0.1:", "has no port behind the colon: write a number up to 65535"),
        ("10.0.0.1:port", "has no port behind the colon"),
        ("10.0.0.1:70000", "has no port behind the colon"),
        ("10.0.0.1:-1", "has no port behind the colon"),
        ("10.0.0.1:٣", "has no port behind the colon"),
        ("::1:4801", "write an IPv6 host in brackets and the port behind it, as in [::1]:4801"),
        ("::1", "write an IPv6 host in brackets"),
        ("[::1]", "write an IPv6 host in brackets and the port behind it"),
        ("[::1:4801", "write an IPv6 host in brackets"),
        ("[10.0.0.1]:4801", "'10.0.0.1' is no IPv6 address: brackets are for those alone"),
        ("10.0.0.300:4801", "'10.0.0.300' is no IPv4 address: write four numbers up to 255"),
        ("udp //x:4801", "'udp //x' is no name of a host"),
    ],
)
def test_what_is_no_address_is_told_how_to_become_one(text: str, sentence: str) -> None:
    with pytest.raises(AddressProblem) as raised:
        parse_address(text)
    assert sentence in str(raised.value)


def test_only_what_is_surely_this_machine_is_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost", "lo")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "node1", "eth0")))


# --- explained ----------------------------------------------------------------------------------


def test_every_field_is_explained() -> None:
    for settings in (NodeConfig(), TotemConfig()):
        explained = explain(settings)
        assert [field.name for field in explained] == list(settings.__struct_fields__)
        assert all(len(field.meaning) > 20 for field in explained)


def test_the_explained_file_says_the_defaults() -> None:
    used = TotemConfig(token_loss_us=777_000)
    text = annotated(NodeConfig(), used)
    assert parse(text) == NodeConfig()
    lines = [line.removeprefix("#") if line[1:2].strip() else line for line in text.splitlines()]
    everything = [line for line in lines if not line.endswith("# an example: not set")]
    config = parse("\n".join(everything))
    assert msgspec.convert(config.protocol_settings, TotemConfig) == used
    assert msgspec.structs.replace(config, protocol_settings={}) == NodeConfig()
    assert text.count("# an example: not set") == len(EXAMPLES)
    assert max(map(len, text.splitlines())) < 100


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"voters": (1, 2, 3)}, "no primary partition is asked for"),
        ({"primary": "dynamic-linear", "voters": (1, 2)}, "dynamic-linear is not offered"),
        ({"primary": "most", "voters": (1, 2)}, 'write primary = "majority"'),
        ({"primary": "majority"}, r"voters is \[\]: list the id"),
        ({"primary": "majority", "voters": (1, 2, 2)}, "once, as in voters"),
        ({"primary": "majority", "voters": (0, 1, 2)}, "once, as in voters"),
        (
            {"primary": "majority", "voters": (1, 2, 3), "protocol": "dtp"},
            "has a primary partition of its own",
        ),
    ],
)
def test_a_primary_partition_needs_voters_and_totem(given: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ConfigProblem, match=wrong):
        NodeConfig(**given)


TOGETHER = {
    "interface": ("multicast",),
    "primary": ("voters",),
    "voters": ("primary",),
    "client_user": ("client_password",),
    "client_password": ("client_user",),
    "client_tls_cert": ("client_tls_key",),
    "client_tls_key": ("client_tls_cert",),
    "client_stream": ("log",),
}
"""Fields, and those that have to be told with them."""


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"client_user": "ann"}, "belong together"),
        ({"client_user": "ann", "client_password": "p", "client_token": "t"}, "keep one"),
        ({"client_tls_cert": "a.pem"}, "belong together"),
        ({"client_stream": ("a..b",), "log": "x"}, "write subjects"),
        ({"client_stream": ("a.>",)}, "there is no log"),
        ({"clients": "0.0.0.0:4222"}, "anybody could send"),
        ({"clients": "nowhere"}, "clients"),
        ({"client_advertise": "10.0.0.1"}, "client_advertise"),
        ({"client_connections": 0}, "client_connections"),
    ],
)
def test_what_is_wrong_with_clients_is_told(told: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigProblem, match=words):
        NodeConfig(**told)  # type: ignore[arg-type]
    NodeConfig(clients="0.0.0.0:4222", client_token="t")
    NodeConfig(clients="unix:/tmp/x")


def test_the_examples_are_right() -> None:
    for name, value in EXAMPLES.items():
        more = {other: EXAMPLES[other] for other in TOGETHER.get(name, ())}
        NodeConfig(**{**more, name: value})  # type: ignore[arg-type]
