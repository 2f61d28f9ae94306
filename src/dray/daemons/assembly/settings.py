"""From the one config to what each room takes: the only place where a setting becomes a room's.

A setting is defined once, in `dray.base.config`, with its default. Here it has one line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from dray.base.config.kinds import Address
from dray.broker.api.shared import ApiSettings, Feature
from dray.broker.cluster import AdvertisedListener
from dray.broker.groups.coordinator.contract import consumer_settings
from dray.broker.server import Listener, ServerSettings
from dray.broker.server.tls.listener import ServerCertificate
from dray.broker.settings import GroupsSettings
from dray.daemons.config import Settings
from dray.daemons.config.listeners import CLIENT_AUTH, TOKEN_MECHANISM, ListenerAddress
from dray.kafka.protocol import ApiKey
from dray.log import LogSettings
from dray.log.life.deletions import Brake
from dray.tables.compaction.settings import CompactionSettings
from dray.tables.compaction.spark.session import SparkSettings

GROUP_PROTOCOLS = Feature("group.version", 0, 1, 1)
"""Says that groups of KIP-848 are served: clients ask before they use them."""

# --- what clients meet


def server_settings(
    settings: Settings,
    certificates: Mapping[str, ServerCertificate] | None = None,
    identifications: Mapping[str, Callable[[bytes | None, str], str | None]] | None = None,
) -> ServerSettings:
    encryptions = {name: certificate.encryption for name, certificate in (certificates or {}).items()}
    return ServerSettings(
        listeners=tuple(
            Listener(
                name,
                address.host,
                address.port,
                asks=address.asks,
                identify=(identifications or {}).get(name),
                max_connections=address.connections,
                encryption=encryptions.get(name),
            )
            for name, address in settings.broker.all_listeners.items()
        ),
        bulk_kinds=frozenset({int(ApiKey.PRODUCE)}),
        **vars(settings.limits),
    )


def advertised_listeners(
    settings: Settings, bound: Mapping[str, tuple[str, int]]
) -> tuple[AdvertisedListener, ...]:
    """The address of each listener as clients see it. `bound` says where it listens, with the real port where
    0 was asked for."""
    advertised = settings.broker.all_advertised
    return tuple(
        AdvertisedListener(name, advertised[name].host, advertised[name].port)
        if name in advertised
        else AdvertisedListener(name, listen.host, bound[name][1])
        for name, listen in settings.broker.all_listeners.items()
    )


def api_settings(settings: Settings) -> ApiSettings:
    return ApiSettings(
        **vars(settings.limits),
        **vars(settings.routing),
        log_dir=settings.objects_url,
        broker_configs=broker_configs(settings),
        features=(GROUP_PROTOCOLS,),
        listener_zones={
            name: address.zone for name, address in settings.broker.all_listeners.items() if address.zone
        },
    )


def broker_configs(settings: Settings) -> dict[str, str]:
    """The configs that a Kafka client sees when it describes the broker: our settings under Kafka's names.
    The broker's defaults for topics are shown with them, from the topics' own table."""
    limits, topics, groups = settings.limits, settings.topics, settings.groups
    coordinator = groups_settings(settings)
    consumer = consumer_settings(coordinator)
    shown = {
        "auto.create.topics.enable": str(topics.auto_create).lower(),
        "broker.session.timeout.ms": str(_ms(settings.broker.session_ttl)),
        "connections.max.idle.ms": str(_ms(limits.idle_seconds)),
        "delete.topic.enable": "true",
        "fetch.max.bytes": str(limits.fetch_bytes),
        "group.consumer.assignors": ",".join(consumer.assignors),
        "group.consumer.heartbeat.interval.ms": str(consumer.heartbeat_interval_ms),
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
        "listeners": _listener_list(settings.broker.all_listeners),
        "log.cleaner.enable": "false",
        "max.connections": str(limits.connections),
        "max.connections.per.ip": str(limits.connections_per_address or limits.connections),
        "num.partitions": str(topics.partitions),
        "offset.metadata.max.bytes": str(coordinator.largest_metadata),
        "offsets.retention.check.interval.ms": str(_ms(groups.sweep_interval)),
        "offsets.retention.minutes": str(round(groups.offset_retention / 60)),
        "process.roles": "broker",
        "producer.id.expiration.ms": str(settings.log.producer_expiry_ms),
        "socket.request.max.bytes": str(limits.frame_bytes),
    }
    shown |= security_configs(settings)
    if settings.broker.rack is not None:
        shown["broker.rack"] = settings.broker.rack
    if settings.broker.advertised is not None:
        shown["advertised.listeners"] = _listener_list(
            {**settings.broker.all_listeners, **settings.broker.all_advertised}
        )
    return shown


def _listener_list(listeners: Mapping[str, Address]) -> str:
    return ",".join(f"{name}://{address}" for name, address in listeners.items())


# --- the log, topics and groups


def log_settings(settings: Settings) -> LogSettings:
    return replace(
        settings.log,
        zone=settings.broker.zone,
        waits=not settings.objects_url.startswith(("file:", "memory:")),
        brake=collector_brake(settings),
    )


def collector_brake(settings: Settings) -> Brake:
    return Brake(settings.log.collect_share)


def groups_settings(settings: Settings) -> GroupsSettings:
    return replace(settings.groups, session_ttl=settings.broker.session_ttl)


# --- files and tables


def compaction_settings(settings: Settings) -> CompactionSettings:
    iceberg = settings.iceberg
    return replace(
        settings.compaction,
        snapshot_keep_ms=round(iceberg.keep_snapshots * 1000),
        drop_tables=iceberg.drop_tables,
        revert_foreign_rows=iceberg.foreign_rows == "revert",
        brake=collector_brake(settings),
    )


def spark_settings(settings: Settings) -> SparkSettings:
    spark = settings.spark
    return SparkSettings(
        master=spark.master,
        conf=spark.conf,
        log_path=str(Path(settings.data_dir) / "spark.log"),
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def security_configs(settings: Settings) -> dict[str, str]:
    """Only what differs from Kafka's defaults, or is set: the rest is as Kafka has it."""
    shown: dict[str, str] = {}
    security, listeners = settings.security, settings.broker.listeners
    if security.authorization != "none":
        shown["authorizer.class.name"] = AUTHORIZER
        shown["super.users"] = ";".join(security.super_users)
        shown["allow.everyone.if.no.acl.found"] = str(security.allow_if_no_acl).lower()
    if listeners:
        protocols = {name: each.protocol for name, each in settings.broker.all_listeners.items()}
        shown["listener.security.protocol.map"] = ",".join(f"{one}:{by}" for one, by in protocols.items())
    mechanisms = dict.fromkeys(one for each in listeners.values() for one in each.mechanisms)
    if mechanisms:
        shown["sasl.enabled.mechanisms"] = ",".join(mechanisms)
    if settings.broker.longest_session is not None:
        shown["connections.max.reauth.ms"] = str(round(settings.broker.longest_session * 1000))
    client_auth = [each.client_auth for each in listeners.values() if each.encrypts]
    if client_auth:
        shown["ssl.client.auth"] = min(client_auth, key=CLIENT_AUTH.index)  # what all of them ask for
    if TOKEN_MECHANISM in mechanisms:
        shown |= _of_tokens(settings)
    for name, listener in listeners.items():
        for key, value in _of_listener(listener).items():
            shown[f"listener.name.{name.lower()}.{key}"] = value
    return shown


def _of_listener(listener: ListenerAddress) -> dict[str, str]:
    shown = {}
    if listener.asks:
        shown["sasl.enabled.mechanisms"] = ",".join(listener.mechanisms)
    if listener.encrypts:
        shown["ssl.client.auth"] = listener.client_auth
    if listener.identifies:
        shown["ssl.principal.mapping.rules"] = listener.mapping_rules
    if listener.connections is not None:
        shown["max.connections"] = str(listener.connections)
    return shown


def _of_tokens(settings: Settings) -> dict[str, str]:
    oauth = settings.oauth
    file = None if oauth.key_set_file is None else Path(oauth.key_set_file).absolute().as_uri()
    shown = {
        "sasl.oauthbearer.jwks.endpoint.url": oauth.key_set_url or file,
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": str(round(oauth.key_set_refresh * 1000)),
        "sasl.oauthbearer.expected.issuer": oauth.issuer,
        "sasl.oauthbearer.expected.audience": oauth.audiences,
        "sasl.oauthbearer.sub.claim.name": oauth.subject_claim,
    }
    return {name: value for name, value in shown.items() if value is not None}
