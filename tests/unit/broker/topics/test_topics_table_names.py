"""Which topics become tables: by their own config, by their names, by the cluster's default."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from dray.base.runtime.system import SystemRuntime
from dray.broker.topics.live import ENABLED, StoredTopics, TableNames
from dray.broker.topics.model import Topic, TopicSettings, encode_topic
from dray.daemons.config.pipeline import INTERNAL_TOPICS
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.metadata.memory import MemoryStore

NAMES = TableNames(INTERNAL_TOPICS)


def topic(name: str, config: Mapping[str, str] = {}, defaults: Mapping[str, str] = {}) -> Topic:
    return Topic(name, UUID(int=1), (1,), config, 0, TopicSettings.of(config, defaults))


def becomes_a_table(name: str, config: Mapping[str, str] = {}, defaults: Mapping[str, str] = {}) -> bool:
    made = topic(name, config, defaults)
    answer = NAMES.applied_to(made).settings.iceberg_enabled
    assert answer == (NAMES.why_not(made, defaults) is None)
    return answer


@pytest.mark.parametrize(
    "name",
    [
        "__CruiseControlMetrics",
        "__strimzi_store_topic",
        "_schemas",
        "_confluent-ksql-default__command_topic",
        "_confluent-ksql-default_query_CTAS_T1_1-Aggregate-Materialize-changelog",
        "shop-KSTREAM-AGGREGATE-STATE-STORE-0000000002-changelog",
        "shop-KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition",
        "shop-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
        "shop-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic",
        "shop-enriched-subscription-registration-topic",
        "shop-enriched-subscription-response-topic",
        "shop-__assignor-__leader",
        "connect-configs",
        "connect-cluster-offsets",
        "connect-status",
        "mm2-offset-syncs.west.internal",
        "mm2-configs.west.internal",
        "east.checkpoints.internal",
        "mirrormaker2-cluster-status",
        "strimzi.cruisecontrol.metrics",
        "kafkasql-journal",
    ],
)
def test_the_internal_topics_of_tools_do_not(name: str) -> None:
    assert not becomes_a_table(name)
    assert becomes_a_table(name, {ENABLED: "true"}), "unless the topic says so"


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "_orders",
        "changelog",
        "changelog-orders",
        "repartitioned",
        "connected",
        "connect.orders",
        "schemas",
        "heartbeats",
        "east.orders",
        "internal",
        "orders.internal",
        "mm2-orders",
        "checkpoints",
        "subscription-topic",
        "shop-subscription-topic",
    ],
)
def test_what_people_call_their_topics_does(name: str) -> None:
    assert becomes_a_table(name)
    assert not becomes_a_table(name, {ENABLED: "false"}), "unless the topic says otherwise"


def test_the_topic_comes_before_its_name_and_its_name_before_the_default() -> None:
    off = {ENABLED: "false"}
    assert not becomes_a_table("orders", defaults=off)
    assert becomes_a_table("orders", {ENABLED: "true"}, off)
    assert not becomes_a_table("shop-changelog", defaults={ENABLED: "true"})
    assert becomes_a_table("shop-changelog", {ENABLED: "true"}, off)


def test_why_not_is_said() -> None:
    off = {ENABLED: "false"}
    assert "matches *-changelog of iceberg.exclude_topics" in (NAMES.why_not(topic("a-changelog"), {}) or "")
    assert NAMES.why_not(topic("orders", off), {}) == f"the topic's config has {ENABLED}=false"
    assert "topics.defaults" in (NAMES.why_not(topic("orders", {}, off), off) or "")


def test_a_dot_is_a_dot() -> None:
    assert TableNames(["a.c"]).pattern_of(topic("abc")) is None
    assert TableNames(["a?c"]).pattern_of(topic("abc")) == "a?c"


async def test_a_compactor_sees_topics_by_these_rules() -> None:
    runtime = SystemRuntime(threads=1)
    store = MemoryStore(runtime)
    for name in ("orders", "shop-changelog"):
        await store.write(keys.CLUSTER_DOMAIN, [Put(keys.topic(name), encode_topic(topic(name)))])
    stored = StoredTopics(store, {}, NAMES)
    with capture_logs() as logs:
        for _ in range(2):
            known = (await stored.live()).known
            tables = {each.name: each.settings.iceberg_enabled for each in known}
            assert tables == {"orders": True, "shop-changelog": False}
    [line] = logs
    assert (line["topic"], line["iceberg_exclude_topics"]) == ("shop-changelog", "*-changelog"), "once"
    assert all(each.settings.iceberg_enabled for each in (await StoredTopics(store, {}).live()).known)
    runtime.close()
