"""Two groups meet (003, "Future Improvements": MERGE): members of the younger one go over to the older."""

from __future__ import annotations

from ordercast.core.contract import Drop, Effect
from ordercast.core.identity import NodeId
from ordercast.viewsync.header import NO_VIEW, Header
from ordercast.viewsync.life import Life
from ordercast.viewsync.packets import Answer, Group, Knock
from ordercast.viewsync.states import State


class OlderGroups:
    """Whether an older group that was heard of is there, and hears this node."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._asked: tuple[NodeId, Knock, int] | None = None
        """Who was asked whether an older group is there, how, and when."""

    def ask(self, now_us: int, node: NodeId, group: Group, effects: list[Effect]) -> None:
        """Ask who seems to be in an older group whether it is: a heartbeat may be forged, or of long ago."""
        life = self._life
        if self._asked is None or now_us - self._asked[2] >= life.config.heartbeat_us:
            self._asked = (node, Knock(group, life.random.bits(64)), now_us)
            life.send(Knock(life.group, self._asked[1].nonce), NO_VIEW, effects, to=node)

    def on_knock(self, head: Header, packet: Knock, effects: list[Effect]) -> None:
        """Answer a node that asks whether there is an older group here."""
        life = self._life
        if life.state is State.MEMBER and life.group < packet.group:
            life.send(Answer(life.group, packet.nonce), NO_VIEW, effects, to=head.sender)
        else:
            effects.append(Drop("not in an older group"))

    def on_answer(self, head: Header, packet: Answer, effects: list[Effect]) -> None:
        """There is an older group, and it hears us: end this life; the next one is let in there.

        Nothing is given up before that. If the older group is gone by then, the next life has its vote in
        this one as after any crash, and goes on here.
        """
        life, asked = self._life, self._asked
        if asked is None or (head.sender, Knock(*packet)) != asked[:2] or life.view is None:
            effects.append(Drop("nobody asked"))
        elif packet.group < life.group:
            life.halt("older group met", effects)
