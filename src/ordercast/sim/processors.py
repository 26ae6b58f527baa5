"""The processors of the simulated hosts: what waits, in which order it is worked on, and the timers.

Where a packet costs no processor time and the node is not paused, it goes straight to the machine and
nothing of this is used but the timers.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush

from ordercast.core.contract import CancelTimer, Packet, SetTimer
from ordercast.core.identity import Batch
from ordercast.sim.clock import Clock
from ordercast.sim.host import Alarm, Arrival, Host
from ordercast.sim.network import NetworkConfig


class Processors:
    """The processors of all hosts. The world is told when one has done with a packet, or a timer runs out."""

    def __init__(
        self,
        clock: Clock,
        costs: NetworkConfig,
        plain: bool,
        *,
        receive: Callable[[Host, Packet], None],
        expire: Callable[[Host, str], None],
        feed: Callable[[Host], None],
        lose: Callable[[Host, Packet, str], None],
    ) -> None:
        """`plain`: a packet needs no processor time where nothing is wrong, and no packet is traced.

        `receive` gives a machine a packet, `expire` the name of a timer that ran out. `feed` submits what an
        application has waiting. `lose` is told of packets that never reach the machine, and why.
        """
        self._clock = clock
        self._costs = costs
        self._plain = plain
        self._hand_packet = receive
        self._expire = expire
        self._feed = feed
        self._lose = lose

    def refresh(self, host: Host) -> None:
        """See anew whether arrivals may go straight to the machine."""
        free = not (host.paused or host.busy or host.arrivals or host.tokens or host.overdue)
        host.direct = self._plain and host.up and free and host.effects_left is None and not host.slow_us

    def resume(self, host: Host) -> None:
        """Let a paused process go on: first what waits in its buffers, then its overdue timers."""
        if not host.paused:
            return
        host.paused = False
        host.guard = len(host.arrivals) + len(host.tokens) + (host.serving is not None)
        if not host.busy:
            self._served(host, host.epoch)

    def line_up(self, host: Host, packet: Packet, unicast: bool) -> None:
        """A packet arrives where something stands between it and the machine."""
        if not host.up:
            self._lose(host, packet, "down")
            return
        size = len(packet.data)
        held = host.tokens_bytes if unicast else host.arrivals_bytes
        if held + size > host.input_bytes and held:
            self._lose(host, packet, "overflow")
            return
        arrival = Arrival(packet, self._clock.now + self._costs.hearing_us(size, unicast))
        if unicast:
            host.tokens.append(arrival)
            host.tokens_bytes += size
        else:
            host.arrivals.append(arrival)
            host.arrivals_bytes += size
        if not host.paused and not host.busy:
            self._work(host)

    def _work(self, host: Host) -> None:
        """The processor is free: go on with what waits, until it takes time or nothing is left."""
        epoch = host.epoch
        while epoch == host.epoch:
            if host.overdue and (host.guard <= 0 or not (host.arrivals or host.tokens)):
                self._ring_overdue(host)
            elif host.arrivals:
                arrival = host.arrivals.popleft()
                host.arrivals_bytes -= len(arrival.packet.data)
                if self._takes_time(host, arrival, unicast=False):
                    return
            elif host.tokens:
                arrival = host.tokens.popleft()
                host.tokens_bytes -= len(arrival.packet.data)
                if self._takes_time(host, arrival, unicast=True):
                    return
            else:
                self.refresh(host)
                return

    def _takes_time(self, host: Host, arrival: Arrival, unicast: bool) -> bool:
        """Handle a packet now if it costs nothing; otherwise the processor is busy with it."""
        cost_us = self._costs.hearing_us(len(arrival.packet.data), unicast) + host.slow_us
        if cost_us:
            host.serving = arrival
            self._occupy(host, self._clock.now + cost_us)
            return True
        self._receive(host, arrival)
        return self._still_sending(host)

    def _occupy(self, host: Host, until_us: int) -> None:
        host.busy = True
        heappush(self._clock.heap, (until_us, self._clock.tick(), self._served, host, host.epoch))

    def _still_sending(self, host: Host) -> bool:
        if host.up and host.departs_us > self._clock.now:
            self._occupy(host, host.departs_us)
            return True
        return False

    def _served(self, host: Host, epoch: int) -> None:
        """The processor is done with what it was busy with."""
        if epoch != host.epoch:
            return
        host.busy = False
        if host.paused:
            return
        arrival, host.serving = host.serving, None
        if arrival is not None:
            self._receive(host, arrival)
            if epoch != host.epoch or self._still_sending(host):
                return
        self._work(host)
        if host.has_more and epoch == host.epoch:
            self._feed(host)

    def _receive(self, host: Host, arrival: Arrival) -> None:
        packet, due_us = arrival
        if self._clock.now > due_us:
            packet = packet._replace(waited_us=self._clock.now - due_us)
        host.guard -= 1
        self._hand_packet(host, packet)

    def work_on(self, host: Host, batch: Batch) -> None:
        """Messages were packed, or are delivered: what the host sends and does next is that much later."""
        if self._costs.message_us:
            work_us = self._costs.message_us * len(batch.payloads)
            host.departs_us = max(host.departs_us, self._clock.now) + work_us

    # --- timers --------------------------------------------------------------------------------

    def set_timer(self, host: Host, effect: SetTimer) -> None:
        """A machine sets a timer, or sets it anew."""
        name, delay_us = effect
        alarm = host.alarms.get(name)
        if alarm is None:
            alarm = host.alarms[name] = Alarm(host, name)
        deadline_us = self._clock.now + delay_us
        alarm.deadline_us = deadline_us
        if not 0 <= alarm.armed_us <= deadline_us:
            self._arm(alarm, deadline_us)

    def cancel_timer(self, host: Host, effect: CancelTimer) -> None:
        """A machine needs a timer no more."""
        alarm = host.alarms.get(effect.name)
        if alarm is not None:
            alarm.deadline_us = -1

    def _arm(self, alarm: Alarm, deadline_us: int) -> None:
        alarm.armed_us = deadline_us
        heappush(self._clock.heap, (deadline_us, self._clock.tick(), self._ring, alarm, deadline_us))

    def _ring(self, alarm: Alarm, armed_us: int) -> None:
        """A timer's heap entry comes up."""
        if alarm.armed_us != armed_us:
            return
        alarm.armed_us = -1
        deadline_us = alarm.deadline_us
        if deadline_us > armed_us:
            self._arm(alarm, deadline_us)
        elif deadline_us >= 0:
            host = alarm.host
            if host.paused or host.busy or host.arrivals or host.tokens:
                if not host.overdue:
                    host.guard = len(host.arrivals) + len(host.tokens) + (host.serving is not None)
                host.overdue.append(alarm)
            else:
                self._run_out(alarm)

    def _ring_overdue(self, host: Host) -> None:
        alarms, host.overdue = host.overdue, []
        epoch = host.epoch
        for alarm in alarms:
            if epoch == host.epoch and 0 <= alarm.deadline_us <= self._clock.now:
                self._run_out(alarm)

    def _run_out(self, alarm: Alarm) -> None:
        alarm.deadline_us = -1
        self._expire(alarm.host, alarm.name)
