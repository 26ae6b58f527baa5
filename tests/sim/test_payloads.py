from __future__ import annotations

import pytest

from ordercast.core.identity import Batch, ConfigurationId, Guarantee, MessageId
from ordercast.sim.payloads import AcceptedPayloads, Corruption, payload


def delivered(number: int, *payloads: bytes, origin: int = 1) -> Batch:
    return Batch(ConfigurationId(1, 1), 1, 0, origin, 0, number, Guarantee.AGREED, payloads)


@pytest.mark.parametrize("size", [0, 1, 8, 16, 17, 1000, 70_000, 300_000])
def test_payloads_have_their_size_and_differ_where_that_is_possible(size: int) -> None:
    made = [payload(origin, life, count, size) for origin in (1, 2) for life in (0, 1) for count in (0, 1)]
    assert {len(data) for data in made} == {size}
    assert len(set(made)) == (1 if size == 0 else 2 if size <= 8 else 8)


def test_payloads_are_the_same_every_time() -> None:
    assert payload(3, 1, 7, 5000) == payload(3, 1, 7, 5000)


def test_what_was_submitted_may_be_delivered() -> None:
    ledger = AcceptedPayloads()
    assert ledger.accept(1, 0, 5, [b"five", b"six", b"seven"]) is None
    assert ledger.check(delivered(6, b"six")) is None
    assert ledger.check(delivered(5, b"five", b"six", b"seven")) is None


@pytest.mark.parametrize(
    ("batch", "number", "what"),
    [
        (delivered(5, b"five", b"sax"), 6, "contents differ from byte 1 on"),
        (delivered(5, b"fiv"), 5, "3 bytes, submitted were 4"),
        (delivered(7, b"seven"), 7, "never submitted"),
        (delivered(5, b"five", origin=2), 5, "never submitted"),
    ],
)
def test_a_damaged_delivery_is_noticed(batch: Batch, number: int, what: str) -> None:
    ledger = AcceptedPayloads()
    ledger.accept(1, 0, 5, [b"five", b"six"])
    found = ledger.check(batch)
    assert found is not None
    assert found[0] == number
    assert what in found[1]


def test_exchanged_halves_of_a_large_message_are_noticed() -> None:
    ledger = AcceptedPayloads()
    data = payload(1, 0, 0, 65_536 * 4)
    ledger.accept(1, 0, 0, [data])
    half = len(data) // 2
    middle = len(data) // 4
    swapped = data[:middle] + data[half : half + middle] + data[middle:half] + data[half + middle :]
    assert ledger.check(delivered(0, swapped)) is not None


def test_a_number_given_twice_is_noticed() -> None:
    ledger = AcceptedPayloads()
    ledger.accept(1, 0, 0, [b"a", b"b"])
    assert ledger.accept(1, 0, 1, [b"c"]) == "number 1 was accepted twice"


def test_only_so_much_is_remembered_and_the_rest_goes_unchecked() -> None:
    ledger = AcceptedPayloads(remembered_bytes=10)
    for number in range(5):
        ledger.accept(1, 0, number, [b"%d" % number * 4])
    assert ledger.check(delivered(0, b"anything")) is None
    assert ledger.check(delivered(4, b"4444")) is None
    assert ledger.check(delivered(2, b"?", b"3333")) is None
    assert ledger.check(delivered(2, b"?", b"33")) is not None
    assert ledger.check(delivered(5, b"5555")) is not None


def test_a_corruption_tells_what_happened() -> None:
    text = str(Corruption(7, 2, MessageId(1, 0, 3), "it was never submitted"))
    assert text == "at 7 µs node 2 delivered message 3 of node 1 (life 0): it was never submitted"
