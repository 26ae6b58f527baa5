"""What a user expects of a group: its size, its load, its network and its failures.

``ordercast lab run choose`` ranks the protocols by it. It is read from options of the command line, and kept
in the manifest of the experiment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ordercast.lab.grid import GridError
from ordercast.lab.traced_facts import Traced
from ordercast.sim.network import MEASURED, PRESETS, NetworkConfig, preset

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
NODES_NETWORK = "nodes"
"""The network that is assumed where nothing is said of it."""


def seconds_of(text: str) -> float:
    """``90s``, ``15m``, ``1h`` or ``30d`` as seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if match is None or not float(match[1]):
        raise ValueError(f"{text!r} is no time between failures: write 90s, 15m, 1h or 30d")
    return float(match[1]) * _SECONDS[match[2]]


def duration_text(seconds: float) -> str:
    """A duration as `seconds_of` reads it, in the largest unit that it is a whole number of."""
    for unit in ("d", "h", "m"):
        if seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:g}{unit}"
    return f"{seconds:g}s"


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A load, and the conditions under which it has to be carried."""

    nodes: int = 5
    rate: float = 1_000.0
    """Messages per second, of all nodes together."""
    size: int = 200
    """Bytes of a message."""
    loss: float = 0.0
    """Probability that a node does not get a packet."""
    mtbf_s: float = 30 * 86_400.0
    """Mean time between failures of one node, in seconds: how often its process or machine crashes."""
    safe: bool = False
    """Whether messages ask for safe delivery; agreed is measured as well, the ranking goes by this one."""
    network: str = NODES_NETWORK
    """A preset of `ordercast.sim.network`."""
    net: dict[str, int | float] = {}
    """Fields of the network that differ from the preset."""
    like: Traced | None = None
    """A trace whose messages are sent again, and what is estimated of the machine that made it."""

    def __post_init__(self) -> None:
        for name in ("rate", "loss", "mtbf_s"):  # 200 and 200.0 are the same profile
            msgspec.structs.force_setattr(self, name, float(getattr(self, name)))
        if self.nodes < 2:
            raise GridError(f"{self.nodes} node: a group to choose a protocol for has at least 2")
        if not 0 < self.rate <= 10_000_000:
            raise GridError(f"--rate {self.rate:g}: messages per second, above 0 and up to 10,000,000")
        if self.size < 0:
            raise GridError(f"--size {self.size}: a message has 0 bytes or more")
        if not 0 <= self.loss < 1:
            raise GridError(f"--loss {self.loss:g}: the share of packets that are lost, 0.001 for 0.1%")
        try:
            _ = self.network_config
        except ValueError as error:
            raise GridError(str(error)) from error

    @property
    def network_config(self) -> NetworkConfig:
        """The network, with its changes and its loss."""
        return preset(self.network, {**self.net, "loss": self.loss} if self.loss else self.net)

    @property
    def guarantee(self) -> str:
        """What the messages ask for, as a trace has it."""
        return "safe" if self.safe else "agreed"

    @property
    def failures_per_hour(self) -> float:
        """Crashes of any node in an hour."""
        return self.nodes * 3_600 / self.mtbf_s

    @property
    def text(self) -> str:
        """The profile in a sentence, for people."""
        if self.like is not None:
            return f"{self.like.text}; {self._failures}"
        return (
            f"{self.nodes} nodes, {self.rate:,.0f} messages/s of {self.size:,} bytes, {self.guarantee}; "
            f"{100 * self.loss:g}% of the packets are lost; {self._failures}"
        )

    @property
    def _failures(self) -> str:
        return (
            f"a node fails every {duration_text(self.mtbf_s)} on average ({self.failures_per_hour:.3g} "
            "failures an hour in the group)"
        )

    @property
    def words(self) -> list[str]:
        """The options that say this on the command line."""
        usual = Profile()
        if self.like is not None:
            words = ["--like", self.like.path]
            words += [
                word for name, value in self.like.settings.items() for word in ("--set", f"{name}={value}")
            ]
            words += ["--loss", f"{self.loss:g}"] if self.loss else []
            return words + (["--mtbf", duration_text(self.mtbf_s)] if self.mtbf_s != usual.mtbf_s else [])
        words = ["--nodes", str(self.nodes), "--rate", f"{self.rate:g}", "--size", str(self.size)]
        words += ["--loss", f"{self.loss:g}"] if self.loss else []
        words += ["--mtbf", duration_text(self.mtbf_s)] if self.mtbf_s != usual.mtbf_s else []
        words += ["--safe"] if self.safe else []
        words += ["--network", self.network] if self.network != usual.network else []
        return words + [word for name, value in self.net.items() for word in ("--net", f"{name}={value:g}")]


def profile_of(options: Mapping[str, Any]) -> Profile:
    """A profile from what the command line or a manifest says; what is not said is as usual."""
    try:
        return msgspec.convert(dict(options), Profile, strict=False)
    except msgspec.ValidationError as error:
        raise GridError(f"the load profile: {error}") from error


def like_trace(profile: Profile, like: Traced) -> Profile:
    """A profile with the group and the load of a trace, and the failures and the loss of `profile`."""
    return msgspec.structs.replace(
        profile, nodes=like.nodes, rate=like.rate, size=like.size, safe=like.safe, like=like
    )


NETWORKS = tuple(name for name in PRESETS if name != MEASURED)
"""Names of networks that a profile may have."""
