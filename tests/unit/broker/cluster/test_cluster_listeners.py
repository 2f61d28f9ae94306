"""A client that came in on a listener is told the addresses of that listener, of every broker."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.topics.fakes import eventually

from dray.base.runtime import SystemRuntime
from dray.broker.cluster import Membership
from dray.daemons.assembly.settings import broker_configs, server_settings
from dray.daemons.broker.node import CannotListen, Node
from dray.daemons.config import ConfigError, Settings, load
from dray.daemons.config.listeners import ListenerAddress
from dray.daemons.config.render import show
from dray.daemons.supervisor.fleet import broker_children
from dray.kafka.client import KafkaConnection
from dray.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.metadata import MetadataRequest
from dray.metadata.memory import MemoryState, MemoryStore
from dray.objects.memory import MemoryObjects


def settings(**environment: str) -> Settings:
    quiet = {"DRAY_BROKER__LISTEN": "127.0.0.1:0", "DRAY_BROKER__HTTP": "off"}
    return load(None, quiet | environment).settings


def make_node(config: Settings, state: MemoryState) -> Node:
    runtime = SystemRuntime()
    return Node(config, runtime, MemoryStore(runtime, state), MemoryObjects(runtime))


async def started(stack: AsyncExitStack, config: Settings, state: MemoryState) -> Node:
    node = make_node(config, state)
    stack.push_async_callback(node.stop)
    await node.start()
    return node


async def test_each_listener_tells_its_own_addresses() -> None:
    state = MemoryState()
    async with AsyncExitStack() as stack:
        first = await started(
            stack,
            settings(DRAY_BROKER__ID="1", DRAY_BROKER__LISTENERS__INTERNAL="127.0.0.1:0"),
            state,
        )
        second = await started(
            stack,
            settings(
                DRAY_BROKER__ID="2",
                DRAY_BROKER__ADVERTISED="kafka.example:9092",
                DRAY_BROKER__LISTENERS__INTERNAL="127.0.0.1:0",
                DRAY_BROKER__ADVERTISED_LISTENERS__INTERNAL="inside.example:9192",
            ),
            state,
        )
        addresses = first._server.addresses
        expected = {
            "PLAINTEXT": {1: addresses["PLAINTEXT"], 2: ("kafka.example", 9092)},
            "INTERNAL": {1: addresses["INTERNAL"], 2: ("inside.example", 9192)},
        }
        membership = first.parts.need(Membership)
        await eventually(lambda: len(membership.brokers()) == 2)
        for name, told in expected.items():
            connection = await KafkaConnection.connect(*addresses[name])
            stack.push_async_callback(connection.close)
            metadata = await connection.request(MetadataRequest(topics=[]), 12)
            assert {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers} == told
            cluster = await connection.request(DescribeClusterRequest(), 0)
            assert {broker.broker_id: (broker.host, broker.port) for broker in cluster.brokers} == told
            found = await connection.request(FindCoordinatorRequest(coordinator_keys=["group"]), 4)
            [coordinator] = found.coordinators
            assert (coordinator.host, coordinator.port) == told[coordinator.node_id]
        assert second.broker_id == 2


async def test_the_listener_that_cannot_be_had_is_named() -> None:
    node = make_node(settings(DRAY_BROKER__LISTENERS__INTERNAL="192.0.2.1:9192"), MemoryState())
    with pytest.raises(CannotListen, match=r"cannot listen on 192\.0\.2\.1:9192"):
        await node.start()
    await node.stop()


def test_kafka_s_configs_show_all_listeners() -> None:
    shown = broker_configs(
        settings(
            DRAY_BROKER__ADVERTISED="kafka.example:9092", DRAY_BROKER__LISTENERS__INTERNAL="127.0.0.1:9192"
        )
    )
    assert shown["listeners"] == "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:9192"
    assert shown["advertised.listeners"] == "PLAINTEXT://kafka.example:9092,INTERNAL://127.0.0.1:9192"


def test_listeners_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "dray.yaml"
    path.write_text("broker:\n  listeners: {INTERNAL: 127.0.0.1:9192, OUT_2: '[::1]:0'}\n")
    loaded = load(path)
    assert loaded.settings.broker.listeners == {
        "INTERNAL": ListenerAddress("127.0.0.1", 9192),
        "OUT_2": ListenerAddress("::1", 0),
    }
    names = [listener.name for listener in server_settings(loaded.settings).listeners]
    assert names == ["INTERNAL", "OUT_2"], "the one of broker.listen is off"
    again = tmp_path / "again.yaml"
    again.write_text(show(loaded, False))
    assert load(again).settings == loaded.settings


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({"LISTENERS__INTERNAL": "nowhere"}, "broker.listeners.INTERNAL = 'nowhere'"),
        ({"LISTENERS__PLAINTEXT": "127.0.0.1:1"}, "must be given as broker.listen"),
        (
            {"LISTENERS__IN": "127.0.0.1:9092", "LISTEN": "127.0.0.1:9092"},
            "another address than broker.listen",
        ),
        ({"LISTENERS__IN": "127.0.0.1:9644"}, "another address than broker.http"),
        ({"LISTENERS__A": "h:1", "LISTENERS__B": "h:1"}, "another address than broker.listeners.A"),
        ({"LISTENERS__IN": "0.0.0.0:1"}, "broker.advertised_listeners must name one"),
        ({"ADVERTISED_LISTENERS__IN": "h:1"}, "must be one of broker.listeners"),
        ({"LISTENERS": "{internal: 'h:1'}"}, "listener names in capitals"),
    ],
)
def test_listeners_that_cannot_work_are_one_line(environment: dict[str, str], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {f"DRAY_BROKER__{name}": value for name, value in environment.items()})
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_brokers_of_one_machine_count_upwards_on_every_listener() -> None:
    config = load(
        None,
        {
            "DRAY_BROKER__LISTENERS__IN": "0.0.0.0:9192",
            "DRAY_BROKER__ADVERTISED_LISTENERS__IN": "inside.example:9292",
            "DRAY_LOG__TAIL_CACHE_BYTES": "64MiB",
        },
    ).settings
    assert broker_children(config, 3, None)[2].environment == {
        "DRAY_BROKER__LISTENERS__IN": "0.0.0.0:9194",
        "DRAY_BROKER__ADVERTISED_LISTENERS__IN": "inside.example:9294",
    }


SECURE = {"address": "127.0.0.1:9093", "protocol": "SASL_PLAINTEXT", "mechanisms": ["SCRAM-SHA-512", "PLAIN"]}
FILES = {"certificate_file": "tls.crt", "key_file": "tls.key"}


def test_listeners_that_ask_and_encrypt(tmp_path: Path) -> None:
    path = tmp_path / "dray.yaml"
    encrypted = {"address": "127.0.0.1:9194", "protocol": "SASL_SSL", **FILES}
    only_tls = {"address": "127.0.0.1:9294", "protocol": "SSL", **FILES}
    wanted = {"SECURE": SECURE, "BOTH": encrypted, "TLS": only_tls}
    path.write_text(json.dumps({"broker": {"listeners": wanted}}))
    loaded = load(path)
    secure, both, tls = loaded.settings.broker.listeners.values()
    assert (secure.asks, secure.encrypts, secure.mechanisms) == (True, False, ("SCRAM-SHA-512", "PLAIN"))
    assert (both.asks, both.encrypts, both.key_file) == (True, True, "tls.key")
    assert both.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"), "all that are served"
    assert (tls.asks, tls.encrypts) == (False, True)
    assert [listener.asks for listener in server_settings(loaded.settings).listeners] == [
        *(True, True, False),
    ]
    again = tmp_path / "again.yaml"
    again.write_text(show(loaded, False))
    assert load(again).settings == loaded.settings
    secured = replace(loaded.settings, broker=replace(loaded.settings.broker, listeners={"BOTH": both}))
    for number, child in enumerate(broker_children(secured, 2, None)):
        one = load(environment=child.environment).settings.broker.listeners["BOTH"]
        assert one == replace(both, port=9194 + number), "a fleet's brokers ask as well"


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocol": "SASL_PLAINTEXT"},
        {"address": "127.0.0.1:9093", "protocol": "SASL"},
        {"address": "127.0.0.1:9093", "protocol": "SASL_PLAINTEXT", "mechanisms": []},
        {"address": "127.0.0.1:9093", "protocol": "SASL_PLAINTEXT", "mechanisms": ["GSSAPI"]},
        {"address": "127.0.0.1:9093", "protocol": "SASL_PLAINTEXT", "mechanisms": "PLAIN"},
        {"address": "127.0.0.1:9093", "mechanisms": ["PLAIN"]},
        {"address": "127.0.0.1:9093", "protocol": "SSL"},
        {"address": "127.0.0.1:9093", "protocol": "SSL", "certificate_file": "x"},
        {"address": "127.0.0.1:9093", "protocol": "PLAINTEXT", **FILES},
        {"address": "127.0.0.1:9093", "super_users": ["User:admin"]},
        {**SECURE, "address": "127.0.0.1:9644"},
    ],
)
def test_what_is_not_served_is_not_configurable(wrong: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "dray.yaml"
    path.write_text(json.dumps({"broker": {"listeners": {"SECURE": wrong}}}))
    with pytest.raises(ConfigError, match=r"^[^\n]*broker\.listeners[^\n]*$"):
        load(path)


@pytest.mark.parametrize("setting", ["authorization", "super_users", "allow_if_no_acl"])
def test_authorization_is_not_configurable_as_long_as_nothing_enforces_it(
    setting: str, tmp_path: Path
) -> None:
    path = tmp_path / "dray.yaml"
    path.write_text(json.dumps({"security": {setting: "acls"}}))
    with pytest.raises(ConfigError):
        load(path)
