"""The settings of the data pipeline: when records become files, where the tables are, and which Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field, SecretStr

from dray.config.kinds import (
    DAY,
    GIB,
    KIB,
    MIB,
    MINUTE,
    Address,
    Choice,
    Duration,
    Either,
    HostPort,
    SecretMap,
    Size,
    Switch,
    Text,
    TextList,
    TextMap,
    Whole,
)
from dray.config.section import Section

# Names that tools give to topics in which they keep state of their own. Only names that people would hardly
# choose: MirrorMaker's `heartbeats` is not among them.
INTERNAL_TOPICS: Final = (
    "__*",  # Kafka's own, Cruise Control, many tools
    "_schemas",  # Schema Registry, Karapace
    "_confluent-*",  # ksqlDB's commands and queries, Confluent's tools
    "*-changelog",  # Streams, ksqlDB, Faust
    "*-repartition",
    "*-KTABLE-FK-JOIN-SUBSCRIPTION-*-topic",  # Streams, joins by a foreign key
    "*-subscription-registration-topic",
    "*-subscription-response-topic",
    "*-__assignor-__leader",  # Faust
    "connect-*",  # Connect: configs, offsets, status
    "mm2-*.internal",  # MirrorMaker 2
    "*.checkpoints.internal",
    "mirrormaker2-cluster-*",  # MirrorMaker 2 as Strimzi runs it
    "strimzi.cruisecontrol.*",
    "kafkasql-journal",  # Apicurio Registry
    "kafkasql-snapshots",
)
_NAMESPACE = Text(r"[^\s./]+(?:\.[^\s./]+)*", "a namespace, such as dray or lake.streams")
_SOME_TEXT = Text(r"\S+", "text without spaces")
_SPARK_MEMORY = Text(r"[1-9][0-9]*[mg]", "a size as Spark has it, such as 800m or 2g")


class CompactionSection(Section):
    """When records move from WAL objects into Parquet files."""

    enabled: Annotated[bool, Switch()] = Field(
        default=True,
        description="Whether `drayd up` runs a compactor. It needs the pipeline's packages and Java 17 or "
        "newer; where those are missing, `up` says so and goes on without.",
    )
    http: Annotated[Address | None, Either("off", HostPort(free_port=True))] = Field(
        default=None,
        description="Where a compactor serves `/healthz`, `/readyz` and `/metrics`, such as "
        "`127.0.0.1:9643`. Compactors on one machine need addresses of their own.",
    )
    metrics_topics: Annotated[int, Whole(0, 10_000)] = Field(
        default=50,
        description="How many topics, those furthest behind, have a backlog of their own in the metrics.",
    )
    interval: Annotated[float, Duration(1.0, DAY)] = Field(
        default=MINUTE,
        description="The pause between two cycles with nothing left to do.",
    )
    wal_max_age: Annotated[float, Duration(0.0, 365 * DAY)] = Field(
        default=5 * MINUTE,
        description="Records that lie in WAL objects for so long are compacted.",
    )
    wal_max_bytes: Annotated[int, Size(64 * KIB, 1024 * GIB)] = Field(
        default=64 * MIB,
        description="A partition with so much in WAL objects is compacted, whatever its age.",
    )
    wal_max_entries: Annotated[int, Whole(1, 1_000_000)] = Field(
        default=1000,
        description="A partition with records in so many WAL objects is compacted, whatever its age.",
    )
    cycle_bytes: Annotated[int, Size(MIB, 1024 * GIB)] = Field(
        default=8 * GIB,
        description="Of a backlog, how much one cycle takes on: what it wrote is committed before the next.",
    )
    parquet_max_files: Annotated[int, Whole(1, 100_000)] = Field(
        default=16,
        description="A partition with more files than this has its small ones merged.",
    )
    target_file_bytes: Annotated[int, Size(MIB, 16 * GIB)] = Field(
        default=256 * MIB,
        description="How much of the log goes into one file at most.",
    )
    takeover: Annotated[float, Duration(1.0, DAY)] = Field(
        default=2 * MINUTE,
        description="A job that another compactor left standing for so long is carried on.",
    )
    reread_interval: Annotated[float, Duration(1.0, 30 * DAY)] = Field(
        default=10 * MINUTE,
        description="A cycle looks at partitions of which it heard something. So often it looks at all of "
        "them, since hints may be lost.",
    )
    collect_interval: Annotated[float, Duration(1.0, 30 * DAY)] = Field(
        default=10 * MINUTE,
        description="How often files and snapshots that nobody needs are looked for.",
    )
    collect_grace: Annotated[float, Duration(0.0, 30 * DAY)] = Field(
        default=10 * MINUTE,
        description="How long a file that nothing refers to stays for readers that still know it.",
    )


class IcebergSection(Section):
    """The tables that topics are at the same time."""

    enabled: Annotated[bool, Switch()] = Field(
        default=True,
        description="Whether topics are tables. A topic may opt out with its config `dray.iceberg.enabled`.",
    )
    catalog: Annotated[str, Choice("sql", "rest", "glue")] = Field(
        default="sql",
        description="`sql`: a database, by default SQLite in the data directory. `rest`: any catalog that "
        "speaks Iceberg's REST protocol. `glue`: AWS Glue.",
    )
    uri: Annotated[str | None, Either("auto", _SOME_TEXT)] = Field(
        default=None,
        description="The catalog's address. `auto`: `catalog.sqlite` in the data directory.",
    )
    namespace: Annotated[str, _NAMESPACE] = Field(
        default="dray",
        description="The namespace of the tables; a table has its topic's name.",
    )
    warehouse: Annotated[str | None, Either("auto", _SOME_TEXT)] = Field(
        default=None,
        description="What a REST catalog asks for as the warehouse. `auto`: nothing.",
    )
    sigv4_region: Annotated[str | None, Either("off", _SOME_TEXT)] = Field(
        default=None,
        description="The AWS region for which requests to a REST catalog are signed. `off`: they are not.",
    )
    options: Annotated[
        Mapping[str, str],
        TextMap("option names with text values, such as {scope: catalog}", r"[A-Za-z0-9_.-]+"),
    ] = Field(
        default_factory=dict,
        description="Further properties of the catalog, under the names that pyiceberg has for them.",
    )
    secrets: Annotated[
        Mapping[str, SecretStr],
        SecretMap("credential names with text values, such as {token: ...}", r"[A-Za-z0-9_.-]+"),
    ] = Field(
        default_factory=dict,
        description="Credentials of the catalog (`token`, `credential`), never printed. Better from the "
        "environment: `DRAY_ICEBERG__SECRETS__TOKEN=...`.",
    )
    exclude_topics: Annotated[
        tuple[str, ...],
        TextList(r"[A-Za-z0-9._*?-]+", "patterns with commas between them, such as __*,*-changelog"),
    ] = Field(
        default=INTERNAL_TOPICS,
        description="Topics whose names match (`*`: any text, `?`: any character) do not become tables, "
        "unless they set `dray.iceberg.enabled=true`. The default names the internal topics of Streams, "
        "Connect, MirrorMaker 2, schema registries, ksqlDB and Cruise Control.",
    )
    timeout: Annotated[float, Duration(1.0, 10 * MINUTE)] = Field(
        default=30.0,
        description="How long the catalog may take to answer.",
    )
    keep_snapshots: Annotated[float, Duration(0.0, 365 * DAY)] = Field(
        default=60 * MINUTE,
        description="How long a table's older snapshots stay, for queries that read them.",
    )
    drop_tables: Annotated[bool, Switch()] = Field(
        default=True,
        description="Whether the table of a deleted topic goes with it.",
    )


class SparkSection(Section):
    """Where compaction runs."""

    master: Annotated[str, _SOME_TEXT] = Field(
        default="local[*,3]",
        description="Spark's master URL: `local[*,3]` is this machine; or a standalone, YARN, Kubernetes or "
        "Connect (`sc://`) address.",
    )
    driver_memory: Annotated[str, _SPARK_MEMORY] = Field(
        default="512m",
        description="Memory of the driver's JVM. Records never pass through it.",
    )
    conf: Annotated[
        Mapping[str, str],
        TextMap("Spark properties with text values", r"[A-Za-z0-9_.-]+"),
    ] = Field(
        default_factory=dict,
        description="Further properties of the Spark session, such as `spark.executor.instances`.",
    )
