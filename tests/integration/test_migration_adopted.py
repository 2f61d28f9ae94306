"""What was adopted goes with its topic, and nothing else of its source; before that, nothing at all."""

from __future__ import annotations

import asyncio
import shutil
from base64 import urlsafe_b64encode
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from tests.services.attached_broker import AttachedBroker, attached_broker
from tests.services.target import ON_CLUSTER, ON_KAFKA
from tests.services.tiered_history import checksums
from tests.unit.migration.formats.fixture_files import LOCAL, local_partition

from dray.base.runtime import SystemRuntime
from dray.broker.settings import TopicsOptions
from dray.daemons.compactor.collection import CollectionRequest, collect
from dray.daemons.config import Settings
from dray.daemons.migrator import migration

pytestmark = pytest.mark.skipif(ON_KAFKA or ON_CLUSTER, reason="it starts a broker of its own")
SECONDS = 60.0


def kafka_id() -> str:
    return urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")


def another_topic(tier: Path, topic: str) -> None:
    """The same history under other names, as its source would have named it."""
    folder = tier / f"{topic}-0-AAAAAAAAAAAAAAAAAAAAAQ"
    folder.mkdir()
    ids: dict[str, str] = {}
    for path in sorted(local_partition(0).iterdir()):
        stem, _, ending = path.name.partition(".")
        base, _, segment = stem.partition("-")
        name = f"{base}-{ids.setdefault(segment, kafka_id())}.{ending}"
        shutil.copy(path, folder / name)


def gc(attached: AttachedBroker) -> None:
    collect(attached.settings, CollectionRequest(now=True))


def sweep_deleted(settings: Settings) -> None:
    """What brokers do a minute after the deletion."""

    async def sweep() -> None:
        runtime = SystemRuntime()
        async with migration.opened(settings, runtime) as rooms:
            for _ in range(2):  # it is seen, and then it has been seen for long enough
                await rooms.topics.sweep_deleted()
        runtime.close()

    asyncio.run(sweep())


def test_what_was_adopted_goes_with_its_topic_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = TopicsOptions.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "sweep_grace", 0.0)
    tier = tmp_path / "tier"
    shutil.copytree(LOCAL, tier)
    of_orders = set(checksums(tier))
    another_topic(tier, "borrowed")
    another_topic(tier, "orders-eu")  # never attached, with a name that begins alike
    (tier / local_partition(0).name / "notes.txt").write_bytes(b"not a segment")
    (tier / "readme").write_bytes(b"of the operator")
    before = checksums(tier)
    with attached_broker(tmp_path, tier) as attached:
        attached.attach("orders")
        attached.attach("borrowed")
        gc(attached)
        assert checksums(tier) == before, "they are borrowed"
        assert "4 segments adopted" in attached.migrate("adopt", "orders")
        gc(attached)
        assert checksums(tier) == before, "its topic needs them"
        admin = AdminClient({"bootstrap.servers": attached.bootstrap})
        for deleted in admin.delete_topics(["orders", "borrowed"]).values():
            deleted.result(SECONDS)
        sweep_deleted(attached.settings)
        gc(attached)
        left = checksums(tier)
    assert not of_orders & set(left), "adopted segments, with all that lay beside them"
    assert left == {path: file for path, file in before.items() if path not in of_orders}
