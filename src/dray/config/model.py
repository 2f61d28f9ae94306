"""The settings of a Dray process. `docs/configuration.md` is generated from this page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr

from dray.config.console import ConsoleSection
from dray.config.foreign import ForeignSection
from dray.config.http import HttpSection
from dray.config.kinds import (
    DAY,
    GIB,
    HOUR,
    KIB,
    MIB,
    MINUTE,
    Address,
    AddressMap,
    Choice,
    Duration,
    Either,
    HostPort,
    SecretMap,
    Size,
    Switch,
    Text,
    TextMap,
    Whole,
)
from dray.config.listeners import ListenerAddress, ListenerMap
from dray.config.machine import usable_memory
from dray.config.metadata import EtcdSection, OxiaSection
from dray.config.metrics import MetricsSection
from dray.config.pipeline import CompactionSection, IcebergSection, SparkSection
from dray.config.section import Section
from dray.config.security import OAuthSection, SecuritySection
from dray.config.upstream import UpstreamSection

INT32_MAX = 2**31 - 1
TAIL_CACHE_SHARE = 8
UP_TAIL_CACHE_BYTES = 512 * MIB
"""What `drayd up` takes by itself at most, all its brokers together: it is not alone on its machine."""

_PATH = Text(r"(?s:.+)", "a path")
_ZONE = Text(r"[A-Za-z0-9._-]{1,100}", "a zone id of 1 to 100 letters, digits, '.', '_' or '-'")
_OBJECTS_URL = Text(
    r"(?:file:.+|memory:|(?:s3|gs|az)://[^/\s]+(?:/\S*)?)",
    "file:PATH, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or memory:",
)


class ClusterSection(Section):
    """What the whole cluster shares."""

    domains: Annotated[int | None, Either("auto", Whole(1, 1024))] = Field(
        default=None,
        description="Metadata domains: streams are spread over them, and each costs a broker its own "
        "stream of object puts. Stored when the cluster is created, and fixed then. `auto`: 16 on `oxia` and "
        "`etcd`, else 4.",
    )
    clock_tolerance: Annotated[float, Duration(10.0, DAY)] = Field(
        default=5 * MINUTE,
        description="How far the clocks of machines, and of the object store, may be apart. Beyond it a "
        "machine whose clock most others contradict lets nothing expire.",
    )


class BrokerSection(Section):
    """This broker: who it is and where it listens."""

    id: Annotated[int | None, Either("auto", Whole(0, INT32_MAX))] = Field(
        default=None,
        description="The broker id. `auto` takes the lowest one that no live broker holds.",
    )
    listen: Annotated[Address, HostPort(free_port=True)] = Field(
        default=Address("127.0.0.1", 9092),
        description="Where Kafka clients connect.",
    )
    advertised: Annotated[Address | None, Either("auto", HostPort())] = Field(
        default=None,
        description="The address told to clients, if it differs from `listen` (containers, NAT). "
        "Needed when `listen` is a wildcard such as 0.0.0.0.",
    )
    listeners: Annotated[
        Mapping[str, ListenerAddress],
        ListenerMap(
            "listener names in capitals with HOST:PORT, such as {INTERNAL: 127.0.0.1:9192}, or with "
            "{address: HOST:PORT, protocol: SASL_PLAINTEXT, mechanisms: [SCRAM-SHA-512, PLAIN]}, or with "
            "{address: HOST:PORT, protocol: SASL_SSL, certificate_file: FILE, key_file: FILE}; more in "
            "[security.md](security.md#listeners)"
        ),
    ] = Field(
        default_factory=dict,
        description="Further listeners, by name; the one of `listen` is called PLAINTEXT. A client is told "
        "the brokers' addresses of the listener it came in on. With the protocols SASL_PLAINTEXT and "
        "SASL_SSL clients have to authenticate as a user (`drayd admin user add`), with one of the "
        "mechanisms SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN (or by token: OAUTHBEARER, with "
        "`oauth`); what a known user may do, `security` says. With SSL and "
        "SASL_SSL the connection is encrypted; the two files are re-read when they change.",
    )
    longest_session: Annotated[float | None, Either("off", Duration(1.0, 365 * DAY))] = Field(
        default=None,
        description="How long a client that has authenticated is believed before it must do so again: "
        "Kafka's `connections.max.reauth.ms`.",
    )
    advertised_listeners: Annotated[
        Mapping[str, Address],
        AddressMap("listener names in capitals with HOST:PORT, such as {INTERNAL: 10.0.0.5:9192}"),
    ] = Field(
        default_factory=dict,
        description="The addresses told to clients of further listeners, where they differ.",
    )
    http: Annotated[Address | None, Either("off", HostPort(free_port=True))] = Field(
        default=Address("127.0.0.1", 9644),
        description="Where `/healthz`, `/readyz` and `/metrics` are served.",
    )
    rack: Annotated[str | None, Either("none", _ZONE)] = Field(
        default=None,
        description="The rack told to clients. A consumer with it as its `client.rack` reads in this "
        "broker's zone.",
    )
    zone: Annotated[str, _ZONE] = Field(
        default="local",
        description="The availability zone. Clients that name it (`client.id=zone_id=...`) are sent to its "
        "brokers. It is part of the paths of the objects that the broker writes.",
    )
    session_ttl: Annotated[float, Duration(2.0, 5 * MINUTE)] = Field(
        default=10.0,
        description="How long after its last sign of life a broker counts as gone.",
    )
    shutdown_grace: Annotated[float, Duration(0.0, 10 * MINUTE)] = Field(
        default=30.0,
        description="How long a graceful stop waits for the requests in flight.",
    )


class MetadataSection(Section):
    """Where the order of records, the topics and the brokers are kept."""

    engine: Annotated[str, Choice("sqlite", "oxia", "etcd", "memory")] = Field(
        default="sqlite",
        description="`sqlite` serves one machine, `oxia` and `etcd` any number; `memory` forgets everything "
        "when the process ends.",
    )
    path: Annotated[str | None, Either("auto", _PATH)] = Field(
        default=None,
        description="The SQLite file. `auto`: `metadata.sqlite` in the data directory.",
    )
    oxia: OxiaSection = OxiaSection()
    etcd: EtcdSection = EtcdSection()


class ObjectSection(Section):
    """Where the records themselves are kept."""

    url: Annotated[str | None, Either("auto", _OBJECTS_URL)] = Field(
        default=None,
        description="The object store. `auto`: the folder `objects` in the data directory.",
    )
    options: Annotated[
        Mapping[str, str],
        TextMap("option names with text values, such as {region: eu-west-1}", r"[a-z0-9_]+"),
    ] = Field(
        default_factory=dict,
        description="Options of the store's client: `region`, `endpoint`, and so on.",
    )
    secrets: Annotated[
        Mapping[str, SecretStr],
        SecretMap("credential names with text values, such as {access_key_id: ...}", r"[a-z0-9_]+"),
    ] = Field(
        default_factory=dict,
        description="Credentials of the store's client, never printed. Better from the environment: "
        "`DRAY_OBJECTS__SECRETS__SECRET_ACCESS_KEY=...`, or the provider's own variables.",
    )


class LogSection(Section):
    """How records become objects, and what is kept in memory."""

    flush_linger: Annotated[float | None, Either("auto", Duration(0.0, 10.0))] = Field(
        default=None,
        description="How long records wait for company before an object is written. `auto`: not at all on "
        "local files and memory, 100ms on cloud stores, where each put costs money.",
    )
    object_bytes: Annotated[int, Size(64 * KIB, GIB)] = Field(
        default=8 * MIB,
        description="An object is closed at this size at the latest.",
    )
    uploads_in_flight: Annotated[int, Whole(1, 256)] = Field(
        default=4,
        description="Objects being written at once, per metadata domain.",
    )
    carry_bytes: Annotated[int | None, Either("auto", Size(0, 256 * KIB))] = Field(
        default=None,
        description="Small appends ride in their commit instead of an object, so that they take milliseconds "
        "and no put: this is the most that one such write holds, per metadata domain (with sqlite and memory "
        "a write may be of all domains). `auto`: 64KiB with sqlite and memory, 32KiB with oxia, 8KiB with "
        "etcd. `0`: all appends are objects, and what is carried is packed into them.",
    )
    carry_backlog: Annotated[int | None, Either("auto", Size(64 * KIB, 16 * GIB))] = Field(
        default=None,
        description="The most that is carried and neither packed nor compacted, per metadata domain and "
        "broker; beyond it appends are objects. `auto`: 32MiB with sqlite and memory, 16MiB with oxia, 4MiB "
        "with etcd.",
    )
    tail_cache_bytes: Annotated[int | None, Either("auto", Size(0, 1024 * GIB))] = Field(
        default=None,
        description="The newest records, kept for consumers that follow the tail or are not far behind: they "
        "are read from memory, and not from the object store. `auto`: an eighth of the memory that the "
        "process may use (the machine's, or its container's limit), from 32MiB to 8GiB; with `drayd up` at "
        "most 512MiB, for all its brokers together.",
    )
    segment_cache_bytes: Annotated[int, Size(0, 1024 * GIB)] = Field(
        default=64 * MIB,
        description="Pieces of objects read back for consumers that are behind the tail.",
    )
    compacted_cache_bytes: Annotated[int, Size(0, 1024 * GIB)] = Field(
        default=128 * MIB,
        description="Row groups of compacted files, rebuilt for consumers that catch up: about 8 MiB for "
        "each partition that somebody reads from.",
    )
    compacted_footer_bytes: Annotated[int, Size(0, GIB)] = Field(
        default=32 * MIB,
        description="Footers of compacted files.",
    )
    compacted_read_ahead: Annotated[int, Whole(0, 64)] = Field(
        default=2,
        description="Row groups of compacted files read before they are asked for, per partition. On a "
        "store that takes long to answer, more is faster.",
    )
    index_cache_entries: Annotated[int, Whole(1, 1_000_000)] = Field(
        default=512,
        description="Offset index entries kept per stream for consumers that are behind the tail.",
    )
    cache_idle: Annotated[float, Duration(1.0, 365 * DAY)] = Field(
        default=5 * MINUTE,
        description="What nobody used for so long leaves the caches, and its memory goes back to the system.",
    )
    deleted_within: Annotated[float, Duration(0.1, HOUR)] = Field(
        default=5.0,
        description="Records are served for no longer than this after their deletion was acknowledged, by "
        "whichever broker; mostly it is milliseconds. A broker that cannot ask the metadata store for so "
        "long refuses reads.",
    )
    producer_expiry: Annotated[float, Duration(MINUTE, 365 * DAY)] = Field(
        default=DAY,
        description="An idempotent producer that wrote nothing for so long is forgotten.",
    )
    orphan_ttl: Annotated[float, Duration(1.0, 365 * DAY)] = Field(
        default=DAY,
        description="An object whose writer never finished, or that the metadata does not know, is garbage "
        "only after so long.",
    )
    job_ttl: Annotated[float, Duration(1.0, 365 * DAY)] = Field(
        default=HOUR,
        description="Retention leaves a partition that is being compacted alone, unless the compaction has "
        "stood still for so long.",
    )
    retention_interval: Annotated[float, Duration(1.0, 30 * DAY)] = Field(
        default=5 * MINUTE,
        description="How often a broker looks for records that their topic's retention lets go of.",
    )
    collect_interval: Annotated[float, Duration(1.0, 30 * DAY)] = Field(
        default=MINUTE,
        description="How often a broker collects objects that nothing refers to.",
    )
    collect_grace: Annotated[float, Duration(0.0, 30 * DAY)] = Field(
        default=10 * MINUTE,
        description="How long such an object stays for readers that still know it.",
    )
    collect_percent: Annotated[int, Whole(1, 100)] = Field(
        default=50,
        description="A collector stops and says so rather than delete more than this share of what it sees, "
        "where the metadata does not know it. With 100 it never stops.",
    )
    audit_interval: Annotated[float, Duration(MINUTE, 365 * DAY)] = Field(
        default=DAY,
        description="How often the whole bucket is compared with the metadata.",
    )


class LimitSection(Section):
    """What a client may ask of a broker."""

    frame_bytes: Annotated[int, Size(64 * KIB, 2 * GIB - 1)] = Field(
        default=100 * MIB,
        description="The largest request; a larger one closes its connection.",
    )
    buffer_bytes: Annotated[int, Size(MIB, 1024 * GIB)] = Field(
        default=256 * MIB,
        description="Bytes of requests that are received and not yet answered. When they are reached, "
        "sockets are no longer read: producers wait, memory does not grow. A sixteenth is kept for small "
        "requests that are not produce requests.",
    )
    answer_bytes: Annotated[int | None, Either("auto", Size(MIB, 1024 * GIB))] = Field(
        default=None,
        description="Bytes of answers that are being made or that clients have not taken yet. Fetches are "
        "answered with less as it fills, and then wait; clients that do not read are closed sooner. "
        "`auto`: as many as `limits.buffer_bytes`.",
    )
    decompressed_bytes: Annotated[int, Size(MIB, 2 * GIB - 1)] = Field(
        default=128 * MIB,
        description="What one compressed batch may grow to; a larger one is refused. What a broker has "
        "decompressed at any one time is twice as much at most: further ones wait.",
    )
    request_decompressed_bytes: Annotated[int, Size(MIB, 1024 * GIB)] = Field(
        default=512 * MIB,
        description="What the compressed batches of one produce request may grow to together; those beyond "
        "are refused as too large.",
    )
    fetch_bytes: Annotated[int, Size(MIB, 2 * GIB - 1)] = Field(
        default=55 * MIB,
        description="The most that one fetch answers with, whatever the client asks for.",
    )
    connections: Annotated[int, Whole(1, 1_000_000)] = Field(
        default=10_000,
        description="Connections at once. One more takes the place of one that has sent no request, or is "
        "closed as it arrives.",
    )
    connections_per_address: Annotated[int | None, Either("auto", Whole(1, 1_000_000))] = Field(
        default=None,
        description="Connections at once from one address; one more is closed as it arrives. `auto`: half of "
        "`limits.connections`, and as many as there are for clients on the same machine.",
    )
    requests_in_flight: Annotated[int, Whole(1, 10_000)] = Field(
        default=1000,
        description="Requests of one connection worked on at once; further ones wait in its socket.",
    )
    idle_timeout: Annotated[float, Duration(1.0, 365 * DAY)] = Field(
        default=10 * MINUTE,
        description="A connection without a request for so long is closed.",
    )


class TopicSection(Section):
    """What a topic gets when its creator does not say."""

    auto_create: Annotated[bool, Switch()] = Field(
        default=True,
        description="Whether a client that asks for an unknown topic creates it, as in Kafka.",
    )
    partitions: Annotated[int, Whole(1, 100_000)] = Field(
        default=1,
        description="Partitions of a topic created without a count.",
    )
    max_partitions: Annotated[int, Whole(1, 1_000_000)] = Field(
        default=10_000,
        description="The most partitions one topic may have.",
    )
    defaults: Annotated[
        Mapping[str, str],
        TextMap("topic config names with values, such as {retention.ms: 86400000}", r"[a-z.]+", "."),
    ] = Field(
        default_factory=dict,
        description="Topic configs of topics that do not set them, by Kafka's names. In the environment "
        "`_` stands for `.`: `DRAY_TOPICS__DEFAULTS__RETENTION_MS`.",
    )


class GroupSection(Section):
    """Consumer groups, of the classic protocol and of KIP-848."""

    initial_rebalance_delay: Annotated[float, Duration(0.0, HOUR)] = Field(
        default=3.0,
        description="How long the first member of an empty classic group waits for others, so that they "
        "share one rebalance.",
    )
    min_session_timeout: Annotated[float, Duration(0.001, DAY)] = Field(
        default=6.0,
        description="The least session timeout that a member of a classic group may ask for.",
    )
    max_session_timeout: Annotated[float, Duration(0.001, DAY)] = Field(
        default=30 * MINUTE,
        description="The greatest session timeout that a member of a classic group may ask for.",
    )
    consumer_session_timeout: Annotated[float, Duration(0.001, DAY)] = Field(
        default=45.0,
        description="A member of a KIP-848 group that sent no heartbeat for so long is removed.",
    )
    consumer_heartbeat_interval: Annotated[float, Duration(0.001, DAY)] = Field(
        default=5.0,
        description="How often members of KIP-848 groups are told to send heartbeats.",
    )
    consumer_assignors: Annotated[str, Choice("uniform,range", "range,uniform", "uniform", "range")] = Field(
        default="uniform,range",
        description="The assignors that members of KIP-848 groups may name; the first is taken where they "
        "name none.",
    )
    max_size: Annotated[int, Whole(1, INT32_MAX)] = Field(
        default=INT32_MAX,
        description="The most members that a group may have.",
    )
    offset_metadata_bytes: Annotated[int, Size(0, MIB)] = Field(
        default=4 * KIB,
        description="The longest metadata that may be committed with an offset.",
    )
    offset_retention: Annotated[float, Duration(1.0, 3650 * DAY)] = Field(
        default=7 * DAY,
        description="Committed offsets are forgotten when their group has been empty for so long, or when "
        "they are as old and nobody subscribes to their topic.",
    )
    offset_check_interval: Annotated[float, Duration(0.1, 30 * DAY)] = Field(
        default=10 * MINUTE,
        description="How often a broker looks for such offsets.",
    )
    memory_groups: Annotated[int, Whole(1, 10_000_000)] = Field(
        default=10_000,
        description="How many groups without members a broker keeps in memory.",
    )


class RoutingSection(Section):
    """Which broker clients are sent to. Any can serve any partition: this is about cost and speed."""

    enforce_owner: Annotated[bool, Switch()] = Field(
        default=False,
        description="Whether a broker refuses produce and fetch for partitions that another one should "
        "serve, so that clients ask for the metadata again. Without it, it serves them.",
    )
    strict_zones: Annotated[bool, Switch()] = Field(
        default=False,
        description="Whether clients that name their zone are shown the brokers of that zone alone. Without "
        "it they are also shown one broker of each other zone, which leads nothing: somebody to ask when "
        "their zone goes dark. A group is led where its coordinator is, in either case.",
    )


class LoggingSection(Section):
    """What the process says about itself, on standard error."""

    format: Annotated[str, Choice("auto", "console", "json")] = Field(
        default="auto",
        description="`auto`: `console` on a terminal, else `json`, one object per line.",
    )
    level: Annotated[str, Choice("debug", "info", "warning", "error")] = Field(
        default="info",
        description="The least important lines that are written.",
    )


class Settings(Section):
    """Every setting, with its default."""

    data_dir: Annotated[str, _PATH] = Field(
        default="./dray-data",
        description="The directory of this process: its lock, and the embedded stores.",
    )
    cluster: ClusterSection = ClusterSection()
    broker: BrokerSection = BrokerSection()
    metadata: MetadataSection = MetadataSection()
    objects: ObjectSection = ObjectSection()
    foreign: ForeignSection = ForeignSection()
    upstream: UpstreamSection = UpstreamSection()
    log: LogSection = LogSection()
    limits: LimitSection = LimitSection()
    topics: TopicSection = TopicSection()
    groups: GroupSection = GroupSection()
    routing: RoutingSection = RoutingSection()
    compaction: CompactionSection = CompactionSection()
    iceberg: IcebergSection = IcebergSection()
    spark: SparkSection = SparkSection()
    console: ConsoleSection = ConsoleSection()
    security: SecuritySection = SecuritySection()
    oauth: OAuthSection = OAuthSection()
    http: HttpSection = HttpSection()
    logging: LoggingSection = LoggingSection()
    metrics: MetricsSection = MetricsSection()

    @property
    def domains(self) -> int:
        """Of a new cluster; an old one keeps those that it has."""
        if self.cluster.domains is not None:
            return self.cluster.domains
        return 16 if self.metadata.engine in ("oxia", "etcd") else 4

    @property
    def tail_cache_bytes(self) -> int:
        if self.log.tail_cache_bytes is not None:
            return self.log.tail_cache_bytes
        return min(max(usable_memory() // TAIL_CACHE_SHARE, 32 * MIB), 8 * GIB)

    @property
    def up_tail_cache_bytes(self) -> int:
        """Of all brokers of a `drayd up`, unless a size is given: then each has that."""
        return min(self.tail_cache_bytes, UP_TAIL_CACHE_BYTES)

    def for_one_of(self, brokers: int) -> Settings:
        """What one of the brokers of a `drayd up` goes by: they share the memory that `up` takes."""
        if self.log.tail_cache_bytes is not None:
            return self
        share = self.up_tail_cache_bytes // brokers
        return self.model_copy(update={"log": self.log.model_copy(update={"tail_cache_bytes": share})})

    @property
    def answer_bytes(self) -> int:
        return self.limits.buffer_bytes if self.limits.answer_bytes is None else self.limits.answer_bytes

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

    @property
    def flush_linger(self) -> float:
        if self.log.flush_linger is not None:
            return self.log.flush_linger
        return 0.0 if self.objects_url.startswith(("file:", "memory:")) else 0.1
