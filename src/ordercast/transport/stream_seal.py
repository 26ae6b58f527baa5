"""How the two ends of a TCP connection agree on a key, and seal what they say to each other.

Who connects greets with a *magic* and a version, whether it has a key, 16 random bytes and the names of its
keys; the other end answers with 16 random bytes of its own and the name of the key it chose, or with a
sentence on why not. From the group key and the random bytes of *both* a key is derived for each direction, so
that nothing of one connection can be said again in another. What each says is numbered, and the number is the
nonce of AES-GCM, so none of it can be left out, repeated or put elsewhere either. Without a key it is open.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ordercast.keys import KEY_SIZE, Keyring, derived
from ordercast.transport.not_authentic import not_authentic

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_SIZE = 16
OPEN, SEALED, REFUSED, BUSY = 0, 1, 2, 3
MOST_KEYS = 16

_KEY_ID = struct.Struct(">I")


class Malformed(Exception):
    """What came is not what the other side would say: the connection is of no use any more."""


class Seal:
    """Seals what one end says, and opens what it hears; without keys it leaves both as they are."""

    __slots__ = ("_mine", "_received", "_sent", "_theirs")

    def __init__(self, mine: AESGCM | None = None, theirs: AESGCM | None = None) -> None:
        self._mine = mine
        self._theirs = theirs
        self._sent = self._received = 0

    @classmethod
    def of(cls, key: bytes, client: bytes, service: bytes, purpose: str, *, serving: bool) -> Seal:
        """From a group key and the random bytes of both sides."""
        both = derived(key, client + service, purpose, 2 * KEY_SIZE)
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        asking, answering = AESGCM(both[:KEY_SIZE]), AESGCM(both[KEY_SIZE:])
        return cls(answering, asking) if serving else cls(asking, answering)

    @property
    def open(self) -> bool:
        """Whether nothing is sealed."""
        return self._mine is None

    def sealed(self, data: bytes) -> bytes:
        """Seal bytes as the next that this end says."""
        if self._mine is None:
            return data
        number = self._sent.to_bytes(12, "big")
        self._sent += 1
        return self._mine.encrypt(number, data, None)

    def opened(self, data: bytes | bytearray) -> bytes | bytearray:
        """What was heard next. Raises `Malformed`."""
        if self._theirs is None:
            return data
        number = self._received.to_bytes(12, "big")
        try:
            found = self._theirs.decrypt(number, data, None)
        except (not_authentic(), ValueError):
            raise Malformed("not authentic") from None
        self._received += 1
        return found


class Refusal(Exception):
    """One end does not serve the other, and why, in a sentence."""

    def __init__(self, why: str, how: int, answer: bytes = b"") -> None:
        super().__init__(why)
        self.how = how
        """`REFUSED`, for ever, or `BUSY`, for now."""
        self.answer = answer
        """What tells the other end, for who refuses."""


class Handshake:
    """How the connections to one kind of service begin."""

    def __init__(self, magic: bytes, purpose: str, name: str, stranger: str, service: str) -> None:
        """`purpose`: what its keys are derived for. `name`: how people call what is served. `stranger`: how
        who greets in another way is called, and `service`, who answers in another way."""
        self.magic = magic
        self.purpose = purpose
        self._name = name
        self._stranger, self._service = stranger, service
        self._greeting = struct.Struct(f">{len(magic)}sB{NONCE_SIZE}sB")
        self._answer = struct.Struct(f">{len(magic)}sB{NONCE_SIZE}sIH")
        self.greeting_size = self._greeting.size
        self.answer_size = self._answer.size

    # --- what is said -----------------------------------------------------------------------------

    def greeting(self, nonce: bytes, keyring: Keyring | None) -> bytes:
        """How a client begins."""
        ids = () if keyring is None else keyring.ids[:MOST_KEYS]
        front = self._greeting.pack(self.magic, SEALED if ids else OPEN, nonce, len(ids))
        return front + b"".join(map(_KEY_ID.pack, ids))

    def read_greeting(self, data: bytes) -> tuple[bool, bytes, int]:
        """Whether the client has keys, its random bytes, and how many names of keys follow."""
        magic, how, nonce, count = self._greeting.unpack(data)
        fits = magic == self.magic and how in (OPEN, SEALED) and count <= MOST_KEYS
        if not fits or bool(count) != (how == SEALED):
            raise Malformed(self._stranger)
        return how == SEALED, nonce, count

    def answer(self, nonce: bytes, key_id: int | None = None, refusal: str = "", busy: bool = False) -> bytes:
        """How a service answers a greeting."""
        text = refusal.encode()[:65_535]
        how = BUSY if busy else REFUSED if refusal else OPEN if key_id is None else SEALED
        return self._answer.pack(self.magic, how, nonce, key_id or 0, len(text)) + text

    def read_answer(self, data: bytes) -> tuple[int, bytes, int, int]:
        """How the service goes on, its random bytes, the name of the key, and the length of its sentence."""
        magic, how, nonce, key_id, length = self._answer.unpack(data)
        if magic != self.magic or how not in (OPEN, SEALED, REFUSED, BUSY):
            raise Malformed(self._service)
        return how, nonce, key_id, length

    def choose(self, keyring: Keyring | None, has_keys: bool, ids: Sequence[int]) -> tuple[str, int | None]:
        """Which key to use; or a sentence on why there is none."""
        if keyring is None:
            return ("the node has no group key: leave the key out" if has_keys else ""), None
        if not has_keys:
            return f"{self._name} is sealed: give the group key, as the node has it", None
        for known in keyring.ids:
            if known in ids:
                return "", known
        return "the node has another group key: give the one that it has", None

    # --- over a connection of asyncio ---------------------------------------------------------------

    async def accept(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        keyring: Keyring | None,
        busy: Callable[[], str],
    ) -> tuple[Seal, int | None]:
        """Agree with who has connected; beside it, the key that is used. `busy` tells why nobody is served.

        Raises `Refusal`, whose `answer` is to be written, `EOFError` if nothing was said, `Malformed`."""
        try:
            has_keys, client, count = self.read_greeting(await reader.readexactly(self.greeting_size))
            names = await reader.readexactly(_KEY_ID.size * count)
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise Malformed(self._stranger) from None
            raise
        ids, own = [number for (number,) in _KEY_ID.iter_unpack(names)], os.urandom(NONCE_SIZE)
        refusal, chosen = self.choose(keyring, has_keys, ids)
        how = REFUSED if refusal else BUSY
        refusal = refusal or busy()
        if refusal:
            raise Refusal(refusal, how, self.answer(own, refusal=refusal, busy=how == BUSY))
        writer.write(self.answer(own, chosen))
        if keyring is None or chosen is None:
            return Seal(), None
        key = keyring.keys[keyring.ids.index(chosen)]
        return Seal.of(key, client, own, self.purpose, serving=True), chosen

    async def greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keyring: Keyring | None
    ) -> tuple[Seal, int | None]:
        """Agree with whom this end has connected to; beside it, the key that is used.

        Raises `Refusal` if it does not want to, `EOFError`, or `Malformed`."""
        own = os.urandom(NONCE_SIZE)
        writer.write(self.greeting(own, keyring))
        how, service, key_id, length = self.read_answer(await reader.readexactly(self.answer_size))
        if how in (REFUSED, BUSY):
            raise Refusal((await reader.readexactly(length)).decode(errors="replace"), how)
        if keyring is None:
            if how == SEALED:
                raise Malformed("sealed, though there is no key")
            return Seal(), None
        if how != SEALED or key_id not in keyring.ids:
            raise Malformed("not sealed, or with a key that is not the group's")
        key = keyring.keys[keyring.ids.index(key_id)]
        return Seal.of(key, own, service, self.purpose, serving=False), key_id
