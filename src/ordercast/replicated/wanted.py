"""A history that counts, and of which a replica has no state yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ordercast.replicated.durable.heads import START, Head
from ordercast.replicated.history import History, Tail
from ordercast.replicated.snapshot import Restored


class Wanted(History):
    """The history that counts, and what has come so far of a state that it leads to.

    If it is made of several histories, which are its parts, it needs the state of each at its end; or a state
    of its own, of a replica that has merged them.
    """

    def __init__(
        self,
        base: Head,
        passed: Iterable[int] = (START.epoch,),
        parts: Sequence[Head] = (),
        own: Head | None = None,
    ) -> None:
        """`parts`: in the order in which they are merged. `own`: that of this replica, which the object has
        as soon as it is carried out; None: it is a part of another one."""
        super().__init__(base, passed)
        self.own = own
        self._parts: dict[Head, Restored | None] = dict.fromkeys(parts)
        self._arrived: Restored | Tail | None = None
        """A state of which it cannot be said yet whether it is of this history."""

    def arrive(self, state: Restored | Tail) -> bool:
        """What another replica gave; whether something else is lacking."""
        if isinstance(state, Restored) and state.head in self._parts and state.head != self.own:
            self._parts[state.head] = state
        else:
            self._arrived = state
        return self.missing is not None

    def give_up_parts(self) -> None:
        """Histories that parted will not be merged at this replica."""
        self._parts.clear()
        self.own = None

    @property
    def missing(self) -> Head | None:
        """The first part of another replica that has not come."""
        lacking = (head for head, state in self._parts.items() if state is None and head != self.own)
        return next(lacking, None)

    @property
    def merged(self) -> bool:
        """Whether it is made of parts."""
        return bool(self._parts)

    def parts_at(self, applied: Head) -> list[Restored | None] | None:
        """The states to be merged, in their order, where this replica's is carried out up to there: None
        stands for that. None if they are not there yet."""
        if not self._parts or self.missing is not None or self.own not in (None, applied):
            return None
        return list(self._parts.values())

    def taken(self) -> Restored | Tail | None:
        """What has arrived, once it can be said whether it is of this history; it is looked at once."""
        state = self._arrived
        if state is None or (self.has(state.head) is None and not self._parts):
            return None
        self._arrived = None
        return state
