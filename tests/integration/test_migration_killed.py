"""`drayd migrate` as a process that is killed: whatever moment it was, the next one goes on or takes it back,
and the source is as it was."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from uuid import UUID, uuid4

import pytest
from tests.services.attached_broker import STORE, AttachedBroker, attached_broker
from tests.services.dying_migration import dying, environment
from tests.services.log_referee import SeenBatch, batches_of, read_batches
from tests.services.marks import longer
from tests.services.target import ON_CLUSTER, ON_KAFKA
from tests.services.tiered_history import checksums
from tests.unit.migration.formats.fixture_files import local_partition

from dray.base.runtime import SystemRuntime
from dray.daemons.migrator import migration
from dray.metadata import keys
from dray.migration.attach.steps import FAILPOINTS

pytestmark = pytest.mark.skipif(ON_KAFKA or ON_CLUSTER, reason="it starts a broker of its own")

SECONDS = 120.0
ATTACHING = FAILPOINTS[: FAILPOINTS.index("aborting")]
ABORTING = FAILPOINTS[FAILPOINTS.index("aborting") :]
UNSEEN = ATTACHING[: ATTACHING.index("publishing")]
"""After these there is a way back."""
IN_SUITE = "laid down"


def kafka_id(value: UUID) -> str:
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


@dataclass
class Place:
    """A broker, and a tier with as many topics as tests ask for: each the same history."""

    attached: AttachedBroker
    tier: Path

    def topic(self, copies: int = 1) -> str:
        name = f"orders-{uuid4().hex[:8]}"
        topic_id = kafka_id(uuid4())
        for partition in range(copies):
            folder = self.tier / f"{name}-{partition}-{topic_id}"
            folder.mkdir()
            ids: dict[str, str] = {}
            for path in sorted(local_partition(0).iterdir()):
                stem, _, ending = path.name.partition(".")
                base, _, segment = stem.partition("-")
                shutil.copy(path, folder / f"{base}-{ids.setdefault(segment, kafka_id(uuid4()))}.{ending}")
        return name

    def order(self, word: str, topic: str) -> list[str]:
        broker = self.attached.broker
        places = [
            "--config",
            str(self.attached.config),
            "--data-dir",
            str(broker.data_directory),
            "--execute",
        ]
        source = ["--from", STORE, "--layout", "kafka-tiered"] if word == "attach" else []
        return ["migrate", word, topic, *source, *places]

    def dies(self, step: str, word: str, topic: str) -> None:
        done = subprocess.run(
            [*dying(step), *self.order(word, topic)],
            env=dict(self.attached.broker.environment()) | environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, (step, done.stdout, done.stderr)

    def keys_below(self, *prefixes: str) -> set[str]:
        async def scan() -> set[str]:
            runtime = SystemRuntime(threads=1)
            found: set[str] = set()
            async with migration.opened(self.attached.settings, runtime) as rooms:
                for domain in range(rooms.cluster.domains):
                    for prefix in prefixes:
                        page = await rooms.stores.metadata.scan(domain, prefix, keys.prefix_end(prefix))
                        found |= {each.key for each in page}
            runtime.close()
            return found

        return asyncio.run(scan())

    def streams(self) -> set[int | None]:
        return {keys.stream_of(key) for key in self.keys_below(keys.STREAMS)}

    def written(self) -> set[str]:
        """Keys of streams, topics and migrations. The mark of a closed stream stays for some weeks."""
        found = self.keys_below(keys.STREAMS, keys.MIGRATIONS, keys.TOPICS, keys.REFERENCES)
        return {key for key in found if not key.endswith("/hwm")}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("killed")
    tier = directory / "tier"
    tier.mkdir()
    with attached_broker(directory, tier) as attached:
        yield Place(attached, tier)
        assert "Traceback" not in attached.broker.log_path.read_text()


@pytest.fixture(scope="module")
def history() -> list[SeenBatch]:
    paths = sorted(local_partition(0).glob("*.log"))
    return batches_of(b"".join(path.read_bytes() for path in paths))


@pytest.mark.parametrize("step", [step if step == IN_SUITE else longer(step) for step in ATTACHING])
def test_an_attach_that_was_killed_is_gone_on_with(place: Place, history: list[SeenBatch], step: str) -> None:
    topic = place.topic()
    before = checksums(place.tier)
    streams = place.streams()
    place.dies(step, "attach", topic)
    place.attached.attach(topic)
    assert read_batches(place.attached.bootstrap, topic, 0) == history
    assert len(place.streams() - streams) == 1, "none was laid down twice"
    assert checksums(place.tier) == before


@pytest.mark.parametrize(
    ("step", "dies_again"),
    [
        (IN_SUITE, "closed"),
        *(longer(step, "closed") for step in UNSEEN if step != IN_SUITE),
        *(longer(IN_SUITE, again) for again in ABORTING if again != "closed"),
    ],
)
def test_an_attach_that_was_killed_is_taken_back(
    place: Place, history: list[SeenBatch], step: str, dies_again: str
) -> None:
    topic = place.topic()
    before, written = checksums(place.tier), place.written()
    place.dies(step, "attach", topic)
    place.dies(dies_again, "abort", topic)
    place.attached.migrate("abort", topic)
    assert place.written() == written
    assert checksums(place.tier) == before
    place.attached.attach(topic)
    assert read_batches(place.attached.bootstrap, topic, 0) == history


def test_a_plan_that_is_refused_is_an_error_and_not_nothing(place: Place) -> None:
    topic = place.topic()
    for path in place.tier.glob(f"{topic}-0-*/*.log"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(AssertionError, match=rf"topic {topic} cannot be attached: partition 0"):
        place.attached.attach(topic)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_kills_at_any_moment(place: Place, history: list[SeenBatch], seed: int) -> None:
    """Not only between steps. Each try lives longer than the one before, so the last comes to its end."""
    random = Random(seed)
    partitions = 6
    topic = place.topic(partitions)
    before = checksums(place.tier)
    command = [str(Path(sys.executable).parent / "drayd"), *place.order("attach", topic)]
    lives = 0.3
    killed = 0
    while True:
        process = subprocess.Popen(
            command,
            env=dict(place.attached.broker.environment()),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            code = process.wait(lives * random.uniform(0.5, 1.5))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            killed += 1
            lives *= 1.25
            continue
        assert code == 0
        break
    assert killed > 2
    for partition in range(partitions):
        assert read_batches(place.attached.bootstrap, topic, partition) == history
    assert checksums(place.tier) == before
