"""The settings of a Dray process. `docs/configuration.md` is generated from this page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dray.base.config.kinds import (
    DAY,
    HOUR,
    MIB,
    MINUTE,
    Address,
    AddressMap,
    Choice,
    Duration,
    Either,
    HostPort,
    Secret,
    SecretMap,
    Text,
    TextMap,
    Whole,
)
from dray.base.config.setting import section, setting
from dray.broker.settings import ZONE_NAME, GroupsSettings, LimitSettings, RoutingSettings, TopicsOptions
from dray.daemons.config.console import ConsoleSection
from dray.daemons.config.foreign import ForeignSection
from dray.daemons.config.http import HttpSection
from dray.daemons.config.listeners import PLAINTEXT, ListenerAddress, ListenerMap
from dray.daemons.config.metrics import MetricsSection
from dray.daemons.config.pipeline import IcebergSection, SparkSection
from dray.daemons.config.security import OAuthSection, SecuritySection
from dray.daemons.config.upstream import UpstreamSection
from dray.log.settings import LogSettings
from dray.metadata.settings import MetadataSettings
from dray.tables.compaction.settings import CompactionSettings

INT32_MAX = 2**31 - 1
UP_TAIL_CACHE_BYTES = 512 * MIB
"""The most memory that `drayd up` takes by itself, for all its brokers: it is not alone on its machine."""

_PATH = Text(r"(?s:.+)", "a path")
_ZONE = Text(ZONE_NAME, "a zone id of 1 to 100 letters, digits, '.', '_' or '-'")
_OBJECTS_URL = Text(
    r"(?:file:.+|memory:|(?:s3|gs|az)://[^/\s]+(?:/\S*)?)",
    "file:PATH, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or memory:",
)


@dataclass(frozen=True, kw_only=True)
class ClusterSection:
    """Settings that the whole cluster shares."""

    domains: int | None = setting(
        None,
        Either("auto", Whole(1, 1024)),
        "Metadata domains: streams are spread over them, and each costs a broker its own "
        "stream of object puts. Stored when the cluster is created, and fixed then. `auto`: 16 on `oxia` and "
        "`etcd`, else 4.",
    )
    clock_tolerance: float = 5 * MINUTE  # between machines; no config names it
    tally_interval: float = setting(
        30.0,
        Duration(0.1, HOUR),
        "How often the cluster raises its tally, a small object in the bucket and a value in the "
        "metadata store that have to fit: by it a copy of the metadata that is started beside the cluster is "
        "noticed. A process that starts where nobody else runs deletes and compacts nothing for three times "
        "as long.",
    )
    backup_interval: float | None = setting(
        None,
        Either("off", Duration(1.0, 30 * DAY)),
        "How often a broker copies the metadata store into the bucket: what "
        "`drayd restore --from-bucket` begins with. `off`: only `drayd backup` does.",
    )
    backups_kept: int = setting(
        24, Whole(1, 10_000), "So many backups stay in the bucket, where brokers make them."
    )


@dataclass(frozen=True, kw_only=True)
class BrokerSection:
    """This broker: who it is and where it listens."""

    id: int | None = setting(
        None,
        Either("auto", Whole(0, INT32_MAX)),
        "The broker id. `auto` takes the lowest one that no live broker holds.",
    )
    listen: Address | None = setting(
        Address("127.0.0.1", 9092),
        Either("off", HostPort(free_port=True)),
        "Where Kafka clients connect that are not asked who they are: the listener PLAINTEXT. "
        "Where `listeners` are given, it is off unless it is set.",
    )
    advertised: Address | None = setting(
        None,
        Either("auto", HostPort()),
        "The address of `listen` told to clients, if it differs (containers, NAT). "
        "Needed when `listen` is a wildcard such as 0.0.0.0.",
    )
    listeners: Mapping[str, ListenerAddress] = setting(
        {},
        ListenerMap(
            "listener names in capitals with HOST:PORT, such as {INTERNAL: 127.0.0.1:9192}, or with "
            "{address: HOST:PORT, protocol: SASL_PLAINTEXT, mechanisms: [SCRAM-SHA-512, PLAIN]}, or with "
            "{address: HOST:PORT, protocol: SASL_SSL, certificate_file: FILE, key_file: FILE}; more in "
            "docs/security.md"
        ),
        "[Listeners](security.md#listeners) by name, in place of the one of `listen`, or beside it. A client "
        "is told the brokers' addresses of the listener it came in on. With the protocols SASL_PLAINTEXT and "
        "SASL_SSL clients have to authenticate as a user (`drayd admin user add`), with one of the "
        "mechanisms SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN (or by token: OAUTHBEARER, with "
        "`oauth`); what a known user may do, `security` says. With SSL and "
        "SASL_SSL the connection is encrypted; the two files are re-read when they change.",
    )
    longest_session: float | None = setting(
        None,
        Either("off", Duration(1.0, 365 * DAY)),
        "How long a client that has authenticated is believed before it must do so again: "
        "Kafka's `connections.max.reauth.ms`.",
    )
    advertised_listeners: Mapping[str, Address] = setting(
        {},
        AddressMap("listener names in capitals with HOST:PORT, such as {INTERNAL: 10.0.0.5:9192}"),
        "The addresses told to clients of further listeners, where they differ.",
    )
    http: Address | None = setting(
        Address("127.0.0.1", 9644),
        Either("off", HostPort(free_port=True)),
        "Where `/healthz`, `/readyz` and `/metrics` are served.",
    )
    rack: str | None = setting(
        None,
        Either("none", _ZONE),
        "The rack told to clients. A consumer with it as its `client.rack` reads in this broker's zone.",
    )
    zone: str = setting(
        "local",
        _ZONE,
        "The availability zone. Clients that name it (`client.id=zone_id=...`) are sent to its "
        "brokers. It is part of the paths of the objects that the broker writes.",
    )

    @property
    def all_listeners(self) -> Mapping[str, ListenerAddress]:
        """By name. There is one at least."""
        listen = self.listen
        plain = {} if listen is None else {PLAINTEXT: ListenerAddress(listen.host, listen.port)}
        return {**plain, **self.listeners}

    @property
    def all_advertised(self) -> Mapping[str, Address]:
        """By the listener's name; only what differs from where it listens."""
        return {
            **({} if self.advertised is None else {PLAINTEXT: self.advertised}),
            **self.advertised_listeners,
        }

    @property
    def open_listeners(self) -> Mapping[str, Address]:
        """By their settings: those at which clients are not asked who they are."""
        return {
            "broker.listen" if name == PLAINTEXT else f"broker.listeners.{name}": place
            for name, place in self.all_listeners.items()
            if not place.knows_clients
        }

    session_ttl: float = setting(
        10.0, Duration(2.0, 5 * MINUTE), "How long after its last sign of life a broker counts as gone."
    )
    shutdown_grace: float = setting(
        30.0, Duration(0.0, 10 * MINUTE), "How long a graceful stop waits for the requests in flight."
    )


