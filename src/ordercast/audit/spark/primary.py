"""The certificate for runs of the sequencer family: view synchrony with uniform total order.

Of a run the following is asked. All of it is read off the passes' few numbers:

1. its views by themselves are right (the reference's own check, over all installs), by which they rise at
   every node over all its lives; and so is what changes say of the places at which they ended, by the ranks
   of 3;
2. every delivery and origination lies, by its step, in the stay that it names, is of a message of that view,
   and lacks nothing; originations are by the node and the life that the message names (`chunks._bad`);
3. in every stay deliveries rise in rank; numbers of originations rise over a life;
4. of each view the stay that delivered most is the *witness*: what any other delivered there has the
   fingerprint of what the witness delivered up to the same rank, places, guarantees, groups and sizes
   included;
5. up to the view's *cut*, the rank up to which everybody who went on had delivered, what the witness
   delivered of each sender has the fingerprint, places aside, of what that sender originated in the view up
   to the number of the last of these.

What lies beyond the cuts, the *tail*, is judged by the reference, together with all views: deliveries with a
higher rank, and originations with a higher number.

Why that is enough. By 3 and 4 all deliveries of a view are beginnings of one order, equal to the letter, and
no place is shared: with 1 every node's deliveries follow one order, which is ``uniform-order``, whoever
failed. By 3 no two originations share an identity, so by 5 the messages up to the cut are distinct, were
broadcast, in that view, and are what was broadcast: nothing there breaks ``uniform-integrity`` or
``sending-view``. If one of them is delivered once more beyond the cut, or in another view, that delivery is
in a tail and its origination is not: the reference calls it one that nobody broadcast.

Whoever owes anything has gone on, so it has the whole part up to the cut: nothing of that is missing for
``uniform-agreement`` or ``validity``, and it is the same in every set that ``view-synchrony`` compares. Who
fails, and what that excuses, is told by the views and lives alone, which the reference has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ordercast.audit.followers import FollowedViews
from ordercast.audit.history import Stay
from ordercast.audit.spark.chunks import NOTHING
from ordercast.audit.spark.membership_history import Run, added
from ordercast.audit.spark.passes import Bucket, Fingerprint, Place, Sender, Witness
from ordercast.audit.spark.stay_summaries import StaySummary
from ordercast.audit.synchrony import view_agreement
from ordercast.audit.views import Views
from ordercast.core.identity import ConfigurationId


def look_at(run: Run) -> None:
    """Condition 1; the rest needs more of the trace, or was seen when the run was laid out."""
    assert isinstance(run.history, Views), "the set of properties says what it is read off"
    for found in view_agreement(run.history):
        run.doubt(found.sentence, *found.configurations)
    if isinstance(run.history, FollowedViews) and run.history.following:
        run.doubt("what its followers were told has to be looked at row by row")
    run.look_at_ends()


def _witness(run: Run, stays: Sequence[Stay]) -> StaySummary | None:
    told = [summary for stay in stays if (summary := run.deliveries(stay)) is not None]
    return max(told, key=lambda summary: summary.delivered, default=None)


def boundaries(run: Run) -> dict[Place, tuple[Witness, list[int]]]:
    """Where the witnesses' orders have to be cut for conditions 4 and 5."""
    wanted: dict[Place, tuple[Witness, list[int]]] = {}
    for view, stays in run.history.installs.items():
        own = added(summary.own_content for summary in run.originations(view))
        witness = _witness(run, stays)
        if witness is None:
            if own.messages:
                run.cuts[view] = NOTHING
            continue
        ranks = {run.last(stay) for stay in stays if _differs(run.deliveries(stay), witness)}
        cut = run.certified_up_to(stays)
        if cut != witness.highest or witness.content != own:
            run.cuts[view] = cut
            ranks.add(cut)
        ranks.discard(NOTHING)
        if ranks:
            wanted[run.place(view)] = ((witness.node, witness.incarnation), sorted(ranks))
    return wanted


def _differs(summary: StaySummary | None, witness: StaySummary) -> bool:
    return summary is not None and summary.placed != witness.placed


def compare(
    run: Run, wanted: Mapping[Place, tuple[Witness, Sequence[int]]], found: Iterable[Bucket]
) -> dict[Sender, tuple[int, Fingerprint]]:
    """Condition 4; and for condition 5 of each sender the last number up to the cut, and the fingerprint."""
    by_place: dict[Place, list[Bucket]] = {}
    for bucket in found:
        by_place.setdefault(bucket.place, []).append(bucket)
    senders: dict[Sender, tuple[int, Fingerprint]] = {}
    for view, stays in run.history.installs.items():
        place = run.place(view)
        witness = _witness(run, stays)
        if witness is None:
            continue
        _, ranks = wanted.get(place, (None, ()))
        told = by_place.get(place, [])
        upto = {
            rank: added(bucket.placed for bucket in told if bucket.bucket <= at)
            for at, rank in enumerate(ranks)
        }
        for stay in stays:
            summary = run.deliveries(stay)
            if summary is not None and summary.placed not in (witness.placed, upto.get(run.last(stay))):
                run.doubt(f"node {stay.node} delivered in view {view} something else than others did", view)
        cut = run.cuts.get(view, NOTHING)
        if cut != NOTHING:
            at = ranks.index(cut)
            for bucket in told:
                if bucket.bucket <= at:
                    sender = (place, bucket.origin, bucket.incarnation)
                    last, content = senders.get(sender, (NOTHING, Fingerprint()))
                    senders[sender] = (max(last, bucket.last_number), content + bucket.content)
    return senders


def compare_with_originations(
    run: Run, senders: Mapping[Sender, tuple[int, Fingerprint]], found: Mapping[Sender, Fingerprint]
) -> None:
    """Condition 5: what was delivered of each sender is what it originated."""
    for sender, (_, content) in senders.items():
        (_, seq, rep), origin, _ = sender
        if found.get(sender, Fingerprint()) != content:
            run.doubt(
                f"what was delivered of node {origin} is not what it originated", ConfigurationId(seq, rep)
            )
