"""The latency to agreed delivery on a Totem ring, computed instead of simulated.

A model of our own; docs/lab-model.md derives it and says where it fits and where not. In short: a token
goes round n nodes. A visit at which k messages wait takes ``hop + k · message`` until the next one begins,
and each node sends at a visit what waited there when it began (a polling system with gated service). So

- for Poisson arrivals the number of messages in a rotation has a generating function that can be written down
  (`messages_in_a_rotation`); the wait for the token is the residual time of a rotation;
- for deterministic arrivals whose senders take turns in ring order the wait is uniform over the time in which
  the token goes round an *idle* ring, whatever the load;
- a loss makes all wait at that receiver until the token has been there and at the next node.

Distributions are vectors of probabilities on a lattice of `Density.step_us`.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from ordercast.sim.network import Ethernet

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

DATA_BYTES = 45
"""What a packet of one message has besides the message: Totem's header, and the message's length."""
TOKEN_BYTES = 63
"""A token without requests, and for every member:"""
MEMBER_BYTES = 4
FRAME_BYTES = 38 + 20 + 8
"""Ethernet's preamble, header, check sequence and gap; headers of IP and UDP."""
NEGLIGIBLE = 1e-12
"""Probability that is left out."""
MOST_HOPS = 20_000
"""How far back it is looked for what still has an effect."""
FINEST_US = 1.0
"""The finest lattice."""
POINTS = 4_000
"""Points of the lattice in a mean rotation, if they are no finer than `FINEST_US`."""


class LoadTooHigh(ValueError):
    """More messages than the ring can carry: queues grow without end, and there is no latency to compute."""


@dataclass(frozen=True, kw_only=True)
class RingModel:
    """A ring and its load, as the model has them. Times are microseconds."""

    nodes: int
    rate: float
    """Messages per second, of all nodes together."""
    arrivals: Literal["poisson", "deterministic"] = "poisson"
    hop_us: float
    """h: from visit to visit, where nothing waits to be sent."""
    message_us: float
    """a: what each message adds to that."""
    first_us: float = 0.0
    """e: what the first of a visit adds besides: the next node has to work on it before the token."""
    reach_us: float
    """From the begin of a visit until others deliver the first message of it."""
    loss: float = 0.0
    """p: probability that a message is lost at a receiver."""
    eager: bool = True
    """Who misses something says so at the token's first visit; otherwise at the second."""

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.rate <= 0 or not 0 <= self.loss < 1:
            raise ValueError("a ring has nodes, a rate above 0, and a loss of at least 0 and below 1")
        if self.load >= 1:
            raise LoadTooHigh(
                f"{self.rate:g} messages/s are more than the ring can carry, "
                f"{1e6 / self._busy_us:.0f}/s: choose a lower rate"
            )

    @property
    def resent(self) -> float:
        """How often, on average, a message is sent again: once if anyone has missed it."""
        return 1 - (1 - self.loss) ** (self.nodes - 1)

    @property
    def _busy_us(self) -> float:
        return self.message_us * (1 + self.resent)

    @property
    def load(self) -> float:
        """ρ: the share of the time in which messages are sent."""
        return self.rate / 1e6 * self._busy_us

    @property
    def rotation_us(self) -> float:
        """The mean rotation: hops, messages, and `first_us` where any waits, with Poisson's probability."""
        rotation = 0.0
        for _ in range(200):  # a fixed point: the longer the rotation, the more nodes have something to send
            busy = -math.expm1(-self.per_us * rotation / self.nodes)
            rotation = self.nodes * (self.hop_us + self.first_us * busy) / (1 - self.load)
        return rotation

    @property
    def each(self) -> float:
        """m: how many messages a node sends at a visit, on average."""
        return self.per_us * self.rotation_us / self.nodes

    @property
    def cost_us(self) -> float:
        """a': what a further message adds to a rotation, with its retransmissions.

        `first_us` is spent where k > 0. For k of Poisson's distribution the straight line in k that comes
        closest to it rises by ``exp(-m)`` a message, and begins at ``1 - exp(-m) · (1 + m)``: see `walk_us`.
        """
        return self._busy_us + self.first_us * math.exp(-self.each)

    @property
    def walk_us(self) -> float:
        """h': a hop, with what of `first_us` does not depend on how many messages there are."""
        m = self.each
        return self.hop_us + self.first_us * (1 - math.exp(-m) * (1 + m))

    @property
    def per_us(self) -> float:
        """λ for a microsecond."""
        return self.rate / 1e6


def air_us(network: Ethernet, size: int) -> float:
    """How long a datagram of so many bytes, in one frame, is on the medium."""
    return max(size + FRAME_BYTES, 46 + 38) * 8e6 / network.bits_per_s


