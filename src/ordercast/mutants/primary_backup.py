"""Mistakes one could make in primary-backup."""

from __future__ import annotations

from typing import Any

from ordercast.core.contract import Effect
from ordercast.core.identity import NodeId
from ordercast.mutants.mutant import Mutant, register
from ordercast.mutants.sequencers import request_broadcast_twice
from ordercast.sequencers import settling
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import Acked, AnyPacket, MessageKey, Msg
from ordercast.sequencers.primary_backup import PrimaryBackup
from ordercast.sequencers.total import Total
from ordercast.viewsync.contract import View

PRIMARY_BACKUP_MUTANTS: list[Mutant] = []

_mutant = register(PRIMARY_BACKUP_MUTANTS)


# --- acknowledgements ------------------------------------------------------------------------------


@_mutant(
    "primary-backup", "answers", Order, "turn_to", "the primary answers before a backup has acknowledged"
)
def _answered_unacknowledged(right: Any) -> Any:
    def turn_to(self: Order, view: View) -> None:
        right(self, view)
        self._needed = dict.fromkeys(self._needed, 1)

    return turn_to


@_mutant("primary-backup", "answers", PrimaryBackup, "_all_have", "one update more counts as with all")
def _one_more_is_with_all(right: Any) -> Any:
    return lambda self, order, stable: right(self, order, stable + bool(stable))


@_mutant(
    "primary-backup", "answers", PrimaryBackup, "take", "the first acknowledgement counts for all backups"
)
def _one_acknowledges_for_all(right: Any) -> Any:
    def take(self: Any, order: Order, sender: NodeId, packet: AnyPacket, effects: list[Effect]) -> str:
        unused: str = right(self, order, sender, packet, effects)
        if isinstance(packet, Acked) and not unused:
            for member in order.core:
                order.learn(member, packet.place)
        return unused

    return take


@_mutant(
    "primary-backup", "answers", PrimaryBackup, "_tell", "a backup acknowledges what it has only heard of"
)
def _backup_acknowledges_unseen(right: Any) -> Any:
    def tell(self: Any, order: Order, effects: list[Effect], *to: NodeId) -> None:
        known = order.hgsn
        if not self.sequencing:
            order.hgsn = order.known
        right(self, order, effects, *to)
        order.hgsn = known

    return tell


@_mutant(
    "primary-backup", "answers", PrimaryBackup, "_tell", "the primary says that all have what it has itself"
)
def _primary_speaks_for_all(right: Any) -> Any:
    def tell(self: Any, order: Order, effects: list[Effect], *to: NodeId) -> None:
        known = order.stable
        if self.sequencing:
            order.stable = order.hgsn
        right(self, order, effects, *to)
        order.stable = known

    return tell


# --- the primary -----------------------------------------------------------------------------------


@_mutant(
    "primary-backup",
    "primary",
    PrimaryBackup,
    "_on_request",
    "a request that is repeated when all have it runs again",
)
def _request_runs_twice(right: Any) -> Any:
    return request_broadcast_twice(right)


@_mutant(
    "primary-backup",
    "primary",
    PrimaryBackup,
    "_bcast",
    "an update that is sent again has the next one's message",
)
def _update_with_another_message(right: Any) -> Any:
    def bcast(self: Any, order: Order, stable: int, seq: int, msg: Msg) -> bytes:
        placed = order.places.get(seq + 1)
        if placed is not None and (placed.node, placed.lsn) in order.BUF:
            msg = order.BUF[placed.node, placed.lsn]
        data: bytes = right(self, order, stable, seq, msg)
        return data

    return bcast


@_mutant("primary-backup", "primary", Total, "_elect", "the first two of the view both are primary")
def _two_primaries(right: Any) -> Any:
    def elect(self: Any, order: Order, effects: list[Effect]) -> None:
        right(self, order, effects)
        self.sequencing = self.me in order.core[:2]

    return elect


@_mutant("primary-backup", "primary", PrimaryBackup, "_on_update", "a backup keeps updates as they arrive")
def _updates_as_they_arrive(right: Any) -> Any:
    def on_update(self: Any, order: Order, sender: NodeId, place: int, stable: int, msg: Msg) -> str:
        if sender == self.holder and msg.key not in order.BUF and place > order.hgsn:
            place = order.hgsn + 1
        unused: str = right(self, order, sender, place, stable, msg)
        return unused

    return on_update


@_mutant(
    "primary-backup", "primary", settling, "_messages", "requests that the primary had not placed die with it"
)
def _requests_die_with_the_primary(right: Any) -> Any:
    def messages(order: Order, items: Any) -> dict[MessageKey, Msg]:
        return {key: msg for key, msg in right(order, items).items() if key in order.place_of}

    return messages
