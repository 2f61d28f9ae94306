"""The settings of what clients meet. Rooms add to them what a config cannot name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from dray.base.config.kinds import (
    DAY,
    GIB,
    HOUR,
    KIB,
    MIB,
    MINUTE,
    Duration,
    Either,
    RangeMap,
    Size,
    Switch,
    TextMap,
    Whole,
)
from dray.base.config.setting import setting

ZONE_NAME: Final = r"[A-Za-z0-9._-]{1,100}"


@dataclass(frozen=True, kw_only=True)
class LimitSettings:
    """Limits to what a client may ask of a broker."""

    frame_bytes: int = setting(
        100 * MIB, Size(64 * KIB, 2 * GIB - 1), "The largest request; a larger one closes its connection."
    )
    buffer_bytes: int = setting(
        256 * MIB,
        Size(MIB, 1024 * GIB),
        "Bytes of requests that are received and not yet answered. When they are reached, "
        "sockets are no longer read: producers wait, memory does not grow. A sixteenth is kept for small "
        "requests that are not produce requests.",
    )
    answer_bytes: int | None = setting(
        None,
        Either("auto", Size(MIB, 1024 * GIB)),
        "Bytes of answers that are being made or that clients have not taken yet. Fetches are "
        "answered with less as it fills, and then wait; clients that do not read are closed sooner. "
        "`auto`: as many as `limits.buffer_bytes`.",
    )
    one_answer_bytes: int = 16 * MIB  # that is no fetch; no config names it
    request_elements: int = setting(
        20_000,
        Whole(1000, 100_000_000),
        "The most elements of one request, in all its arrays together: topics, partitions, "
        "groups, configs. One with more is refused as an invalid request, or closes its connection. A "
        "consumer of more partitions than that at once needs more here.",
    )
    decompressed_bytes: int = 128 * MIB  # of one batch; no config names it
    connections: int = setting(
        10_000,
        Whole(1, 1_000_000),
        "Connections at once. One more takes the place of one that has sent no request, or is "
        "closed as it arrives.",
    )
    connections_per_address: int | None = setting(
        None,
        Either("auto", Whole(1, 1_000_000)),
        "Connections at once from one address; one more is closed as it arrives. `auto`: half of "
        "`limits.connections`, and as many as there are for clients on the same machine.",
    )

    # No config names the rest
    fetch_bytes: int = 55 * MIB  # of one fetch, whatever the client asks for
    idle_seconds: float = 10 * MINUTE
    """How long a connection may do nothing at all, or leave its answers unread."""

    @property
    def most_answer_bytes(self) -> int:
        return self.buffer_bytes if self.answer_bytes is None else self.answer_bytes

    @property
    def request_decompressed_bytes(self) -> int:
        """Of all batches of one produce request."""
        return 4 * self.decompressed_bytes


@dataclass(frozen=True, kw_only=True)
class TopicsOptions:
    """Configs that a topic gets when its creator does not say."""

    auto_create: bool = setting(
        True, Switch(), "Whether a client that asks for an unknown topic creates it, as in Kafka."
    )
    partitions: int = setting(1, Whole(1, 10_000), "Partitions of a topic created without a count.")
    defaults: Mapping[str, str] = setting(
        {},
        TextMap("topic config names with values, such as {retention.ms: 86400000}", r"[a-z.]+", "."),
        "Topic configs of topics that do not set them, by Kafka's names. In the environment "
        "`_` stands for `.`: `DRAY_TOPICS__DEFAULTS__RETENTION_MS`.",
    )

    # No config names the rest
    max_partitions: int = 10_000  # of one topic
    reread_interval: float = 5.0
    unknown_id_pause: float = 0.1
    sweep_interval: float = 30.0
    sweep_grace: float = 60.0


@dataclass(frozen=True, kw_only=True)
class RoutingSettings:
    """Which broker clients are sent to. Any can serve any partition: this is about cost and speed."""

    enforce_owner: bool = setting(
        False,
        Switch(),
        "Whether a broker refuses produce and fetch for partitions that another one should "
        "serve, so that clients ask for the metadata again. Without it, it serves them.",
    )
    zones: Mapping[str, tuple[IPv4Network | IPv6Network, ...]] = setting(
        {},
        RangeMap(
            "zones with their ranges of addresses, such as {a: 10.1.0.0/16, b: [10.2.0.0/16, fd00::/64]}",
            ZONE_NAME,
        ),
        "The zone of a client by the address that it comes from, where neither its `client.id` "
        "nor the `zone` of its listener says one. The smallest range holds.",
    )
    strict_zones: bool = setting(
        False,
        Switch(),
        "Whether clients that name their zone are shown the brokers of that zone alone. Without "
        "it they are also shown one broker of each other zone, which leads nothing: somebody to ask when "
        "their zone goes dark. A group is led where its coordinator is, in either case.",
    )


@dataclass(frozen=True, kw_only=True)
class GroupsSettings:
    """Consumer groups, of the classic protocol and of KIP-848."""

    initial_rebalance_delay: float = setting(
        3.0,
        Duration(0.0, HOUR),
        "How long the first member of an empty classic group waits for others, so that they "
        "share one rebalance.",
    )
    consumer_session_timeout: float = setting(
        45.0,
        Duration(0.001, DAY),
        "A member of a KIP-848 group that sent no heartbeat for so long is removed. Members are told to send "
        "one every 5 seconds, and more often where a third of this is less.",
    )
    offset_retention: float = setting(
        7 * DAY,
        Duration(1.0, 3650 * DAY),
        "Committed offsets are forgotten when their group has been empty for so long, or when "
        "they are as old and nobody subscribes to their topic.",
    )

    # No config names the rest
    consumer_heartbeat_interval: float | None = None
    min_session_timeout: float = 6.0  # that a member of a classic group may ask for
    max_session_timeout: float = 30 * MINUTE
    max_size: int = 2**31 - 1  # of a group
    session_ttl: float = 10.0
    """How long after a broker's last sign of life another may take over its groups: `broker.session_ttl`."""
    largest_metadata: int = 4096
    """The longest metadata that may be committed with an offset: Kafka's `offset.metadata.max.bytes`."""
    sweep_interval: float = 10 * MINUTE
    """Seconds between looks for offsets that have expired."""
    memory_groups: int = 10_000
    """How many groups without members stay in memory; the longest unused go first."""
    topic_interval: float = 0.5
    """Seconds between looks for topics that came, went or grew."""

    @property
    def offset_retention_ms(self) -> int:
        return round(self.offset_retention * 1000)
