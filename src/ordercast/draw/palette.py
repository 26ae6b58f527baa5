"""One colour a configuration, the same on every lane.

The colours are Paul Tol's *light* scheme: told apart with every common colour blindness, and dark text
is readable on all of them; the terminal gets darker ones that show on black and on white. A
configuration of one node is grey, having nobody to agree with; a transitional one has the colour of the
regular one whose messages it finishes. Configurations that exist at the same time, or follow each
other, get different colours for as long as the palette lasts.
"""

from __future__ import annotations

from ordercast.core.identity import Configuration
from ordercast.draw.spacetime import Timeline

GREY = 0
"""Index of the colour for configurations of one."""

LIGHT = ("#dddddd", "#77aadd", "#ee8866", "#eedd88", "#44bb99", "#ffaabb", "#99ddff", "#bbcc33", "#c7a6e0")
"""For areas with dark text on them."""

INK = ("#8a8a8a", "#2f86d6", "#d8742c", "#b08d00", "#1fa67a", "#d9608a", "#1aa3b8", "#7f9a1d", "#9a6fd0")
"""For lines and text, on a dark or on a light ground."""


def colours(timeline: Timeline) -> dict[Configuration, int]:
    """The index into `LIGHT` and `INK` for every configuration of the timeline."""
    ends: dict[Configuration, int] = {}
    for lane in timeline.lanes:
        for segment in lane.segments():
            ends[segment.configuration] = max(segment.end_us, ends.get(segment.configuration, 0))
    chosen: dict[Configuration, int] = {}
    used_until = dict.fromkeys(range(1, len(LIGHT)), -1)
    for configuration, finishes in timeline.configurations().items():
        if finishes is not None:
            chosen[configuration] = chosen[finishes]
        elif len(configuration.members) <= 1:
            chosen[configuration] = GREY
        else:
            # The colour free for the longest: a neighbour's only when no other is left.
            index = min(used_until, key=lambda index: (used_until[index], index))
            chosen[configuration] = index
            used_until[index] = max(used_until[index], ends[configuration])
    return chosen