def ethernet_ring(
    network: Ethernet,
    *,
    nodes: int,
    rate: float,
    size: int,
    arrivals: Literal["poisson", "deterministic"] = "poisson",
    eager: bool = True,
) -> RingModel:
    """The model of a ring on an Ethernet, a message of `size` bytes in each packet.

    A visit begins when a node has worked on the token. It hands its packets and then the token to the medium,
    which carries one after the other; the next node works on each packet, and on the token when no packet is
    left (000 §5.2). Of the steps that a packet goes through the slowest decides.
    """
    if size + DATA_BYTES + 28 > network.mtu:
        raise ValueError(f"a message of {size} bytes is split by the network, which the model does not know")
    data_us = air_us(network, size + DATA_BYTES)
    token_us = air_us(network, TOKEN_BYTES + MEMBER_BYTES * nodes)
    return RingModel(
        nodes=nodes,
        rate=rate,
        arrivals=arrivals,
        hop_us=network.send_us + token_us + network.propagation_us + network.unicast_us,
        message_us=max(network.send_us, data_us, network.receive_us),
        first_us=max(0.0, network.receive_us - token_us),
        reach_us=network.send_us + data_us + network.propagation_us + network.receive_us,
        loss=network.loss,
        eager=eager,
    )


@dataclass(frozen=True)
class Density:
    """A distribution: the probabilities of the cells of a lattice, from ``k · step_us`` to the next."""

    step_us: float
    probabilities: Vector

    @property
    def times_us(self) -> Vector:
        """Where the cells begin."""
        return np.arange(len(self.probabilities), dtype=np.float64) * self.step_us

    @property
    def mean_us(self) -> float:
        """The mean in microseconds."""
        return float((self.times_us + self.step_us / 2) @ self.probabilities)

    def above(self, time_us: float) -> float:
        """The probability of more than this."""
        return 1 - float(self._below(np.array([time_us]))[0])

    def quantile_us(self, share: float) -> float:
        """What so large a share does not exceed."""
        return float((np.searchsorted(np.cumsum(self.probabilities), share) + 1) * self.step_us)

    def buckets(self, width_us: float, count: int) -> Vector:
        """The probability in each of the first `count` buckets of a histogram of that width."""
        return np.diff(self._below(np.arange(count + 1, dtype=np.float64) * width_us))

    def _below(self, times_us: Vector) -> Vector:
        """The distribution function at each of these times."""
        ends = np.arange(len(self.probabilities) + 1) * self.step_us
        reached = np.concatenate([[0.0], np.cumsum(self.probabilities)])
        return np.asarray(np.interp(times_us, ends, reached), dtype=np.float64)


# --- the rotation --------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def messages_in_a_rotation(model: RingModel) -> Vector:
    """The probabilities of 0, 1, 2, … messages in one rotation.

    Poisson arrivals: every stretch of time brings messages to be sent in one of the n hops that follow, each
    of which takes time in turn. Let z stand for a message that is sent in the window, the last n hops. Time
    spent m hops before its end contributes the factor ``exp(-g_m)`` for each microsecond:

        g_m = λ/n · Σ_{l=1..n, l≤m} (1 - w_{m-l})      w_m = (z if m < n else 1) · exp(-a'·g_m)

    and the generating function of the number is ``exp(-h' · Σ g_m)``. It is inverted by Fourier's transform.
    Deterministic arrivals: what arrives in a mean rotation, rounded down or up.
    """
    mean = model.per_us * model.rotation_us
    if model.arrivals == "deterministic":
        return _rounded(mean)
    n, walk, cost = model.nodes, model.walk_us, model.cost_us
    size = 1 << max(6, math.ceil(math.log2(8 + 4 * mean + 16 * math.sqrt(mean) / (1 - model.load))))
    z = np.exp(-2j * np.pi * np.arange(size) / size)
    waiting = deque([np.zeros(size, dtype=complex)] * n)  # 1 - w of the last n ages
    recent = np.zeros(size, dtype=complex)  # their sum
    total = np.zeros(size, dtype=complex)
    for age in range(MOST_HOPS):
        g = model.per_us / n * recent
        total += g
        waiting.append(1 - (z if age < n else 1.0) * np.exp(-cost * g))
        recent = recent + waiting[-1] - waiting.popleft()
        if age > n and np.abs(g).max() * walk < NEGLIGIBLE:
            break
    probabilities = np.fft.ifft(np.exp(-walk * total)).real.clip(0)
    probabilities /= probabilities.sum()
    return _trimmed(probabilities)


def _trimmed(probabilities: Vector) -> Vector:
    """Without the tail that nobody sees."""
    tail = np.cumsum(probabilities[::-1])[::-1]
    return probabilities[: max(1, int((tail > NEGLIGIBLE).sum()))]


def _rounded(mean: float) -> Vector:
    """A number that is the mean rounded down or up, so that it is right on average."""
    low = math.floor(mean)
    probabilities = np.zeros(low + 2)
    probabilities[low], probabilities[low + 1] = low + 1 - mean, mean - low
    return probabilities


