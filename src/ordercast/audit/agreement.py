"""What must hold of the sets of messages that nodes deliver in a configuration (000 §4.2, §7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import itemgetter, lt

from ordercast.audit.explain import (
    NAMED,
    Violation,
    a_configuration,
    delivered_by_one,
    some,
    violation,
    with_position,
)
from ordercast.audit.history import History, Message, Stay
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.trace.columns import GUARANTEE, TIME_US, facts_of, origin_configuration_of
from ordercast.trace.schema import Row


def gap_free(history: History) -> list[Violation]:
    """000 §4.2, "Agreed Order", and §7.2: who delivers a message has delivered all before it.

    Positions may be without a message that ends there (fragments, messages of an older ring carried
    over): a gap is one in the positions of known messages. In a transitional configuration a node
    passes over messages of nodes outside it only, and over nothing that precedes, causally, what it
    does deliver; and it goes on to the next regular one only with all messages of the nodes inside.
    """
    found = []
    for stay in history.all_stays():
        if stay.tidy:
            continue
        span = history.deliverable(stay)
        delivered = [number for number in stay.delivered if number in span]
        if stay.regular:
            found += _gaps(history, stay, span, delivered)
        else:
            found += _goes_back(history, stay, delivered)
            found += _wrongly_skipped(history, stay, span, delivered)
    return found


def _gaps(history: History, stay: Stay, span: range, delivered: Iterable[int]) -> list[Violation]:
    """One violation for each delivery that leaps over messages which were not delivered before."""
    found = []
    done: set[int] = set()
    due = span.start
    for number in delivered:
        missing = [skipped for skipped in range(due, number) if skipped not in done]
        if missing:
            sentence = (
                f"node {stay.node} delivered {with_position(history.message(number))} in "
                f"{a_configuration(stay)} without {_some(history, missing)} before it."
            )
            found.append(_violation(history, "gap-free", sentence, [stay.node], [number, *missing], [stay]))
        done.add(number)
        due = max(due, number + 1)
    return found


def _goes_back(history: History, stay: Stay, delivered: list[int]) -> list[Violation]:
    """One violation for each delivery that comes after one of a later position."""
    found = []
    for before, number in pairwise(delivered):
        if number < before:
            sentence = (
                f"node {stay.node} delivered {with_position(history.message(number))} in "
                f"{a_configuration(stay)} only after {with_position(history.message(before))}."
            )
            found.append(_violation(history, "gap-free", sentence, [stay.node], [number, before], [stay]))
    return found


def _wrongly_skipped(history: History, stay: Stay, span: range, delivered: list[int]) -> list[Violation]:
    """One violation for each message that a node had no right to pass over in a transitional stay."""
    before = stay.previous
    if before is None:
        return []
    done = set(delivered)
    # What lies before the last message delivered in the regular configuration is a gap there.
    before_it = before.delivered[-1:] if before.tidy else before.delivered
    start = max((number for number in before_it if number in span), default=span.start - 1) + 1
    stop = span.stop if stay.next is not None else max(delivered, default=-1) + 1
    skipped = [number for number in range(start, stop) if number not in done]
    if not skipped:
        return []
    best_informed = max(delivered, key=history.past.__getitem__, default=None)
    last_of = {history.messages[number][:2]: number for number in sorted(delivered)}
    found = []
    for number in skipped:
        message = history.message(number)
        told = f"node {stay.node} passed over {with_position(message)} in {a_configuration(stay)}"
        if message.origin in stay.members:
            sentence = f"{told}: it may pass over messages of nodes outside it only."
            found.append(_violation(history, "gap-free", sentence, [stay.node], [number], [stay]))
        effect = best_informed
        if effect is None or history.past[effect] < number:
            effect = last_of.get(message[:2])
        if effect is not None and effect > number:
            sentence = (
                f"{told} and delivered {with_position(history.message(effect))}, which causally follows it."
            )
            found.append(_violation(history, "gap-free", sentence, [stay.node], [number, effect], [stay]))
    return found


def causal(history: History) -> list[Violation]:
    """000 §4.2, "Causal Order": who delivers a message has delivered before it what precedes it.

    See `History._find_causes` for what precedes. A message that `gap_free` lets a node pass over
    precedes nothing that the node delivers; so there is no other excuse here.
    """
    forward = all(map(lt, history.past, range(len(history.past)))) and all(
        map(lt, history.prior, range(len(history.prior)))
    )
    found = []
    for stay in history.all_stays():
        if not stay.regular:
            continue
        stays, _ = stay.until_next_regular()
        tidy = forward and isinstance(stay.delivered, range)
        if not tidy or any(behind.delivered for behind in stays[1:]):
            found += _effects_before_causes(history, stays, skip_first=tidy)
    return found


def _effects_before_causes(history: History, stays: list[Stay], skip_first: bool) -> list[Violation]:
    """Walk through what a node delivered of one configuration, causes at hand.

    With `skip_first` the first stay is known to be a beginning of the order without a flaw.
    """
    first = stays[0]
    span = history.spans.get(first.id, range(0))
    low = first.delivered[-1] + 1 if skip_first and first.delivered else span.start
    done: set[int] = set()
    everything: set[int] = set()
    found = []
    for stay in stays[1:] if skip_first else stays:
        for number in stay.delivered:
            if number not in span:
                continue
            while low in done:
                low += 1
            heard = range(low, history.past[number] + 1)
            cause = next((m for m in heard if m not in done and m != number), history.prior[number])
            if cause >= low and cause not in done:
                everything = everything or {n for each in stays for n in each.delivered}
                how = "later" if cause in everything else "never"
                sentence = (
                    f"node {stay.node} delivered {with_position(history.message(number))} in "
                    f"{a_configuration(stay)} and {with_position(history.message(cause))} {how}: "
                    f"node {history.messages[number][0]} had originated or delivered that one before."
                )
                found.append(_violation(history, "causal", sentence, [stay.node], [cause, number], [stay]))
                done.add(cause)  # said once
            done.add(number)
    return found


def self_delivery(history: History) -> list[Violation]:
    """000 §4.2, "Reliable Delivery": a node delivers its own, or fails before the next regular one."""
    found = []
    for stay in history.all_stays():
        if not stay.own or (isinstance(stay.delivered, range) and max(stay.own) < stay.delivered.stop):
            continue
        stays, left = stay.until_next_regular()
        if not left:
            continue
        for number in _missing(stay.own, stays):
            sentence = (
                f"node {stay.node} originated {with_position(history.message(number))} in "
                f"{a_configuration(stay)} and installed the next regular configuration "
                "without having delivered it."
            )
            found.append(_violation(history, "self-delivery", sentence, [stay.node], [number], stays))
    return found


def virtual_synchrony(history: History) -> list[Violation]:
    """000 §4.2, "Reliable Delivery": nodes that go on together have delivered the same messages."""
    found = []
    together: dict[tuple[ConfigurationId, ConfigurationId, ConfigurationId], Stay] = {}
    for stay in history.all_stays():
        old, new = stay.previous, stay.next
        if stay.regular or old is None or new is None or not (old.regular and new.regular):
            continue
        other = together.setdefault((old.id, stay.id, new.id), stay)
        others_old = other.previous
        assert others_old is not None, "it was put there with one"
        for its, others in ((old, others_old), (stay, other)):
            differing, told = delivered_by_one(others, its, history.message)
            if not differing:
                continue
            sentence = (
                f"nodes {others.node} and {its.node} went together from {old.id} through {stay.id} to "
                f"{new.id} and delivered different messages in {a_configuration(its)}: {told}."
            )
            nodes, stays = [others.node, its.node], [old, stay, new]
            found.append(_violation(history, "virtual-synchrony", sentence, nodes, differing, stays))
    return found


def safe(history: History) -> list[Violation]:
    """000 §4.2, "Safe Order": what one delivers as safe in D, each member of D delivers, or it fails.

    It has to before it installs its next regular configuration.

    "If processor p delivers message m in regular configuration C in safe order, then every member of C has
    installed C": has, when p delivers. Failing is no excuse, and need not be: p waits until every member has
    acknowledged m on two rotations, and by the second it has installed C. The members of a transitional D all
    come from the regular one before it: they have installed that. Where one clock told all times, no member's
    install may be later than the first safe delivery in D; without that, it has to be there at all. A member
    that is shown to have installed C later by the order of events alone breaks ``global-order``: see
    docs/audit.md.
    """
    found = []
    for stays in history.installs.values():
        promised = _promised(history, stays)
        if not promised:
            continue
        for member in stays[0].members:
            found += _unkept(history, member, stays[0], promised)
        if history.one_clock:
            found += _installed_late(history, stays)
    return found


def _promised(history: History, stays: list[Stay]) -> dict[int, Stay]:
    """The safe messages that were delivered in a configuration, each with one who did."""
    longest: Stay | None = None
    several: list[Stay] = []
    for stay in stays:
        if not isinstance(stay.delivered, range):
            several.append(stay)
        elif longest is None or len(longest.delivered) < len(stay.delivered):
            longest = stay  # it has all that the other tidy ones have
    promised: dict[int, Stay] = {}
    messages = history.messages
    for stay in [longest, *several] if longest else several:
        span = history.deliverable(stay)
        for number in stay.delivered:
            if messages[number][7] == "safe" and number in span:
                promised.setdefault(number, stay)
    return promised


def _unkept(history: History, member: NodeId, stay: Stay, promised: dict[int, Stay]) -> list[Violation]:
    """What a member of the configuration of that stay should have delivered, by others' word."""
    source = stay.source
    its = [other for other in history.installs.get(source, ()) if other.node == member] if source else []
    if not its and member in history.absent:
        return []  # `members_traced` speaks of it
    if not its:
        number, teller = next(iter(promised.items()))
        sentence = (
            f"node {teller.node} delivered {with_position(history.message(number))} as safe in "
            f"{a_configuration(stay)}, but its member node {member} never installed {source}."
        )
        return [_violation(history, "safe", sentence, [teller.node, member], [number], [stay])]
    first = its[0]
    top = max(promised)
    if isinstance(first.delivered, range) and top < first.delivered.stop:
        return []
    until, left = first.until_next_regular()
    if not left:
        return []
    found = []
    for number in _missing(promised, until):
        teller = promised[number]
        sentence = (
            f"node {teller.node} delivered {with_position(history.message(number))} as safe in "
            f"{a_configuration(teller)}, and its member node {member} did not deliver it before it "
            "installed its next regular configuration."
        )
        found.append(_violation(history, "safe", sentence, [teller.node, member], [number], [teller]))
    return found


