"""The processors of the simulated hosts: what waits, in which order it is worked on, and the timers.

Where a packet costs no processor time and the node is not paused, it goes straight to the machine and
nothing of this is used but the timers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappush

from ordercast.core.contract import CancelTimer, Event, Packet, SetTimer, Timer
from ordercast.core.identity import NodeId
from ordercast.sim.clock import Clock
from ordercast.sim.host import Alarm, Arrival, Host
from ordercast.sim.network import NetworkConfig
from ordercast.trace.recorder import Recorder


class Processors(Clock):
    """Hosts that take their time. What an event does at a host is the subclass's: `_step`."""

    def __init__(
        self,
        nodes: Sequence[NodeId],
        network: NetworkConfig,
        seed: int | str,
        packets: bool,
        kind_of: Callable[[bytes], str | None],
    ) -> None:
        super().__init__(seed)
        self.nodes = tuple(sorted(nodes))
        self.hosts = {node: Host(node, Recorder(node, self.rows, packets, kind_of)) for node in self.nodes}
        self.receptions = 0
        """Packets that machines have handled."""
        self.timeouts = 0
        """Timers that ran out."""
        self._config = network
        for host in self.hosts.values():
            host.input_bytes = network.input_bytes
        self._plain = not (packets or network.receive_us or network.unicast_us or network.send_us)

    def _step(self, host: Host, event: Event) -> None:
        """Give a machine an event, and carry out what it answers."""
        raise NotImplementedError

    def _feed(self, host: Host) -> None:
        """Submit what waits, as far as the machine has room."""
        raise NotImplementedError

    def _lose(self, host: Host, packet: Packet, reason: str) -> None:
        """A packet will not reach the machine."""
        raise NotImplementedError

    def _refresh(self, host: Host) -> None:
        """See anew whether arrivals may go straight to the machine."""
        free = not (host.paused or host.busy or host.arrivals or host.tokens or host.overdue)
        host.direct = self._plain and host.up and free and host.fuse is None and not host.slow_us

    def pause(self, node: NodeId) -> None:
        """Stop a process: arrivals wait in its buffers, its timers run out unheard."""
        host = self.hosts[node]
        if host.up:
            host.paused = True
            host.direct = False

    def resume(self, node: NodeId) -> None:
        """Let a paused process go on: first what waits in its buffers, then its overdue timers."""
        host = self.hosts[node]
        if not host.paused:
            return
        host.paused = False
        host.guard = len(host.arrivals) + len(host.tokens) + (host.serving is not None)
        if not host.busy:
            self._served(host, host.epoch)

    def limit_input(self, node: NodeId, input_bytes: int) -> None:
        """From now on the node's input buffers hold so many bytes, other than the network's hosts have."""
        self.hosts[node].input_bytes = input_bytes

    def slow(self, node: NodeId, cost_us: int) -> None:
        """From now on each packet takes the node so much longer; 0 ends it. Outlives a crash."""
        host = self.hosts[node]
        host.slow_us = cost_us
        self._refresh(host)

    def _line_up(self, host: Host, packet: Packet, unicast: bool) -> None:
        """A packet arrives where something stands between it and the machine."""
        if not host.up:
            self._lose(host, packet, "down")
            return
        size = len(packet.data)
        held = host.tokens_bytes if unicast else host.arrivals_bytes
        if held + size > host.input_bytes and held:
            self._lose(host, packet, "overflow")
            return
        if unicast:
            host.tokens.append(Arrival(packet, self.now + self._config.unicast_us))
            host.tokens_bytes += size
        else:
            host.arrivals.append(Arrival(packet, self.now + self._config.receive_us))
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
                if self._takes_time(host, arrival, self._config.receive_us):
                    return
            elif host.tokens:
                arrival = host.tokens.popleft()
                host.tokens_bytes -= len(arrival.packet.data)
                if self._takes_time(host, arrival, self._config.unicast_us):
                    return
            else:
                self._refresh(host)
                return

    def _takes_time(self, host: Host, arrival: Arrival, cost_us: int) -> bool:
        """Handle a packet now if it costs nothing; otherwise the processor is busy with it."""
        cost_us += host.slow_us
        if cost_us:
            host.serving = arrival
            self._occupy(host, self.now + cost_us)
            return True
        self._receive(host, arrival)
        return self._still_sending(host)

    def _occupy(self, host: Host, until_us: int) -> None:
        host.busy = True
        heappush(self._heap, (until_us, self._tick(), self._served, host, host.epoch))

    def _still_sending(self, host: Host) -> bool:
        if host.up and host.departs_us > self.now:
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
        if host.appetite and epoch == host.epoch:
            self._feed(host)

    def _receive(self, host: Host, arrival: Arrival) -> None:
        packet, due_us = arrival
        if self.now > due_us:
            packet = packet._replace(waited_us=self.now - due_us)
        host.guard -= 1
        self.receptions += 1
        host.in_hand = packet
        host.record.packet(self.now, "packet_received", packet.data)
        self._step(host, packet)

    # --- timers --------------------------------------------------------------------------------

    def _set_timer(self, host: Host, effect: SetTimer) -> None:
        name, delay_us = effect
        alarm = host.alarms.get(name)
        if alarm is None:
            alarm = host.alarms[name] = Alarm(host, name)
        deadline_us = self.now + delay_us
        alarm.deadline_us = deadline_us
        if not 0 <= alarm.armed_us <= deadline_us:
            alarm.armed_us = deadline_us
            heappush(self._heap, (deadline_us, self._tick(), self._ring, alarm, deadline_us))

    def _cancel_timer(self, host: Host, effect: CancelTimer) -> None:
        alarm = host.alarms.get(effect.name)
        if alarm is not None:
            alarm.deadline_us = -1

    def _ring(self, alarm: Alarm, armed_us: int) -> None:
        """A timer's heap entry comes up."""
        if alarm.armed_us != armed_us:
            return
        alarm.armed_us = -1
        deadline_us = alarm.deadline_us
        if deadline_us > armed_us:
            alarm.armed_us = deadline_us
            heappush(self._heap, (deadline_us, self._tick(), self._ring, alarm, deadline_us))
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
            if epoch == host.epoch and 0 <= alarm.deadline_us <= self.now:
                self._run_out(alarm)

    def _run_out(self, alarm: Alarm) -> None:
        alarm.deadline_us = -1
        self.timeouts += 1
        self._step(alarm.host, Timer(alarm.name))
