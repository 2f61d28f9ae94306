"""Events of the log, for metrics. The default ignores them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Collection:
    """The results of a round of collection."""

    objects: int = 0  # object keys looked at
    deleted: int = 0  # objects deleted
    pending: int = 0  # without references or unknown, waiting out their grace
    staged: int = 0  # staging marks looked at
    standing: int = 0  # marks that have stood there since an earlier round
    orphans: int = 0  # marks without a writer, now resolved
    audited: int = 0  # objects seen in the bucket
    unknown: int = 0  # objects that the metadata does not know, nominated and not yet deleted
    held: str | None = None  # why the round did nothing
    braked: str | None = None  # why none of those that are unknown went


class LogObserver:
    def flushed(self, size: int, seconds: float) -> None:
        """A WAL object was staged and uploaded."""

    def carried(self, batches: int, size: int) -> None:
        """Batches were carried in their commit."""

    def lane_switched(self, why: str) -> None:
        """A small batch was not carried, and why."""

    def backlog(self, domain: int, size: int, age: float) -> None:
        """The bytes carried in a domain and not yet packed or compacted, and the age of the oldest."""

    def packed(self, entries: int, size: int) -> None:
        """Carried entries were packed into a WAL object."""

    def pack_lost(self) -> None:
        """A pack lost its compare-and-set on a stream's job, or its reply."""

    def commit_retried(self) -> None:
        """A commit lost its compare-and-set, or its reply."""

    def tail_cache(self, size: int) -> None:
        """How many bytes the tail cache holds."""

    def polling(self, count: int) -> None:
        """How many fetches wait for records."""

    def fetched(self, seconds: float) -> None:
        """A fetch was answered; the time that it waited for records is not counted."""

    def read_badly(self, error: Exception) -> None:
        """An object was damaged, short or missing, and since the last good answer another was, too."""

    def read_damaged(self) -> None:
        """A read of an object was damaged or short, which the store does not know."""

    def read_well(self) -> None:
        """The first good answer after bad ones, about whatever object."""

    def collected(self, seen: Collection) -> None:
        """A round of collection came to its end."""

    def records_deleted(self, why: str, records: int) -> None:
        """The start of a stream was raised: by `retention`, or by `delete_records`."""
