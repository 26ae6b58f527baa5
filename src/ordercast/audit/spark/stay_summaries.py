"""What a stay comes to: the pieces of it that row groups tell of, put together by their steps."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from ordercast.audit.spark.chunks import NULL
from ordercast.audit.spark.passes import Fingerprint, Piece
from ordercast.audit.spark.plans import OrderBreak, RunKey


class StaySummary(NamedTuple):
    """A stay in which messages were delivered or originated."""

    node: int
    incarnation: int
    config_seq: int | None
    config_rep: int | None
    kind: int
    first_step: int
    last_step: int
    bad: int
    """Rows that lack a fact, or claim what cannot be."""
    delivered: int
    lowest: int | None
    highest: int | None
    """The lowest and the highest rank delivered."""
    placed: Fingerprint
    """A digest of the deliveries with their places."""
    content: Fingerprint
    """The same without."""
    safe: int
    first_safe_us: int | None
    sources: frozenset[tuple[int | None, int | None]]
    """The lowest and the highest configuration that messages of a transitional stay claim to be of."""
    originated: int
    own_highest: int | None
    own_placed: Fingerprint
    own_content: Fingerprint
    first_number: int | None
    last_number: int | None
    birth_lowest: int | None
    birth_highest: int | None
    """The lowest and the highest timestamp, with its ring, of what was delivered."""


def summaries_of(run: RunKey, pieces: Iterable[Piece]) -> tuple[list[StaySummary], list[OrderBreak], bool]:
    """The stays of a run, those of them in which something goes back, and whether that is not all known.

    Inside a piece rows have been compared one by one. Pieces that follow each other by their steps are
    compared by their bounds; where they overlap, the rows of the stay lie scattered.
    """
    by_stay: dict[tuple[int, int, int, int, int], list[Piece]] = {}
    for piece in pieces:
        stay = (piece.node, piece.incarnation, piece.config_seq, piece.config_rep, piece.kind)
        by_stay.setdefault(stay, []).append(piece)
    summaries: list[StaySummary] = []
    breaks: list[OrderBreak] = []
    scattered = False
    for its in by_stay.values():
        its.sort(key=lambda piece: piece.first_step)
        summaries.append(_together(its))
        overlapping = any(one.last_step >= other.first_step for one, other in pairwise(its))
        scattered |= overlapping
        back = [piece for piece in its if piece.back]
        lowest = [piece.back_lowest for piece in back]
        against = [piece.back_against for piece in back]
        delivered = own = number = birth = NULL
        for piece in () if overlapping else its:
            heard = max(delivered, own)
            behind = (
                _falls(piece.lowest, delivered)
                or _falls(piece.own_lowest, heard)
                or _falls(piece.first_number, number)
                or NULL != piece.birth_lowest < birth
            )
            if behind:
                lowest += [piece.lowest, piece.own_lowest]
                against.append(heard)
                back.append(piece)
            delivered, own = max(delivered, piece.highest), max(own, piece.own_highest)
            number, birth = max(number, piece.last_number), max(birth, piece.birth_highest)
        if back:
            head = its[0]
            ranks = [rank for rank in lowest if rank != NULL]
            breaks.append(
                OrderBreak(
                    run,
                    head.node,
                    _known(head.config_seq),
                    _known(head.config_rep),
                    min(ranks, default=None),
                    _known(max(against, default=NULL)),
                )
            )
    return summaries, breaks, scattered


def _falls(value: int, before: int) -> bool:
    """Whether a number that should have risen did not; nothing cannot."""
    return NULL not in (value, before) and value <= before


def _known(value: int) -> int | None:
    return None if value == NULL else value


def _together(pieces: list[Piece]) -> StaySummary:
    head = pieces[0]

    def total(name: str) -> int:
        return sum(getattr(piece, name) for piece in pieces)

    def lowest(name: str) -> int | None:
        return min((value for piece in pieces if (value := getattr(piece, name)) != NULL), default=None)

    def highest(name: str) -> int | None:
        return _known(max(getattr(piece, name) for piece in pieces))

    delivered, originated = total("delivered"), total("originated")
    return StaySummary(
        head.node,
        head.incarnation,
        _known(head.config_seq),
        _known(head.config_rep),
        head.kind,
        min(piece.first_step for piece in pieces),
        max(piece.last_step for piece in pieces),
        total("bad"),
        delivered,
        lowest("lowest"),
        highest("highest"),
        Fingerprint(delivered, total("low"), total("high")),
        Fingerprint(delivered, total("content_low"), total("content_high")),
        total("safe"),
        lowest("first_safe_us"),
        frozenset({(lowest("source_from"), lowest("rep_from")), (highest("source_to"), highest("rep_to"))}),
        originated,
        highest("own_highest"),
        Fingerprint(originated, total("own_low"), total("own_high")),
        Fingerprint(originated, total("own_content_low"), total("own_content_high")),
        lowest("first_number"),
        highest("last_number"),
        lowest("birth_lowest"),
        highest("birth_highest"),
    )
