"""Kafka clusters that still own topics: those are mirrored from there, until they are switched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dray.base.config.kinds import (
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
    unfolded,
)
from dray.base.config.setting import setting

_NAME: Final = r"[a-z0-9][a-z0-9-]{0,62}"
_FORMS: Final = (
    "names of clusters, each with {bootstrap: HOST:PORT,..., command_config: FILE, forward_config: FILE} or "
    "only with HOST:PORT,..."
)
_FILES: Final = ("command_config", "forward_config")


@dataclass(frozen=True)
class UpstreamAddress:
    """The address of a cluster, and the files of client properties that say how to connect to it."""

    bootstrap: tuple[Address, ...]
    command_config: str | None = None
    forward_config: str | None = None
    """For brokers, which pass on what clients produce. Without it they use `command_config`."""


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
        files = [value.get(key) for key in _FILES]
        if any(key not in ("bootstrap", *_FILES) for key in value):
            raise InvalidValue
        if not all(file is None or (isinstance(file, str) and file) for file in files):
            raise InvalidValue
        return UpstreamAddress(_addresses(value.get("bootstrap")), *files)


def _addresses(value: Any) -> tuple[Address, ...]:
    if not isinstance(value, str):
        raise InvalidValue
    return tuple(HostPort().parse(each.strip()) for each in value.split(","))


def _rendered(address: UpstreamAddress) -> Any:
    bootstrap = ",".join(str(each) for each in address.bootstrap)
    files = {key: getattr(address, key) for key in _FILES if getattr(address, key) is not None}
    return {"bootstrap": bootstrap, **files} if files else bootstrap


@dataclass(frozen=True, kw_only=True)
class UpstreamSection:
    """Kafka clusters whose topics move here while they are used (`drayd migrate link`)."""

    clusters: Mapping[str, UpstreamAddress] = setting(
        {},
        _UpstreamMap(),
        "Names of clusters with their addresses, and with a properties file of Kafka's clients "
        "that says how to connect, such as `{old: {bootstrap: 'kafka:9092', command_config: "
        "/etc/dray/old.properties}}`. Linked topics name their cluster: every broker and migrator needs it "
        "under the same name. A broker that does not know it cannot pass on what clients produce. Brokers "
        "need WRITE on those topics and no other right: `forward_config` is a file for them alone, with a "
        "user of its own at the source, and then they do not read `command_config`.",
    )
    http: Address | None = setting(
        None,
        Either("off", HostPort(free_port=True)),
        "Where a migrator serves /healthz, /readyz and /metrics, or `off`.",
    )
    give_up_time: float = setting(
        5 * MINUTE,
        Duration(1.0, DAY),
        "How long a switch may take, with the writers at the source fenced off, before it is "
        "given up and the fence is lifted.",
    )
    straggler_watch: float = setting(
        HOUR,
        Duration(0.0, 30 * DAY),
        "For how long the end of a topic at its source is watched after the switch: what a "
        "writer that no fence stops still puts there is named.",
    )
    group_interval: float = setting(
        5.0,
        Duration(0.1, HOUR),
        "How often the committed offsets of groups and the topic's configs are looked at at the source.",
    )
    mirror_bytes: int = setting(
        512 << 20,
        Size(0, 1 << 40),
        "Memory of a migrator for what it reads of sources and has not stored yet, of all its "
        "topics together; 64 MiB at least. A broker of a source that has much to give is read in large "
        "answers, which take 144 MiB: as many at a time as leave 64 MiB for all others. Those are read in "
        "small ones.",
    )
    forward_bytes: int = setting(
        128 << 20,
        Size(1 << 20, 1 << 36),
        "How many bytes of batches a broker holds for the sources of linked topics. Above it "
        "producers of such topics are asked to try again.",
    )
