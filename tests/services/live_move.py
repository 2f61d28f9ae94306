"""A Kafka that lives, a Dray beside it, and migrators: a topic moves from one to the other while producers
work. What producers were told is the ledger, outside of both."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dray.kafka.records import decode
from dray.migration.entries.pieces import as_data
from dray.migration.formats.batches import walk_batches
from tests.services.clients.steady import SteadyProducer
from tests.services.dray import DrayProcess, drayd_path
from tests.services.dying_migration import dying, environment
from tests.services.log_referee import SeenBatch, read_batches
from tests.services.tiered_cluster import TieredCluster
from tests.services.tiered_history import wait_for

SOURCE = "old"
STORE = "tier"
SECONDS = 180.0

WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:nobody-of-this-test",
}
"""Of the source: so that it can be fenced by ACLs."""


class Migrator(DrayProcess):
    """`drayd migrator`, on the stores of a broker."""

    def __init__(self, name: str, broker: DrayProcess, config: Path, step: str | None = None) -> None:
        """`step`: where it dies (`tests/services/dying_migration.py`)."""
        super().__init__(
            broker.directory,
            name=name,
            data_directory=broker.data_directory,
            subcommand="migrator",
            settings=dict(broker.settings) | environment(),
        )
        self._config = config
        self._step = step

    def command(self) -> Sequence[str]:
        drayd = [str(drayd_path())] if self._step is None else dying(self._step)
        places = ["--data-dir", str(self.data_directory), "--config", str(self._config)]
        return [*drayd, "migrator", *places, "--http", f"127.0.0.1:{self.http_port}"]

    def until_killed(self, seconds: float) -> None:
        assert self.wait(seconds) == -signal.SIGKILL, self.log_tail()


class LiveMove:
    def __init__(
        self, directory: Path, kafka: TieredCluster, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.kafka = kafka
        self.config = directory / "dray.yaml"
        upstream = {"clusters": {SOURCE: {"bootstrap": kafka.bootstrap}}, **(settings or {})}
        foreign = {"stores": {STORE: f"file:{kafka.tier}"}}
        directory.mkdir(parents=True, exist_ok=True)
        self.config.write_text(json.dumps({"foreign": foreign, "upstream": upstream}))
        self.dray = DrayProcess(directory, arguments=["--config", str(self.config)])

    def migrator(self, number: int = 1, step: str | None = None) -> Migrator:
        return Migrator(f"migrator-{number}", self.dray, self.config, step)

    def broker(self, number: int) -> DrayProcess:
        """One more."""
        return DrayProcess(
            self.dray.directory,
            name=f"broker-{number}",
            data_directory=self.dray.data_directory,
            arguments=["--config", str(self.config), "--broker-id", str(number)],
        )

    # --- commands

    def run(self, *words: str, code: int | None = 0, step: str | None = None) -> str:
        """`step`: where it dies."""
        drayd = [str(drayd_path())] if step is None else dying(step)
        places = ("--config", str(self.config), "--data-dir", str(self.dray.data_directory))
        done = subprocess.run(
            [*drayd, "migrate", *words, *places],
            env=dict(self.dray.environment()) | environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert code is None or done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def link(self, topic: str, *more: str, tiered: bool = False, dies: str | None = None) -> None:
        store = ("--from", STORE, "--layout", "kafka-tiered") if tiered else ()
        code = 0 if dies is None else -signal.SIGKILL
        words = (topic, "--from-cluster", SOURCE, "--open-to-all", *store, *more, "--execute")
        self.run("link", *words, code=code, step=dies)

    def switch(self, topic: str, fence: str = "acl", *more: str, code: int | None = 0) -> str:
        stopped = "--consumers-stopped"  # what they commit is looked at by the tests themselves
        return self.run("switch", topic, "--fence", fence, stopped, "--execute", *more, code=code)

    def status(self, topic: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", topic, "--json"))
        return found

    def stopped(self, topic: str) -> dict[int, str]:
        """The partitions whose mirror cannot go on, and why."""
        rows = self.status(topic)["partitions"]
        return {row["partition"]: row["stopped"] for row in rows if row["stopped"]}

    def until(self, topic: str, *states: str, seconds: float = SECONDS) -> dict[str, Any]:
        """Its status, once it is in one of these states."""
        found: dict[str, Any] = {}

        def is_there() -> bool:
            nonlocal found
            found = self.status(topic)
            return found["state"] in states

        try:
            wait_for(f"{topic} is {' or '.join(states)}", is_there, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {found}") from None
        return found


class MoveLedger:
    """What producers were told, held against what is there now."""

    def __init__(self, producers: Sequence[SteadyProducer]) -> None:
        self.producers = producers

    def check(self, batches: Mapping[int, Sequence[SeenBatch]], *, failures: bool = False) -> None:
        """Every record that was acknowledged is there once, at its place, in its producer's order. No other
        is there twice. `failures`: whether producers may have been told of any."""
        stored: dict[bytes, list[tuple[int, int]]] = {}
        for partition, found in batches.items():
            for offset, value in records_of(found):
                stored.setdefault(value, []).append((partition, offset))
        for producer in self.producers:
            name = producer.name
            assert producer.acknowledged, name
            assert failures or not producer.failed, (name, Counter(producer.failed.values()))
            wrong = {
                number: (place, stored.get(f"{name} {number}".encode()))
                for number, place in producer.acknowledged.items()
                if stored.get(f"{name} {number}".encode()) != [place]
            }
            assert not wrong, (name, len(wrong), dict(list(wrong.items())[:3]))
            self._check_order(producer, stored)
        twice = {value: places for value, places in stored.items() if len(places) > 1}
        assert not twice, dict(list(twice.items())[:3])

    @staticmethod
    def _check_order(producer: SteadyProducer, stored: Mapping[bytes, Sequence[tuple[int, int]]]) -> None:
        last: dict[int, int] = {}
        for number in sorted(producer.acknowledged):
            [(partition, offset)] = stored[f"{producer.name} {number}".encode()]
            assert offset > last.get(partition, -1), (producer.name, number)
            last[partition] = offset


def records_of(batches: Sequence[SeenBatch]) -> list[tuple[int, bytes]]:
    """Offset and value of every record."""
    found = []
    for seen in batches:
        [batch] = walk_batches(seen.data)
        if not batch.is_control:
            plain = as_data(seen.data)
            found += [
                (each.offset, bytes(each.value or b"")) for each in decode(plain, sparse=True).records()
            ]
    return found


def read_topic(bootstrap: str, topic: str, partitions: int) -> dict[int, list[SeenBatch]]:
    return {number: read_batches(bootstrap, topic, number) for number in range(partitions)}


def below(batches: Sequence[SeenBatch], end: int) -> list[SeenBatch]:
    return [batch for batch in batches if batch.last_offset < end]
