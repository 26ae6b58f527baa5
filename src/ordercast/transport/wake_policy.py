"""What the event loop wakes a node for, and whether it sleeps at all.

Tokens always wake it. Data does too, as long as the token is slow to come. But where the token comes round in
about a millisecond, to be woken costs more than what there is to do:

- the event loop does not sleep while the next token is due. It yields to other processes at every turn, and
  after `AWAKE_US` without a token it goes to sleep as usual. An idle ring's token is held for longer than
  that, so an idle group sleeps;
- if to yield takes long each time, others need the processor, and get it for milliseconds at each turn. Who
  sleeps is preferred when it is woken. So for a while the node sleeps between two tokens;
- who is awake reads data as it comes, so that little is left to read when the token is here; who sleeps is
  not woken for it. It then waits for the token, before which it is read anyway, and the event loop looks
  after it only if the token stays away.

Where the token travels among the data, or this node has passed none on yet, a node is woken for everything at
once, and any packet keeps it awake as the token does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

BRISK_US = 1_500
"""A token that comes round in less time is brisk."""
AWAKE_US = 1_000
"""How long a node stays awake for the next token of a brisk ring."""
SETTLING_TURNS = 1
"""For so many turns of the event loop after a token there is still something to do: what it brought is
delivered, and the application does something about it."""
STAYED_AWAY_US = 4_000
"""After so long without a token, data is looked after by the event loop again."""
CROWDED_US = 1_000
"""If to yield the processor takes longer than this,"""
CROWDED_TIMES = 3
"""so many times one after the other, other processes compute (members of the ring give it back sooner),"""
CROWDED_REST_US = 100_000
"""and for so long the node sleeps between two tokens."""


AT_ONCE = 16
"""Datagrams that are read from a socket which anybody can fill, before it rests."""
REST_S = 0.005


class RateLimitedReader:
    """Reads a bounded number of datagrams a second from a socket that is open to all; others are lost."""

    def __init__(self, fd: int, read: Callable[[], bool]) -> None:
        """`read` reads one datagram, and says whether there was any."""
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._read = read
        self._resting: asyncio.TimerHandle | None = None
        self._closed = False
        self._listen()

    def _listen(self) -> None:
        self._resting = None
        self._loop.add_reader(self._fd, self._on_readable)

    def _on_readable(self) -> None:
        for _ in range(AT_ONCE):
            if not self._read() or self._closed:
                return
        self._loop.remove_reader(self._fd)
        self._resting = self._loop.call_later(REST_S, self._listen)

    def close(self) -> None:
        """Stop waking for anything."""
        self._closed = True
        if self._resting is not None:
            self._resting.cancel()
        else:
            self._loop.remove_reader(self._fd)


class WakePolicy:
    """Adds and removes the readers of a node's sockets, and keeps its event loop awake."""

    def __init__(
        self,
        token: int,
        data: Sequence[int],
        on_token: Callable[[], None],
        on_data: Callable[[], None],
        now_us: Callable[[], int],
    ) -> None:
        """Until `expect_tokens`, any packet keeps the node awake, and data always wakes it."""
        self._loop = asyncio.get_running_loop()
        self._token = token
        self._data = data
        self._on_data = on_data
        self._now_us = now_us
        self._data_waits = False
        self._came_us = 0
        self._turns = 0
        """Turns of the event loop since `_came_us`."""
        self._brisk = False
        self._awake = False
        self._long_yields = 0
        """How many times in a row it took long to yield."""
        self._crowded_until_us = 0
        self._closed = False
        self._alarm: asyncio.TimerHandle | None = None
        self._loop.add_reader(token, on_token)
        self._look_after_data()

    def _look_after_data(self) -> None:
        self._brisk = False
        for fd in self._data:
            self._loop.add_reader(fd, self._on_data)

    def expect_tokens(self) -> None:
        """From now on data is left to wait for tokens that come briskly."""
        self._data_waits = True

    def came(self, now_us: int) -> None:
        """A token is here; or, where none are expected, any packet."""
        brisk = now_us - self._came_us < BRISK_US
        self._came_us = now_us
        self._turns = 0
        if not brisk:
            return
        if self._data_waits and not self._brisk:
            self._brisk = True
            for fd in self._data:
                self._loop.remove_reader(fd)
            if self._alarm is None:
                self._wait(STAYED_AWAY_US)
        if not self._awake and now_us >= self._crowded_until_us:
            self._awake = True
            self._loop.call_soon(self._stay_awake)

    def _stay_awake(self) -> None:
        """Have another turn of the event loop, instead of sleeping in it."""
        away_us = self._now_us() - self._came_us
        self._awake = not self._closed and away_us < AWAKE_US
        if self._awake:
            self._turns += 1
            if self._turns > SETTLING_TURNS:
                if self._brisk:
                    self._on_data()
                self._yield()
            if self._awake:
                self._loop.call_soon(self._stay_awake)

    def _yield(self) -> None:
        """Let other processes go first, and see whether there are any that take long."""
        begun_us = self._now_us()
        os.sched_yield()
        ended_us = self._now_us()
        self._long_yields = self._long_yields + 1 if ended_us - begun_us > CROWDED_US else 0
        if self._long_yields >= CROWDED_TIMES:
            self._long_yields = 0
            self._crowded_until_us = ended_us + CROWDED_REST_US
            self._awake = False

    def _wait(self, delay_us: int) -> None:
        self._alarm = self._loop.call_later(delay_us / 1_000_000, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        if self._closed or not self._brisk:
            return
        away_us = self._now_us() - self._came_us
        if away_us >= STAYED_AWAY_US:
            self._look_after_data()
        else:
            self._wait(STAYED_AWAY_US - away_us)

    def close(self) -> None:
        """Be woken for nothing any more."""
        self._closed = True
        for fd in (self._token, *self._data):
            self._loop.remove_reader(fd)
        if self._alarm is not None:
            self._alarm.cancel()
