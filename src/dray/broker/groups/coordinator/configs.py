"""Configs that are set for single groups: how long a session of KIP-848 is, and how often it beats.

One key per group, changed by compare-and-set by any broker; every broker keeps all of them at hand, since a
heartbeat must not wait for a read. A group need not exist to have configs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from dray.base.runtime import Runtime, cut
from dray.broker.groups.consumer import ConsumerGroupSettings
from dray.broker.groups.coordinator.contract import GroupUnavailable, Unreachable
from dray.kafka.protocol import ErrorCode
from dray.metadata import keys
from dray.metadata.contract import (
    ABSENT,
    Delete,
    MetadataError,
    MetadataStore,
    Operation,
    Put,
    StoredValue,
)
from dray.metadata.update import update
from dray.metadata.values import JsonCodec, UnreadableValue
from dray.metadata.watching import Follower

_log = structlog.get_logger(__name__)

CONFIGS_FORMAT: Final = 1
SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
REREAD_SECONDS: Final = 5.0

Overrides = Mapping[str, str]


_CODEC: Final = JsonCodec(dict[str, str], CONFIGS_FORMAT)


def encode_configs(overrides: Overrides) -> bytes:
    return _CODEC.encode(dict(overrides))


def decode_configs(group_id: str, value: bytes) -> Overrides:
    return _CODEC.decode(f"the configs of group '{cut(group_id)}'", value)


class GroupConfigs:
    def __init__(self, store: MetadataStore, runtime: Runtime, settings: ConsumerGroupSettings) -> None:
        self._store = store
        self._runtime = runtime
        self._settings = settings
        self._known: dict[str, ConsumerGroupSettings] = {}
        self._reading = asyncio.Lock()
        self._follower = Follower(
            store,
            runtime,
            keys.CLUSTER_DOMAIN,
            keys.GROUP_CONFIGS,
            read_all=self._read_all,
            read_key=self._read_key,
            interval=REREAD_SECONDS,
        )

    async def start(self) -> None:
        """A store that is away is no reason not to serve: what follows the configs reads them soon."""
        try:
            await self._read_all()
        except MetadataError as error:
            _log.warning("configs of groups are read later", error=str(error))
        self._follower.start()

    async def stop(self) -> None:
        await self._follower.stop()

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        """As far as this broker knows."""
        return self._known.get(group_id, self._settings)

    def groups(self) -> list[str]:
        """The groups for which something is set, as far as this broker knows."""
        return sorted(self._known)

    def effective(self, overrides: Overrides) -> dict[str, str]:
        """Every config of a group that has these overrides, by name."""
        defaults = {
            HEARTBEAT_INTERVAL: str(self._settings.heartbeat_interval_ms),
            SESSION_TIMEOUT: str(self._settings.session_timeout_ms),
        }
        return {name: overrides.get(name, value) for name, value in defaults.items()}

    async def read(self, group_id: str) -> Overrides:
        """The configs that are set now. Raises `Unreachable`."""
        try:
            await self._store.barrier(keys.CLUSTER_DOMAIN)
            record = await self._store.get(keys.CLUSTER_DOMAIN, keys.group_configs(group_id))
            return {} if record is None else decode_configs(group_id, record.value)
        except MetadataError as error:
            raise Unreachable(str(error)) from error

    async def alter(
        self, group_id: str, change: Callable[[Overrides], Overrides], *, validate_only: bool = False
    ) -> None:
        """`change` makes new overrides of the present ones, all at once or, if they are wrong, not at all.
        Raises `GroupUnavailable`."""
        try:
            await update(self._runtime, lambda: self._try_alter(group_id, change, validate_only))
        except MetadataError as error:
            raise Unreachable(
                f"the configs of group '{cut(group_id)}' could not be changed: {error}"
            ) from error

    async def _try_alter(
        self, group_id: str, change: Callable[[Overrides], Overrides], validate_only: bool
    ) -> bool | None:
        key = keys.group_configs(group_id)
        await self._store.barrier(keys.CLUSTER_DOMAIN)
        record = await self._store.get(keys.CLUSTER_DOMAIN, key)
        before = {} if record is None else decode_configs(group_id, record.value)
        after = change(before)
        self._check(after)
        if validate_only or after == before:
            return True
        operation: Operation
        if record is not None and not after:
            operation = Delete(key, record.version)
        else:
            operation = Put(key, encode_configs(after), ABSENT if record is None else record.version)
        [outcome] = await self._store.write(keys.CLUSTER_DOMAIN, [operation])
        if not outcome.applied:
            return None
        await self._read_key(key)
        return True

    def _check(self, overrides: Overrides) -> None:
        """Configs that Kafka would refuse are refused, with the same code."""
        numbers = {}
        for name, value in overrides.items():
            if name not in (SESSION_TIMEOUT, HEARTBEAT_INTERVAL):
                raise _invalid(f"there is no group config '{cut(name)}'")
            if not value.lstrip("+-").isdecimal() or not -(2**31) <= int(value) < 2**31:
                raise _invalid(f"{name} is '{cut(value)}', which is no number of milliseconds")
            numbers[name] = int(value)
        settings = self._settings
        session = numbers.get(SESSION_TIMEOUT, settings.session_timeout_ms)
        heartbeat = numbers.get(HEARTBEAT_INTERVAL, settings.heartbeat_interval_ms)
        for name, low, number, high in (
            (
                SESSION_TIMEOUT,
                settings.session_timeout_minimum_ms,
                session,
                settings.session_timeout_maximum_ms,
            ),
            (
                HEARTBEAT_INTERVAL,
                settings.heartbeat_interval_minimum_ms,
                heartbeat,
                settings.heartbeat_interval_maximum_ms,
            ),
        ):
            if not low <= number <= high:
                raise _invalid(f"{name} of {number} is not between {low} and {high}")
        if heartbeat >= session:
            raise _invalid(
                f"{SESSION_TIMEOUT} of {session} is not more than {HEARTBEAT_INTERVAL}, {heartbeat}"
            )

    # --- knowing

    async def _read_all(self) -> None:
        async with self._reading:  # so that no read undoes what a later one found
            records = await self._store.scan(
                keys.CLUSTER_DOMAIN, keys.GROUP_CONFIGS, keys.prefix_end(keys.GROUP_CONFIGS)
            )
            there = {_group_of(record.key) for record in records}
            self._known = {group_id: known for group_id, known in self._known.items() if group_id in there}
            for record in records:
                self._learn(record)

    async def _read_key(self, key: str) -> None:
        async with self._reading:
            record = await self._store.get(keys.CLUSTER_DOMAIN, key)
            if record is None:
                self._known.pop(_group_of(key), None)
            else:
                self._learn(record)

    def _learn(self, record: StoredValue) -> None:
        """Limits may have moved since a value was set: it is held between those of today. A value that cannot
        be read is not taken for none: what was known before stays."""
        group_id = _group_of(record.key)
        try:
            overrides = decode_configs(group_id, record.value)
            numbers = {name: int(value) for name, value in overrides.items()}
            self._known[group_id] = self._settings.for_group(
                numbers.get(SESSION_TIMEOUT), numbers.get(HEARTBEAT_INTERVAL)
            )
        except (UnreadableValue, ValueError) as error:
            _log.error("the configs of a group are not used", group=group_id, error=str(error))


def _group_of(key: str) -> str:
    return keys.group_of_configs(key) or ""


def _invalid(message: str) -> GroupUnavailable:
    return GroupUnavailable(ErrorCode.INVALID_CONFIG, message)
