"""Kafka clusters that still own topics: those are mirrored from there, until they are switched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field

from dray.config.kinds import (
    DAY,
    HOUR,
    MINUTE,
    Address,
    Duration,
    Either,
    HostPort,
    InvalidValue,
    Size,
    TextMap,
    Whole,
    unfolded,
)
from dray.config.section import Section

_NAME: Final = r"[a-z0-9][a-z0-9-]{0,62}"
_FORMS: Final = (
    "names of clusters, each with {bootstrap: HOST:PORT,..., command_config: FILE} or only with HOST:PORT,..."
)
_KEYS: Final = ("bootstrap", "command_config")


@dataclass(frozen=True)
class UpstreamAddress:
    """Where a cluster is, and the file of client properties that says how to connect to it."""

    bootstrap: tuple[Address, ...]
    command_config: str | None = None


class _UpstreamMap(TextMap):
    """Addresses by the names of clusters; an environment variable holds one as JSON."""

    def __init__(self) -> None:
        super().__init__(_FORMS, _NAME, "-")

    def render(self, value: Any) -> Any:
        return {name: _rendered(address) for name, address in value.items()}

    def _text(self, value: Any) -> Any:
        if isinstance(value, UpstreamAddress):
            return value
        value = unfolded(value)
        if not isinstance(value, Mapping):
            return UpstreamAddress(_addresses(value))
        file = value.get("command_config")
        if any(key not in _KEYS for key in value) or not (file is None or (isinstance(file, str) and file)):
            raise InvalidValue
        return UpstreamAddress(_addresses(value.get("bootstrap")), file)


def _addresses(value: Any) -> tuple[Address, ...]:
    if not isinstance(value, str):
        raise InvalidValue
    return tuple(HostPort().parse(each.strip()) for each in value.split(","))


def _rendered(address: UpstreamAddress) -> Any:
    bootstrap = ",".join(str(each) for each in address.bootstrap)
    if address.command_config is None:
        return bootstrap
    return {"bootstrap": bootstrap, "command_config": address.command_config}


class UpstreamSection(Section):
    """Kafka clusters whose topics move here while they are used (`drayd migrate link`)."""

    clusters: Annotated[Mapping[str, UpstreamAddress], _UpstreamMap()] = Field(
        default_factory=dict,
        description="Names of clusters with their addresses, and with a properties file of Kafka's clients "
        "that says how to connect, such as `{old: {bootstrap: 'kafka:9092', command_config: "
        "/etc/dray/old.properties}}`. Linked topics name their cluster: every broker and migrator needs it "
        "under the same name. A broker that does not know it cannot pass on what clients produce.",
    )
    http: Annotated[Address | None, Either("off", HostPort(free_port=True))] = Field(
        default=None,
        description="Where a migrator serves /healthz, /readyz and /metrics, or `off`.",
    )
    give_up_time: Annotated[float, Duration(1.0, DAY)] = Field(
        default=5 * MINUTE,
        description="How long a switch may take, with the writers at the source fenced off, before it is "
        "given up and the fence is lifted.",
    )
    straggler_watch: Annotated[float, Duration(0.0, 30 * DAY)] = Field(
        default=HOUR,
        description="For how long the end of a topic at its source is watched after the switch: what a "
        "writer that no fence stops still puts there is named.",
    )
    group_interval: Annotated[float, Duration(0.1, HOUR)] = Field(
        default=5.0,
        description="How often the committed offsets of groups and the topic's configs are looked at at the "
        "source.",
    )
    mirror_bytes: Annotated[int, Size(0, 1 << 40)] = Field(
        default=512 << 20,
        description="Memory of a migrator for what it reads of sources and has not stored yet, of all its "
        "topics together; 64 MiB at least. A broker of a source that has much to give is read in large "
        "answers, which take 144 MiB: as many at a time as leave 64 MiB for all others. Those are read in "
        "small ones.",
    )
    forward_bytes: Annotated[int, Size(1 << 20, 1 << 36)] = Field(
        default=128 << 20,
        description="How many bytes of batches a broker holds for the sources of linked topics. Above it "
        "producers of such topics are asked to try again.",
    )
    forward_connections: Annotated[int, Whole(1, 10_000)] = Field(
        default=100,
        description="Connections of a broker to each broker of a source. Each carries one request at a time, "
        "so that this is also how many are under way there.",
    )
    forward_timeout: Annotated[float, Duration(1.0, 10 * MINUTE)] = Field(
        default=10.0,
        description="After so long without an answer of the source, a batch of an idempotent producer is "
        "sent again: its leader may be gone.",
    )
    forward_wait: Annotated[float, Duration(1.0, HOUR)] = Field(
        default=5 * MINUTE,
        description="For how long a batch is held at most, for the source or for the end of a switch, "
        "whatever timeout its producer asks for.",
    )
    forward_idle: Annotated[float, Duration(1.0, HOUR)] = Field(
        default=4 * MINUTE,
        description="After so long without a request a connection to a source is not used again. It has to "
        "be below the source's own `connections.max.idle.ms`, which is ten minutes.",
    )
    metrics_topics: Annotated[int, Whole(0, 10_000)] = Field(
        default=50,
        description="How many linked topics, those furthest behind, have numbers of their own in the metrics "
        "of a migrator.",
    )
