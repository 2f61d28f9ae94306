"""The result of a group of writes, worked out without touching the database.

Many writes go into one transaction. Their operations are played in order on what was read at its
start, each with its own expectation; only where every key ends up is then written. Pure: versions
in, outcomes and a plan out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dray.metadata.contract import ABSENT, ANY, DeleteRange, Operation, Outcome, Put

Place: TypeAlias = tuple[int, str]
"""A key in its domain."""

APPLIED: Final = Outcome(True)
SKIPPED: Final = Outcome(False)


def conditional_places(domain: int, operations: Sequence[Operation]) -> list[Place]:
    """The keys whose versions must be known before these operations can be judged."""
    return [
        (domain, operation.key)
        for operation in operations
        if not isinstance(operation, DeleteRange) and operation.expect != ANY
    ]


@dataclass(slots=True)
class Group:
    """`versions` holds every place with a condition on it, 0 where there is nothing.

    Its result is written in this order: `ranges` deleted, then `deletes`, then `puts`.
    """

    versions: dict[Place, int]
    last_version: int
    puts: dict[Place, tuple[bytes, int, int | None]] = field(default_factory=dict)
    deletes: dict[Place, None] = field(default_factory=dict)
    ranges: list[tuple[int, str, str]] = field(default_factory=list)
    changed: dict[int, dict[str, None] | None] = field(default_factory=dict)

    def play(self, domain: int, operations: Sequence[Operation], session: int | None) -> list[Outcome]:
        outcomes: list[Outcome] = []
        changed = self.changed.get(domain, {})
        for operation in operations:
            if isinstance(operation, DeleteRange):
                self._delete_range(domain, operation)
                changed = None
                outcomes.append(APPLIED)
                continue
            place = (domain, operation.key)
            expect = operation.expect
            if expect != ANY:
                version = self.versions[place]
                if version != (0 if expect == ABSENT else expect) or expect == 0:
                    outcomes.append(SKIPPED)
                    continue
            if isinstance(operation, Put):
                self.last_version = version = self.last_version + 1
                self.puts[place] = (operation.value, version, session)
                outcomes.append(Outcome(True, version))
            else:
                version = 0
                self.puts.pop(place, None)
                self.deletes[place] = None
                outcomes.append(APPLIED)
            self.versions[place] = version
            if changed is not None:
                changed[operation.key] = None
        if changed or changed is None:
            self.changed[domain] = changed
        return outcomes

    def _delete_range(self, domain: int, span: DeleteRange) -> None:
        """Ranges go first, so what was put there earlier in the group must go here."""
        self.ranges.append((domain, span.start, span.end))
        for place in self.versions:
            if place[0] == domain and span.start <= place[1] < span.end:
                self.versions[place] = 0
                self.puts.pop(place, None)
