"""Several brokers on one pair of embedded stores, each a process that can be killed and frozen by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.services.dray import DrayProcess


class Brokers:
    """Broker n, beginning with 0, has the id `first_id` + n, and the n-th zone where zones are given."""

    def __init__(
        self,
        directory: Path,
        count: int,
        *,
        zones: Sequence[str] | None = None,
        settings: Mapping[str, str] | None = None,
        first_id: int = 0,
    ) -> None:
        self._stack = ExitStack()
        self.processes = [
            DrayProcess(
                directory / f"broker-{number}",
                name=f"broker-{number}",
                data_directory=directory / "data",
                settings=dict(settings or {}) | ({"DRAY_BROKER__ZONE": zones[number]} if zones else {}),
                arguments=["--broker-id", str(first_id + number)],
            )
            for number in range(count)
        ]

    def __getitem__(self, number: int) -> DrayProcess:
        return self.processes[number]

    @property
    def bootstrap(self) -> str:
        return ",".join(process.bootstrap for process in self.processes)

    def freeze(self, number: int) -> None:
        self[number].freeze()

    def wake(self, number: int) -> None:
        self[number].wake()

    def requests(self, number: int, api: str) -> int:
        """How many requests of an API a broker has answered."""
        return self._total(number, "dray_requests_total{", f'api="{api}"')

    def sent_bytes(self, number: int) -> int:
        return self._total(number, "dray_sent_bytes_total ")

    def commit_retries(self, number: int) -> int:
        """How often a commit of this broker found that another had been faster."""
        return self._total(number, "dray_commit_retries_total ")

    def _total(self, number: int, name: str, label: str = "") -> int:
        total = 0.0
        for line in self[number].http_text("/metrics").splitlines():
            if line.startswith(name) and label in line:
                total += float(line.rsplit(" ", 1)[1])
        return int(total)

    def __enter__(self) -> Self:
        for process in self.processes:
            process.spawn()
            self._stack.callback(process.kill)
        try:
            for process in self.processes:
                process.wait_until_ready()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
