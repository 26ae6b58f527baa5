"""How far peers are: what a machine is told of it, and what a log says."""

from __future__ import annotations

from ordercast.runtime.distance import RoundTrip


def test_a_machine_is_told_of_round_trips_that_its_profile_is_not_made_for() -> None:
    near, far = RoundTrip("lan"), RoundTrip("wan")
    assert near.news(15_000, anew=True) is None
    assert near.news(300_000, anew=False) == 300_000
    assert near.news(310_000, anew=False) is None, "nearly what it knows"
    assert near.news(310_000, anew=True) == 310_000, "another machine knows nothing"
    assert near.news(1_000, anew=False) == 0, "near again"
    assert far.news(300_000, anew=True) is None
    assert far.news(600_000, anew=False) == 600_000


def test_where_timeouts_do_not_follow_the_profile_that_fits_is_named() -> None:
    assert 'write profile = "wan" at every node' in RoundTrip("lan", followed=False).advice
    assert "set longer timeouts" in RoundTrip("wan", followed=False).advice
