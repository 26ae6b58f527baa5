"""Where in a `Row` each column is, by name: ``row[TIME_US]``; and groups of columns: ``message_of(row)``.

Rows are plain tuples, since a run has millions of them. The names are those of
`ordercast.trace.schema.COLUMNS` behind ``run``, in capitals.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, TypeAlias

from ordercast.trace.schema import Row

NODE: Final = 0
INCARNATION: Final = 1
STEP: Final = 2
TIME_US: Final = 3
EVENT: Final = 4
CONFIG_SEQ: Final = 5
CONFIG_REP: Final = 6
CONFIG_KIND: Final = 7
MEMBERS: Final = 8
ORIGIN: Final = 9
ORIGIN_INCARNATION: Final = 10
NUMBER: Final = 11
ORIGIN_CONFIG_SEQ: Final = 12
ORIGIN_CONFIG_REP: Final = 13
SEQ: Final = 14
SLOT: Final = 15
GUARANTEE: Final = 16
GROUP: Final = 17
SIZE: Final = 18
PACKET: Final = 19
ENDED_CONFIG_SEQ: Final = 20
ENDED_CONFIG_REP: Final = 21
ENDED_PLACE: Final = 22
TIMESTAMP: Final = 23
RING: Final = 24
CHECKSUM: Final = 25

Two: TypeAlias = tuple[int | None, int | None]
Three: TypeAlias = tuple[int | None, int | None, int | None]

life_of: Callable[[Row], tuple[int, int]] = itemgetter(slice(NODE, STEP))
"""The node and its incarnation."""
life_and_step: Callable[[Row], tuple[int, int, int]] = itemgetter(slice(NODE, TIME_US))
"""The same, and the number of the row there: by these, the rows of a run are in order."""
configuration_of: Callable[[Row], Two] = itemgetter(slice(CONFIG_SEQ, CONFIG_KIND))
"""The configuration that the node was in, or installs: number and representative."""
kind_and_configuration_of: Callable[[Row], tuple[int | None, int | None, str | None]] = itemgetter(
    slice(CONFIG_SEQ, MEMBERS)
)
"""The same, with its kind behind it."""
message_of: Callable[[Row], Three] = itemgetter(slice(ORIGIN, ORIGIN_CONFIG_SEQ))
"""The identifier of the message: its origin, that node's incarnation, and the number there."""
origin_configuration_of: Callable[[Row], Two] = itemgetter(slice(ORIGIN_CONFIG_SEQ, SEQ))
"""The configuration that the message was originated in: number and representative."""
place_of: Callable[[Row], Two] = itemgetter(slice(SEQ, GUARANTEE))
"""The message's place in the order of that configuration: sequence number and slot."""
facts_of: Callable[[Row], tuple[Any, ...]] = itemgetter(slice(ORIGIN, GROUP))
"""All that is said of a message, from its origin to its guarantee."""
birth_of: Callable[[Row], Two] = itemgetter(slice(TIMESTAMP, RING + 1))
"""The message's timestamp and source ring, which order it among all others (001)."""