def _installed_late(history: History, stays: list[Stay]) -> list[Violation]:
    """Members that had not installed a configuration when the first safe message was delivered in it."""
    source = stays[0].source
    firsts = [(row[TIME_US], stay, row) for stay in stays if (row := _first_safe(stay, source)) is not None]
    if source is None or not firsts:
        return []
    time_us, teller, row = min(firsts, key=itemgetter(0))
    message = Message._make(facts_of(row))
    found = []
    for member in stays[0].members:
        times = [stay.time_us for stay in history.installs[source] if stay.node == member]
        if not times or min(times) <= time_us:
            continue
        sentence = (
            f"node {teller.node} delivered {with_position(message)} as safe in {a_configuration(teller)} at "
            f"{time_us} µs; its member node {member} installed {source} only at {min(times)} µs."
        )
        found.append(violation("safe", sentence, [teller.node, member], [message], teller.id, source))
    return found


def _first_safe(stay: Stay, source: ConfigurationId | None) -> Row | None:
    """The first delivery of a safe message of that configuration in a stay."""
    return next(
        (
            row
            for row in stay.deliveries
            if row[GUARANTEE] == "safe" and origin_configuration_of(row) == source
        ),
        None,
    )


def _missing(numbers: Iterable[int], stays: Iterable[Stay]) -> list[int]:
    """The numbers of messages that were delivered in none of the stays."""
    missing = list(numbers)
    for stay in stays:
        delivered = stay.delivered if isinstance(stay.delivered, range) else set(stay.delivered)
        missing = [number for number in missing if number not in delivered]
    return missing


def _some(history: History, numbers: Sequence[int]) -> str:
    return some([with_position(history.message(number)) for number in numbers])


def _violation(
    history: History,
    code: str,
    sentence: str,
    nodes: Sequence[NodeId],
    numbers: Sequence[int],
    stays: Iterable[Stay],
) -> Violation:
    messages = tuple(history.message(number).id for number in numbers[:NAMED])
    return Violation(code, tuple(nodes), messages, tuple(stay.id for stay in stays), sentence)