@dataclass(frozen=True, kw_only=True)
class ObjectSection:
    """The store of the records themselves."""

    url: str | None = setting(
        None,
        Either("auto", _OBJECTS_URL),
        "The object store. `auto`: the folder `objects` in the data directory.",
    )
    options: Mapping[str, str] = setting(
        {},
        TextMap("option names with text values, such as {region: eu-west-1}", r"[a-z0-9_]+"),
        "Options of the store's client: `region`, `endpoint`, and so on.",
    )
    secrets: Mapping[str, Secret] = setting(
        {},
        SecretMap("credential names with text values, such as {access_key_id: ...}", r"[a-z0-9_]+"),
        "Credentials of the store's client, never printed. Better from the environment: "
        "`DRAY_OBJECTS__SECRETS__SECRET_ACCESS_KEY=...`, or the provider's own variables.",
    )
    secrets_directory: str | None = setting(
        None,
        Either("none", _PATH),
        "A directory with a file for each of those credentials, under its name, as Kubernetes "
        "mounts a Secret. Read again when they change, by every process.",
    )


@dataclass(frozen=True, kw_only=True)
class LoggingSection:
    """The log of the process, on standard error."""

    format: str = setting(
        "auto",
        Choice("auto", "console", "json"),
        "`auto`: `console` on a terminal, else `json`, one object per line.",
    )
    level: str = setting(
        "info",
        Choice("debug", "info", "warning", "error"),
        "The least important lines that are written. Those of the audit log always are.",
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting, with its default."""

    data_dir: str = setting(
        "./dray-data", _PATH, "The directory of this process: its lock, and the embedded stores."
    )
    cluster: ClusterSection = section(ClusterSection)
    broker: BrokerSection = section(BrokerSection)
    metadata: MetadataSettings = section(MetadataSettings)
    objects: ObjectSection = section(ObjectSection)
    foreign: ForeignSection = section(ForeignSection)
    upstream: UpstreamSection = section(UpstreamSection)
    log: LogSettings = section(LogSettings)
    limits: LimitSettings = section(LimitSettings)
    topics: TopicsOptions = section(TopicsOptions)
    groups: GroupsSettings = section(GroupsSettings)
    routing: RoutingSettings = section(RoutingSettings)
    compaction: CompactionSettings = section(CompactionSettings)
    iceberg: IcebergSection = section(IcebergSection)
    spark: SparkSection = section(SparkSection)
    console: ConsoleSection = section(ConsoleSection)
    security: SecuritySection = section(SecuritySection)
    oauth: OAuthSection = section(OAuthSection)
    http: HttpSection = section(HttpSection)
    logging: LoggingSection = section(LoggingSection)
    metrics: MetricsSection = section(MetricsSection)

    @property
    def domains(self) -> int:
        """Of a new cluster; an old one keeps those that it has."""
        if self.cluster.domains is not None:
            return self.cluster.domains
        return 4 if self.metadata.servers is None else 16

    def for_one_of(self, brokers: int) -> Settings:
        """The settings of one of the brokers of a `drayd up`: they share the memory that `up` takes, unless a
        size is given. Then each has that."""
        if self.log.tail_cache_bytes is not None:
            return self
        share = min(self.log.tail_bytes, UP_TAIL_CACHE_BYTES) // brokers
        return replace(self, log=replace(self.log, tail_cache_bytes=share))

    @property
    def metadata_path(self) -> Path:
        return Path(self.metadata.path or Path(self.data_dir) / "metadata.sqlite")

    @property
    def objects_url(self) -> str:
        return self.objects.url or f"file:{Path(self.data_dir) / 'objects'}"

    @property
    def catalog_uri(self) -> str | None:
        if self.iceberg.uri is not None or self.iceberg.catalog != "sql":
            return self.iceberg.uri
        return f"sqlite:///{(Path(self.data_dir) / 'catalog.sqlite').absolute()}"
