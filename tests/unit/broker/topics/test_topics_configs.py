from __future__ import annotations

import pytest

from dray.broker.topics import CONFIGS, Alteration, AlterOperation, InvalidConfig, TopicSettings
from dray.broker.topics.alterations import alter_configs, replace_configs
from dray.broker.topics.configs import check_configs, effective_value

SET, DELETE, APPEND, SUBTRACT = AlterOperation


def test_every_default_is_allowed_by_its_own_rule() -> None:
    for definition in CONFIGS.values():
        definition.check(definition.default)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", " 60000 "),
        ("retention.bytes", "-1"),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", ""),
        ("max.message.bytes", "0"),
        ("message.timestamp.type", "LogAppendTime"),
        ("compression.type", "zstd"),
        ("compression.gzip.level", "-1"),
        ("compression.gzip.level", "9"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("preallocate", "TRUE"),
        ("remote.storage.enable", "false"),
        ("dray.iceberg.enabled", "false"),
        ("segment.bytes", "14"),
        ("min.insync.replicas", "2"),
    ],
)
def test_allowed_values(name: str, value: str) -> None:
    check_configs({name: value})


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("retention.msec", "1", "Unknown topic config name: retention.msec"),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("retention.ms", "abc", "Not a number of type LONG"),
        ("retention.ms", "", "Not a number of type LONG"),
        ("retention.ms", str(2**63), "Not a number of type LONG"),
        ("retention.ms", "1e3", "Not a number"),
        ("retention.ms", "1_000", "Not a number"),
        ("max.message.bytes", str(2**31), "Not a number of type INT"),
        ("max.message.bytes", "-1", "at least 0"),
        ("cleanup.policy", "shrink", "String must be one of: compact, delete"),
        ("cleanup.policy", "delete,delete", "twice"),
        ("message.timestamp.type", "createtime", "one of: CreateTime, LogAppendTime"),
        ("compression.type", "brotli", "one of"),
        ("compression.gzip.level", "0", "between 1 and 9"),
        ("compression.lz4.level", "18", "no more than 17"),
        ("compression.zstd.level", "23", "no more than 22"),
        ("min.cleanable.dirty.ratio", "1.5", "no more than 1"),
        ("min.cleanable.dirty.ratio", "nan", "DOUBLE"),
        ("preallocate", "yes", "true or false"),
        ("remote.storage.enable", "true", "tiered storage"),
        ("min.insync.replicas", "0", "at least 1"),
        ("message.timestamp.after.max.ms", "-1", "at least 0"),
    ],
)
def test_refused_values_say_which_and_why(name: str, value: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why) as refused:
        check_configs({name: value})
    assert name in str(refused.value)


def test_configs_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms \(5\) > max"):
        check_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})


def test_a_table_by_day_is_for_append_times_only() -> None:
    by_day = {"dray.iceberg.partition.by.day": "true"}
    with pytest.raises(InvalidConfig, match=r"needs message\.timestamp\.type=LogAppendTime"):
        check_configs(by_day)
    together = {**by_day, "message.timestamp.type": "LogAppendTime"}
    check_configs(together)
    assert TopicSettings.of(together, {}).partition_by_day


def test_the_settings_are_override_then_broker_default_then_kafkas() -> None:
    assert TopicSettings.of({}, {}) == TopicSettings(
        max_message_bytes=1048588,
        stamps_append_time=False,
        timestamp_before_max_ms=2**63 - 1,
        timestamp_after_max_ms=3_600_000,
        compression="producer",
        compression_level=None,
        retention_ms=604_800_000,
        retention_bytes=-1,
        deletes=True,
        compacts=False,
        iceberg_enabled=True,
        partition_by_day=False,
        dirty_ratio=0.5,
        min_compaction_lag_ms=0,
        max_compaction_lag_ms=2**63 - 1,
        delete_retention_ms=86_400_000,
    )
    defaults = {"retention.ms": "5", "compression.type": "zstd", "dray.iceberg.enabled": "False"}
    overrides = {
        "retention.ms": " 7 ",
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
    }
    settings = TopicSettings.of(overrides, defaults)
    assert (settings.retention_ms, settings.compression, settings.compression_level) == (7, "zstd", 3)
    assert (settings.deletes, settings.compacts, settings.stamps_append_time) == (False, True, True)
    assert not settings.iceberg_enabled
    assert effective_value("retention.ms", {}, defaults) == "5"


def test_a_full_alteration_forgets_what_it_does_not_name() -> None:
    assert replace_configs({"retention.ms": "1"}) == {"retention.ms": "1"}
    with pytest.raises(InvalidConfig, match=r"Null value not supported for topic configs: retention\.ms"):
        replace_configs({"retention.ms": None})


def test_incremental_alterations() -> None:
    before = {"retention.ms": "1", "segment.ms": "2"}
    alterations = [
        Alteration("retention.ms", SET, "9"),
        Alteration("segment.ms", DELETE, None),
        Alteration("flush.ms", DELETE, "ignored"),
        Alteration("cleanup.policy", APPEND, "compact,delete"),
    ]
    assert alter_configs(before, alterations, {}) == {"retention.ms": "9", "cleanup.policy": "delete,compact"}
    assert before == {"retention.ms": "1", "segment.ms": "2"}


def test_appending_starts_from_the_brokers_default_and_subtracting_takes_away() -> None:
    defaults = {"cleanup.policy": "compact"}
    assert alter_configs({}, [Alteration("cleanup.policy", APPEND, "delete")], defaults) == {
        "cleanup.policy": "compact,delete"
    }
    assert alter_configs(
        {"cleanup.policy": "compact,delete"}, [Alteration("cleanup.policy", SUBTRACT, "compact")], {}
    ) == {"cleanup.policy": "delete"}


def test_a_policy_that_is_taken_away_leaves_records_alone() -> None:
    altered = alter_configs({}, [Alteration("cleanup.policy", SUBTRACT, "delete")], {})
    assert altered == {"cleanup.policy": ""}
    settings = TopicSettings.of(altered, {"cleanup.policy": "compact"})
    assert (settings.deletes, settings.compacts) == (False, False)


@pytest.mark.parametrize(
    ("alteration", "why"),
    [
        (
            Alteration("retention.ms", APPEND, "1"),
            "Can't APPEND to key retention.ms because its type is not LIST",
        ),
        (Alteration("retention.ms", SUBTRACT, "1"), "Can't SUBTRACT"),
        (Alteration("nonsense", APPEND, "1"), "Unknown topic config name"),
        (Alteration("nonsense", SET, "1"), "Unknown topic config name"),
        (Alteration("retention.ms", SET, None), "Null value"),
        (Alteration("retention.ms", SET, "x"), "Not a number"),
    ],
)
def test_refused_alterations(alteration: Alteration, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        alter_configs({}, [alteration], {})
