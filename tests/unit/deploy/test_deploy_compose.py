"""The compose file names settings that exist, addresses that belong together, and one cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.cli.main import load_command
from dray.daemons.config import Settings, load

COMPOSE = Path(__file__).parents[3] / "deploy" / "compose"
BROKERS = ("broker-a", "broker-b", "broker-c")


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((COMPOSE / "compose.yaml").read_text())


def settings_of(service: dict[str, Any]) -> Settings:
    """As the image would start it; every variable has to be one that the config knows."""
    image = {"DRAY_DATA_DIR": "/var/lib/dray", "DRAY_BROKER__HTTP": "0.0.0.0:9644"}
    return load(None, image | service.get("environment", {})).settings


def dray_services(compose: Any) -> dict[str, dict[str, Any]]:
    return {name: one for name, one in compose["services"].items() if "DRAY_IMAGE" in one["image"]}


def test_every_setting_is_one_that_dray_knows(compose: Any) -> None:
    services = dray_services(compose)
    assert set(services) == {*BROKERS, "compactor"}
    for service in services.values():
        settings = settings_of(service)
        assert settings.metadata.engine == "oxia"
        assert settings.objects_url.startswith("s3://")
        assert settings.iceberg.catalog == "rest"


def test_every_command_is_one_that_drayd_has(compose: Any) -> None:
    for service in dray_services(compose).values():
        name, *arguments = service["command"]
        with load_command(name).make_context(name, list(arguments)) as context:
            assert context.params


def test_three_brokers_in_three_zones(compose: Any) -> None:
    brokers = [compose["services"][name] for name in BROKERS]
    settings = [settings_of(broker) for broker in brokers]
    assert {one.broker.zone for one in settings} == {"zone-a", "zone-b", "zone-c"}
    assert [broker["command"] for broker in brokers] == [
        ["broker", "--broker-id", str(number)] for number in range(3)
    ]
    assert all(one.broker.rack == one.broker.zone for one in settings)


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_is_where_it_says(compose: Any, name: str) -> None:
    """From outside at the published port, from inside under its service's name."""
    service = compose["services"][name]
    broker = settings_of(service).broker
    assert broker.advertised is not None
    assert broker.listen is not None
    assert broker.advertised.port == broker.listen.port
    assert f"127.0.0.1:{broker.listen.port}:{broker.listen.port}" in service["ports"]
    assert str(broker.advertised_listeners["INTERNAL"]) == f"{name}:{broker.listeners['INTERNAL'].port}"
    published = {port.split(":")[1] for port in service["ports"]}
    others = [compose["services"][other]["ports"] for other in BROKERS if other != name]
    assert published.isdisjoint({port.split(":")[1] for ports in others for port in ports})


def test_what_is_depended_on_and_mounted_is_there(compose: Any) -> None:
    services = compose["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (COMPOSE / source).is_file()


def test_the_metadata_cluster_is_the_one_that_brokers_ask_for(compose: Any) -> None:
    cluster = yaml.safe_load((COMPOSE / "oxia" / "cluster.yaml").read_text())
    [namespace] = cluster["namespaces"]
    assert (namespace["keySorting"], namespace["notificationsEnabled"]) == ("hierarchical", True)
    servers = {server["public"] for server in cluster["servers"]}
    for service in dray_services(compose).values():
        oxia = settings_of(service).metadata.oxia
        assert oxia.namespace == namespace["name"]
        assert set(oxia.addresses) == servers
    assert namespace["replicationFactor"] == len(servers) == 3
    for server in cluster["servers"]:
        command = compose["services"][server["name"]]["command"]
        for which in ("public", "internal"):
            assert f"--{which}-addr=0.0.0.0:{server[which].split(':')[1]}" in command


def test_the_bucket_exists_before_anybody_asks_for_it(compose: Any) -> None:
    bucket = compose["services"]["bucket"]["command"][-1]
    s3 = compose["services"]["s3"]
    assert s3["depends_on"]["bucket"] == {"condition": "service_completed_successfully"}
    root = s3["command"][-1]
    for service in dray_services(compose).values():
        settings = settings_of(service)
        name = re.match(r"s3://([^/]+)/", settings.objects_url)
        assert name is not None
        assert bucket == f"{root}/{name[1]}"
        secrets = {key: secret.text for key, secret in settings.objects.secrets.items()}
        assert secrets["access_key_id"] == s3["environment"]["ROOT_ACCESS_KEY_ID"]
        assert secrets["secret_access_key"] == s3["environment"]["ROOT_SECRET_ACCESS_KEY"]


def test_the_catalog_sends_what_the_s3_server_understands(compose: Any) -> None:
    """It writes metadata files itself, by AWS's own client. Without it the first commit to a table fails."""
    assert "versitygw" in compose["services"]["s3"]["image"]
    environment = compose["services"]["catalog"]["environment"]
    assert environment["AWS_REQUEST_CHECKSUM_CALCULATION"] == "when_required"


# --- with the file of a migration on top


@pytest.fixture(scope="module")
def moving(compose: Any) -> dict[str, dict[str, Any]]:
    """The services as Compose merges both files: a variable of the second one is added."""
    found = {name: dict(one) for name, one in compose["services"].items()}
    more = yaml.safe_load((COMPOSE / "migration.yaml").read_text())["services"]
    for name, one in more.items():
        before = found.get(name, {})
        found[name] = {
            **before,
            **one,
            "environment": {**before.get("environment", {}), **one["environment"]},
        }
    return found


def filled_in(service: dict[str, Any]) -> dict[str, Any]:
    """With what its variables are without an environment."""
    given = {
        key: re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", value) for key, value in service["environment"].items()
    }
    return {**service, "environment": given}


def test_brokers_and_the_migrator_know_the_same_source(moving: dict[str, dict[str, Any]]) -> None:
    known = [settings_of(filled_in(moving[name])).upstream.clusters for name in (*BROKERS, "migrator")]
    assert list(known[0]) == ["old"]
    assert all(each == known[0] for each in known)


def test_the_migrator_works_on_the_stores_of_the_brokers(moving: dict[str, dict[str, Any]]) -> None:
    service = moving["migrator"]
    migrator, broker = settings_of(filled_in(service)), settings_of(filled_in(moving["broker-a"]))
    assert (migrator.metadata, migrator.objects) == (broker.metadata, broker.objects)
    assert migrator.cluster == broker.cluster
    assert str(migrator.upstream.http) == "0.0.0.0:9642"
    assert service["ports"] == ["127.0.0.1:9642:9642"]
    assert set(service["depends_on"]) <= set(moving)
    name, *arguments = service["command"]
    with load_command(name).make_context(name, list(arguments)) as context:
        assert "http" in context.params
