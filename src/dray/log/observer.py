"""What the log tells whoever measures it. The default hears nothing."""

from __future__ import annotations


class LogObserver:
    def flushed(self, size: int, seconds: float) -> None:
        """A WAL object was staged and uploaded."""

    def commit_retried(self) -> None:
        """A commit lost its compare-and-set, or its reply."""

    def tail_cache(self, size: int) -> None:
        """How many bytes the tail cache holds."""

    def polling(self, count: int) -> None:
        """How many fetches wait for records."""

    def fetched(self, seconds: float) -> None:
        """A fetch was answered; the time that it waited for records is not counted."""

    def collected(self, orphans: int, pending: int, deleted: int) -> None:
        """A round of collection: marks nobody works on, objects waiting out their grace, objects gone."""
