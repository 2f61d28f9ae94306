"""Configs: described, altered, refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from dray.kafka.protocol.messages import alter_configs, incremental_alter_configs
from dray.kafka.protocol.messages.alter_configs import AlterConfigsRequest
from dray.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from dray.kafka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.referee.cases import case
from tests.referee.session import Session

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
DEFAULT_CONFIG = 5
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def describe(
    kind: int, name: str, keys: Sequence[str] | None, synonyms: bool = False
) -> DescribeConfigsRequest:
    wanted = None if keys is None else list(keys)
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=wanted)
    return DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)


def alter(
    kind: int, name: str, *configs: tuple[str, str | None], validate_only: bool = False
) -> AlterConfigsRequest:
    entries = [alter_configs.AlterableConfig(name=key, value=value) for key, value in configs]
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    return AlterConfigsRequest(resources=[resource], validate_only=validate_only)


def incremental(
    kind: int, name: str, *configs: tuple[str, int, str | None], validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    entries = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in configs
    ]
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=entries
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


KEYS = ("retention.ms", "retention.bytes", "cleanup.policy", "max.message.bytes", "message.timestamp.type")


def in_order(session: Session, label: str) -> None:
    """A broker lists configs in whatever order it keeps them."""
    for result in session.notes[label]["results"]:
        result["configs"].sort(key=lambda config: str(config["name"]))


async def shown(session: Session, label: str, topic: str, until: tuple[str, str] | None = None) -> None:
    """A topic's values and where each comes from.

    Kafka's brokers learn of a change a moment after it was answered: `until` names a value to wait for.
    """
    deadline = time.monotonic() + 60
    while True:
        response = await session.send(describe(TOPIC, topic, KEYS), 4)
        configs = response.results[0].configs  # type: ignore[attr-defined]
        values = {config.name: [config.value, config.config_source] for config in configs}
        if until is None or values[until[0]][0] == until[1] or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.02)
    session.notes[label] = dict(sorted(values.items()))


@case
async def describe_topic_configs(session: Session) -> None:
    topic = await session.create(configs={"retention.ms": "1000"})
    for version in (1, 2, 3, 4):
        await session.ask(f"v{version}", describe(TOPIC, topic, KEYS), version)
        in_order(session, f"v{version}")
    await session.ask("one key", describe(TOPIC, topic, ["retention.ms"]), 4)
    await session.ask("an unknown key", describe(TOPIC, topic, ["no.such.config"]), 4)
    await session.ask("no keys", describe(TOPIC, topic, []), 4)
    session.notes["no keys"]["results"][0]["configs"] = (
        len(session.notes["no keys"]["results"][0]["configs"]) > 0
    )


@case
async def describe_topic_synonyms(session: Session) -> None:
    """Of all configs of a topic of Kafka, but for min.insync.replicas, which Kafka sets for the cluster."""
    topic = await session.create(configs={"retention.ms": "1000"})
    await session.ask("all", describe(TOPIC, topic, None, synonyms=True), 4)
    in_order(session, "all")
    [result] = session.notes["all"]["results"]
    result["configs"] = [
        config
        for config in result["configs"]
        if config["name"] != "min.insync.replicas" and not config["name"].startswith(("dray.", "diskless."))
    ]
    response: Any = await session.send(describe(TOPIC, topic, ["retention.ms"]), 4)
    absent: Any = await session.send(describe(TOPIC, "referee-no-such-topic", None), 4)
    session.notes["messages"] = [response.results[0].error_message, absent.results[0].error_message]


@case
async def describe_broker_configs(session: Session) -> None:
    """Which there are, of which types, and with which defaults: the values are each broker's own."""
    request = describe(BROKER, str(session.node), None, synonyms=True)
    response: Any = await session.send(request, 4)
    [result] = response.results
    # Internal ones are listed only where they are set, as this one is for the cases.
    result.configs = [one for one in result.configs if one.name != "log.initial.task.delay.ms"]
    session.notes["message"] = result.error_message
    session.notes["types"] = {one.name: [one.config_type, one.is_sensitive] for one in result.configs}
    session.notes["defaults"] = {
        one.name: [synonym.value for synonym in one.synonyms if synonym.source == DEFAULT_CONFIG]
        for one in result.configs
    }


@case
async def describe_configs_refused(session: Session) -> None:
    await session.ask("unknown topic", describe(TOPIC, "referee-no-such-topic", None), 4)
    await session.ask("illegal topic", describe(TOPIC, "a b", None), 4)
    await session.ask("empty topic", describe(TOPIC, "", None), 4)
    await session.ask("unknown broker", describe(BROKER, "987654", None), 4)
    await session.ask("broker that is no number", describe(BROKER, "one", None), 4)
    await session.ask("unknown kind", describe(1, "x", None), 4)
    await session.ask("nothing", DescribeConfigsRequest(), 4)


@case
async def loggers(session: Session) -> None:
    """Only of the broker that is asked, and only what there is; nothing is changed here."""
    own = str(session.node)
    for name in ("987654", "one", ""):
        await session.ask(f"described: {name!r}", describe(BROKER_LOGGER, name, None), 4)
        request = incremental(BROKER_LOGGER, name, ("root", SET, "DEBUG"), validate_only=True)
        await session.ask(f"changed: {name!r}", request, 1)
    for label, change in {
        "set": ("root", SET, "DEBUG"),
        "trace": ("root", SET, "TRACE"),
        "fatal": ("root", SET, "FATAL"),
        "small letters": ("root", SET, "debug"),
        "no level": ("root", SET, "LOUD"),
        "null": ("root", SET, None),
        "no such logger": ("no.such.logger", SET, "DEBUG"),
        "delete no such logger": ("no.such.logger", DELETE, None),
        "delete root": ("root", DELETE, None),
        "append": ("root", APPEND, "DEBUG"),
        "subtract": ("root", SUBTRACT, "DEBUG"),
    }.items():
        await session.ask(label, incremental(BROKER_LOGGER, own, change, validate_only=True), 1)
    await session.ask(
        "the older request", alter(BROKER_LOGGER, own, ("root", "DEBUG"), validate_only=True), 2
    )
    response: Any = await session.send(describe(BROKER_LOGGER, own, ["root"]), 4)
    [config] = response.results[0].configs
    session.notes["root"] = [config.name, config.config_source, config.read_only, config.is_sensitive]


