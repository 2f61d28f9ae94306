"""What `drayd admin` says of compacted topics comes from the stores of the very cluster that was asked."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from dray.base.runtime.system import SystemRuntime
from dray.broker.cluster.clock_guard import ProcessDescription, StoredBeat, encode_beat
from dray.broker.cluster.identity import open_cluster
from dray.broker.cluster.levels import NEWEST
from dray.broker.cluster.membership import AdvertisedListener, Broker, encode_broker
from dray.broker.topics.model import Topic, TopicSettings, encode_topic
from dray.cli.clean_views import print_clean_shares, read_builds, read_clean_shares
from dray.cli.commands.admin.cluster import print_mixed
from dray.daemons.config import FlagValue, load
from dray.inspection.storage.stored import KnownBuilds
from dray.log.entries import HighWatermark
from dray.log.jobs.clean_shares import CleanShares, Share
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Put
from dray.metadata.sqlite import SqliteStore


async def test_another_clusters_stores_say_nothing(tmp_path: Path) -> None:
    settings = load(None, {}, [FlagValue("test", "data_dir", str(tmp_path))]).settings
    assert await read_clean_shares(settings, "any", ["orders"]) == {}
    assert not settings.metadata_path.exists(), "a command that only reads makes nothing"
    runtime = SystemRuntime(threads=2)
    store = SqliteStore(settings.metadata_path, runtime)
    await store.open()
    cluster = await open_cluster(store, runtime, 4)
    topic = Topic("orders", uuid4(), (7,), {}, 0, TopicSettings.of({}, {}))
    await store.write(keys.CLUSTER_DOMAIN, [Put(keys.topic("orders"), encode_topic(topic), ABSENT)])
    domain = StreamStore(store, cluster.domains, 0).domain(7)
    await store.write(domain, [Put(keys.high_watermark(7), HighWatermark(5).encode(), ABSENT)])
    await store.close()
    runtime.close()
    assert await read_clean_shares(settings, "another", ["orders"]) == {}
    found = await read_clean_shares(settings, cluster.cluster_id, ["orders", "gone"])
    assert found == {"orders": [CleanShares(offsets=5)]}


async def test_builds_are_those_that_the_clusters_processes_wrote_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load(None, {}, [FlagValue("test", "data_dir", str(tmp_path))]).settings
    assert await read_builds(settings, "any") is None
    runtime = SystemRuntime(threads=2)
    store = SqliteStore(settings.metadata_path, runtime)
    await store.open()
    cluster = await open_cluster(store, runtime, 4)
    values = {
        keys.broker(1): encode_broker(Broker(1, (AdvertisedListener("A", "h", 1),), build="0.1.0+gaaaaaaaa")),
        keys.clock("b"): encode_beat(
            StoredBeat("", 1, False, ProcessDescription("broker", "0.1.0+gaaaaaaaa"))
        ),
        keys.clock("c"): encode_beat(
            StoredBeat("", 1, False, ProcessDescription("compactor", "0.1.0", "h:2"))
        ),
        keys.clock("d"): encode_beat(StoredBeat("", 1, False)),
    }
    await store.write(keys.CLUSTER_DOMAIN, [Put(key, value, ABSENT) for key, value in values.items()])
    await store.close()
    runtime.close()
    assert await read_builds(settings, "another") is None
    found = await read_builds(settings, cluster.cluster_id)
    assert found == KnownBuilds({1: "0.1.0+gaaaaaaaa"}, [("compactor", "0.1.0", "h:2")], NEWEST)
    print_mixed(found.different)
    assert capsys.readouterr().out == "mixed builds: 0.1.0, 0.1.0+gaaaaaaaa\n"
    print_mixed(KnownBuilds({1: "a", 2: "a"}, []).different)
    assert capsys.readouterr().out == ""


def test_a_partition_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_clean_shares([CleanShares(10, Share(1, 2000), Share(2, 2000), Share(), 4, 0), CleanShares()])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:5] == ["0", "4", "1970-01-01", "00:00:00", "UTC"]
    assert lines[1].split()[-3:] == ["0.50", "0", "7"]
    assert lines[2].split() == ["1", "-", "-", "0", "0", "0.00", "0", "0"]
