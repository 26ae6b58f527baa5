"""How far a hunt goes: a few representative rounds every day, all of them in a campaign.

A hunt is a test that repeats one check over many seeds, examples or rounds. ``make test`` runs few of them,
enough to see that the hunt itself works; ``make campaign`` sets ``ORDERCAST_CAMPAIGN`` and runs them all. A
hunt is marked with `campaign`, so that a campaign runs hunts and nothing else.
"""

from __future__ import annotations

import os

CAMPAIGN = bool(os.environ.get("ORDERCAST_CAMPAIGN"))
"""Whether this is a campaign."""


def rounds(few: int, campaign: int, variable: str = "") -> int:
    """How many rounds: what the environment says in `variable`, else `few`, or in a campaign `campaign`."""
    told = os.environ.get(variable, "") if variable else ""
    return int(told or (campaign if CAMPAIGN else few))
