"""An answer as JSON, without what differs between two honest brokers: times, texts, addresses, ids."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

from dray.kafka.protocol import ZERO_UUID, Struct
from tests.services.batches import TIMESTAMP, joined, summarise

LEFT_OUT = {
    "throttle_time_ms",
    "error_message",
    "batch_index_error_message",
    "host",
    "port",
    "cluster_id",
    "node_endpoints",
    "documentation",
    "log_dir",
    "total_bytes",
    "usable_bytes",
}
NODE_FIELDS = {"leader_id", "node_id", "broker_id", "controller_id"}
NODE_LISTS = {"replica_nodes", "isr_nodes", "offline_replicas", "eligible_leader_replicas", "last_known_elr"}
OF_FAILURES = {
    "error_code",
    "name",
    "topic",
    "topic_id",
    "index",
    "partition",
    "partition_index",
    "partition_id",
    "topic_name",
    "transactional_id",
    "feature",
    "user",
    "resource_type",
    "resource_name",
    "key",
    "record_errors",
}
"""Where something failed, what failed and how is all that a client may look at."""
ORDER: dict[str, Callable[[dict[str, Any]], Any]] = {
    "partition_responses": lambda entry: entry["index"],
    "partitions": lambda entry: entry.get("partition_index", 0),
    "credential_infos": lambda entry: entry["mechanism"],
}
"""Lists that Kafka keeps in a hash map: their order says nothing."""
CLOCK_FIELDS = {"log_append_time_ms"}

_MADE_UP = re.compile(r"(.*)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MADE_UP_BY_KIP_848 = re.compile(r"[A-Za-z0-9_-]{22}")
_ID_FIELDS = {"member_id", "leader"}


class Notation:
    """Of answers about the log. Where something failed, only what failed and how is written down."""

    def __init__(self) -> None:
        self.node = -1
        self.elsewhere: set[int] = set()  # brokers of other zones: shown as a way out, and never compared
        self.topic_ids: dict[UUID, str] = {}

    def plain(self, value: Any, field: str = "") -> Any:
        if isinstance(value, Struct):
            failed = getattr(value, "error_code", 0) != 0
            return {
                name: self.plain(getattr(value, name), name)
                for name in value.__slots__
                if name not in LEFT_OUT and (not failed or name in OF_FAILURES)
            }
        if field == "records":
            return None if value is None else summarise(joined(value))
        if isinstance(value, list):
            if field in NODE_LISTS:
                return [self.node_name(node) for node in value]
            if field == "brokers":
                value = [broker for broker in value if getattr(broker, "node_id", -1) not in self.elsewhere]
            entries = [self.plain(entry) for entry in value]
            return sorted(entries, key=ORDER[field]) if field in ORDER else entries
        if isinstance(value, UUID):
            return "zero" if value == ZERO_UUID else self.topic_ids.get(value, "an id")
        if field in NODE_FIELDS:
            return self.node_name(value)
        if field in CLOCK_FIELDS and value > TIMESTAMP:
            return "now"
        return value

    def node_name(self, node: int) -> str | int:
        return "self" if node == self.node else node


class GroupNotation(Notation):
    """Of answers about groups: every field, of refusals too. Ids that a broker makes up are replaced by the
    client that they were made for. Lists that Kafka keeps in hash maps are put in order."""

    def __init__(self) -> None:
        super().__init__()
        self._aliases: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def plain(self, value: Any, field: str = "") -> Any:
        if isinstance(value, Struct):
            return {
                name: self.plain(getattr(value, name), name)
                for name in value.__slots__
                if name not in LEFT_OUT
            }
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value).hex()
        if isinstance(value, list):
            return sorted((self.plain(entry, field) for entry in value), key=json.dumps)
        if isinstance(value, UUID):
            return "zero" if value == ZERO_UUID else self.topic_ids.get(value, "an id")
        if isinstance(value, str) and field in _ID_FIELDS:
            return self._alias(value)
        if field in NODE_FIELDS:
            return self.node_name(value)
        return value

    def _alias(self, member_id: str) -> str:
        made_up = _MADE_UP.fullmatch(member_id)
        if made_up is None and _MADE_UP_BY_KIP_848.fullmatch(member_id) is None:
            return member_id
        if member_id not in self._aliases:
            owner = made_up[1] if made_up else "member"
            self._counts[owner] = self._counts.get(owner, 0) + 1
            self._aliases[member_id] = f"{owner}-#{self._counts[owner]}"
        return self._aliases[member_id]
