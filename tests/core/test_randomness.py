"""The randomness of machines: reproducible, within bounds, and different for different seeds."""

from __future__ import annotations

from collections import Counter

import pytest

from ordercast.core.randomness import RandomStream


def test_the_numbers_are_those_of_splitmix64() -> None:
    """The first numbers of seed 1234567, as the generator's authors publish them."""
    stream = RandomStream(1234567)
    assert [stream.bits(64) for _ in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_a_seed_gives_the_same_numbers_again_and_another_seed_others() -> None:
    def some(seed: int) -> list[int]:
        stream = RandomStream(seed)
        return [stream.between(0, 10**9) for _ in range(8)]

    assert some(7) == some(7)
    assert len({number for seed in range(100) for number in some(seed)}) > 790


@pytest.mark.parametrize("count", [1, 7, 24, 64])
def test_bits_are_as_many_as_asked_for(count: int) -> None:
    stream = RandomStream(3)
    drawn = [stream.bits(count) for _ in range(2_000)]
    assert 0 <= min(drawn) <= max(drawn) < 2**count
    assert max(drawn) >= 2 ** (count - 1)


def test_each_number_between_the_bounds_is_as_likely() -> None:
    stream = RandomStream(11)
    drawn = Counter(stream.between(-3, 6) for _ in range(10_000))
    assert sorted(drawn) == list(range(-3, 7))
    assert all(850 < count < 1_150 for count in drawn.values()), drawn


def test_a_spread_delay_stays_near_it_and_keeps_its_mean() -> None:
    stream = RandomStream(5)
    drawn = [stream.spread(1_000) for _ in range(4_000)]
    assert 750 <= min(drawn) < 800
    assert 1_200 < max(drawn) <= 1_250
    assert abs(sum(drawn) / len(drawn) - 1_000) < 10
    assert [stream.spread(us) for us in (0, 1, 3)] == [0, 1, 3]
