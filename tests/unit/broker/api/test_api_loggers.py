"""A broker's loggers as a resource, as Kafka has it (KIP-412): levels are shown and changed while it runs."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import structlog
from tests.unit.broker.api.fakes import Harness

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import configure_logging
from dray.base.telemetry.levels import reset_levels
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.alter_configs import AlterConfigsRequest
from dray.kafka.protocol.messages.alter_configs import AlterConfigsResource as WholeResource
from dray.kafka.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from dray.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from dray.kafka.protocol.messages.list_config_resources import ListConfigResourcesRequest

LOGGERS = 8
SET, DELETE, APPEND = 0, 1, 2
ROOM, MODULE = "dray.log", "dray.log.append.commit"


@pytest.fixture(autouse=True)
def written() -> Iterator[io.StringIO]:
    output, before = io.StringIO(), structlog.get_config()
    configure_logging("json", "info", SystemRuntime(threads=1), output)
    yield output
    reset_levels("warning")
    structlog.configure(**before)


async def shown(broker: Harness, name: str = "0", *keys: str) -> DescribeConfigsResult:
    asked = DescribeConfigsResource(LOGGERS, name, list(keys) or None)
    return (await broker.ask(DescribeConfigsRequest(resources=[asked]), 4)).results[0]


async def change(
    broker: Harness, *changes: tuple[str, int, str | None], name: str = "0", validate_only: bool = False
) -> tuple[ErrorCode, str | None]:
    resource = AlterConfigsResource(LOGGERS, name, [AlterableConfig(*each) for each in changes])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    [answer] = (await broker.ask(request, 1)).responses
    return ErrorCode(answer.error_code), answer.error_message


async def levels(broker: Harness, *keys: str) -> list[str | None]:
    found = {one.name: one.value for one in (await shown(broker, "0", *keys)).configs}
    return [found[key] for key in keys]


async def test_a_level_holds_for_what_lies_below_until_it_is_taken_back(
    broker: Harness, written: io.StringIO
) -> None:
    log = structlog.get_logger(MODULE)
    log.debug("not yet")
    assert await levels(broker, "root", ROOM, MODULE) == ["INFO"] * 3
    assert (await change(broker, (ROOM, SET, "DEBUG"), ("root", SET, "ERROR")))[0] == ErrorCode.NONE
    assert await levels(broker, "root", ROOM, MODULE, "dray.broker") == ["ERROR", "DEBUG", "DEBUG", "ERROR"]
    log.debug("now it is")
    structlog.get_logger("dray.broker").warning("too little")
    structlog.get_logger("dray.broker.security.audit").info("always")
    assert (await change(broker, (ROOM, DELETE, None)))[0] == ErrorCode.NONE
    assert await levels(broker, ROOM, MODULE) == ["ERROR"] * 2
    log.warning("no more")
    text = written.getvalue()
    assert "now it is" in text
    assert "always" in text
    assert "a log level was changed" in text
    assert not {"not yet", "too little", "no more"} & set(text.split(chr(34)))


async def test_all_changes_are_made_or_none(broker: Harness) -> None:
    for wrong, code, said in (
        (("dray.no.such", SET, "DEBUG"), ErrorCode.INVALID_CONFIG, "dray.no.such does not exist"),
        ((MODULE, SET, "LOUD"), ErrorCode.INVALID_CONFIG, "Valid log levels are TRACE, DEBUG, INFO"),
        ((MODULE, APPEND, "DEBUG"), ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed"),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST, "Removing the log level of the root"),
        ((MODULE, SET, None), ErrorCode.INVALID_REQUEST, "Null value"),
    ):
        got, message = await change(broker, (ROOM, SET, "DEBUG"), wrong)
        assert (got, said in (message or "")) == (code, True), message
    assert (await change(broker, (ROOM, SET, "DEBUG"), validate_only=True))[0] == ErrorCode.NONE
    assert await levels(broker, ROOM, MODULE) == ["INFO"] * 2


async def test_only_a_broker_itself_shows_and_changes_them(broker: Harness) -> None:
    for name in ("1", "x"):
        assert (await shown(broker, name)).error_code == ErrorCode.INVALID_REQUEST
        assert (await change(broker, (ROOM, SET, "DEBUG"), name=name))[0] == ErrorCode.INVALID_REQUEST
    assert await levels(broker, ROOM) == ["INFO"]


async def test_they_are_shown_as_kafka_shows_them_and_listed(broker: Harness) -> None:
    found = await shown(broker)
    names = [one.name for one in found.configs]
    assert names == sorted(names)
    assert {"root", ROOM, MODULE, "asyncio"} <= set(names)
    assert {(one.read_only, one.is_sensitive, one.config_source) for one in found.configs} == {
        (False, False, 6)
    }
    [one] = (await broker.ask(ListConfigResourcesRequest(resource_types=[LOGGERS]), 1)).config_resources
    assert (one.resource_name, one.resource_type) == ("0", LOGGERS)


async def test_the_older_request_says_which_one_does_it(broker: Harness) -> None:
    request = AlterConfigsRequest(resources=[WholeResource(LOGGERS, "0", [])])
    [answer] = (await broker.ask(request, 2)).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "IncrementalAlterConfigs" in (answer.error_message or "")
