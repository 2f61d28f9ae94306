"""Which units share a task of Spark.

A task costs a few hundredths of a second whatever it does, so tiny units share one; but no core should wait
while another has several of them to do. Large tasks come first, so that none starts when all others end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dray.compaction.model import Unit
from dray.log.entries import IndexEntry

TASK_BYTES: Final = 32 << 20
UNITS_PER_TASK: Final = 256


def pack(units: Sequence[Unit], parallelism: int) -> list[list[Unit]]:
    weights = {id(unit): weight_of(unit) for unit in units}
    total = sum(weights.values())
    most = max(1, min(TASK_BYTES, -(-total // max(1, parallelism))))
    tasks: list[tuple[int, list[Unit]]] = []
    shared: list[Unit] = []
    size = 0
    for unit in sorted(units, key=lambda unit: weights[id(unit)], reverse=True):
        weight = weights[id(unit)]
        if shared and (size + weight > most or len(shared) >= UNITS_PER_TASK):
            tasks.append((size, shared))
            shared, size = [], 0
        shared.append(unit)
        size += weight
    if shared:
        tasks.append((size, shared))
    return [task for _, task in sorted(tasks, key=lambda task: task[0], reverse=True)]


def weight_of(unit: Unit) -> int:
    """About the bytes it has to read. Never nothing: an empty entry is work, too."""
    return sum(1 + IndexEntry.decode(entry).stored_bytes for entry in unit.entries)
