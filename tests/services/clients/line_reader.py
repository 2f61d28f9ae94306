"""A reader that is another program of ours, in another language, and takes its orders as lines.

Orders, with tabs between their words: `read` with topic, partition and end of every place, `seek` with topic,
partition and offset, `times` with topic, partition and time of every place. To `read` it answers with topic,
partition and the record of `lines.line_of`, to `times` with topic, partition, offset and time, to
everything with a line `.` at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from tests.services.clients.contract import Message
from tests.services.clients.line_process import LineProcess
from tests.services.clients.lines import message_of
from tests.services.clients.reader import READ_SECONDS, Found, Place, Reader, Reading


class LineReader(Reader):
    def __init__(self, reading: Reading, command: Sequence[str]) -> None:
        super().__init__(reading)
        self._process = LineProcess(command)

    def _order(self, *words: object) -> Iterator[str]:
        self._process.write("\t".join(map(str, words)))
        deadline = time.monotonic() + READ_SECONDS
        while (line := self._process.readline(deadline).decode()) != ".":
            yield line

    def read(self, ends: Mapping[Place, int]) -> dict[Place, list[Message]]:
        seen: dict[Place, list[Message]] = {place: [] for place in ends}
        for line in self._order("read", *flat(ends)):
            topic, partition, record = line.split("\t", 2)
            seen[topic, int(partition)].append(message_of(record))
        return seen

    def seek(self, place: Place, offset: int) -> None:
        assert list(self._order("seek", *place, offset)) == []

    def first_at(self, times: Mapping[Place, int]) -> dict[Place, Found]:
        answers = [line.split("\t") for line in self._order("times", *flat(times))]
        return {
            (topic, int(partition)): None if int(offset) < 0 else (int(offset), int(timestamp))
            for topic, partition, offset, timestamp in answers
        }

    def close(self) -> None:
        self._process.close()


def flat(numbers: Mapping[Place, int]) -> list[object]:
    return [word for place, number in numbers.items() for word in (*place, number)]