def _poisson(mean: float) -> Vector:
    count = int(mean + 12 * math.sqrt(mean) + 12)
    logs = np.array([k * math.log(mean) - mean - math.lgamma(k + 1) for k in range(count)]) if mean else None
    return np.ones(1) if logs is None else _trimmed(np.exp(logs))


# --- the wait for the token ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lattice:
    """Where times are rounded to."""

    step_us: float

    def at(self, time_us: float) -> int:
        return round(time_us / self.step_us)

    def shifted(self, probabilities: Vector, time_us: float) -> Vector:
        return np.concatenate([np.zeros(self.at(time_us)), probabilities])

    def spread(self, start_us: float, each_us: float, counts: Vector) -> Vector:
        """The probabilities of ``start_us + k · each_us``, for a number k of these probabilities."""
        made = np.zeros(self.at(start_us + each_us * (len(counts) - 1)) + 1)
        for k, probability in enumerate(counts):
            made[self.at(start_us + k * each_us)] += probability
        return made


def _mixed(parts: list[tuple[float, Vector]]) -> Vector:
    made = np.zeros(max(len(part) for _, part in parts))
    for weight, part in parts:
        made[: len(part)] += weight * part
    return made


def waits(model: RingModel, step_us: float) -> list[Vector]:
    """By how many messages of the same node go before it in its visit, the wait for the token.

    A message finds a rotation of its node of length c with probability proportional to ``c · P(c)``, and the
    token a uniform part r of it away; so each r below c weighs ``P(c)``. Before it came what arrived at the
    node in the ``c - r`` since the token was there. All together are 1.
    """
    if model.arrivals == "deterministic":
        return _waits_in_turn(model, step_us)
    numbers = messages_in_a_rotation(model)
    c = model.nodes * model.walk_us + model.cost_us * np.arange(len(numbers))
    r = (np.arange(math.ceil(c[-1] / step_us)) + 0.5) * step_us
    since = (c[:, None] - r[None, :]) * model.per_us / model.nodes
    weight = np.where(since > 0, numbers[:, None], 0.0) * np.exp(-since.clip(0))
    before: list[Vector] = []
    whole = numbers @ c / step_us
    for k in range(1, 1000):
        before.append(weight.sum(axis=0) / whole)
        if before[-1].sum() < NEGLIGIBLE * 100:
            break
        weight = weight * since.clip(0) / k
    return before


def _waits_in_turn(model: RingModel, step_us: float) -> list[Vector]:
    """Deterministic arrivals, the senders taking turns in ring order.

    When a message has waited R for the token, the token needs R, the time for that message and a hop to get
    to the next sender, whose message came 1/λ later: R' = R + a + e + h - 1/λ. If that is negative, the
    token was there too early and has to go round once more, over nodes where nothing waits: plus n·h. So R
    goes round on a circle of n·h in equal steps, and fills it uniformly. Retransmissions enlarge the circle.

    Where messages come faster than the token gets from one to the next, something waits at every node, and R
    is taken to be uniform over a mean rotation: those before it came in the rest of it, n/λ apart.
    """
    gap = model.nodes / model.per_us
    rotation = model.rotation_us
    if rotation > gap:
        r = (np.arange(math.ceil(rotation / step_us)) + 0.5) * step_us
        places = ((rotation - r).clip(0) / gap).astype(int)
        return [np.where(places == place, 1 / len(r), 0.0) for place in range(int(places.max()) + 1)]
    resent = _poisson(model.per_us * rotation * model.resent)
    circle = model.nodes * model.hop_us + model.message_us * np.arange(len(resent))
    r = (np.arange(math.ceil(circle[-1] / step_us)) + 0.5) * step_us
    found = np.where(r[None, :] < circle[:, None], resent[:, None], 0.0).sum(axis=0)
    return [found / found.sum()]


# --- loss ----------------------------------------------------------------------------------------------


def _numbers(model: RingModel, mean: float) -> Vector:
    return _poisson(mean) if model.arrivals == "poisson" else _rounded(mean)


