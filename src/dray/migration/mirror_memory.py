"""What mirrors hold in memory, of one leader and of all.

A leader that has much to give is read in large answers: large objects are what makes a mirror fast. That
takes so much memory that only some leaders are read so at a time. The others are read in small answers
meanwhile, and so are all that have nothing more to give at once. A process may mirror any number of topics.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLimits:
    """Of one leader. In memory are, at most: two answers that are read, what is gathered, and the commits
    under way. What is gathered, and each commit, is `object_bytes` and one answer; where answers are small,
    two of these."""

    answer_bytes: int = 16 << 20
    partition_bytes: int = 16 << 20  # an answer ends within a batch of each partition: that one comes again
    object_bytes: int = 12 << 20  # so much is committed at once, or
    small_answer_bytes: int = 1 << 20
    commits: int = 3  # under way: one is looked at, one uploaded, one committed
    linger_seconds: float = 1.0  # what has come in so long
    small_bytes: int = 256 << 10  # after an answer of less, the next one is asked for a little later
    small_seconds: float = 0.1
    pause_seconds: float = 0.2  # after a failure
    look_seconds: float = 15.0  # between two looks at what no batch tells: starts, and who owns the log

    @property
    def held_bytes(self) -> int:
        """By a leader that is read in large answers."""
        return 2 * self.answer_bytes + (1 + self.commits) * (self.object_bytes + self.answer_bytes)


class MirrorMemory:
    """Places for leaders that are read in large answers, shared by all mirrors of a process."""

    def __init__(self, places: int) -> None:
        self._free = places

    @classmethod
    def of(cls, size: int, limits: MirrorLimits) -> MirrorMemory:
        return cls(size // limits.held_bytes)

    def take(self) -> bool:
        """Is there a place? Then it is the caller's, until it is given back."""
        if self._free <= 0:
            return False
        self._free -= 1
        return True

    def give_back(self) -> None:
        self._free += 1
