"""Nothing grows old before its time: the oracle of what expires, by the true time.

A run takes seconds, and topics keep their records for days. So whatever the clocks of brokers and compactors
show, a stream's start is raised only where a client asked for it. Producers that were forgotten too early
show as duplicates (`log_truth`), offsets that expired too early as commits that are lost (`committed`).
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.metadata import keys
from dray.metadata.contract import Operation, Outcome, Put
from dray.simulation.checks.history import StartRaised
from dray.simulation.checks.log_truth import Violation


def check_starts(
    operations: Sequence[Operation], outcomes: Sequence[Outcome], asked: Sequence[StartRaised]
) -> None:
    """`asked` is what clients asked to be deleted, by now."""
    for operation, outcome in zip(operations, outcomes, strict=True):
        if not (outcome.applied and isinstance(operation, Put) and operation.key.startswith(keys.STREAMS)):
            continue
        number, _, what = operation.key.removeprefix(keys.STREAMS).partition("/")
        if what != "start":
            continue
        start = int.from_bytes(operation.value[1:], "big")
        deleted = max((each.offset for each in asked if each.partition == int(number)), default=0)
        if start > deleted:
            raise Violation(f"stream {int(number)}: it starts at {start} now, and records are young")
