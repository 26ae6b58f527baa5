"""The process groups of one node, for one of its lives: a pure machine over an ordering machine's deliveries.

`ProcessGroups` is told what local processes want and which configurations begin, and knows who is in which
group. What is delivered goes to its `routing` (`Routing.deliver`), which hands messages to the processes that
get them, and joins, leaves and states to `ProcessGroups`.

001, "The Totem Process Group Interface". Joins and leaves are messages of the one order, and a group changes
where they are delivered. A regular configuration begins with a `State` of each member: the groups that its
processes are in. All else that is delivered is held until the last of these has come; that is the place at
which memberships are put together (`_settle`), the same at all members, and what was held follows.

If the configuration ends first, what was held is handled in the groups' views as they are (`_give_up`). They
are views of the nodes that came into it together and have delivered the same, so these agree again.

A group may be a subscription (`ordercast.core.subjects`): its members get what is sent to all groups that its
pattern describes, and over a queue one of them does (`ordercast.process_groups.queues`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.core.addresses import MOST_GROUPS, address
from ordercast.core.contract import Attend, Submit
from ordercast.core.declared import Sort, Statistic, zeros
from ordercast.core.identity import Batch, Configuration, Guarantee, Kind, NodeId
from ordercast.process_groups.gathering import Gathering
from ordercast.process_groups.needs import Needs
from ordercast.process_groups.notes import (
    PART_SIZE,
    End,
    Join,
    Leave,
    Membership,
    Served,
    State,
    check_name,
    check_properties,
    states,
    written,
)
from ordercast.process_groups.routing import Routing
from ordercast.process_groups.send_queue import ENTRY_OVERHEAD, SendQueue
from ordercast.process_groups.table import Table
from ordercast.process_groups.views import (
    Cause,
    Declared,
    Installed,
    Left,
    Life,
    Member,
    Output,
    Process,
    Properties,
    Received,
    Recounted,
    View,
    ViewId,
)

QUEUE = 1024 * 1024
"""Bytes that a node's processes may have waiting until the ordering machine takes them."""
MOST_HELD = 512 * 1024 * 1024
"""Bytes that are held while a member's `State` is awaited; has to be above what the ordering machines of all
members may have in their send queues."""

STATISTICS = (
    Statistic("malformed", "Payloads that were delivered and are neither messages to groups nor notes."),
    Statistic("settled", "Configurations in which the memberships of all members were put together."),
    Statistic("given_up", "Configurations that ended before their members had told their memberships."),
    Statistic("left_out", "Members whose state did not come before too much was held."),
    Statistic("most_held", "Bytes that were held at most.", Sort.LARGEST),
    Statistic(
        "withheld", "Messages for processes here whose contents were lost with the nodes that had them."
    ),
    Statistic("sent_again", "Messages to a queue that were sent again: who was to get them has ended."),
)


