"""The settings of the data pipeline: when records become files, where the tables are, and which Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dray.base.config.kinds import (
    DAY,
    MINUTE,
    Choice,
    Duration,
    Either,
    Secret,
    SecretMap,
    Switch,
    Text,
    TextList,
    TextMap,
)
from dray.base.config.setting import setting

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


@dataclass(frozen=True, kw_only=True)
class IcebergSection:
    """The tables that topics are at the same time."""

    enabled: bool = setting(
        True,
        Switch(),
        "Whether topics are tables. A topic may opt out with its config `dray.iceberg.enabled`.",
    )
    catalog: str = setting(
        "sql",
        Choice("sql", "rest", "glue"),
        "`sql`: a database, by default SQLite in the data directory. `rest`: any catalog that "
        "speaks Iceberg's REST protocol. `glue`: AWS Glue.",
    )
    uri: str | None = setting(
        None,
        Either("auto", _SOME_TEXT),
        "The catalog's address. `auto`: `catalog.sqlite` in the data directory.",
    )
    namespace: str = setting("dray", _NAMESPACE, "The namespace of the tables; a table has its topic's name.")
    warehouse: str | None = setting(
        None, Either("auto", _SOME_TEXT), "What a REST catalog asks for as the warehouse. `auto`: nothing."
    )
    sigv4_region: str | None = setting(
        None,
        Either("off", _SOME_TEXT),
        "The AWS region for which requests to a REST catalog are signed. `off`: they are not.",
    )
    options: Mapping[str, str] = setting(
        {},
        TextMap("option names with text values, such as {scope: catalog}", r"[A-Za-z0-9_.-]+"),
        "Further properties of the catalog, under the names that pyiceberg has for them.",
    )
    secrets: Mapping[str, Secret] = setting(
        {},
        SecretMap("credential names with text values, such as {token: ...}", r"[A-Za-z0-9_.-]+"),
        "Credentials of the catalog (`token`, `credential`), never printed. Better from the "
        "environment: `DRAY_ICEBERG__SECRETS__TOKEN=...`.",
    )
    exclude_topics: tuple[str, ...] = setting(
        INTERNAL_TOPICS,
        TextList(r"[A-Za-z0-9._*?-]+", "patterns with commas between them, such as __*,*-changelog"),
        "Topics whose names match (`*`: any text, `?`: any character) do not become tables, "
        "unless they set `dray.iceberg.enabled=true`. The default names the internal topics of Streams, "
        "Connect, MirrorMaker 2, schema registries, ksqlDB and Cruise Control.",
    )
    foreign_rows: str = setting(
        "hold",
        Choice("hold", "revert"),
        "What happens when another writer changed the rows of a table (DELETE, UPDATE, MERGE, "
        "INSERT). `hold`: it is not written until somebody puts it back (`drayd admin table TOPIC "
        "--put-back`). `revert`: the log's files are put back by themselves. Rows that were only written to "
        "other files (`rewrite_data_files`) are put back in either case.",
    )
    keep_snapshots: float = setting(
        60 * MINUTE,
        Duration(0.0, 365 * DAY),
        "How long a table's older snapshots stay, for queries that read them.",
    )
    drop_tables: bool = setting(True, Switch(), "Whether the table of a deleted topic goes with it.")


@dataclass(frozen=True, kw_only=True)
class SparkSection:
    """The place where compaction runs."""

    master: str = setting(
        "local[*,3]",
        _SOME_TEXT,
        "Spark's master URL: `local[*,3]` is this machine; or a standalone, YARN, Kubernetes or "
        "Connect (`sc://`) address.",
    )
    conf: Mapping[str, str] = setting(
        {},
        TextMap("Spark properties with text values", r"[A-Za-z0-9_.-]+"),
        "Further properties of the Spark session, such as `spark.executor.instances`.",
    )
    patience: float = setting(
        3 * MINUTE,
        Duration(10.0, DAY),
        "How long Spark may stand still. A worker that gets no further for so long (and a "
        "second more for each MiB of its units) loses its task to another; where no executor takes a task "
        "for so long, the compactor ends with a line, to be started again. Give more where executors take "
        "longer to come.",
    )
