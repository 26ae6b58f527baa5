"""Packets open once, at those they are for, for those that have the key; nonces never repeat."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator

import pytest
from cryptography.hazmat.primitives.ciphers import aead
from hypothesis import given
from hypothesis import strategies as st

from ordercast.keys import Keyring, generate
from ordercast.transport.seal import (
    GREETING_OVERHEAD,
    OVERHEAD,
    REASONS,
    WINDOW,
    Cipher,
    Opener,
    Port,
    Refused,
    Seal,
    new_session,
)

RING = Keyring((generate(),))
BOTH = pytest.mark.parametrize("cipher", Cipher)
HEADER = struct.Struct(">IQ")

bodies = st.binary(max_size=9000)
channels = st.sampled_from(Port)
ciphers = st.sampled_from(Cipher)


def pair(cipher: Cipher = Cipher.AES_GCM, ring: Keyring = RING) -> tuple[Seal, Opener]:
    """A sender, and what somebody else opens its packets with."""
    sender = Seal(ring, cipher)
    return sender, Seal(ring, cipher).opener(sender.session)


def reason(opening: Callable[..., bytes], *what: object) -> str:
    """Why that is refused."""
    with pytest.raises(Refused) as refused:
        opening(*what)
    assert refused.value.reason in REASONS
    assert str(refused.value) == refused.value.reason
    return refused.value.reason


@given(bodies, channels, ciphers, st.none() | st.binary(max_size=16))
def test_round_trip(body: bytes, channel: Port, cipher: Cipher, to: bytes | None) -> None:
    sender, opener = pair(cipher)
    sealed = sender.seal(channel, body, to)
    assert len(sealed) == len(body) + OVERHEAD
    assert opener.open(channel, sealed, to) == body
    greeting = sender.greeting(body)
    assert len(greeting) == len(body) + GREETING_OVERHEAD
    assert Seal(RING, cipher).open_greeting(greeting) == body


def test_the_body_does_not_show() -> None:
    sender, _ = pair()
    assert b"attack at dawn" not in sender.seal(Port.DATA, b"attack at dawn")
    assert b"attack at dawn" not in sender.greeting(b"attack at dawn")


@BOTH
def test_every_flipped_bit_is_refused(cipher: Cipher) -> None:
    sender, opener = pair(cipher)
    sender.seal(Port.DATA, b"")
    sealed = sender.seal(Port.DATA, b"some body")
    greeting = sender.greeting(b"some body")
    for bit in range(8 * len(sealed)):
        spoiled = flipped(sealed, bit)
        expected = "unknown key" if bit < 32 else "not authentic"
        assert reason(opener.open, Port.DATA, spoiled) == expected
    for bit in range(8 * len(greeting)):
        spoiled = flipped(greeting, bit)
        expected = "unknown key" if bit < 32 else "not authentic"
        assert reason(sender.open_greeting, spoiled) == expected
    assert opener.open(Port.DATA, sealed) == b"some body", "a forgery shut the real packet out"


def flipped(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    sender, opener = pair()
    for channel in Port:
        assert reason(opener.open, channel, data) in ("too short", "unknown key", "not authentic")
    assert reason(sender.open_greeting, data) in ("too short", "unknown key", "not authentic")


def test_every_cut_is_refused() -> None:
    sender, opener = pair()
    sealed, greeting = sender.seal(Port.TOKEN, b"body"), sender.greeting(b"body")
    for length in range(len(sealed)):
        expected = "too short" if length < OVERHEAD else "not authentic"
        assert reason(opener.open, Port.TOKEN, sealed[:length]) == expected
    for length in range(len(greeting)):
        expected = "too short" if length < GREETING_OVERHEAD else "not authentic"
        assert reason(sender.open_greeting, greeting[:length]) == expected
    assert reason(opener.open, Port.TOKEN, sealed + b"\0") == "not authentic"


# --- replays -----------------------------------------------------------------------------------


@BOTH
def test_a_packet_opens_once(cipher: Cipher) -> None:
    sender, opener = pair(cipher)
    packets = [sender.seal(Port.DATA, bytes([n])) for n in range(10)]
    for packet in packets:
        opener.open(Port.DATA, packet)
    for packet in packets:
        assert reason(opener.open, Port.DATA, packet) == "replayed"


@given(st.lists(st.integers(0, 3 * WINDOW), min_size=1, max_size=60), st.booleans())
def test_the_window_against_a_set(order: list[int], dense: bool) -> None:
    """Any order, with repetitions: taken if not seen and less than the window behind the highest."""
    numbers = [number % 40 for number in order] if dense else order
    sender, opener = pair()
    packets = {number: at(sender, number) for number in sorted(set(numbers))}
    seen: set[int] = set()
    for number in numbers:
        fresh = number not in seen and number > max(seen, default=-1) - WINDOW
        if fresh:
            assert opener.open(Port.DATA, packets[number]) == b"%d" % number
            seen.add(number)
        else:
            assert reason(opener.open, Port.DATA, packets[number]) == "replayed"


def at(sender: Seal, counter: int) -> bytes:
    """The packet with that counter."""
    sender._counters[Port.DATA] = counter
    return sender.seal(Port.DATA, b"%d" % counter)


def test_reordering_within_the_window_is_accepted() -> None:
    sender, opener = pair()
    packets = [sender.seal(Port.DATA, b"%d" % n) for n in range(2 * WINDOW)]
    for start in (0, WINDOW):
        part = list(range(start, start + WINDOW))
        random.Random(f"reordering {start}").shuffle(part)
        assert all(opener.open(Port.DATA, packets[n]) == b"%d" % n for n in part)


def test_the_edges_of_the_window() -> None:
    sender, opener = pair()
    packets = [at(sender, n) for n in (0, 1, 2, WINDOW + 1)]
    opener.open(Port.DATA, packets[3])
    assert reason(opener.open, Port.DATA, packets[0]) == "replayed"
    assert reason(opener.open, Port.DATA, packets[1]) == "replayed"
    assert opener.open(Port.DATA, packets[2]) == b"2"
    last = at(sender, 2**64 - 1)
    assert opener.open(Port.DATA, last) == b"%d" % (2**64 - 1)


def test_channels_overtake_each_other_without_bound() -> None:
    sender, opener = pair()
    token = sender.seal(Port.TOKEN, b"token")
    for _ in range(2 * WINDOW):
        opener.open(Port.DATA, sender.seal(Port.DATA, b""))
    assert opener.open(Port.TOKEN, token) == b"token"


def test_a_newcomer_does_not_take_what_was_sealed_before() -> None:
    sender = Seal(RING)
    before = [sender.seal(channel, b"old") for channel in Port]
    since = sender.counters
    after = [sender.seal(channel, b"new") for channel in Port]
    opener = Seal(RING).opener(sender.session, since)
    for channel in Port:
        assert reason(opener.open, channel, before[channel]) == "replayed"
        assert opener.open(channel, after[channel]) == b"new"
        assert reason(opener.open, channel, before[channel]) == "replayed"


# --- for whom ----------------------------------------------------------------------------------


def test_a_packet_for_one_channel_is_refused_by_the_other() -> None:
    sender, opener = pair()
    sealed = sender.seal(Port.TOKEN, b"body")
    assert reason(opener.open, Port.DATA, sealed) == "not authentic"
    assert opener.open(Port.TOKEN, sealed) == b"body"


def test_a_token_for_one_node_is_refused_by_another() -> None:
    sender = Seal(RING)
    second, third = Seal(RING), Seal(RING)
    sealed = sender.seal(Port.TOKEN, b"token", second.session)
    opener = third.opener(sender.session)
    assert reason(opener.open, Port.TOKEN, sealed, third.session) == "not authentic"
    assert reason(opener.open, Port.TOKEN, sealed) == "not authentic"
    assert second.opener(sender.session).open(Port.TOKEN, sealed, second.session) == b"token"


def test_a_packet_of_another_session_is_refused() -> None:
    sender, opener = pair()
    again = Seal(RING)
    assert reason(opener.open, Port.DATA, again.seal(Port.DATA, b"")) == "not authentic"
    assert opener.open(Port.DATA, sender.seal(Port.DATA, b"")) == b""


def test_another_key_is_refused() -> None:
    stranger = Seal(Keyring((generate(),)))
    opener = Seal(RING).opener(stranger.session)
    assert reason(opener.open, Port.DATA, stranger.seal(Port.DATA, b"x")) == "unknown key"
    assert reason(Seal(RING).open_greeting, stranger.greeting(b"x")) == "unknown key"


def test_another_cipher_is_refused() -> None:
    sender, other = Seal(RING, Cipher.AES_GCM), Seal(RING, Cipher.CHACHA20_POLY1305)
    for one, two in ((sender, other), (other, sender)):
        opener = one.opener(two.session)
        assert reason(opener.open, Port.DATA, two.seal(Port.DATA, b"x")) == "not authentic"
        assert reason(one.open_greeting, two.greeting(b"x")) == "not authentic"


# --- nonces ------------------------------------------------------------------------------------

Used = list[tuple[bytes, bytes]]


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[Used]:
    """Every key and nonce that anything is encrypted with."""
    pairs: Used = []

    def watched(real: type) -> Callable[[bytes], object]:
        class Watched:
            def __init__(self, key: bytes) -> None:
                self.key = key
                self.aead = real(key)
                self.decrypt = self.aead.decrypt

            def encrypt(self, nonce: bytes, data: bytes, extra: bytes | None) -> bytes:
                pairs.append((self.key, nonce))
                sealed: bytes = self.aead.encrypt(nonce, data, extra)
                return sealed

        return Watched

    for name in ("AESGCM", "ChaCha20Poly1305"):
        monkeypatch.setattr(aead, name, watched(getattr(aead, name)))
    yield pairs
    assert len(set(pairs)) == len(pairs) > 0, "a nonce was used twice with the same key"


@BOTH
def test_lives_never_share_a_nonce(used: Used, cipher: Cipher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 10**18)  # even when the clock stands still
    for _ in range(5):
        sender = Seal(RING, cipher)
        for _ in range(20):
            for channel in Port:
                sender.seal(channel, b"the same body")
            sender.greeting(b"the same body")
    assert len({key for key, _ in used}) == 5 * len(Port) + 1


def test_keys_that_come_back_never_share_a_nonce(used: Used) -> None:
    one, two = generate(), generate()
    sender = Seal(Keyring((one,)))
    for ring in ((one, two), (two, one), (one,), (two,), (one,)):
        for channel in Port:
            sender.seal(channel, b"before")
        sender.rekey(Keyring(ring))
        for channel in Port:
            sender.seal(channel, b"after")


def test_sessions_are_ordered_by_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({new_session() for _ in range(1000)}) == 1000
    sessions = []
    for now in (10**18, 10**18 + 1000, 2 * 10**18):
        monkeypatch.setattr("time.time_ns", lambda now=now: now)
        sessions.append(new_session())
    assert sessions == sorted(sessions)
    assert {len(session) for session in sessions} == {16}


def test_a_session_of_the_wrong_length_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="16 bytes, not 3"):
        Seal(RING, session=b"abc")
    with pytest.raises(ValueError, match="16 bytes, not 0"):
        Seal(RING).opener(b"")


# --- rollover ----------------------------------------------------------------------------------


@BOTH
def test_rollover_without_any_refusal(cipher: Cipher) -> None:
    """Each step reaches one of the two first; packets and greetings go both ways all the time."""
    old, new = generate(), generate()
    steps = [Keyring((old,)), Keyring((old, new)), Keyring((new, old)), Keyring((new,))]
    left, right = Seal(steps[0], cipher), Seal(steps[0], cipher)
    from_left, from_right = right.opener(left.session), left.opener(right.session)

    def talk() -> None:
        for channel in Port:
            for _ in range(3):
                assert from_left.open(channel, left.seal(channel, b"l", right.session), right.session) == b"l"
                assert from_right.open(channel, right.seal(channel, b"r"), None) == b"r"
        assert left.open_greeting(right.greeting(b"hello")) == b"hello"
        assert right.open_greeting(left.greeting(b"hello")) == b"hello"

    talk()
    for count, ring in enumerate(steps[1:]):
        first, second = (left, right) if count % 2 else (right, left)
        first.rekey(ring)
        talk()
        second.rekey(ring)
        talk()
    assert left.counters == right.counters == (21, 21)


def test_after_the_rollover_the_old_key_is_refused() -> None:
    old, new = generate(), generate()
    sender, receiver = Seal(Keyring((old,))), Seal(Keyring((old, new)))
    opener = receiver.opener(sender.session)
    opener.open(Port.DATA, sender.seal(Port.DATA, b""))
    receiver.rekey(Keyring((new,)))
    assert reason(opener.open, Port.DATA, sender.seal(Port.DATA, b"")) == "unknown key"
    assert reason(receiver.open_greeting, sender.greeting(b"")) == "unknown key"
    sender.rekey(Keyring((new,)))
    assert opener.open(Port.DATA, sender.seal(Port.DATA, b"now")) == b"now"


def test_what_was_seen_stays_seen_over_a_rollover() -> None:
    old, new = generate(), generate()
    sender, receiver = Seal(Keyring((old,))), Seal(Keyring((old,)))
    opener = receiver.opener(sender.session)
    packet = sender.seal(Port.DATA, b"once")
    opener.open(Port.DATA, packet)
    receiver.rekey(Keyring((old, new)))
    assert reason(opener.open, Port.DATA, packet) == "replayed"
    receiver.rekey(Keyring((new,)))
    assert reason(opener.open, Port.DATA, packet) == "unknown key"
    receiver.rekey(Keyring((new, old)))
    assert reason(opener.open, Port.DATA, packet) == "replayed"


def test_a_leaked_key_does_no_harm_once_it_is_pruned() -> None:
    """Who has the old key can push its window to the end, but not that of the new one."""
    old, new = generate(), generate()
    sender, receiver = Seal(Keyring((old, new))), Seal(Keyring((old, new)))
    opener = receiver.opener(sender.session)
    thief = Seal(Keyring((old,)), session=sender.session)
    opener.open(Port.DATA, at(thief, 2**64 - 1))
    for party in (sender, receiver):
        party.rekey(Keyring((new,)))
    assert opener.open(Port.DATA, sender.seal(Port.DATA, b"heard")) == b"heard"


def test_the_header_is_the_key_and_the_counter() -> None:
    sender, _ = pair()
    headers = [HEADER.unpack_from(sender.seal(Port.TOKEN, b"")) for _ in range(3)]
    assert headers == [(RING.ids[0], 0), (RING.ids[0], 1), (RING.ids[0], 2)]
