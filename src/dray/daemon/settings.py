"""From the one config to what each room takes: the only place where a setting becomes a room's.

A setting is defined once, in `dray.config`, with its default. Here it has one line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from dray.api.shared import ApiSettings, Feature
from dray.cluster import AdvertisedListener
from dray.compaction.settings import CompactionSettings
from dray.compaction.spark.session import SparkSettings
from dray.config import Settings
from dray.config.kinds import Address
from dray.daemon.security_configs import security_configs
from dray.groups.classic import ClassicGroupSettings
from dray.groups.consumer import ConsumerGroupSettings
from dray.groups.coordinator import GroupsSettings
from dray.log import LogSettings
from dray.log.carry import BY_ENGINE, CarryLimits
from dray.log.deletions import Brake
from dray.protocol import ApiKey
from dray.server import Listener, ServerSettings
from dray.server.tls import ServerCertificate
from dray.topics import TopicsOptions

LISTENER = "PLAINTEXT"
"""Kafka's own, whose decisions these are: tools look whether there is one."""
GROUP_PROTOCOLS = Feature("group.version", 0, 1, 1)
"""Says that groups of KIP-848 are served: clients ask before they use them."""

# --- what clients meet


def server_settings(
    settings: Settings,
    certificates: Mapping[str, ServerCertificate] | None = None,
    identifications: Mapping[str, Callable[[bytes | None], str | None]] | None = None,
) -> ServerSettings:
    encryptions = {name: certificate.encryption for name, certificate in (certificates or {}).items()}
    listen = settings.broker.listen
    return ServerSettings(
        listeners=(
            Listener(LISTENER, listen.host, listen.port),
            *(
                Listener(
                    name,
                    address.host,
                    address.port,
                    asks=address.asks,
                    identify=(identifications or {}).get(name),
                    max_connections=address.connections,
                    encryption=encryptions.get(name),
                )
                for name, address in settings.broker.listeners.items()
            ),
        ),
        max_connections=settings.limits.connections,
        max_connections_per_address=settings.limits.connections_per_address,
        max_frame_bytes=settings.limits.frame_bytes,
        memory_budget_bytes=settings.limits.buffer_bytes,
        bulk_kinds=frozenset({int(ApiKey.PRODUCE)}),
        answer_budget_bytes=settings.answer_bytes,
        max_in_flight=settings.limits.requests_in_flight,
        idle_seconds=settings.limits.idle_timeout,
    )


def advertised_listeners(
    settings: Settings, bound: Mapping[str, tuple[str, int]]
) -> tuple[AdvertisedListener, ...]:
    """The address of each listener as clients see it. `bound` says where it listens, with the real port where
    0 was asked for."""
    broker = settings.broker
    advertised = broker.advertised_listeners
    if broker.advertised is not None:
        advertised = {LISTENER: broker.advertised, **advertised}
    return tuple(
        AdvertisedListener(name, advertised[name].host, advertised[name].port)
        if name in advertised
        else AdvertisedListener(name, listen.host, bound[name][1])
        for name, listen in {LISTENER: broker.listen, **broker.listeners}.items()
    )


def api_settings(settings: Settings) -> ApiSettings:
    return ApiSettings(
        auto_create_topics=settings.topics.auto_create,
        max_decompressed_bytes=settings.limits.decompressed_bytes,
        max_request_decompressed_bytes=settings.limits.request_decompressed_bytes,
        fetch_max_bytes=settings.limits.fetch_bytes,
        enforce_owner=settings.routing.enforce_owner,
        strict_zones=settings.routing.strict_zones,
        log_dir=settings.objects_url,
        broker_configs=broker_configs(settings),
        features=(GROUP_PROTOCOLS,),
    )


def broker_configs(settings: Settings) -> dict[str, str]:
    """What a Kafka client sees when it describes the broker: our settings under Kafka's names. The broker's
    defaults for topics are shown with them, from the topics' own table."""
    limits, topics, groups = settings.limits, settings.topics, settings.groups
    consumer = groups_settings(settings).consumer
    shown = {
        "auto.create.topics.enable": str(topics.auto_create).lower(),
        "broker.session.timeout.ms": str(_ms(settings.broker.session_ttl)),
        "connections.max.idle.ms": str(_ms(limits.idle_timeout)),
        "delete.topic.enable": "true",
        "fetch.max.bytes": str(limits.fetch_bytes),
        "group.consumer.assignors": groups.consumer_assignors,
        "group.consumer.heartbeat.interval.ms": str(_ms(groups.consumer_heartbeat_interval)),
        "group.consumer.max.heartbeat.interval.ms": str(consumer.heartbeat_interval_maximum_ms),
        "group.consumer.max.session.timeout.ms": str(consumer.session_timeout_maximum_ms),
        "group.consumer.max.size": str(groups.max_size),
        "group.consumer.min.heartbeat.interval.ms": str(consumer.heartbeat_interval_minimum_ms),
        "group.consumer.min.session.timeout.ms": str(consumer.session_timeout_minimum_ms),
        "group.consumer.session.timeout.ms": str(_ms(groups.consumer_session_timeout)),
        "group.initial.rebalance.delay.ms": str(_ms(groups.initial_rebalance_delay)),
        "group.max.session.timeout.ms": str(_ms(groups.max_session_timeout)),
        "group.max.size": str(groups.max_size),
        "group.min.session.timeout.ms": str(_ms(groups.min_session_timeout)),
        "listeners": _listener_list(settings.broker.listen, settings.broker.listeners),
        "log.cleaner.enable": "false",
        "max.connections": str(limits.connections),
        "max.connections.per.ip": str(limits.connections_per_address or limits.connections),
        "num.partitions": str(topics.partitions),
        "offset.metadata.max.bytes": str(groups.offset_metadata_bytes),
        "offsets.retention.check.interval.ms": str(_ms(groups.offset_check_interval)),
        "offsets.retention.minutes": str(round(groups.offset_retention / 60)),
        "process.roles": "broker",
        "producer.id.expiration.ms": str(_ms(settings.log.producer_expiry)),
        "socket.request.max.bytes": str(limits.frame_bytes),
    }
    shown |= security_configs(settings, LISTENER)
    if settings.broker.rack is not None:
        shown["broker.rack"] = settings.broker.rack
    if settings.broker.advertised is not None:
        shown["advertised.listeners"] = _listener_list(
            settings.broker.advertised,
            {**settings.broker.listeners, **settings.broker.advertised_listeners},
        )
    return shown


