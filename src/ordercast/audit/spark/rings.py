"""The certificate for runs of Totem: why a run that fits keeps all that extended virtual synchrony promises.

Of a run the following is asked. All of it is read off the passes' few numbers:

1. its configurations by themselves are right (the reference's own checks, over all installs), and so is what
   changes say of the places at which they ended, by the ranks of 3; the orders in which nodes, over all their
   lives, install configurations have no cycle: they can be put in one row;
2. every delivery and origination lies, by its step, in the stay that it names, lacks nothing, and says of its
   message what its node could know (`chunks._bad`);
3. in every stay deliveries rise in rank; an origination's rank is above all that was delivered or originated
   there before; numbers of originations rise over a life;
4. for every regular stay: what it delivered has the fingerprint of what was *originated* in that
   configuration up to the rank of its last delivery;
5. transitional stays deliver only messages of the regular configuration before, beyond what their node had
   delivered there, and beyond the configuration's *cut*: the rank up to which everybody who went on from it
   had delivered;
6. where anybody delivered a safe message, all members installed the configuration; and, where one clock told
   all times, none of them later than the first safe message was delivered;
7. where messages have a timestamp and a source ring (their *birth*), deliveries do not fall in it within a
   stay, nor from one stay of a life to the next; a message's birth is part of the fingerprints of 4.

What lies beyond the cuts, the *tail*, is judged by the reference, together with all configurations. It is
little: what was in flight when rings broke, and nothing where none did.

Why that is enough. By 3 and 4 every regular stay delivered a beginning of its configuration's order, each
message once, as it was originated and where it was originated; by 3 identities and (up to the cut) places are
unique. So nothing up to the cut breaks ``deliver-once``, ``deliver-originated``, ``deliver-place`` or
``seq-unique``, nor ``gap-free`` in regular stays. With 1 and 5 every node's deliveries follow one order, by
configuration, in that row, and rank, which is ``total-order``. (Numbers of configurations need not rise for
that: they fall at a node that lost its disk.)

``causal``: in a tidy stay the only way to break it is an origination of a lower rank than something its node
had delivered or originated before; by 3 there is none. So what precedes a message has a lower rank, and a
beginning of the order has it.

``born-ordered``: 7 is its second half, in all stays; by 4 all regular stays say of a message what its
origination says, and what transitional ones say is in the tail.

What was delivered up to the cut changes nothing of what the reference finds in the tail. Whoever owes
anything has gone on, so it has the whole of that part: it is the same in every set compared by
``virtual-synchrony``, and nothing of it is missing for ``self-delivery`` or ``safe`` (6 speaks of members
that never came). In ``gap-free`` and ``causal`` a transitional stay is compared with messages behind its
node's last regular delivery, all of them in the tail; causes within the cut are there. For ``global-order``:
if the tail with the configurations has no cycle, it can be put in a row; insert each configuration's messages
up to its cut right behind it, in order, and every node's order follows that row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ordercast.audit.history import Stay
from ordercast.audit.membership import config_chain, config_consistent, config_member, config_unique
from ordercast.audit.order import global_order
from ordercast.audit.spark.chunks import NOTHING
from ordercast.audit.spark.membership_history import Run, added
from ordercast.audit.spark.passes import Bucket, Fingerprint, Place, Witness
from ordercast.audit.spark.plans import OrderBreak
from ordercast.core.identity import ConfigurationId


def look_at(run: Run) -> None:
    """Conditions 1, 2, 5, 6 and 7: whatever can be told without asking more of the trace."""
    for check in (config_unique, config_member, config_chain, config_consistent, global_order):
        for found in check(run.history):
            run.doubt(found.sentence, *found.configurations)
    run.look_at_ends()
    for configuration, stays in run.regular.items():
        _members_came(run, configuration, stays)
    for configuration, stays in run.history.installs.items() if run.one_clock else ():
        _members_came_in_time(run, configuration, stays)
    for stay in run.history.all_stays():
        if not stay.regular and run.deliveries(stay) is not None:
            _transitional(run, stay)
    _births_rise(run)


def _births_rise(run: Run) -> None:
    """Condition 7, from one stay to the next: within stays, rows were compared one by one."""
    for stays in run.history.stays.values():
        last: Stay | None = None
        highest = 0
        for stay in stays:
            summary = run.deliveries(stay)
            if summary is None or summary.birth_lowest is None or summary.birth_highest is None:
                continue
            if last is not None and last.incarnation == stay.incarnation and summary.birth_lowest < highest:
                for where, rank in ((last, run.last(last)), (stay, summary.lowest)):
                    run.order_breaks.append(OrderBreak(run.key, stay.node, *where.id, rank, None))
                run.doubt(f"node {stay.node} falls back in timestamps", last.id, stay.id)
            last, highest = stay, summary.birth_highest


def _members_came(run: Run, configuration: ConfigurationId, stays: Sequence[Stay]) -> None:
    safe = any(summary.safe for stay in stays if (summary := run.deliveries(stay)) is not None)
    if safe and not set(stays[0].members) <= {stay.node for stay in stays}:
        run.doubt(
            "a safe message was delivered in a configuration that not all members installed", configuration
        )


def _members_came_in_time(run: Run, configuration: ConfigurationId, stays: Sequence[Stay]) -> None:
    """Whether all members had installed it, or the regular one before it, at the first safe delivery."""
    summaries = (run.deliveries(stay) for stay in stays)
    times = [summary.first_safe_us for summary in summaries if summary and summary.first_safe_us is not None]
    source = stays[0].source
    if not times or source is None:
        return
    came: dict[int, int] = {}
    for stay in run.history.installs[source]:
        came[stay.node] = min(stay.time_us, came.get(stay.node, stay.time_us))
    if any(came.get(member, 0) > min(times) for member in stays[0].members):
        run.too_early.append((configuration, min(times)))
        run.doubt("a safe message was delivered before all members had installed", configuration, source)


def _transitional(run: Run, stay: Stay) -> None:
    summary, before = run.deliveries(stay), stay.previous
    assert summary is not None, "it is asked for stays that delivered"
    source = stay.source
    if source is None or before is None:
        run.doubt("a transitional configuration without a regular one before it delivered messages", stay.id)
        return
    lowest = NOTHING if summary.lowest is None else summary.lowest
    cut = run.certified_up_to(run.history.installs[source])
    if summary.sources != {tuple(source)} or lowest <= cut or lowest <= run.last(before):
        run.doubt("a transitional configuration delivered what does not belong there", source, stay.id)


def boundaries(run: Run) -> dict[Place, tuple[Witness, list[int]]]:
    """Where the order of originations has to be cut for condition 4: stays that do not have all of it."""
    wanted: dict[Place, tuple[Witness, list[int]]] = {}
    for configuration, stays in run.regular.items():
        whole = added(summary.own_placed for summary in run.originations(configuration))
        partial = {
            run.last(stay)
            for stay in stays
            if (summary := run.deliveries(stay)) is not None and summary.placed != whole
        }
        cut = run.certified_up_to(stays)
        highest = max(
            (summary.own_highest or 0 for summary in run.originations(configuration)), default=NOTHING
        )
        if cut < highest or _carried_over(run, configuration):
            run.cuts[configuration] = cut
        if partial:
            wanted[run.place(configuration)] = (None, sorted(partial))
    return wanted


def _carried_over(run: Run, configuration: ConfigurationId) -> bool:
    """Whether messages of a configuration were delivered in a transitional one behind it."""
    following = (stay.next for stay in run.history.installs[configuration])
    return any(stay is not None and run.deliveries(stay) is not None for stay in following)


def compare(run: Run, wanted: Mapping[Place, tuple[Witness, Sequence[int]]], found: Iterable[Bucket]) -> None:
    """Condition 4: every regular stay delivered what was originated, up to its last delivery."""
    by_place: dict[Place, dict[int, Fingerprint]] = {}
    for bucket in found:
        its = by_place.setdefault(bucket.place, {})
        its[bucket.bucket] = its.get(bucket.bucket, Fingerprint()) + bucket.placed
    for configuration, stays in run.regular.items():
        place = run.place(configuration)
        whole = added(summary.own_placed for summary in run.originations(configuration))
        _, cuts = wanted.get(place, (None, ()))
        pieces = by_place.get(place, {})
        upto = {
            rank: added(pieces.get(piece, Fingerprint()) for piece in range(at + 1))
            for at, rank in enumerate(cuts)
        }
        for stay in stays:
            summary = run.deliveries(stay)
            if summary is not None and summary.placed not in (whole, upto.get(run.last(stay))):
                run.doubt(
                    f"node {stay.node} did not deliver a beginning of the configuration's order",
                    configuration,
                )
