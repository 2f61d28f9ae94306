"""A cluster as the one server that a test asks for: clients see three brokers, and what the test does to
"the broker" happens to one of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.services.brokers import Brokers
from tests.services.dray import DrayProcess

ZONES = ("zone-a", "zone-b", "zone-c")


class Cluster(Brokers):
    """Three brokers in three zones. `kill`, `terminate`, `spawn` and `start` are for one of them, and after
    each `start` for the next one: a test that kills in a loop kills all of them in turn."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, len(ZONES), zones=ZONES, settings=settings, first_id=1)
        self._turn = 0

    @property
    def victim(self) -> DrayProcess:
        return self[self._turn]

    def kill(self) -> None:
        self.victim.kill()

    def terminate(self) -> int:
        return self.victim.terminate()

    def spawn(self) -> None:
        self.victim.spawn()

    def start(self) -> None:
        self.victim.start()
        self._turn = (self._turn + 1) % len(ZONES)