def _delays(model: RingModel, lattice: _Lattice, hops: int, before: float) -> Vector:
    """What loss adds at the receiver to which the token comes after so many hops; 0 is the sender itself.

    The token comes there, takes the request along, and the next node sends again what is missing. `before`
    is how many messages, on average, were sent since the token was there last, before this one: if any of
    them was lost here, or this one, it waits. Unless requests are eager, that takes a rotation longer, and
    what was lost in the rotation before still holds things up.
    """
    n, p, rotation, each = model.nodes, model.loss, model.rotation_us, model.each
    if hops:
        start = model.hop_us + model.message_us + model.first_us + hops * model.walk_us
        gap = lattice.spread(start, model.cost_us, _numbers(model, each * (hops + 0.5)))
        free = (1 - p) * math.exp(-p * before)
    else:
        start = model.hop_us + model.message_us + model.first_us + model.reach_us
        gap = lattice.spread(start, model.message_us, _numbers(model, each))
        free = math.exp(-p * before)
    again = lattice.shifted(gap, rotation)  # the retransmission is lost as well
    gap = _mixed([(1 - p, gap), (p, again)])
    none = np.ones(1)
    if model.eager:
        return _mixed([(free, none), (1 - free, gap)])
    late = lattice.shifted(gap, rotation)
    clear = math.exp(-p * each * (n - 1))
    return _mixed([(free * clear, none), (free * (1 - clear), gap), (1 - free, late)])


# --- the whole -----------------------------------------------------------------------------------------


def latency(model: RingModel, step_us: float | None = None) -> Density:
    """The latency to agreed delivery, from the application's submission, over all deliveries."""
    step = step_us or max(FINEST_US, model.rotation_us / POINTS)
    lattice, n = _Lattice(step), model.nodes
    by_place = waits(model, step)
    here = _mixed([(1.0, wait) for wait in by_place])
    if n == 1:
        return Density(step, here)
    there = _mixed(
        [
            (1.0, lattice.shifted(wait, model.reach_us + place * model.message_us))
            for place, wait in enumerate(by_place)
        ]
    )
    earlier = sum(place * float(wait.sum()) for place, wait in enumerate(by_place))
    each = model.each
    parts: list[tuple[float, Vector]] = []
    if model.loss:
        parts.append((1 / n, np.convolve(here, _delays(model, lattice, 0, each * (n - 1)))))
        for hops in range(1, n):
            delays = _delays(model, lattice, hops, each * (n - 1 - hops) + earlier)
            parts.append((1 / n, _convolved(there, delays)))
    else:
        parts = [(1 / n, here), ((n - 1) / n, there)]
    made = _mixed(parts)
    return Density(step, made / made.sum())


def _convolved(dense: Vector, sparse: Vector) -> Vector:
    """The distribution of a sum, one part of which has few values."""
    made = np.zeros(len(dense) + len(sparse) - 1)
    for at in np.flatnonzero(sparse):
        made[at : at + len(dense)] += sparse[at] * dense
    return made


@dataclass(frozen=True)
class _Found:
    """What an arriving message finds, on average, without loss."""

    rotation_us: float
    """The rotation of its node that it falls into: long ones are found more often."""
    wait_us: float
    """How long the message waits until the token comes."""
    before: float
    """Messages of the same node that go before it."""


def _found(model: RingModel) -> _Found:
    if model.arrivals == "deterministic":
        by_place = waits(model, FINEST_US)
        wait = sum(float(part @ (np.arange(len(part)) + 0.5)) for part in by_place) * FINEST_US
        before = sum(place * float(part.sum()) for place, part in enumerate(by_place))
        return _Found(model.rotation_us, wait, before)
    numbers = messages_in_a_rotation(model)
    c = model.nodes * model.walk_us + model.cost_us * np.arange(len(numbers))
    found = float(numbers @ c**2 / (numbers @ c))
    return _Found(found, found / 2, model.per_us / model.nodes * found / 2)


def wait_mean_us(model: RingModel) -> float:
    """The mean wait for the token, without loss."""
    return _found(model).wait_us


def agreed_mean_us(model: RingModel) -> float:
    """The mean latency to agreed delivery without loss: the mean of `latency`, without its density."""
    found, n = _found(model), model.nodes
    return found.wait_us + (n - 1) / n * (model.reach_us + found.before * model.message_us)


def safe_mean_us(model: RingModel) -> float:
    """The mean latency to safe delivery without loss.

    A member knows that all have a message when the token has come to it twice, which after the wait takes a
    rotation and the way from the sender. The message itself is in the first hop of these; and what has come
    to the other nodes while it waited, in a rotation longer than most, is in those that follow.
    """
    found, n = _found(model), model.nodes
    walk, cost = model.walk_us, model.cost_us
    last = [found.rotation_us / n] * n
    way_us: list[float] = []
    for hop in range(2 * n - 1):
        sent = model.per_us / n * sum(last) + (0 if hop else 1)
        took = walk + cost * sent
        way_us.append((way_us[-1] if way_us else 0.0) + took)
        last = [*last[1:], took]
    return found.wait_us + sum(way_us[n - 1 :]) / n


def distance(measured: Vector, expected: Vector) -> float:
    """Kolmogorov's: the most by which two distribution functions differ. Both by bucket, adding up to 1."""
    size = max(len(measured), len(expected))
    gap = np.zeros(size)
    gap[: len(measured)] += measured
    gap[: len(expected)] -= expected
    return float(np.abs(np.cumsum(gap)).max())
