"""Sealing: every packet authenticated and encrypted, with nonces that never repeat.

A *session* is one life of a node's sealing. From the group key and the session a key is derived for
each purpose, so a counter that starts at 0 is a nonce that never repeats, over restarts too and
without the disk's help. Token and data travel by separate sockets and overtake each other without
bound: each has a key, a counter and a replay window of its own.

    packet    key id u32 · counter u64 · ciphertext and tag
    greeting  key id u32 · nonce 96 bits · ciphertext and tag

The first 12 bytes of a packet *are* its nonce, so they are authentic if it is. A packet for one node
alone is sealed ``to`` it, or else somebody on the path could hand a copy of the token to another node,
which would take its turn at the wrong time.

A greeting is how sessions become known: its key is the group's, its nonce is random (good for 2^32
greetings a group key), and it has no counter; whoever greets repeats the other's challenge, which is why
nobody without the key can have one made.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, TypeAlias

from ordercast.core.identity import NodeId
from ordercast.keys import Keyring, derived
from ordercast.transport.not_authentic import not_authentic

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

SESSION_SIZE = 16
WINDOW = 4096
"""How far a packet may be overtaken by later ones of its port and still be taken."""

_HEADER = struct.Struct(">IQ")
_HEADER_SIZE = _HEADER.size
_KEY_ID = struct.Struct(">I")
_NODE = struct.Struct(">I")
_NONCE_SIZE = 12
_TAG_SIZE = 16
assert _HEADER_SIZE == _NONCE_SIZE

OVERHEAD = _HEADER_SIZE + _TAG_SIZE
"""Bytes that sealing adds to a packet."""
GREETING_OVERHEAD = _KEY_ID.size + _NONCE_SIZE + _TAG_SIZE
"""Bytes that sealing adds to a greeting."""

_ALL_SEEN = (1 << WINDOW) - 1

Aead: TypeAlias = "AESGCM | ChaCha20Poly1305"
Code: TypeAlias = Callable[[bytes, bytes, bytes | None], bytes]
"""Encrypts or decrypts: nonce, data, and what is authenticated but not sent."""


class Cipher(StrEnum):
    """How packets are sealed; the same at every node of a group."""

    AES_GCM = "aes-gcm"
    """Fastest where the processor knows AES, as nearly all do."""
    CHACHA20_POLY1305 = "chacha20-poly1305"
    """Fastest where it does not."""


class Port(IntEnum):
    """The two ports of a node: packets that arrive at one are in order, more or less."""

    TOKEN = 0
    DATA = 1


class Refused(Exception):
    """A packet that was not sealed by a member, or that was here before. To be counted and dropped."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """One of `REASONS`."""


TOO_SHORT = "too short"
UNKNOWN_KEY = "unknown key"
NOT_AUTHENTIC = "not authentic"
REPLAYED = "replayed"
REASONS = (TOO_SHORT, UNKNOWN_KEY, NOT_AUTHENTIC, REPLAYED)
"""Why packets are refused. A packet that looks replayed is not looked at further: it may be forged, too."""


def new_session() -> bytes:
    """A session that nobody ever had: when it began, in microseconds, and 64 random bits.

    As bytes, the session that began later is the greater one.
    """
    return (time.time_ns() // 1000).to_bytes(8, "big") + os.urandom(8)


def sealed_to(node: NodeId) -> bytes:
    """What a packet for one node alone is sealed to."""
    return _NODE.pack(node)


def _aead(cipher: Cipher, group_key: bytes, salt: bytes, purpose: str) -> Aead:
    key = derived(group_key, salt, f"{cipher} {purpose}")
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

    return AESGCM(key) if cipher is Cipher.AES_GCM else ChaCha20Poly1305(key)


def _by_port(cipher: Cipher, group_key: bytes, session: bytes) -> list[Aead]:
    """By port, what seals and opens the packets of a session."""
    return [_aead(cipher, group_key, session, port.name.lower()) for port in Port]


class Seal:
    """Seals what this node sends, for one life of it, and makes what opens the packets of others.

    No two seals may have the same session: leave it out, or give each a `new_session`.
    """

    __slots__ = ("_counters", "_encrypt", "_greet", "_greetings", "_key_id", "cipher", "keyring", "session")

    def __init__(
        self, keyring: Keyring, cipher: Cipher = Cipher.AES_GCM, session: bytes | None = None
    ) -> None:
        self.cipher = Cipher(cipher)
        self.session = new_session() if session is None else _checked(session)
        self._counters = [0 for _ in Port]
        self.rekey(keyring)

    def rekey(self, keyring: Keyring) -> None:
        """Seal with the first key of this ring from now on; all openers take all of its keys and no other.

        Counters go on, so that nothing repeats even when an old key comes back.
        """
        greetings = {
            key_id: _aead(self.cipher, key, b"", "greeting")
            for key_id, key in zip(keyring.ids, keyring.keys, strict=True)
        }
        self._encrypt: list[Code] = [
            aead.encrypt for aead in _by_port(self.cipher, keyring.keys[0], self.session)
        ]
        self._greetings: dict[int, Code] = {key_id: aead.decrypt for key_id, aead in greetings.items()}
        self._greet: Code = greetings[keyring.ids[0]].encrypt
        self._key_id = keyring.ids[0]
        self.keyring = keyring
        """The keys in use; `rekey` changes them."""

    @property
    def counters(self) -> tuple[int, int]:
        """By port, how many packets were sealed: what a newcomer's `opener` may start from."""
        return self._counters[Port.TOKEN], self._counters[Port.DATA]

    def seal(self, port: Port, body: bytes, to: bytes | None = None) -> bytes:
        """A packet for everybody, or for the one that opens it with the same `to`."""
        counters = self._counters
        counter = counters[port]
        counters[port] = counter + 1
        header = _HEADER.pack(self._key_id, counter)
        return header + self._encrypt[port](header, body, to)

    def greeting(self, body: bytes, about: bytes = b"") -> bytes:
        """Seal a greeting for all who have the group key; `about` is authenticated and not encrypted."""
        key_id = _KEY_ID.pack(self._key_id)
        nonce = os.urandom(_NONCE_SIZE)
        return key_id + nonce + self._greet(nonce, body, key_id + about)

    def open_greeting(self, data: bytes, about: bytes = b"") -> bytes:
        """What a greeting says, or `Refused`. It may be an old one: look at what it echoes."""
        if len(data) < GREETING_OVERHEAD:
            raise Refused(TOO_SHORT)
        head, nonce, text = data[:4], data[4:16], data[16:]
        decrypt = self._greetings.get(_KEY_ID.unpack(head)[0])
        if decrypt is None:
            raise Refused(UNKNOWN_KEY)
        try:
            return decrypt(nonce, text, head + about)
        except not_authentic():
            raise Refused(NOT_AUTHENTIC) from None

    def opener(self, session: bytes, since: tuple[int, int] = (0, 0)) -> Opener:
        """What opens the packets of a peer's session; `since` are its `counters`, where they are known.

        Without them a node that restarts takes what the peer sealed before, should somebody have kept it.
        """
        return Opener(self, _checked(session), since)


