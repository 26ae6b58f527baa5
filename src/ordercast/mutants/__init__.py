"""Planted defects: each a named, minimal mistake in a protocol that the fuzzer has to notice.

A mutant that lives is a hole in the checks. The protocols know nothing of them: a mutant replaces a
function for as long as it is `planted`.
"""

from __future__ import annotations

from ordercast.mutants.at_primary import AT_PRIMARY_MUTANTS
from ordercast.mutants.mutant import Mutant
from ordercast.mutants.primary_backup import PRIMARY_BACKUP_MUTANTS
from ordercast.mutants.process_groups import PROCESS_GROUP_MUTANTS
from ordercast.mutants.replicated import OBJECT_MUTANTS
from ordercast.mutants.rings import RINGS_MUTANTS
from ordercast.mutants.sequencers import SEQUENCER_MUTANTS
from ordercast.mutants.totem import TOTEM_MUTANTS
from ordercast.mutants.trmp import TRMP_MUTANTS
from ordercast.mutants.viewsync import VIEWSYNC_MUTANTS
from ordercast.mutants.visits import VISITS_MUTANTS

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        *TOTEM_MUTANTS,
        *VISITS_MUTANTS,
        *VIEWSYNC_MUTANTS,
        *SEQUENCER_MUTANTS,
        *PRIMARY_BACKUP_MUTANTS,
        *PROCESS_GROUP_MUTANTS,
        *TRMP_MUTANTS,
        *RINGS_MUTANTS,
        *OBJECT_MUTANTS,
        *AT_PRIMARY_MUTANTS,
    )
}
"""All of them, by name."""

__all__ = ["MUTANTS", "Mutant"]