class ProcessGroups:
    """The groups that processes of one node's life are in."""

    def __init__(
        self,
        node: NodeId,
        incarnation: int,
        *,
        queue: int = QUEUE,
        most_held: int = MOST_HELD,
        counted: int = 0,
        numbers: bool = False,
        voters: int = 0,
        needs_all: bool = False,
    ) -> None:
        """`queue` and `most_held` are in bytes; the latter has to be the same at all members.

        `counted` is how many messages there were in all, as far as this node knows; with `numbers` it is told
        of all messages, whoever they are for, and their numbers. `voters` is told to the others, and with it
        this node is told theirs. With `needs_all` or `numbers` the node needs the contents of all messages.
        """
        self.me = Life(node, incarnation)
        self.stats = zeros(STATISTICS)
        self.queue = SendQueue(queue)
        self._most_held = most_held
        self._voters = voters
        self._begun = 0
        self._asked: dict[int, set[str]] = {}
        """Of each process that lives, the groups that it has joined, or asked to join."""
        self._needs = Needs(needs_all or numbers)
        self._joiners: set[int] = set()
        """Those of them that ever asked to join a group: it may not be ordered yet that they left it."""
        self._fresh: list[Membership] = []
        """Joins of before the first configuration: told with the `State`, until that was heard by all."""
        self._ended: set[int] = set()
        """Processes that have ended, and are members until all are told."""
        self.routing = Routing(self.me, self._ended, self.queue, self.stats, self, counted, numbers=numbers)
        """What is delivered goes in here: who gets what, as the groups' table says."""
        self._lives = frozenset((self.me,))
        """Whose processes are in the table: those that this node came with into its configuration, and when
        it is settled, all members."""
        self._transitional: set[str] = set()
        """Groups whose last view was a transitional one."""
        self._configuration: Configuration | None = None
        self._changes = 0
        """Changes of memberships in this configuration; counted anew once it is settled."""
        self._gathering: Gathering | None = None
        self._held_bytes = 0
        """What is held while states are awaited, states included."""
        self._recounted = False
        """Whether it was told from which number on messages of this life are counted."""
        self._settled = False
        self.watched = False
        """Whether views are told of groups, too, that no process of this node is in."""
        self.part_size = PART_SIZE
        """Bytes that a part of this node's `State` has at most: has to fit into a message."""

    @property
    def _table(self) -> Table:
        """Who is in which group."""
        return self.routing.table

    # --- what local processes want --------------------------------------------------------------

    @property
    def room(self) -> int:
        """Bytes that may be sent now."""
        return self.queue.room

    @property
    def waiting(self) -> int:
        """Payloads that the ordering machine has not taken yet."""
        return len(self.queue)

    @property
    def counted(self) -> int:
        """Messages of the order, from the beginning of the group on: the same at all members once settled."""
        return self.routing.counted

    @property
    def reached(self) -> int:
        """The number of the last message that was delivered, as this node counts: it may be held."""
        return self.routing.reached

    @property
    def settled(self) -> bool:
        """Whether the memberships of all members of this regular configuration are put together."""
        return self._settled

    def members(self, group: str) -> tuple[Member, ...]:
        """The members of a group, as this node knows them now."""
        return self._table.members(group)

    def begin(self) -> int:
        """A process of this node begins; its number."""
        self._begun += 1
        self._asked[self._begun] = set()
        return self._begun

    def end(self, process: int) -> None:
        """A process has ended, in whatever way: it leaves all its groups, and gets nothing more at once."""
        self._groups_of(process)
        del self._asked[process]
        if self._configuration is None:
            self._fresh = [each for each in self._fresh if each.process != process]
            self._needs.end(process)
        elif process in self._joiners:
            self._joiners.remove(process)
            self._ended.add(process)
            self.routing.forget()
            self.queue.put(written(End(process)), Guarantee.AGREED, urgent=True)

    def join(self, process: int, group: str, properties: Properties | None = None) -> None:
        """A process wants to be in a group, which is created if there is none of that name.

        It is in it from the view on that tells it so; if it asks before the first configuration of this life,
        from that one's beginning on. Raises `QueueFull` if there is no room.
        """
        check_name(group)
        check_properties(properties or {})
        asked = self._groups_of(process)
        if self._configuration is None:
            self._fresh.append(Membership(process, group, dict(properties or {})))
        else:
            self.queue.put(written(Join(process, group, dict(properties or {}))), Guarantee.AGREED)
        if group not in asked:
            self._needs.add(process, group)
        asked.add(group)
        self._joiners.add(process)

    def leave(self, process: int, group: str) -> None:
        """A process wants to be in a group no longer; it is until it is told that it has left."""
        asked = self._groups_of(process)
        if group not in asked:
            raise ValueError(f"process {process} has not joined {group!r}: join it first")
        asked.remove(group)
        if self._configuration is None:
            self._fresh = [each for each in self._fresh if (each.process, each.group) != (process, group)]
            self._needs.remove(process, group)
        else:
            self.queue.put(written(Leave(process, group)), Guarantee.AGREED, urgent=True)

    def send(
        self, process: int, groups: Sequence[str], body: bytes, guarantee: Guarantee = Guarantee.AGREED
    ) -> None:
        """A message to all who are in any of the groups. Raises `QueueFull` if there is no room.

        The sender need not be in them; process 0 is the node itself.
        """
        if process:
            self._groups_of(process)
        if not 0 < len(set(groups)) == len(groups) <= MOST_GROUPS:
            raise ValueError(
                f"a message is for 1 to {MOST_GROUPS} different groups, not for {len(groups)}: name each once"
            )
        for group in groups:
            check_name(group)
        self.queue.put(address(process, groups) + body, guarantee)

    def hand_over(self, received: Received) -> None:
        """A process that was to get messages of a queue could not take them: another member does.

        The process has left the queue, or ended, before this is called; else it may be chosen again.
        """
        self.routing.hand_over(received)

    def _groups_of(self, process: int) -> set[str]:
        if process not in self._asked:
            raise ValueError(f"there is no process {process} now: begin one")
        return self._asked[process]

    @property
    def has_more(self) -> bool:
        """Whether there is something that the ordering machine is to be told or given."""
        return self._needs.changed or len(self.queue) > 0

    def attend(self) -> Attend | None:
        """What the ordering machine is to be told before it is given more; None if nothing has changed."""
        return self._needs.attend()

    def take(self, room: int) -> Submit | None:
        """What the ordering machine is to be given next, if it has `room` for so many bytes.

        Until the configuration is settled that is this node's `State` alone: so no more has to be held than
        was in the send queues of all members' ordering machines.
        """
        return self.queue.take(room, states_only=not self._settled)

    # --- what the ordering machine does -----------------------------------------------------------

    def conclude(self) -> list[Output]:
        """The configuration ends: go on with what was held in it, if its members' states have not come."""
        out: list[Output] = []
        if self.routing.holding:
            self._give_up(out)
        self._gathering = None
        self._settled = False
        self.routing.settled_in = None
        return out

    def install(self, configuration: Configuration) -> list[Output]:
        """A configuration begins, regular or transitional, and the one before it ends (`conclude`)."""
        out = self.conclude()
        self._configuration = configuration
        self._changes = 0
        self._lives = frozenset(life for life in self._lives if life.node in configuration.members)
        self.routing.shares.lose(self._lives, self._lives)
        self.routing.send_owed(self._lives)
        lost = self._table.keep(self._lives)
        if lost:
            self._announce(lost, Cause.LOST, out)
        if configuration.kind is Kind.REGULAR:
            self._gathering = Gathering(configuration)
            self.routing.hold()
            self._held_bytes = 0
            told = (*self._table.of_life(self.me), *self._fresh)
            self.queue.tell(
                states(configuration.id, told, self.part_size, self.routing.counted, self._voters)
            )
        return out

    # --- the beginning of a configuration ---------------------------------------------------------

    def on_state(self, life: Life, state: State, size: int, out: list[Output]) -> None:
        """A member tells of its processes, or a part of it does, in `size` bytes."""
        gathering = self._gathering
        if gathering is None or state.configuration != gathering.configuration:
            return  # of a configuration that ended before it was sent
        whole = gathering.take(life, state)
        if whole and not self.routing.holding:
            self._let_in(gathering, life, out)
        elif not gathering.missing and self.routing.holding:
            self._settle(gathering, out)
        else:
            self.on_held(size, out)

    def _settle(self, gathering: Gathering, out: list[Output]) -> None:
        """Put together what members told of their processes; then go on with what was held."""
        if self._voters:
            out.append(Declared(gathering.voters))
        table = Table()
        for life, memberships in gathering.told.items():
            for each in memberships:
                table.add(Process(*life, each.process), each.group, each.properties)
        before, self.routing.table = self._table, table
        self.routing.shares.lose(gathering.told, self._lives)
        self.routing.shares.settle()
        self._lives = frozenset(gathering.told)
        self.routing.send_owed(self._lives)
        self._settled = True
        self.routing.settled_in = gathering.configuration
        self._recount(gathering, out)
        if self.me in gathering.told:
            self._fresh.clear()
        self._changes = 0
        self._held_bytes = 0
        self.stats["settled"] += 1
        self.stats["left_out"] += len(gathering.missing)
        changed = {group for group in {*before.groups, *table.groups} if not before.same(table, group)}
        changed |= self._transitional
        self._transitional.clear()
        grown = {group for group in changed if set(table.processes(group)) - set(before.processes(group))}
        for group in sorted(changed):
            out += self._left_behind(group, before)
        self._announce(sorted(changed), Cause.LOST, out, merged=grown)
        self._changes = 1  # also at those for whom nothing has changed: from here on all count alike
        self.routing.handle_held(out)

    def _recount(self, gathering: Gathering, out: list[Output]) -> None:
        """Messages of this configuration are counted behind the highest number that a member knows of."""
        before = self.routing.counted
        self.routing.counted = max(before, gathering.counted)
        if self.routing.numbers and (self.routing.counted > before or not self._recounted):
            self._recounted = True
            out.append(Recounted(gathering.configuration, before, self.routing.counted))

    def _left_behind(self, group: str, before: Table) -> list[Output]:
        """Processes of this node that are no longer in a group, because its state did not come in time."""
        gone = sorted(set(before.processes(group)) - set(self._table.processes(group)))
        return [
            Left(process.number, group, Cause.LOST)
            for process in gone
            if process.life == self.me and process.number not in self._ended
        ]

    def _let_in(self, gathering: Gathering, life: Life, out: list[Output]) -> None:
        """A member that was left out tells of its processes after all."""
        self._lives |= {life}
        if life == self.me:
            self._fresh.clear()
        groups = {
            each.group
            for each in gathering.told[life]
            if self._table.add(Process(*life, each.process), each.group, each.properties)
        }
        self._announce(sorted(groups), Cause.MERGED, out)

    def _give_up(self, out: list[Output]) -> None:
        """The configuration ends before its members' states have come.

        What was delivered in it was delivered to nodes that came from elsewhere, too. So the groups go on in
        transitional views here, which say nothing of who is in them there.
        """
        self.stats["given_up"] += 1
        if self._gathering is not None and self._gathering.members - {life.node for life in self._lives}:
            regular = sorted(group for group in self._table.groups if group not in self._transitional)
            self._announce(regular, Cause.UNSETTLED, out)
        self.routing.handle_held(out)

    def on_held(self, size: int, out: list[Output]) -> None:
        """So many bytes more are held, of messages or of states; see that it stays bounded."""
        self._held_bytes += size + ENTRY_OVERHEAD
        self.stats["most_held"] = max(self.stats["most_held"], self._held_bytes)
        if self._held_bytes <= self._most_held or self._gathering is None:
            return
        if self.routing.holding:
            self._settle(self._gathering, out)
        else:
            self._gathering = (
                None  # who was left out tells too much: it stays so until the next configuration
            )

    # --- joins and leaves -------------------------------------------------------------------------

    def on_note(self, note: Join | Leave | End | Served, batch: Batch, out: list[Output]) -> None:
        """A note of a process that joins or leaves, or of messages that a queue's members got."""
        life = Life(batch.origin, batch.incarnation)
        if life not in self._lives:  # its groups are not known here: its next state tells
            if isinstance(note, Join) and not self._settled:
                self._join_elsewhere(note.group, out)
            return
        if isinstance(note, Served):
            if note.configuration == self.routing.settled_in:
                self.routing.shares.served(life, note.count)
            return
        process = Process(*life, note.process)
        match note:
            case Join(_, group, properties):
                if self._table.add(process, group, properties):
                    self._announce([group], Cause.JOINED, out)
            case Leave(_, group):
                self._remove(process, [group], Cause.LEFT, out)
                if life == self.me:
                    self._needs.remove(note.process, group)
            case End():
                self._remove(process, self._table.groups_of(process), Cause.DIED, out)
                if life == self.me:
                    self._ended.discard(process.number)
                    self._needs.end(note.process)

    def _join_elsewhere(self, group: str, out: list[Output]) -> None:
        """A process of another part joins a group: there the group gets a view that it does not get here."""
        if group in self._table.groups and group not in self._transitional:
            self._announce([group], Cause.UNSETTLED, out)

    def _remove(self, process: Process, groups: list[str], cause: Cause, out: list[Output]) -> None:
        removed = [group for group in groups if self._table.remove(process, group)]
        if process.life == self.me and process.number not in self._ended:
            out += (Left(process.number, group, cause) for group in removed)
        self._announce(removed, cause, out)

    # --- views ------------------------------------------------------------------------------------

    def _announce(
        self,
        groups: Sequence[str],
        cause: Cause,
        out: list[Output],
        merged: set[str] | frozenset[str] = frozenset(),
    ) -> None:
        """These groups have changed, at one place in the order: tell their members at this node."""
        if not groups or self._configuration is None:
            return
        self.routing.forget()
        self._changes += 1
        part = None if self._settled else min(self._lives)
        if part is not None:
            self._transitional.update(groups)
        view_id = ViewId(self._configuration.id, self._changes, part)
        for group in groups:
            to = self.routing.local([group])
            if to or self.watched:
                why = Cause.MERGED if group in merged else cause
                out.append(Installed(View(group, view_id, self._table.members(group), why), to))
