"""The job key of a stream: one piece of work at a time, named by a number that only grows.

The key is never deleted. A new job is put over the version that was read before the plan was made, so a
stale plan can never start; whoever finds an unfinished job carries it on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from dray.log.stream_store import StreamStore, Versioned
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Put
from dray.metadata.values import ValueCorrupt, seal_json, unseal_json

FORMAT: Final = 1


class JobState(Enum):
    DONE = "DONE"
    RETAIN = "RETAIN"  # raising the start to `threshold` has been decided
    RAISED = "RAISED"  # the start is there: what lies below may go


@dataclass(frozen=True, slots=True)
class Job:
    number: int = 0
    state: JobState = JobState.DONE
    threshold: int = 0  # the new start
    need: int = 0  # the end of the last entry that goes: the producer snapshot must cover it

    def moved(self, state: JobState) -> Job:
        return replace(self, state=state)

    def encode(self) -> bytes:
        return seal_json(
            FORMAT,
            {
                "number": self.number,
                "state": self.state.value,
                "threshold": self.threshold,
                "need": self.need,
            },
        )

    @classmethod
    def decode(cls, value: bytes) -> Job:
        _, fields = unseal_json("a stream's job", value, FORMAT)
        try:
            state = JobState(fields["state"])
            return cls(int(fields["number"]), state, int(fields["threshold"]), int(fields["need"]))
        except (KeyError, ValueError, TypeError) as error:
            raise ValueCorrupt("a stream's job", str(error)) from error


async def read_job(store: StreamStore, stream: int) -> Versioned[Job]:
    record = await store.store.get(store.domain(stream), keys.job(stream))
    return Versioned(Job(), 0) if record is None else Versioned(Job.decode(record.value), record.version)


def put_job(stream: int, job: Job, version: int) -> Put:
    return Put(keys.job(stream), job.encode(), version or ABSENT)
