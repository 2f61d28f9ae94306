"""What happens when a foreign store fails and a rule is missing: one small patch for each."""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.simulation.noticing import Mutation

from dray.kafka.records import restore
from dray.log.read import waiting
from dray.log.read.shared_reads import SharedReads
from dray.migration.entries import pieces as foreign_pieces


def checksums_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    def content(*arguments: Any) -> int:
        restore(*arguments)
        return -1

    patch.setattr(foreign_pieces, "restore", content)


def a_failure_is_kept(patch: pytest.MonkeyPatch) -> None:
    genuine = SharedReads._done

    def done(self: Any, key: Any, task: Any) -> None:
        if not task.cancelled() and task.exception() is None:
            genuine(self, key, task)

    patch.setattr(SharedReads, "_done", done)


def a_fetch_waits_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waiting, "BESIDE_SECONDS", 60.0)


MUTATIONS: Final[dict[str, tuple[Mutation, int]]] = {
    mutation.__name__: (mutation, seed)
    for mutation, seed in (
        (checksums_not_looked_at, 0),
        (a_failure_is_kept, 0),
        (a_fetch_waits_for_all, 0),
    )
}
"""By name, each with the seed from which on it is looked for."""
