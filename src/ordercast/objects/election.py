"""An election: one leader at a time, known to all."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ordercast.objects.leases import Changed
from ordercast.objects.lock import Holder, Lock
from ordercast.replicated.replicated import watch


class Election(Lock):
    """An election by name: `Node.election`. Who is elected leads until it resigns, dies or is cut off; then
    the one that has been a candidate for longest does.

        async with node.election("leader", says="10.0.0.1:80") as held:
            while not held.lost.is_set():
                ...

    It is a `Lock` whose holder all nodes know that name the election, candidates or not.
    """

    async def leader(self) -> Holder | None:
        """Who leads; None if nobody does. It is not older than this call."""
        return await self.holder()

    @property
    def local_leader(self) -> Holder | None:
        """Who leads as far as this node knows, at once: perhaps somebody else does by now."""
        leases = self._holding.here
        return None if leases is None else Holder.of(leases.held.get(self._name))

    async def watch(self) -> AsyncIterator[Holder | None]:
        """Who leads now, then each who is elected, and None where nobody is. Who was cut off meanwhile is
        told who leads afterwards."""
        leases = await self._holding.leases()
        with watch(leases) as events:
            await leases.sync()
            told = leases.held.get(self._name)
            yield Holder.of(told)
            async for event in events:
                if isinstance(event, Changed):
                    if event.name != self._name:
                        continue
                    now = event.lease
                else:
                    now = leases.held.get(self._name)
                if (now and now.token) != (told and told.token):
                    told = now
                    yield Holder.of(told)