class _Window:
    """Which packets of a port were here: all bits up to the highest counter, the newest lowest."""

    __slots__ = ("high", "seen")

    def __init__(self, since: int) -> None:
        self.high = since - 1
        self.seen = _ALL_SEEN


class Opener:
    """Opens the packets of one session of a peer, each once."""

    __slots__ = ("_keyring", "_open", "_seal", "_since", "_windows", "key_id", "session")

    def __init__(self, seal: Seal, session: bytes, since: tuple[int, int]) -> None:
        self.session = session
        self._seal = seal
        self._since = since
        self.key_id: int | None = None
        """The key of the packet that was opened last."""
        self._windows: dict[int, tuple[_Window, ...]] = {}
        """By key id. Kept when a key goes, as it may come back: a few for each rollover, done by hand."""
        self._renew()

    def _renew(self) -> None:
        keyring = self._keyring = self._seal.keyring
        self._open: list[dict[int, tuple[Code, _Window]]] = [{} for _ in Port]
        for key_id, key in zip(keyring.ids, keyring.keys, strict=True):
            windows = self._windows.setdefault(key_id, tuple(map(_Window, self._since)))
            aeads = _by_port(self._seal.cipher, key, self.session)
            for by_key, aead, window in zip(self._open, aeads, windows, strict=True):
                by_key[key_id] = aead.decrypt, window

    def open(self, port: Port, data: bytes, to: bytes | None = None) -> bytes:
        """What was sealed, or `Refused`. A packet counts as seen only once it is known to be authentic."""
        if self._keyring is not self._seal.keyring:
            self._renew()
        if len(data) < OVERHEAD:
            raise Refused(TOO_SHORT)
        header = data[:_HEADER_SIZE]
        key_id, counter = _HEADER.unpack(header)
        known = self._open[port].get(key_id)
        if known is None:
            raise Refused(UNKNOWN_KEY)
        decrypt, window = known
        ahead = counter - window.high
        if ahead <= 0 and (ahead <= -WINDOW or window.seen >> -ahead & 1):
            raise Refused(REPLAYED)
        try:
            body = decrypt(header, data[_HEADER_SIZE:], to)
        except not_authentic():
            raise Refused(NOT_AUTHENTIC) from None
        if ahead <= 0:
            window.seen |= 1 << -ahead
        else:
            window.high = counter
            window.seen = (window.seen << ahead | 1) & _ALL_SEEN if ahead < WINDOW else 1
        self.key_id = key_id
        return body


def _checked(session: bytes) -> bytes:
    if len(session) != SESSION_SIZE:
        raise ValueError(f"a session is {SESSION_SIZE} bytes, not {len(session)}: use new_session()")
    return bytes(session)
