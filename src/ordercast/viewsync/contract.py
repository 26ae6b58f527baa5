"""Where an orderer and the membership around it meet.

An *orderer* (`ordercast.sequencers`) gives messages their places inside one view. The *membership*
(`ordercast.viewsync`) agrees on the next view. Two calls pass between them: `Orderer.unsettled` when a change
begins, and `Orderer.install` when it ends. In between the orderer is frozen: it is given no packet and no
timer, and what it told of cannot change.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from ordercast.core.contract import Effect
from ordercast.core.identity import ConfigurationId, Guarantee, NodeId

ORDER_TIMER = "order "
"""Names of an orderer's timers begin like this; all others are the membership's."""


class View(NamedTuple):
    """A membership that its members agreed on (004 §4.3.2), and who of them the token goes round (§4.4.3)."""

    id: ConfigurationId
    """Its number, and its first member. Numbers only grow along a group's history."""
    members: tuple[NodeId, ...]
    """In ascending order."""
    incarnations: tuple[int, ...]
    """Which life of each of them is meant: a node that restarted is another member."""
    core: tuple[NodeId, ...]
    """The token list: all members, but for those that are external for now; ascending, and turned so that it
    begins with who holds the token first."""
    turn: int = 0
    """The j of an intermediate view (004 §4.3.5): counts changes of `core` while the members stay."""


class Stream(NamedTuple):
    """Packets that are numbered one by one: what an orderer's items are named by."""

    kind: int
    """Chosen by the orderer, 0 to 255."""
    node: NodeId
    """Whose they are; 0 where there is one such stream in a view."""
    incarnation: int


Items: TypeAlias = Mapping[Stream, Mapping[int, bytes]]
"""Packets by stream and number."""


class Unsettled(NamedTuple):
    """What one member knows of a view's order when the view is about to end."""

    floor: int
    """Places up to this one are settled everywhere, and what was there is no longer here."""
    upto: int
    """Places up to this one are known here without a gap, and the messages in them are here."""
    items: Items
    """Every packet of the view that somebody may lack: ordered ones beyond `floor`, and unordered ones."""


class Settled(NamedTuple):
    """What all who go on to the next view agreed to have of the last one."""

    upto: int
    """The highest place that one of them had reached without a gap. If only `core` changes, the order goes on
    behind it, and what was placed beyond it before has no place any more."""
    items: Items
    """The union of what they had; empty if only `core` changes."""


NOTHING = Settled(0, {})
"""What is settled when there was no view before."""


class Orderer(Protocol):
    """Gives messages their places inside a view. Pure: it answers by adding to `effects`."""

    closed: bool
    """While set, nothing new is originated: somebody brakes. What was originated goes its way."""

    def begin(self, incarnation: int) -> None:
        """The node begins a life; there is no view yet, but messages may be submitted."""

    def submit(
        self, now_us: int, payloads: Sequence[bytes], guarantee: Guarantee, effects: list[Effect]
    ) -> None:
        """Take messages, in order, with one `Accept`. Without a view, or frozen, they wait."""

    def packet(self, now_us: int, kind: int, sender: NodeId, data: bytes, effects: list[Effect]) -> None:
        """A packet of this view, from a member of it, of one of the orderer's kinds."""

    def timer(self, now_us: int, name: str, effects: list[Effect]) -> None:
        """A timer of its own ran out."""

    def proceed(self, now_us: int, effects: list[Effect]) -> None:
        """`closed` has changed: originate what waits, if that is allowed now."""

    def unsettled(self) -> Unsettled:
        """Freeze, and tell what is not settled. May be asked again while frozen."""

    def install(self, now_us: int, view: View, settled: Settled, effects: list[Effect]) -> None:
        """Settle the old view and go on in the new one.

        If the members change: deliver in the old view what of `settled` is not delivered yet, everyone alike;
        then `Install` the new one, with nothing in it, and say where the old one ended. If only `core`
        changes (same `View.id`, higher `turn`), the order goes on behind `settled.upto`, and the application
        is told nothing.
        """

    @property
    def room(self) -> int:
        """Bytes of payload that may be submitted now."""

    @property
    def idle(self) -> bool:
        """Whether everything it accepted has been delivered here, and is known to be with all members."""

    @property
    def holder(self) -> NodeId:
        """Who gives places now, as far as is known here; 0 where there is no view."""

    @property
    def next_holder(self) -> NodeId:
        """Who is going to give places after that one, as far as is known here; 0 where there is nobody."""

    @property
    def waiting_for(self) -> NodeId | None:
        """The member without whose answer nothing goes on here right now, if there is one (004 §4.1)."""

    @property
    def progress(self) -> Hashable:
        """Something that changes whenever the order gets on. It has to while somebody is waited for."""

    @property
    def unanswered(self) -> dict[NodeId, int]:
        """How often each member was sent something again, or asked, since the membership took it out of
        here, as it does when it hears a packet of the order from that member."""

    @property
    def activity(self) -> Hashable:
        """Something that changes at least every `silence_us` if those who order do so (004 §3.2.1 c); None
        where nobody else would show it."""

    @property
    def owed(self) -> tuple[int | None, ...]:
        """What this member waits for, one by one: each rises as it gets on; None where nothing is awaited."""

    @property
    def final(self) -> tuple[ConfigurationId, int] | None:
        """The view, and up to where everything was delivered here and is with all in the token list; None
        where there is no view."""

    @property
    def cut_off(self) -> bool:
        """Whether what this member lacks is no longer to be had from anyone (004 §4.4.3)."""

    @property
    def stats(self) -> Mapping[str, float]:
        """Running figures, by name."""
