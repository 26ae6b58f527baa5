"""Greetings on the wire: what they say, how their freshness is proven, and what is remembered of sessions.

    greeting   magic 3 · 1 · tag 8 · echo 16 · body, sealed where there is a key; header authenticated with it
    challenge  magic 3 · 2 · tag 8 · challenge 16

A node takes a greeting only if it echoes a challenge that the node made for that very address in the last few
seconds. Otherwise it answers with such a challenge: 28 bytes, less than any greeting, made without the group
key and without remembering anything (a keyed hash of address and time). The tag repeats that of the greeting,
so that the greeter knows what is answered. So what strangers send, new or recorded, is neither decrypted nor
answered at length, and what was recorded is of no use a few seconds later, or from another address.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections import OrderedDict
from collections.abc import Callable, Container

import msgspec

from ordercast.core.identity import MAX_INCARNATION, MAX_NODE_ID
from ordercast.transport.seal import Opener, Seal
from ordercast.transport.udp_socket import Address

GREETING_MAGIC = b"OG\x02"
"""How greetings and challenges begin on the wire; a segment begins otherwise."""
GREETING, CHALLENGE = 1, 2
HEADER = struct.Struct(f">{len(GREETING_MAGIC)}sB8s16s")
TAG_SIZE, CHALLENGE_SIZE = 8, 16
CHALLENGE_S = 2.0
"""A challenge is good for at least so long, and for less than twice as long."""


MOST_ECHOES = 32
"""Challenges of which it is remembered which greeting of a session echoed them last: two are good at a time
for each address that a node is heard from."""
MOST_LIVES = 256
"""Sessions of which it is remembered what was opened."""


class Greeting(msgspec.Struct, array_like=True, frozen=True):
    """What nodes tell each other before, and while, they share a ring."""

    node: int
    incarnation: int
    session: bytes
    """One life of the sender: later lives have greater sessions."""
    challenge: bytes
    """Made for the receiver's address a moment ago; to be echoed."""
    number: int
    """Counts the sender's greetings in this life: one that is not later was sent again by somebody else."""
    linked: bool
    """The sender has a link to the receiver, and needs no answer."""
    data_port: int
    counters: tuple[int, int]
    """By channel, how many packets the sender has sealed: earlier ones are none of this link."""
    settings: str
    """What has to be the same everywhere, in words."""
    peers: list[tuple[int, str, int]]
    """Nodes that the sender has links to: identifier, host, port."""
    refusal: str = ""
    """Why the receiver is not wanted; empty otherwise."""
    protocol: str = "totem"
    """What orders the sender's messages: nodes with another have nothing to say to each other."""
    leaving: bool = False
    """The sender's process is about to end, as it was told to."""
    outlived: int = -1
    """The latest life of the receiver that the sender knows of, where the receiver is in another one that is
    not later; else -1."""
    relay: int = 0
    """The port at which the sender carries streams between its networks; 0: nowhere."""


def sound(greeting: Greeting) -> bool:
    """Whether a node could have said that."""
    return (
        0 < greeting.node <= MAX_NODE_ID
        and greeting.incarnation >= 0
        and greeting.number > 0
        and len(greeting.session) == 16
        and len(greeting.challenge) == CHALLENGE_SIZE
        and 0 < greeting.data_port < 65_536
        and min(greeting.counters) >= 0
        and len(greeting.refusal) < 1000
        and len(greeting.protocol) < 100
        and greeting.incarnation <= MAX_INCARNATION
        and -1 <= greeting.outlived < MAX_INCARNATION
        and 0 <= greeting.relay < 65_536
    )


def new_tag() -> bytes:
    """By which a greeting is called in the challenge that answers it."""
    return secrets.token_bytes(TAG_SIZE)


class Challenges:
    """Makes challenges, and knows its own: each is for one address and some seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._secret = secrets.token_bytes(32)
        self._clock = clock

    def made_for(self, address: Address) -> bytes:
        """A challenge for who is there now."""
        return self._at(address, self._period())

    def fresh(self, echo: bytes, address: Address) -> bool:
        """Whether this was the challenge for that address within the last seconds."""
        period = self._period()
        return any(secrets.compare_digest(echo, self._at(address, known)) for known in (period, period - 1))

    def _period(self) -> int:
        return int(self._clock() / CHALLENGE_S)

    def _at(self, address: Address, period: int) -> bytes:
        about = f"{address[0]} {address[1]} {period}".encode()
        return hashlib.blake2s(about, key=self._secret, digest_size=CHALLENGE_SIZE).digest()


class Rates:
    """How often something may be done, each in its own name: so many times a second, and some at once."""

    def __init__(self, per_s: float, at_once: int, clock: Callable[[], float], most: int = 1024) -> None:
        """`most` names are remembered; one that was forgotten begins anew."""
        self._per_s = per_s
        self._at_once = at_once
        self._clock = clock
        self._most = most
        self._left: OrderedDict[object, tuple[float, float]] = OrderedDict()

    def allow(self, name: object) -> bool:
        """Whether `name` may do it once more now; if so, that is counted."""
        now = self._clock()
        left, since = self._left.pop(name, (float(self._at_once), now))
        left = min(self._at_once, left + (now - since) * self._per_s)
        self._left[name] = (left - 1 if left >= 1 else left), now
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return left >= 1


class _Life:
    """What is remembered of a session."""

    __slots__ = ("greeted", "opener")

    def __init__(self, opener: Opener | None) -> None:
        self.greeted: dict[bytes, int] = {}
        """By challenge, the number of the latest greeting that echoed it."""
        self.opener = opener


class Lives:
    """Sessions that greeted, with a link to them or without: what each has said is not taken twice."""

    def __init__(self, seal: Seal | None) -> None:
        self._seal = seal
        self._lives: OrderedDict[bytes, _Life] = OrderedDict()
        """By session, the one heard of last at the end."""

    def is_next(self, greeting: Greeting, echo: bytes, linked: Container[bytes]) -> bool:
        """Whether it is later than all of its session with the same echo; from now on it is the latest.

        Numbers are compared for as long as the challenge is good, after which the greeting is too old in any
        case: without a key anybody can write a number that is too high, and would shut the session out.
        Beyond `MOST_LIVES` the session heard of least lately is forgotten, of those that are not `linked`.
        """
        life = self._lives.get(greeting.session)
        if life is None:
            seal = self._seal
            life = _Life(None if seal is None else seal.opener(greeting.session, greeting.counters))
            self._lives[greeting.session] = life
            if len(self._lives) > MOST_LIVES:
                oldest = next(iter(self._lives))
                del self._lives[next((one for one in self._lives if one not in linked), oldest)]
        else:
            self._lives.move_to_end(greeting.session)
        latest = life.greeted.pop(echo, 0)
        life.greeted[echo] = max(latest, greeting.number)
        if len(life.greeted) > MOST_ECHOES:
            del life.greeted[next(iter(life.greeted))]
        return greeting.number > latest

    def opener(self, session: bytes) -> Opener | None:
        """Opens what that session seals, each packet once; None where nothing is sealed."""
        return self._lives[session].opener
