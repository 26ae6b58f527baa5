"""A member of the sequencer family as one pure machine: an orderer inside a membership (004 §4, Fig. 36).

Follow a message: `Submit` hands it to the orderer, which sends it and learns its place; packets of the view
go straight to the orderer (`_on_packet`), which delivers as soon as the message's level of resilience allows.
What happens when the view has to change is in `membership`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ordercast.core.contract import (
    LEFT,
    Attend,
    Brake,
    Distance,
    Drop,
    Effect,
    Event,
    Gone,
    Packet,
    Start,
    Stop,
    Submit,
    Timer,
)
from ordercast.core.fronted import whole
from ordercast.core.identity import ConfigurationId, Guarantee, NodeId
from ordercast.core.wire import FORGED_SENDER, Malformed
from ordercast.viewsync.change import ViewChange
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.contract import ORDER_TIMER, Orderer, View
from ordercast.viewsync.header import FIRST_ORDER_KIND, Header, read_header
from ordercast.viewsync.joining import Joining
from ordercast.viewsync.life import CHANGE_TIMER, HEARTBEAT_TIMER, JOIN_TIMER, Life
from ordercast.viewsync.membership import Membership
from ordercast.viewsync.packets import (
    Answer,
    Decide,
    Excluded,
    Fetch,
    Heartbeat,
    Item,
    Join,
    Knock,
    MembershipPacket,
    Summary,
    decode,
)
from ordercast.viewsync.parts import PART, Parts, decode_part
from ordercast.viewsync.states import State


class GroupMachine:
    """One member of a group."""

    def __init__(
        self,
        me: NodeId,
        config: GroupConfig,
        orderer: Orderer,
        *,
        procedure: type[ViewChange] = ViewChange,
        i_views: bool = False,
    ) -> None:
        """A member that has not been started.

        `procedure` is how its views change. With `i_views`, who is slow leaves the token list first, not the
        view.
        """
        self.me = me
        self.config = config
        self.orderer = orderer
        self.life = Life(me, config, orderer, procedure, i_views)
        self.joining = Joining(self.life)
        self.membership = Membership(self.life, self.joining)
        self._parts = Parts(config.max_members)

    # --- the contract ---------------------------------------------------------------------------

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Take one event; the effects that follow from it, to be carried out in this order."""
        if type(event) is Packet:
            return self._on_packet(now_us, event)
        assert not self.life.halted, f"node {self.me} has halted; make a new machine and start it"
        effects: list[Effect] = []
        match event:
            case Timer(name):
                self._on_timer(now_us, name, effects)
            case Submit(payloads, guarantee):
                self._on_submit(now_us, payloads, guarantee, effects)
            case Distance():
                pass  # the timeouts of this family are set by hand
            case Attend():
                pass  # all members of a view get everything
            case Gone(node):
                self._on_gone(now_us, node, effects)
            case Start(incarnation, stored, seed):
                if self.life.incarnation >= 0:
                    raise RuntimeError(f"node {self.me} was started before; make a new machine")
                self.joining.begin(now_us, incarnation, stored, seed, effects)
            case Stop():
                self._on_stop(now_us, effects)
            case Brake(on):
                self._on_brake(now_us, on, effects)
            case _:
                raise TypeError(f"not an event: {event!r}")
        self.membership.look_after(now_us, effects)
        return effects

    @property
    def state(self) -> State:
        """Where this node stands with its group."""
        return self.life.state

    @property
    def halted(self) -> bool:
        """Whether this life is over."""
        return self.life.halted

    @property
    def voting_view(self) -> View | None:
        """The view whose members decide on the next one, if this node is one of them."""
        return self.life.known_view

    @property
    def room(self) -> int:
        """Size of the largest message that may be submitted now."""
        if self.life.halted or self.life.leaving or self.life.incarnation < 0:
            return 0
        return min(self.orderer.room, self.config.max_message_size)

    @property
    def stats(self) -> Mapping[str, float]:
        """Running figures, by name."""
        return {**self.life.stats, **self.orderer.stats}

    @property
    def waits(self) -> Mapping[NodeId, int]:
        """Not known in this family."""
        return {}

    @property
    def role(self) -> str:
        """What this member is for the others right now; empty in no view."""
        view, orderer = self.life.view, self.orderer
        if view is None:
            return ""
        if self.me not in view.core:
            return "external"
        if orderer.holder == self.me:
            return "sequencer"
        return "next" if orderer.next_holder == self.me else "member"

    @property
    def laggard(self) -> NodeId | None:
        """The node that brakes; or else one that is waited for."""
        if self.life.state is not State.MEMBER:
            return None
        if self.life.brakes.mine:
            return self.me
        return min(self.life.brakes.others, default=None) or self.orderer.waiting_for

    @property
    def final(self) -> tuple[ConfigurationId, int] | None:
        """A view is decided before it is installed, and with it everything before; in it, what all have."""
        return self.orderer.final

    # --- events ---------------------------------------------------------------------------------

    def _on_submit(
        self, now_us: int, payloads: Sequence[bytes], guarantee: Guarantee, effects: list[Effect]
    ) -> None:
        if self.life.incarnation < 0 or self.life.leaving:
            raise RuntimeError(f"node {self.me} takes no messages: it is not started, or it is leaving")
        payloads = whole(payloads)
        largest = max(map(len, payloads), default=0)
        if largest > self.config.max_message_size:
            raise ValueError(
                f"a message of {largest} bytes is larger than max_message_size "
                f"({self.config.max_message_size}); split it, or raise the limit at every node"
            )
        self.orderer.submit(now_us, payloads, guarantee, effects)

    def _on_stop(self, now_us: int, effects: list[Effect]) -> None:
        self.life.leaving = True
        if self.life.view is None:
            self.life.halt(LEFT, effects)
        else:
            self.membership.leave_if_done(now_us, effects)

    def _on_brake(self, now_us: int, on: bool, effects: list[Effect]) -> None:
        """The application falls behind, or has caught up: the others hear it now, and with each heartbeat."""
        self.life.brakes.mine = on
        if self.life.view is not None:
            self.life.tell(Heartbeat(self.life.group, self.life.view.turn, on), effects)
        self.membership.heed_brakes(now_us, effects)

    def _on_gone(self, now_us: int, node: NodeId, effects: list[Effect]) -> None:
        self.life.detector.gone(node)
        if self.life.state is State.MEMBER and node in self.life.lives and node != self.me:
            self.membership.start(now_us, True, "member gone", effects)

    def _on_timer(self, now_us: int, name: str, effects: list[Effect]) -> None:
        if name.startswith(ORDER_TIMER):
            if self.life.state is State.MEMBER:
                self.orderer.timer(now_us, name, effects)
        elif name == HEARTBEAT_TIMER:
            self.membership.on_heartbeat_timer(now_us, effects)
        elif name == JOIN_TIMER:
            self.joining.on_join_timer(now_us, effects)
        elif name == CHANGE_TIMER:
            self.membership.on_change_timer(now_us, effects)

    # --- packets --------------------------------------------------------------------------------

    def _on_packet(self, now_us: int, packet: Packet) -> Sequence[Effect]:
        if self.life.halted:
            return (Drop("halted"),)
        try:
            data = packet.data
            head = read_header(data)
            if head.sender != packet.sender:
                return (Drop(FORGED_SENDER),)
            if head.kind == PART:
                whole = self._parts.join(head.sender, decode_part(data))
                if whole is None:
                    return ()
                head, data = read_header(whole), whole
                if head.sender != packet.sender:
                    return (Drop(FORGED_SENDER),)
            effects: list[Effect] = []
            if head.kind >= FIRST_ORDER_KIND:
                self._on_ordered(now_us, head, data, effects)
            else:
                self._on_membership(now_us, head, data, effects)
        except Malformed as bad:
            return (Drop(str(bad)),)
        return effects

    def _on_ordered(self, now_us: int, head: Header, data: bytes, effects: list[Effect]) -> None:
        view = self.life.view
        if head.sender == self.me:
            effects.append(Drop(FORGED_SENDER))
            return
        if view is None or head.view != view.id or self.life.lives.get(head.sender) != head.incarnation:
            effects.append(Drop("other view"))
            return
        self.life.detector.heard(now_us, head.sender)
        if self.orderer.unanswered:
            self.life.traffic.answered(now_us, head.sender)
        if self.life.state is State.MEMBER:
            self.orderer.packet(now_us, head.kind, head.sender, data, effects)
        else:
            effects.append(Drop("view is changing"))

    def _is_sign_of_life(self, head: Header, packet: MembershipPacket) -> bool:
        """Whether a packet shows that a member takes part, or is about to.

        One that stays behind in an earlier view, and does not even fetch what it lacks, hears nothing.
        """
        if self.life.view is None:
            return True
        known = self.life.lives.get(head.sender, 0)
        here = head.view == self.life.view.id or isinstance(packet, Fetch)
        return head.incarnation > known or (head.incarnation == known and here)

    def _on_membership(self, now_us: int, head: Header, data: bytes, effects: list[Effect]) -> None:
        packet = decode(head, data)
        if head.sender == self.me:
            effects.append(Drop("mine, of an earlier life"))
            return
        if not self.life.i_views and getattr(packet, "turn", 0) != 0:
            effects.append(Drop("a token list that there never is"))
            return
        if self._is_sign_of_life(head, packet):
            self.life.detector.heard(now_us, head.sender)
        match packet:
            case Heartbeat():
                self.membership.on_heartbeat(now_us, head, packet, effects)
            case Join():
                self.membership.on_join(now_us, head, packet, effects)
            case Summary():
                self.membership.on_summary(now_us, head, packet, effects)
            case Fetch():
                self.membership.on_fetch(now_us, head, packet, effects)
            case Item():
                self.membership.on_item(now_us, head, packet, effects)
            case Decide():
                self.membership.on_decide(now_us, head, packet, effects)
            case Excluded():
                self.membership.on_excluded(head, packet, effects)
            case Knock():
                self.membership.older.on_knock(head, packet, effects)
            case Answer():
                self.membership.older.on_answer(head, packet, effects)
            case _:
                self.membership.on_vote(now_us, head, packet, effects)
        self.membership.look_after(now_us, effects)
