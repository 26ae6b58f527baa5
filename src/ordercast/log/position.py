"""Where an entry stands in the total order: the same at every replica that holds it."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from ordercast.core.identity import MAX_NODE_ID, ConfigurationId

_PACKED = struct.Struct(">QIQI")
_WRITTEN = re.compile(r"(\d{1,19})\.(\d{1,10})/(\d{1,19})/(\d{1,10})")
_MOST, _MOST_SLOT = 2**63 - 1, 2**31 - 1


class Position(NamedTuple):
    """The configuration in which an entry was delivered, the packet's number in it, the place in the packet.

    Along a replica's history positions rise: configurations are numbered upwards, a transitional one between
    its neighbours. A configuration change is an entry, too, at number 0 of the configuration that begins.
    """

    config_seq: int
    config_rep: int
    seq: int
    slot: int

    def __str__(self) -> str:
        return f"{self.config_seq}.{self.config_rep}/{self.seq}/{self.slot}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """``8.1/17/0``: number and representative of the configuration, number of the packet, slot."""
        match = _WRITTEN.fullmatch(text.strip())
        numbers = tuple(map(int, match.groups())) if match is not None else None
        if numbers is None or any(
            number > most
            for number, most in zip(numbers, (_MOST, MAX_NODE_ID, _MOST, _MOST_SLOT), strict=True)
        ):
            raise ValueError(
                f"{text!r} is no position in the total order: write configuration, packet and slot, as in "
                "8.1/17/0; `ordercast log` shows them"
            )
        return cls(*numbers)

    @classmethod
    def beginning(cls, configuration: ConfigurationId) -> Position:
        """Where the change to a configuration stands."""
        return cls(configuration.seq, configuration.rep, 0, 0)

    @property
    def configuration(self) -> ConfigurationId:
        """The configuration that the entry was delivered in."""
        return ConfigurationId(self.config_seq, self.config_rep)

    @property
    def packed(self) -> bytes:
        """Bytes that sort as positions do."""
        return _PACKED.pack(*self)

    @classmethod
    def unpacked(cls, data: bytes) -> Position:
        """The position that was `packed`."""
        return cls(*_PACKED.unpack(data))
