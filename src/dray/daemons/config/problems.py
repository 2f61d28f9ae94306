"""How a bad setting is reported: one line with the key, the value, what is allowed, and its origin."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

from dray.base.config.kinds import MASK

SHOWN_VALUE_LIMIT = 80

_SECRET_WORDS = ("secret", "password", "token", "credential", "access_key", "account_key", "sas_key")


_IN_ADDRESS = re.compile(r"(://[^:/?#\s@]*:)[^@\s]+(?=@)")
_IN_QUERY = re.compile(rf"([?&;][^=&;\s]*(?:{'|'.join(_SECRET_WORDS)}|passwd|pwd)[^=&;\s]*=)[^&;\s]+", re.I)

FORMER = {
    "security.tls_library": "listeners encrypt with the OpenSSL of Python",
    "metadata.etcd.patience": "since this release it is always 15s",
    "metadata.etcd.request_timeout": "since this release it is always 5s",
    "metadata.etcd.serializable_reads": "since this release it is always false",
    "metadata.oxia.patience": "since this release it is always 15s",
    "metadata.oxia.request_timeout": "since this release it is always 5s",
    "upstream.forward_timeout": "since this release it is always 10s",
    "upstream.forward_wait": "since this release it is always 5m",
    "upstream.forward_idle": "since this release it is always 4m",
    "upstream.metrics_topics": "since this release it is always 50",
    "compaction.metrics_topics": "since this release it is always 50",
    "compaction.cycle_bytes": "since this release it is always 8GiB",
    "compaction.reread_interval": "since this release it is always 10m",
    "compaction.collect_interval": "since this release it is always 10m",
    "compaction.parquet_max_files": "since this release it is always 16",
    "compaction.table_patience": "since this release it is always 1h",
    "compaction.takeover": "since this release it is always 2m",
    "compaction.wal_max_entries": "since this release it is always 1000",
    "foreign.audit_interval": "since this release it is always 1d",
    "groups.consumer_assignors": "since this release it is always uniform,range",
    "groups.max_session_timeout": "since this release it is always 30m",
    "groups.max_size": "since this release there is no bound",
    "groups.min_session_timeout": "since this release it is always 6s",
    "groups.offset_check_interval": "since this release it is always 10m",
    "groups.memory_groups": "since this release it is always 10000",
    "groups.offset_metadata_bytes": "since this release it is always 4KiB",
    "limits.fetch_bytes": "since this release it is always 55MiB",
    "limits.idle_timeout": "since this release it is always 10m",
    "limits.request_decompressed_bytes": "since this release it is always 512MiB",
    "limits.decompressed_bytes": "since this release it is always 128MiB",
    "limits.one_answer_bytes": "since this release it is always 16MiB",
    "cluster.clock_tolerance": "since this release it is always 5m",
    "iceberg.timeout": "since this release it is always 30s",
    "oauth.key_set_refresh": "since this release it is always 1h",
    "upstream.forward_connections": "since this release it is always 100",
    "log.collect_percent": "since this release it is always 50; drayd admin gc --release-brake lets more go",
    "limits.requests_in_flight": "since this release it is always 1000",
    "log.audit_interval": "since this release it is always 1d",
    "log.cache_idle": "since this release it is always 5m",
    "log.carry_backlog": "since this release it is always as with auto",
    "log.collect_interval": "since this release it is always 1m",
    "log.deleted_within": "since this release it is always 5s",
    "log.producer_expiry": "since this release it is always 1d",
    "log.compacted_footer_bytes": "since this release it is always 32MiB",
    "log.compacted_read_ahead": "since this release it is always 2",
    "log.index_cache_entries": "since this release it is always 512",
    "log.job_ttl": "since this release it is always 1h",
    "log.segment_cache_bytes": "since this release it is always 64MiB",
    "groups.consumer_heartbeat_interval": "since this release it is 5s, or a third of "
    "groups.consumer_session_timeout where that is less",
    "metadata.etcd.max_request_bytes": "since this release it is always 1536KiB; the servers have to take it",
    "metadata.etcd.max_txn_ops": "since this release it is always 128, which the servers have to take",
    "metrics.lag_interval": "since this release it is always 15s",
    "spark.driver_memory": "spark.conf takes spark.driver.memory",
    "log.uploads_in_flight": "since this release it is always 4",
    "topics.max_partitions": "since this release it is always 10000",
}
"""Settings that are gone, and what holds now. For one release a config may still name them, and each is a
line of warning; with the next the entry goes, and the name is as unknown as any other."""


class ConfigError(Exception):
    """A setting, or the place it came from, is not usable. Its text is one line for the operator."""


def shown(value: object) -> str:
    """A value as it can stand inside one line: quoted when it is text, and never long."""
    text = repr(without_passwords(value))
    return text if len(text) <= SHOWN_VALUE_LIMIT else f"{text[: SHOWN_VALUE_LIMIT - 3]}..."


def without_passwords(value: Any) -> Any:
    """The same with the passwords masked that stand in addresses, as `scheme://user:password@host` or behind
    `?password=`, however deep: a database's address is no secret, and what is in it may be."""
    if isinstance(value, str):
        return _IN_QUERY.sub(rf"\1{MASK}", _IN_ADDRESS.sub(rf"\1{MASK}", value))
    if isinstance(value, dict):
        return {key: without_passwords(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_passwords(inner) for inner in value]
    return value


def looks_secret(name: str) -> bool:
    """Whether a name speaks of credentials: its value is then not printed, wherever it was put."""
    return any(word in name.lower() for word in _SECRET_WORDS)


def bad_value(key: str, value: object, allowed: str, origin: str) -> ConfigError:
    return ConfigError(f"{key} = {shown(value)} (from {origin}): must be {allowed}")


def unknown_key(key: str, value: object, origin: str, known: list[str]) -> ConfigError:
    """`known` are the full keys of the section, of which the nearest is offered first."""
    near = get_close_matches(key, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known))}"
    visible = MASK if looks_secret(key) else value
    return ConfigError(f"{key} = {shown(visible)} (from {origin}): there is no such setting; {hint}")
