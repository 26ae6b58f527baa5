"""A machine's timers: each runs out once, the earliest first, and one alarm serves them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.runtime.health import Lag
from ordercast.runtime.timers import Timers


class Alarm:
    """A handle of the fake event loop."""

    def __init__(self, at_us: int, ring: Callable[[], None]) -> None:
        self.at_us = at_us
        self.ring = ring
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """Virtual time, and timers on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.us = 1_000_000
        self.alarms: list[Alarm] = []
        self.made = 0
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)

    def call_later(self, delay_s: float, ring: Callable[[], None]) -> Alarm:
        alarm = Alarm(self.us + round(delay_s * 1_000_000), ring)
        self.alarms.append(alarm)
        self.made += 1
        return alarm

    def run_until(self, us: int) -> None:
        while due := [alarm for alarm in self.alarms if not alarm.cancelled and alarm.at_us <= us]:
            first = min(due, key=lambda alarm: alarm.at_us)
            self.alarms.remove(first)
            self.us = max(self.us, first.at_us)
            first.ring()
        self.us = us


class Watch:
    """Timers, with what ran out and when."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.out: list[tuple[int, str]] = []
        self.lag = Lag(lambda: loop.us)
        self.timers = Timers(self.lag, lambda: loop.us, self.on_alarm)

    def on_alarm(self) -> None:
        while (name := self.timers.take_due(self.loop.us)) is not None:
            self.out.append((self.loop.us, name))
        self.timers.rearm(self.loop.us)

    def set(self, name: str, delay_us: int) -> None:
        self.timers.set(self.loop.us, name, delay_us)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(Loop(monkeypatch))


def test_each_runs_out_once_the_earliest_first(watch: Watch) -> None:
    watch.set("late", 3000)
    watch.set("soon", 1000)
    watch.set("between", 2000)
    watch.loop.run_until(1_010_000)
    assert watch.out == [(1_001_000, "soon"), (1_002_000, "between"), (1_003_000, "late")]


def test_a_cancelled_one_does_not(watch: Watch) -> None:
    watch.set("a", 1000)
    watch.set("b", 2000)
    watch.timers.cancel("a")
    watch.timers.cancel("never set")
    watch.loop.run_until(1_010_000)
    assert watch.out == [(1_002_000, "b")]


def test_one_set_anew_starts_over(watch: Watch) -> None:
    watch.set("a", 1000)
    watch.loop.run_until(1_000_900)
    watch.set("a", 1000)
    watch.loop.run_until(1_001_500)
    assert watch.out == []
    watch.set("a", 100)
    watch.loop.run_until(1_010_000)
    assert watch.out == [(1_001_600, "a")]


def test_setting_one_later_again_and_again_makes_no_new_alarm(watch: Watch) -> None:
    for _ in range(500):
        watch.set("token", 50_000)
        watch.loop.run_until(watch.loop.us + 100)
    assert watch.loop.made <= 3


def test_a_later_one_does_not_hide_an_earlier(watch: Watch) -> None:
    """Also when it was set while others ran out."""
    taken: list[str] = []

    def on_alarm() -> None:
        while (name := watch.timers.take_due(watch.loop.us)) is not None:
            taken.append(name)
            if name == "first":
                watch.set("far", 900_000)
        watch.timers.rearm(watch.loop.us)

    watch.timers._on_alarm = on_alarm
    watch.set("first", 1000)
    watch.set("near", 5000)
    watch.loop.run_until(1_006_000)
    assert taken == ["first", "near"]


def test_those_that_ran_out_together_come_in_their_order(watch: Watch) -> None:
    watch.set("second", 2000)
    watch.set("first", 1000)
    watch.loop.us = 1_010_000
    assert watch.timers.any_due(watch.loop.us)
    assert watch.timers.take_due(watch.loop.us) == "first"
    assert watch.timers.take_due(watch.loop.us) == "second"
    assert watch.timers.take_due(watch.loop.us) is None
    assert not watch.timers.any_due(watch.loop.us)


def test_they_are_later_by_as_much_as_the_node_is(watch: Watch) -> None:
    watch.lag.note(20_000)
    watch.set("a", 1000)
    watch.loop.run_until(1_020_500)
    assert watch.out == []
    watch.loop.run_until(1_022_000)
    assert watch.out == [(1_021_000, "a")]


def test_a_late_alarm_is_noted(watch: Watch) -> None:
    watch.set("a", 1000)
    watch.loop.us += 41_000
    watch.loop.run_until(watch.loop.us)
    assert watch.lag.us == 40_000


def test_nothing_comes_after_the_end(watch: Watch) -> None:
    watch.set("a", 1000)
    watch.timers.close()
    watch.loop.run_until(2_000_000)
    assert watch.out == []
    watch.timers.close()


names = st.sampled_from("abc")
scripts = st.lists(
    st.one_of(
        st.tuples(st.just("set"), names, st.integers(0, 3000)),
        st.tuples(st.just("cancel"), names, st.just(0)),
        st.tuples(st.just("wait"), st.just(""), st.integers(0, 2000)),
    ),
    max_size=40,
)


@given(scripts)
@settings(max_examples=100, deadline=None)
def test_as_a_plain_list_of_deadlines_would(script: list[tuple[str, str, int]]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        watch = Watch(Loop(monkeypatch))
        deadlines: dict[str, int] = {}
        expected: list[tuple[int, str]] = []
        for what, name, number in [*script, ("wait", "", 10_000)]:
            if what == "set":
                watch.set(name, number)
                deadlines[name] = watch.loop.us + number
            elif what == "cancel":
                watch.timers.cancel(name)
                deadlines.pop(name, None)
            else:
                until = watch.loop.us + number
                expected += sorted((at, name) for name, at in deadlines.items() if at <= until)
                deadlines = {name: at for name, at in deadlines.items() if at > until}
                watch.loop.run_until(until)
        assert sorted(watch.out) == sorted(expected)
        assert [at for at, _ in watch.out] == sorted(at for at, _ in expected)


def test_on_a_real_loop() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        out: list[str] = []

        def now_us() -> int:
            return int(loop.time() * 1_000_000)

        def on_alarm() -> None:
            while (name := timers.take_due(now_us())) is not None:
                out.append(name)
            if len(out) == 2 and not done.done():
                done.set_result(None)
            timers.rearm(now_us())

        timers = Timers(Lag(now_us), now_us, on_alarm)
        timers.set(now_us(), "b", 3000)
        timers.set(now_us(), "a", 1000)
        async with asyncio.timeout(15):
            await done
        timers.close()
        return out

    assert asyncio.run(main()) == ["a", "b"]


def test_the_alarm_of_timers_that_are_set_seldom_does_not_come_up_for_nothing(watch: Watch) -> None:
    """As the token of an idle ring sets them: in between the process sleeps."""
    rung: list[int] = []

    def on_alarm() -> None:
        rung.append(watch.loop.us)
        watch.on_alarm()

    watch.timers._on_alarm = on_alarm
    for _ in range(10):
        watch.set("token lost", 150_000)
        watch.set("token not passed on", 75_000)
        watch.loop.run_until(watch.loop.us + 71_000)
    assert rung == []
    watch.loop.run_until(watch.loop.us + 100_000)
    assert [name for _, name in watch.out] == ["token not passed on", "token lost"]
    assert rung == [at for at, _ in watch.out]