def _listener_list(first: Address, further: Mapping[str, Address]) -> str:
    return ",".join([f"{LISTENER}://{first}", *(f"{name}://{address}" for name, address in further.items())])


# --- the log, topics and groups


def log_settings(settings: Settings) -> LogSettings:
    log = settings.log
    return LogSettings(
        zone=settings.broker.zone,
        linger_seconds=settings.flush_linger,
        max_object_bytes=log.object_bytes,
        uploads_in_flight=log.uploads_in_flight,
        tail_cache_bytes=settings.tail_cache_bytes,
        segment_cache_bytes=log.segment_cache_bytes,
        index_cache_entries=log.index_cache_entries,
        parquet_cache_bytes=log.compacted_cache_bytes,
        parquet_footer_cache_bytes=log.compacted_footer_bytes,
        parquet_groups_ahead=log.compacted_read_ahead,
        foreign_cache_bytes=settings.foreign.cache_bytes,
        cache_idle_seconds=log.cache_idle,
        bounds_seconds=log.deleted_within,
        producer_expiry_ms=round(log.producer_expiry * 1000),
        orphan_seconds=log.orphan_ttl,
        grace_seconds=log.collect_grace,
        collect_seconds=log.collect_interval,
        audit_every_rounds=max(1, round(log.audit_interval / log.collect_interval)),
        brake=Brake(log.collect_percent / 100),
        job_seconds=log.job_ttl,
        carry=carry_limits(settings),
        pack_look_seconds=log.collect_interval / 6,  # packing is looked after more often than garbage
    )


def carry_limits(settings: Settings) -> CarryLimits | None:
    log = settings.log
    if log.carry_bytes == 0:
        return None
    return BY_ENGINE[settings.metadata.engine].within(log.carry_bytes, log.carry_backlog)


def topics_options(settings: Settings) -> TopicsOptions:
    return TopicsOptions(
        default_partitions=settings.topics.partitions,
        max_partitions=settings.topics.max_partitions,
        defaults=dict(settings.topics.defaults),
    )


def groups_settings(settings: Settings) -> GroupsSettings:
    groups = settings.groups
    session, heartbeat = _ms(groups.consumer_session_timeout), _ms(groups.consumer_heartbeat_interval)
    return GroupsSettings(
        classic=ClassicGroupSettings(
            session_timeout_minimum_ms=_ms(groups.min_session_timeout),
            session_timeout_maximum_ms=_ms(groups.max_session_timeout),
            initial_rebalance_delay_ms=_ms(groups.initial_rebalance_delay),
            largest_group=groups.max_size,
        ),
        consumer=ConsumerGroupSettings(
            session_timeout_ms=session,
            session_timeout_minimum_ms=min(session, 45_000),
            session_timeout_maximum_ms=max(session, 60_000),
            heartbeat_interval_ms=heartbeat,
            heartbeat_interval_minimum_ms=min(heartbeat, 5_000),
            heartbeat_interval_maximum_ms=max(heartbeat, 15_000),
            largest_group=groups.max_size,
            assignors=tuple(groups.consumer_assignors.split(",")),
        ),
        session_ttl=settings.broker.session_ttl,
        largest_metadata=groups.offset_metadata_bytes,
        offset_retention_ms=_ms(groups.offset_retention),
        sweep_interval=groups.offset_check_interval,
        memory_groups=groups.memory_groups,
    )


# --- files and tables


def compaction_settings(settings: Settings) -> CompactionSettings:
    compaction, iceberg = settings.compaction, settings.iceberg
    return CompactionSettings(
        interval_seconds=compaction.interval,
        wal_max_age_ms=round(compaction.wal_max_age * 1000),
        wal_max_bytes=compaction.wal_max_bytes,
        wal_max_entries=compaction.wal_max_entries,
        cycle_bytes=compaction.cycle_bytes,
        parquet_max_files=compaction.parquet_max_files,
        target_file_bytes=compaction.target_file_bytes,
        takeover_seconds=compaction.takeover,
        reread_seconds=compaction.reread_interval,
        collect_seconds=compaction.collect_interval,
        grace_seconds=compaction.collect_grace,
        snapshot_keep_ms=round(iceberg.keep_snapshots * 1000),
        drop_tables=iceberg.drop_tables,
        brake=Brake(settings.log.collect_percent / 100),
    )


def spark_settings(settings: Settings) -> SparkSettings:
    spark = settings.spark
    return SparkSettings(
        master=spark.master,
        memory=spark.driver_memory,
        conf=spark.conf,
        log_path=str(Path(settings.data_dir) / "spark.log"),
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