@case
async def alter_topic_configs(session: Session) -> None:
    topic = await session.create(configs={"retention.ms": "1000", "max.message.bytes": "5000"})
    await session.ask("validate only", alter(TOPIC, topic, ("retention.ms", "7"), validate_only=True), 2)
    await shown(session, "unchanged", topic)
    await session.ask("replace all", alter(TOPIC, topic, ("retention.bytes", "2000")), 2)
    await shown(session, "replaced", topic, ("retention.bytes", "2000"))
    await session.ask("bad value", alter(TOPIC, topic, ("retention.ms", "soon")), 2)
    await session.ask("unknown key", alter(TOPIC, topic, ("no.such.config", "1")), 2)
    await session.ask("null", alter(TOPIC, topic, ("retention.ms", None)), 2)
    await session.ask("twice", alter(TOPIC, topic, ("retention.ms", "1"), ("retention.ms", "2")), 2)
    await session.ask("unknown topic", alter(TOPIC, "referee-no-such-topic", ("retention.ms", "1")), 2)
    await session.ask("illegal topic", alter(TOPIC, "a b", ("retention.ms", "1")), 2)
    await session.ask("illegal topic, null", alter(TOPIC, "a b", ("retention.ms", None)), 2)
    no_number = ("retention.ms", "soon")
    await session.ask("illegal topic, bad value", alter(TOPIC, "a b", no_number), 2)
    await session.ask("unknown topic, bad value", alter(TOPIC, "referee-no-such-topic", no_number), 2)
    await session.ask("unknown kind", alter(1, "x", ("retention.ms", "1")), 2)
    await shown(session, "in the end", topic)
    await session.ask("to nothing", alter(TOPIC, topic), 2)
    await shown(session, "defaults again", topic, ("retention.bytes", "-1"))


@case
async def alter_topic_configs_incrementally(session: Session) -> None:
    topic = await session.create(configs={"retention.ms": "1000"})

    async def change(label: str, *configs: tuple[str, int, str | None], validate_only: bool = False) -> None:
        request = incremental(TOPIC, topic, *configs, validate_only=validate_only)
        await session.ask(label, request, 1)

    await change("validate only", ("retention.ms", SET, "7"), validate_only=True)
    await change("set", ("retention.bytes", SET, "2000"))
    await change("delete", ("retention.ms", DELETE, None))
    await shown(session, "after set and delete", topic, ("retention.ms", "604800000"))
    await change("append", ("cleanup.policy", APPEND, "compact"))
    await change("append again", ("cleanup.policy", APPEND, "compact"))
    await shown(session, "after append", topic, ("cleanup.policy", "delete,compact"))
    await change("subtract", ("cleanup.policy", SUBTRACT, "delete"))
    await change("subtract what is not there", ("cleanup.policy", SUBTRACT, "delete"))
    await shown(session, "after subtract", topic, ("cleanup.policy", "compact"))
    await change("append to what is no list", ("retention.ms", APPEND, "1"))
    await change("set to null", ("retention.ms", SET, None))
    await change("append null", ("cleanup.policy", APPEND, None))
    await change("subtract null", ("cleanup.policy", SUBTRACT, None))
    await change("bad value", ("retention.ms", SET, "soon"))
    await change("unknown key", ("no.such.config", SET, "1"))
    await change("delete an unknown key", ("no.such.config", DELETE, None))
    await change("delete what is not set", ("max.message.bytes", DELETE, None))
    await change("the same key twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    await change("one good, one bad", ("retention.ms", SET, "5"), ("max.message.bytes", SET, "x"))
    await change("subtract the last", ("cleanup.policy", SUBTRACT, "compact"))
    await shown(session, "in the end", topic, ("cleanup.policy", ""))
    await session.ask(
        "unknown topic", incremental(TOPIC, "referee-no-such-topic", ("retention.ms", SET, "1")), 1
    )
    no_number = ("retention.ms", SET, "soon")
    await session.ask("unknown topic, bad value", incremental(TOPIC, "referee-no-such-topic", no_number), 1)
    await session.ask("illegal topic", incremental(TOPIC, "a b", ("retention.ms", SET, "1")), 1)
    await session.ask("unknown kind", incremental(1, "x", ("retention.ms", SET, "1")), 1)


@case
async def delete_broker_configs(session: Session) -> None:
    """As `kafka-reassign-partitions --verify` does, whether or not they were ever set."""
    throttle = ("leader.replication.throttled.rate", DELETE, None)
    node = str(session.node)
    await session.ask("what is not set", incremental(BROKER, node, throttle), 1)
    await session.ask("what is not set anywhere", incremental(BROKER, "", throttle), 1)
    await session.ask("only validated", incremental(BROKER, node, throttle, validate_only=True), 1)
    await session.ask("nothing", incremental(BROKER, node), 1)
    await session.ask("of another broker", incremental(BROKER, "987654", throttle), 1)
    await session.ask("of no broker", incremental(BROKER, "one", throttle), 1)
    for label in session.notes:
        for response in session.notes[label]["responses"]:
            response["resource_name"] = (
                "self" if response["resource_name"] == node else response["resource_name"]
            )
