"""Several units of one stream in a round: files that are written before their job begins.

A stream has one job at a time, and a job one file. So that the backlog of one partition is no matter of one
core, further units of it, which adjoin the one of its job, are written together with that one. Each file
bears the number of the job that is to have it. A job that has this very number is begun by this compactor,
over the end of the one before: every change of a stream below its head is a job, so if the numbers follow
each other nothing has changed since the plan was made. If another job came between, the file is used by
nobody: its number is spent, and the collector, which spares files of jobs to come, deletes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dray.broker.topics.model import Topic
from dray.log.jobs.values import WrittenFile
from dray.tables.compaction.model import Unit, UnitAnswer
from dray.tables.compaction.planning.plan import Entries, size_of


@dataclass(slots=True)
class AheadUnit:
    unit: Unit
    inputs: Entries
    written: WrittenFile | None = None

    @property
    def size(self) -> int:
        return sum(size_of(entry.value) for entry in self.inputs)


@dataclass(slots=True)
class StreamAhead:
    """The units of a stream that are written ahead, in the order of its jobs."""

    topic: Topic
    partition: int
    start: int  # the stream's
    units: list[AheadUnit]

    def next_after(self, finished: int | None) -> AheadUnit | None:
        """The unit whose turn it is once job `finished` has ended, if it is written."""
        first = self.units[0] if self.units else None
        ready = first is not None and first.written is not None and first.unit.job - 1 == finished
        return first if ready else None

    def take(self, answer: UnitAnswer) -> None:
        """Without a file, those behind it have no turn: the next plan begins there."""
        for place, each in enumerate(self.units):
            if each.unit.job == answer.job:
                if isinstance(answer, WrittenFile):
                    each.written = answer
                else:
                    del self.units[place:]
                return


def units_ahead(first: Unit, following: Sequence[Entries]) -> list[AheadUnit]:
    """`first`: the unit of the job that is there."""
    return [
        AheadUnit(
            replace(
                first,
                job=first.job + number,
                entries=tuple(entry.value.encode() for entry in inputs),
                start=inputs[0].value.start,
                end=inputs[-1].value.end,
            ),
            inputs,
        )
        for number, inputs in enumerate(following, 1)
    ]


def deal(ahead: dict[int, StreamAhead], left: int) -> int:
    """Keep what fits into so many bytes, in turns of one unit of each stream; the bytes of what is kept."""
    kept = dict.fromkeys(ahead, 0)
    taken, turn = 0, list(ahead)
    while turn:
        again = []
        for stream in turn:
            units = ahead[stream].units
            if kept[stream] < len(units) and taken + units[kept[stream]].size <= left:
                taken += units[kept[stream]].size
                kept[stream] += 1
                again.append(stream)
        turn = again
    for stream, count in kept.items():
        del ahead[stream].units[count:]
        if not count:
            del ahead[stream]
    return taken
