"""What `drayd admin` says of compacted topics comes from the stores of the very cluster that was asked."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from dray.cli.clean_views import print_clean_shares, read_clean_shares
from dray.cluster.identity import open_cluster
from dray.config import FlagValue, load
from dray.log.clean_shares import CleanShares, Share
from dray.log.entries import HighWatermark
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Put
from dray.metadata.sqlite import SqliteStore
from dray.runtime.system import SystemRuntime
from dray.topics.model import Topic, encode_topic
from dray.topics.settings import TopicSettings


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


def test_a_partition_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_clean_shares([CleanShares(10, Share(1, 2000), Share(2, 2000), Share(), 4, 0), CleanShares()])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:5] == ["0", "4", "1970-01-01", "00:00:00", "UTC"]
    assert lines[1].split()[-3:] == ["0.50", "0", "7"]
    assert lines[2].split() == ["1", "-", "-", "0", "0", "0.00", "0", "0"]
