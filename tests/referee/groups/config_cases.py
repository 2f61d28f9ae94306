"""What administrators set for one group, and what its members then hear."""

from __future__ import annotations

import asyncio
from typing import Any

from dray.kafka.protocol.messages.alter_configs import AlterableConfig as WholeConfig
from dray.kafka.protocol.messages.alter_configs import AlterConfigsRequest
from dray.kafka.protocol.messages.alter_configs import AlterConfigsResource as WholeResource
from dray.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from dray.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.referee.cases import group_case
from tests.referee.groups.members import ConsumerMember
from tests.referee.session import SECONDS, Session

GROUP = 32
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
SET, DELETE, APPEND = 0, 1, 2


async def alter(
    s: Session,
    label: str,
    *changes: tuple[str, int, str | None],
    name: str | None = None,
    only_check: bool = False,
) -> None:
    configs = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = AlterConfigsResource(GROUP, s.group if name is None else name, configs)
    await s.ask(label, IncrementalAlterConfigsRequest(resources=[resource], validate_only=only_check), 1)


async def describe(s: Session, label: str, *names: str, name: str | None = None, version: int = 4) -> None:
    resource = DescribeConfigsResource(GROUP, s.group if name is None else name, list(names) or None)
    await s.ask(label, DescribeConfigsRequest(resources=[resource], include_synonyms=True), version)


async def until_altered(s: Session, name: str, value: str) -> None:
    """Brokers learn of it a moment after it was answered."""
    resource = DescribeConfigsResource(GROUP, s.group, [name])
    async with asyncio.timeout(SECONDS):
        while True:
            response: Any = await s.send(DescribeConfigsRequest(resources=[resource]), 4)
            if [config.value for config in response.results[0].configs] == [value]:
                return
            await asyncio.sleep(0.02)


@group_case
async def configs_of_a_group(s: Session) -> None:
    both = (SESSION, HEARTBEAT)
    await describe(s, "of a group that is not there", *both)
    for version in (1, 2, 3):
        await describe(s, f"version {version}", *both, version=version)
    await describe(s, "everything there is")
    await describe(s, "no such config", "consumer.nothing")
    await describe(s, "of no group", *both, name="")
    await alter(s, "a session, to look", (SESSION, SET, "7000"), only_check=True)
    await describe(s, "only looked at", *both)
    await alter(s, "a session", (SESSION, SET, "7000"))
    await until_altered(s, SESSION, "7000")
    await describe(s, "a session is set", *both)
    await alter(s, "a heartbeat", (HEARTBEAT, SET, " 2000 "))
    await until_altered(s, HEARTBEAT, "2000")
    await describe(s, "both are set", *both)
    await alter(s, "of no group at all", (SESSION, SET, "7000"), name="")
    await alter(s, "unknown", ("consumer.nothing", SET, "1"))
    await alter(s, "no number", (SESSION, SET, "soon"))
    await alter(s, "no value", (SESSION, SET, None))
    await alter(s, "too short", (SESSION, SET, "5999"))
    await alter(s, "too long", (SESSION, SET, "60001"))
    await alter(s, "negative", (SESSION, SET, "-1"))
    await alter(s, "heartbeat too short", (HEARTBEAT, SET, "999"))
    await alter(s, "heartbeat too long", (HEARTBEAT, SET, "15001"))
    await alter(s, "heartbeat beyond the session", (HEARTBEAT, SET, "7000"))
    await alter(s, "twice", (SESSION, SET, "7000"), (SESSION, SET, "8000"))
    await alter(s, "appended", (SESSION, APPEND, "1"))
    await alter(s, "an operation that is none", (SESSION, 9, "1"))
    await alter(s, "one good, one bad", (SESSION, SET, "8000"), ("consumer.nothing", SET, "1"))
    await describe(s, "as before", *both)
    await alter(s, "the session goes", (SESSION, DELETE, None))
    await until_altered(s, SESSION, "6000")
    await describe(s, "the heartbeat is left", *both)
    whole = WholeResource(GROUP, s.group, [WholeConfig(SESSION, "9000")])
    await s.ask("as a whole", AlterConfigsRequest(resources=[whole]), 2)
    await until_altered(s, SESSION, "9000")
    await describe(s, "after that", *both)
    await s.list_own("no group came of it")


@group_case
async def intervals_of_a_group_reach_its_members(s: Session) -> None:
    topic = await s.assignable()
    one = ConsumerMember(s, "one", [topic])
    await one.join("joins")
    await alter(s, "a heartbeat", (HEARTBEAT, SET, "3000"))
    await _until_interval(one, 3000)
    await one.beat("hears of it")
    await alter(s, "none", (HEARTBEAT, DELETE, None))
    await _until_interval(one, 1000)
    await one.beat("hears of that too")


async def _until_interval(member: ConsumerMember, milliseconds: int) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            answer = await member.beat("(looking)")
            del member.session.notes["(looking)"]
            if answer.heartbeat_interval_ms == milliseconds:
                return
            await asyncio.sleep(0.02)
