"""The chart passes Helm's checks, and what it renders is a config and commands that Dray takes."""

from __future__ import annotations

import asyncio
import http.server
import io
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import textwrap
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.services.authorities import Authority
from tests.services.helm import render, run_helm
from tests.services.kubernetes import VERSIONS, refused_fields
from tools import alerts, dashboards

from dray.base.build import build_name
from dray.base.runtime import SystemRuntime
from dray.broker.cluster import AdvertisedListener, Broker
from dray.broker.cluster.membership import encode_broker
from dray.cli.main import load_command, main
from dray.daemons.assembly.stores import open_metadata
from dray.daemons.config import Settings, load
from dray.metadata import keys
from dray.metadata.contract import Put

pytestmark = pytest.mark.timeout(1000)  # the first run builds Helm

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "dray"
ZONES: dict[str, Any] = {
    "zone": {"nodeLabel": "topology.kubernetes.io/zone"},
    "broker": {"replicas": 6},
    "existingSecret": "dray-credentials",
    "plaintext": True,
}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return render(tmp_path_factory.mktemp("chart"), CHART, ZONES)


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [found for found in objects if found["kind"] == kind]


def container(workload: dict[str, Any]) -> dict[str, Any]:
    [only] = workload["spec"]["template"]["spec"]["containers"]
    return dict(only)


def settings_in(
    pod: str,
    objects: list[dict[str, Any]],
    workload: dict[str, Any],
    path: Path,
    told: dict[str, str] | None = None,
) -> Settings:
    """As a pod of that name would load them; `told`: variables that its shell sets."""
    [config] = [found for found in of_kind(objects, "ConfigMap") if found["metadata"]["name"] == "test"]
    file = path / "dray.yaml"
    file.write_text(config["data"]["dray.yaml"])
    variables = {
        variable["name"]: variable.get("value", pod).replace("$(POD_NAME)", pod)
        for variable in container(workload).get("env", ())
    } | (told or {})
    return load(file, variables).settings


@pytest.mark.parametrize("values", [(), ("--set", "broker.autoscaling.enabled=true")])
def test_helm_finds_nothing_wrong(tmp_path: Path, values: tuple[str, ...]) -> None:
    assert "0 chart(s) failed" in run_helm(
        tmp_path, "lint", "--strict", str(CHART), "--set", "plaintext=true", *values
    )


def test_an_upgrade_takes_away_one_broker_of_the_cluster_at_a_time(objects: list[dict[str, Any]]) -> None:
    """A StatefulSet is rolled pod by pod, and stands still at one that is not ready."""
    [brokers] = of_kind(objects, "StatefulSet")
    assert brokers["spec"]["replicas"] == 6
    assert brokers["spec"]["updateStrategy"] == {"type": "RollingUpdate"}, "one is what that means"
    assert brokers["spec"]["minReadySeconds"] == 15
    budgets = {each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "PodDisruptionBudget")}
    assert budgets.keys() == {"test-broker", "test-compactor"}
    assert {each["maxUnavailable"] for each in budgets.values()} == {1}


def test_a_broker_is_in_the_zone_of_its_node_and_has_the_id_of_its_pod(
    objects: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Whatever zones there are: a list of them would give other ids when it is put in another order."""
    [brokers] = of_kind(objects, "StatefulSet")
    for number in (0, 5, 12):
        said = started(brokers, f"test-broker-{number}", zone="eu-west-1a", directory=tmp_path)
        assert said.pop("broker_id") == str(number)
        assert said == {"DRAY_BROKER__ZONE": "eu-west-1a", "DRAY_BROKER__RACK": "eu-west-1a"}
    settings = settings_in("test-broker-3", objects, brokers, tmp_path)
    assert str(settings.broker.advertised) == "test-broker-3.test-brokers.data.svc.cluster.local:9092"
    spread = brokers["spec"]["template"]["spec"]["topologySpreadConstraints"][0]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == (
        ZONES["zone"]["nodeLabel"],
        "DoNotSchedule",
    )
    [role] = of_kind(objects, "ClusterRole")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]


def test_a_cluster_of_one_zone_asks_kubernetes_for_nothing(tmp_path: Path) -> None:
    found = render(tmp_path, CHART, {"plaintext": True, "zone": {"name": "b"}, "broker": {"firstId": 1000}})
    [brokers] = of_kind(found, "StatefulSet")
    assert of_kind(found, "ClusterRole") == []
    assert "initContainers" not in brokers["spec"]["template"]["spec"]
    said = started(brokers, "test-broker-2", zone="nobody's", directory=tmp_path)
    assert (said["broker_id"], said["DRAY_BROKER__ZONE"]) == ("1002", "b")


def started(workload: dict[str, Any], pod: str, zone: str, directory: Path) -> dict[str, str]:
    """The id and the variables as the pod's own shell works them out, with a drayd that only says them."""
    (directory / "zone").write_text(zone)
    [script] = container(workload)["args"]
    assert container(workload)["command"] == ["tini", "--", "sh", "-c"]
    script = script.replace("/var/lib/dray/zone", str(directory / "zone")).replace("exec drayd", "env; echo")
    environment = {"POD_NAME": pod, "NODE_ADDRESS": "10.0.0.7", "PATH": "/bin:/usr/bin"}
    spoken = subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    name, *arguments = spoken.pop().split()
    with load_command(name).make_context(name, arguments) as context:
        assert str(context.params["config"]) == "/etc/dray/dray.yaml"
        said = {"broker_id": str(context.params["broker_id"])}
    return said | dict(line.split("=", 1) for line in spoken if line.startswith("DRAY_"))


class Nodes(http.server.BaseHTTPRequestHandler):
    """The part of Kubernetes' API that has a node's labels."""

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == "Bearer of-the-pod"
        labels = {"topology.kubernetes.io/zone": "eu-west-1b"} if self.path == "/api/v1/nodes/first" else {}
        said = json.dumps({"metadata": {"labels": labels}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_the_zone_of_a_node_is_asked_of_kubernetes(objects: list[dict[str, Any]], tmp_path: Path) -> None:
    [brokers] = of_kind(objects, "StatefulSet")
    [asks] = brokers["spec"]["template"]["spec"]["initContainers"]
    authority = Authority(tmp_path / "authority")
    identity = authority.issue("CN=kubernetes", hosts=("127.0.0.1",))
    (tmp_path / "token").write_text("of-the-pod\n")
    shutil.copy(authority.file, tmp_path / "ca.crt")
    server = http.server.HTTPServer(("127.0.0.1", 0), Nodes)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:

        def run(node: str) -> subprocess.CompletedProcess[str]:
            variables = {
                "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                "KUBERNETES_SERVICE_PORT": str(server.server_port),
                "NODE_NAME": node,
                "NODE_LABEL": ZONES["zone"]["nodeLabel"],
                "ACCOUNT": str(tmp_path),
                "ZONE_FILE": str(tmp_path / "zone"),
            }
            command = [sys.executable, "-c", *asks["args"]]
            return subprocess.run(
                command, env=variables, capture_output=True, text=True, check=False, timeout=60
            )

        assert run("first").returncode == 0
        assert (tmp_path / "zone").read_text() == "eu-west-1b"
        refused = run("second")
        assert refused.returncode == 1
        assert "node second has no label topology.kubernetes.io/zone" in refused.stderr
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("kind", ["LoadBalancer", "NodePort"])
def test_clients_from_outside_reach_the_broker_that_they_are_told(tmp_path: Path, kind: str) -> None:
    host = "broker-{id}.kafka.example.com" if kind == "LoadBalancer" else ""
    external = {
        "enabled": True,
        "type": kind,
        "host": host,
        "annotations": {"external-dns.alpha.kubernetes.io/hostname": "broker-{id}.kafka.example.com"},
    }
    listeners = {"INSIDE": {"port": 9092}, "EXTERNAL": {"port": 9094, "protocol": "SASL_PLAINTEXT"}}
    values = {"broker": {"replicas": 2, "firstId": 10}, "listeners": listeners, "external": external}
    found = render(tmp_path, CHART, values)
    [brokers] = of_kind(found, "StatefulSet")
    services = {each["metadata"]["name"]: each for each in of_kind(found, "Service")}
    assert services["test-external"]["spec"]["type"] == kind
    for number in range(2):
        pod = f"test-broker-{number}"
        said = started(brokers, pod, zone="-", directory=tmp_path)
        said.pop("broker_id")
        advertised = said["DRAY_BROKER__ADVERTISED_LISTENERS__EXTERNAL"]
        service = services[f"test-external-{number}"]
        [port] = service["spec"]["ports"]
        assert service["spec"]["selector"]["statefulset.kubernetes.io/pod-name"] == pod
        assert port["targetPort"] == "kafka-9094"
        name = f"broker-{10 + number}.kafka.example.com"
        assert set(service["metadata"]["annotations"].values()) == {name}
        if kind == "LoadBalancer":
            assert advertised == f"{name}:9094" == f"{name}:{port['port']}"
        else:
            assert advertised == f"10.0.0.7:{31000 + number}" == f"10.0.0.7:{port['nodePort']}"
            assert service["spec"]["externalTrafficPolicy"] == "Local"
        settings = settings_in(pod, found, brokers, tmp_path, said)
        assert {name: str(each) for name, each in settings.broker.advertised_listeners.items()} == {
            "INSIDE": f"{pod}.test-brokers.data.svc.cluster.local:9092",
            "EXTERNAL": advertised,
        }


ZONE_SERVICES = {"services": {"eu-west-1a": 9101, "eu-west-1b": 9102}}
ASKING = {"port": 9094, "protocol": "SASL_PLAINTEXT", "mechanisms": ["SCRAM-SHA-512"], "connections": 500}


def test_a_zone_has_a_service_for_clients_that_cannot_name_it(tmp_path: Path) -> None:
    """They begin there, and the brokers tell them addresses of the same listener."""
    values = {
        "zone": {**ZONES["zone"], **ZONE_SERVICES, "listener": "INSIDE"},
        "listeners": {"INSIDE": ASKING},
    }
    found = render(tmp_path, CHART, values)
    [brokers] = of_kind(found, "StatefulSet")
    listening = {port["name"]: port["containerPort"] for port in container(brokers)["ports"]}
    settings = settings_in("test-broker-3", found, brokers, tmp_path).broker
    services = {each["metadata"]["name"]: each["spec"] for each in of_kind(found, "Service")}
    for zone, port in ZONE_SERVICES["services"].items():
        [way] = services[f"test-zone-{zone}"]["ports"]
        assert (way["port"], listening[way["targetPort"]]) == (ASKING["port"], port)
        assert services[f"test-zone-{zone}"]["selector"] == services["test"]["selector"]
        name = f"ZONE_{zone.upper().replace('-', '_')}"
        listener = settings.listeners[name]
        assert (listener.zone, listener.port, listener.protocol) == (zone, port, ASKING["protocol"])
        assert (list(listener.mechanisms), listener.connections) == (ASKING["mechanisms"], 500)
        where = f"test-broker-3.test-brokers.data.svc.cluster.local:{port}"
        assert str(settings.advertised_listeners[name]) == where
    assert settings.listeners["INSIDE"].zone == ""
    assert [port["port"] for port in services["test"]["ports"]] == [9094]
    assert {9101, 9102} < {port["port"] for port in services["test-brokers"]["ports"]}


def test_zones_of_a_listener_that_asks_nobody(tmp_path: Path) -> None:
    found = render(tmp_path, CHART, {"plaintext": True, "zone": ZONE_SERVICES, "service": {"port": 19092}})
    [service] = [each for each in of_kind(found, "Service") if each["metadata"]["name"].endswith("west-1a")]
    assert service["spec"]["ports"] == [{"name": "kafka-9101", "port": 19092, "targetPort": "kafka-9101"}]


def test_services_find_the_brokers(objects: list[dict[str, Any]]) -> None:
    services = {found["metadata"]["name"]: found["spec"] for found in of_kind(objects, "Service")}
    for found in of_kind(objects, "StatefulSet"):
        labels = found["spec"]["template"]["metadata"]["labels"]
        assert found["spec"]["serviceName"] in services
        assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()
        for service in services.values():
            assert service["selector"].items() <= labels.items()
        ports = {port["name"]: port["containerPort"] for port in container(found)["ports"]}
        assert ports == {"http": 9644, "kafka": 9092}
    [deployment] = of_kind(objects, "Deployment")
    compactor = deployment["spec"]["template"]["metadata"]["labels"]
    assert not any(service["selector"].items() <= compactor.items() for service in services.values())


def test_the_compactor_runs_a_command_of_drayd(objects: list[dict[str, Any]], tmp_path: Path) -> None:
    [deployment] = of_kind(objects, "Deployment")
    name, *arguments = container(deployment)["args"]
    with load_command(name).make_context(name, list(arguments)) as context:
        assert context.params["spark_master"] == "local[*,3]"
    settings = settings_in("x", objects, deployment, tmp_path)
    assert settings.iceberg.catalog == "rest"
    # where it says how it is, is where it is asked
    [port] = container(deployment)["ports"]
    assert str(settings.compaction.http) == f"0.0.0.0:{port['containerPort']}"
    asked = deployment["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"]
    assert asked == str(port["containerPort"])
    probes = {kind: container(deployment)[kind]["httpGet"] for kind in ("readinessProbe", "livenessProbe")}
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert [probe["path"] for probe in probes.values()] == ["/readyz", "/healthz"]


def test_what_runs_beside_brokers_follows_them_in_an_upgrade(
    objects: list[dict[str, Any]], tmp_path: Path
) -> None:
    [deployment] = of_kind(objects, "Deployment")
    assert "strategy" not in deployment["spec"], "the pod before works until the new one is ready"
    [follows] = deployment["spec"]["template"]["spec"]["initContainers"]
    config = tmp_path / "dray.yaml"
    config.write_text(f"data_dir: {tmp_path}\n")

    def said(*builds: str) -> str:
        asyncio.run(register(config, builds))
        variables = {"CONFIG": str(config), "FOLLOW_SECONDS": "0", "PATH": os.environ["PATH"]}
        command = [sys.executable, *follows["command"][1:], *follows["args"]]
        ran = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    ours = f"no broker is of another build than {build_name()}\n"
    assert said() == ours
    assert said(build_name(), build_name()) == ours
    assert said(build_name(), "0.1.0+g0older00", "") == "not waited for any longer: brokers [1, 2]\n"
    config.write_text("metadata: {engine: etcd, etcd: {endpoints: '127.0.0.1:1'}}\n")
    assert "the brokers' builds cannot be read" in said()


async def register(config: Path, builds: Sequence[str]) -> None:
    settings = load(config, {}).settings
    if settings.metadata.engine != "sqlite":
        return
    runtime = SystemRuntime(threads=1)
    store = await open_metadata(settings, runtime)
    for number, build in enumerate(builds):
        broker = Broker(number, (AdvertisedListener("L", "h", 1),), build=build)
        await store.write(keys.CLUSTER_DOMAIN, [Put(keys.broker(number), encode_broker(broker))])
    await store.close()
    runtime.close()


def test_a_store_that_is_away_restarts_nobody(objects: list[dict[str, Any]]) -> None:
    """Only readiness asks for the stores."""
    for workload in of_kind(objects, "StatefulSet") + of_kind(objects, "Deployment"):
        probes = {kind: probe for kind, probe in container(workload).items() if kind.endswith("Probe")}
        asked = {kind: probe["httpGet"]["path"] for kind, probe in probes.items()}
        assert asked.pop("readinessProbe") == "/readyz"
        assert set(asked.values()) == {"/healthz"}


def test_credentials_are_also_mounted_so_that_they_can_change(objects: list[dict[str, Any]]) -> None:
    for workload in of_kind(objects, "StatefulSet") + of_kind(objects, "Deployment"):
        mounts = {mount["name"]: mount["mountPath"] for mount in container(workload)["volumeMounts"]}
        assert mounts["credentials"] == "/etc/dray-credentials"
        volumes = {volume["name"]: volume for volume in workload["spec"]["template"]["spec"]["volumes"]}
        assert volumes["credentials"]["secret"] == {"secretName": "dray-credentials"}


MIGRATION: dict[str, Any] = {
    **ZONES,
    "migrator": {"enabled": True, "replicas": 2},
    "compactor": {"enabled": False},
    "upstreamSecret": "old-kafka",
    "config": {
        "upstream": {
            "clusters": {
                "old": {"bootstrap": "kafka:9092", "command_config": "/etc/dray-upstream/old.properties"}
            }
        }
    },
}


def test_a_migrator_comes_if_asked_for_and_knows_what_the_brokers_know(tmp_path: Path) -> None:
    found = render(tmp_path, CHART, MIGRATION)
    [deployment] = of_kind(found, "Deployment")
    assert deployment["spec"]["replicas"] == 2
    only, pod = container(deployment), deployment["spec"]["template"]
    name, *arguments = only["args"]
    with load_command(name).make_context(name, list(arguments)) as context:
        assert str(context.params["config"]) == "/etc/dray/dray.yaml"
    settings = settings_in("x", found, deployment, tmp_path)
    [port] = only["ports"]
    assert str(settings.upstream.http) == f"0.0.0.0:{port['containerPort']}"
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])
    probes = [only[kind]["httpGet"] for kind in ("readinessProbe", "startupProbe", "livenessProbe")]
    assert [probe["path"] for probe in probes] == ["/readyz", "/healthz", "/healthz"]
    assert {probe["port"] for probe in probes} == {port["name"]}
    assert only["securityContext"]["readOnlyRootFilesystem"] is True
    assert only["envFrom"] == [{"secretRef": {"name": "dray-credentials"}}]
    # Both read the file that the config names, from a Secret.
    file = settings.upstream.clusters["old"].command_config
    assert file is not None
    for workload in (deployment, of_kind(found, "StatefulSet")[0]):
        mounted = {each["name"]: each["mountPath"] for each in container(workload)["volumeMounts"]}
        assert file.startswith(mounted["upstream"] + "/")
        volumes = {each["name"]: each for each in workload["spec"]["template"]["spec"]["volumes"]}
        assert volumes["upstream"]["secret"] == {"secretName": "old-kafka"}
        assert set(volumes) - {"account"} == set(mounted)
    labels = pod["metadata"]["labels"]
    for service in of_kind(found, "Service"):
        assert not service["spec"]["selector"].items() <= labels.items()


def test_who_reaches_the_pods_can_be_said(tmp_path: Path) -> None:
    assert of_kind(render(tmp_path, CHART, MIGRATION), "NetworkPolicy") == []
    apps, metrics = ({"namespaceSelector": {"matchLabels": {"name": name}}} for name in ("apps", "metrics"))
    wanted = {"enabled": True, "clients": [apps], "monitoring": [metrics]}
    found = of_kind(render(tmp_path, CHART, {**MIGRATION, "networkPolicy": wanted}), "NetworkPolicy")
    rules = {
        policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: policy["spec"]["ingress"]
        for policy in found
    }
    [clients, health] = rules.pop("broker")
    assert clients["from"] == [apps]
    assert {each["port"] for each in clients["ports"]} >= {9092}
    assert health == {"ports": [{"port": 9644}], "from": [metrics]}
    assert rules == {
        "compactor": [{"ports": [{"port": 9643}], "from": [metrics]}],
        "migrator": [{"ports": [{"port": 9642}], "from": [metrics]}],
    }
    closed = of_kind(
        render(tmp_path, CHART, {**MIGRATION, "networkPolicy": {"enabled": True}}), "NetworkPolicy"
    )
    assert all(policy["spec"]["ingress"][-1]["from"] == [{"podSelector": {}}] for policy in closed)


def test_brokers_get_no_login_that_may_more_than_write(tmp_path: Path) -> None:
    """In `upstreamSecret` is a user that may alter the source's ACLs."""
    found = render(tmp_path, CHART, {**MIGRATION, "forwardSecret": "of-brokers"})
    [migrator], broker = of_kind(found, "Deployment"), of_kind(found, "StatefulSet")[0]
    secrets = []
    for workload in (migrator, broker):
        mounted = {each["name"]: each["mountPath"] for each in container(workload)["volumeMounts"]}
        volumes = {each["name"]: each for each in workload["spec"]["template"]["spec"]["volumes"]}
        assert set(volumes) - {"account"} == set(mounted)
        secrets.append(
            {
                mounted[name]: each["secret"]["secretName"]
                for name, each in volumes.items()
                if "secret" in each
            }
        )
    of_brokers = {"/etc/dray-forward": "of-brokers", "/etc/dray-credentials": "dray-credentials"}
    assert secrets == [{"/etc/dray-upstream": "old-kafka", **of_brokers}, of_brokers]


def test_a_migrator_without_a_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"needs config\.upstream\.clusters"):
        render(tmp_path, CHART, {"plaintext": True, "migrator": {"enabled": True}})


def test_secrets_come_from_a_secret_and_pods_have_no_powers(objects: list[dict[str, Any]]) -> None:
    for workload in of_kind(objects, "StatefulSet") + of_kind(objects, "Deployment"):
        pod, only = workload["spec"]["template"]["spec"], container(workload)
        assert only["envFrom"] == [{"secretRef": {"name": "dray-credentials"}}]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert only["securityContext"]["allowPrivilegeEscalation"] is False
        assert only["securityContext"]["readOnlyRootFilesystem"] is True
        mounted = {mount["mountPath"]: mount["name"] for mount in only["volumeMounts"]}
        written = {mount["mountPath"] for mount in only["volumeMounts"] if not mount.get("readOnly")}
        assert written == {"/var/lib/dray", "/tmp"}, "all that can be written to"
        assert mounted.keys() - written == {"/etc/dray", "/etc/dray-credentials"}
        assert set(mounted.values()) == {volume["name"] for volume in pod["volumes"]} - {"account"}
        assert {each["name"] for each in pod["volumes"] if "sizeLimit" in each.get("emptyDir", ())} == {
            "data",
            "tmp",
        }
        assert pod["enableServiceLinks"] is False
        grace = workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert grace >= 2 * Settings().broker.shutdown_grace + 5
    assert of_kind(objects, "Secret") == []


def autoscaled(**broker: Any) -> dict[str, Any]:
    return {"plaintext": True, "broker": {"autoscaling": {"enabled": True, "maxReplicas": 8}, **broker}}


def test_an_autoscaler_has_the_brokers_and_nothing_else_sets_their_number(tmp_path: Path) -> None:
    objects = render(tmp_path, CHART, autoscaled(replicas=4))
    [brokers] = of_kind(objects, "StatefulSet")
    [scaler] = of_kind(objects, "HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"] == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": brokers["metadata"]["name"],
    }
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (4, 8)
    [metric] = scaler["spec"]["metrics"]
    assert metric["resource"]["name"] == "cpu"
    assert metric["resource"]["target"] == {"type": "Utilization", "averageUtilization": 70}
    down = scaler["spec"]["behavior"]["scaleDown"]
    assert [(policy["type"], policy["value"]) for policy in down["policies"]] == [("Pods", 1)]
    assert down["stabilizationWindowSeconds"] == 600
    assert "replicas" not in brokers["spec"], "an upgrade would undo what the autoscaler did"
    assert container(brokers)["resources"]["requests"]["cpu"] == "1", "that is what 70 % are of"
    [compactor] = of_kind(objects, "Deployment")
    assert compactor["spec"]["replicas"] == 1


def test_an_autoscaler_is_off_unless_it_is_asked_for(objects: list[dict[str, Any]]) -> None:
    assert of_kind(objects, "HorizontalPodAutoscaler") == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (autoscaled(replicas=9), "broker.autoscaling.maxReplicas 8 is less than broker.replicas 9"),
        (autoscaled(autoscaling={"enabled": True, "maxReplicas": 1001}), "maxReplicas"),
        (autoscaled(resources={"requests": {"cpu": None}}), "needs broker.resources.requests.cpu"),
        ({"plaintext": True, "zonez": 1}, "zonez"),
        ({"plaintext": True, "broker": {"replicaz": 7}}, "replicaz"),
        ({"plaintext": True, "broker": {"replicas": "abc"}}, "replicas"),
        ({"plaintext": True, "image": {"digest": "latest"}}, "digest"),
        (
            {"plaintext": True, "config": {"objects": {"secrets": {"secret_access_key": "hunter2"}}}},
            "config.objects.secrets would stand in a ConfigMap, in clear: put it into a Secret, as the "
            "variable DRAY_OBJECTS__SECRETS__NAME, and name that Secret in existingSecret",
        ),
        ({"listeners": {"A": {"port": 9094}}, "zone": ZONE_SERVICES}, "zone.services needs zone.listener"),
        ({"plaintext": True, "zone": {"listener": "B"}}, "zone.listener = B: there is no such listener"),
        ({"plaintext": True, "zone": {"services": {"a": 9644}}}, "port 9644 is given twice"),
        ({"plaintext": True, "zone": {"services": {"a": 9101, "b": 9101}}}, "port 9101 is given twice"),
        ({"plaintext": True, "zone": {"services": {"A_b": 9101}}}, "A_b"),
        (
            {
                "listeners": {"ZONE_A": {"port": 9094}},
                "zone": {"listener": "ZONE_A", "services": {"a": 9101}},
            },
            "listeners.ZONE_A: that of the zone a has this name",
        ),
        ({"plaintext": True, "zone": {"services": {"a" * 60: 9101}}}, "longer than the 63 letters"),
        (
            {"plaintext": True, "external": {"enabled": True}},
            "external.listener = EXTERNAL: there is no such",
        ),
        (
            {
                "listeners": {"EXTERNAL": {"port": 9094}},
                "external": {"enabled": True, "host": "kafka.example"},
            },
            'external.host = "kafka.example": each broker needs a name of its own',
        ),
    ],
)
def test_values_that_could_not_work_are_refused_by_name(
    tmp_path: Path, values: dict[str, Any], says: str
) -> None:
    with pytest.raises(RuntimeError, match=re.escape(says)):
        render(tmp_path, CHART, values)


CERTIFICATE = {"certificate_file": "/etc/dray-tls/tls.crt", "key_file": "/etc/dray-tls/tls.key"}
EVERYTHING: dict[str, Any] = {
    **ZONES,
    "zone": {**ZONES["zone"], **ZONE_SERVICES, "listener": "INSIDE"},
    "plaintext": False,
    "listeners": {
        "INSIDE": {"port": 9093, "protocol": "SASL_SSL", "mechanisms": ["SCRAM-SHA-512"], **CERTIFICATE},
        "EXTERNAL": {"port": 9094, "protocol": "SASL_SSL", "mechanisms": ["SCRAM-SHA-512"], **CERTIFICATE},
    },
    "external": {"enabled": True, "host": "broker-{id}.kafka.example.com"},
    "tlsSecret": "dray-tls",
    "httpSecret": "dray-http",
    "upstreamSecret": "old-kafka",
    "forwardSecret": "of-brokers",
    "image": {"registry": "registry.example.com", "digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "registry"}],
    "networkPolicy": {"enabled": True},
    "migrator": {"enabled": True, "replicas": 2},
    "config": {"upstream": {"clusters": {"old": {"bootstrap": "kafka:9092"}}}},
    "monitoring": {"dashboards": True, "rules": True, "podMonitor": True, "serviceMonitor": True},
    **{
        component: {
            **(
                {"replicas": 6, "autoscaling": {"enabled": True}}
                if component == "broker"
                else {"enabled": True}
            ),
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
                    }
                }
            },
            "nodeSelector": {"pool": "kafka"},
            "tolerations": [{"key": "kafka", "operator": "Exists"}],
            "priorityClassName": "high",
            "podLabels": {"team": "streams"},
            "podAnnotations": {"note": "one"},
            "extraEnv": [{"name": "TZ", "value": "UTC"}],
            "extraVolumes": [{"name": "more", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        }
        for component in ("broker", "compactor", "migrator")
    },
}
OUTSIDE = {**EVERYTHING, "external": {"enabled": True, "type": "NodePort"}}


@pytest.mark.parametrize(
    ("values", "versions"),
    [
        ({"plaintext": True}, VERSIONS[-1:]),
        (ZONES, VERSIONS[-1:]),
        (EVERYTHING, VERSIONS),
        (OUTSIDE, VERSIONS[-1:]),
        (autoscaled(replicas=4), VERSIONS[-1:]),
    ],
    ids=["plain", "zones", "everything", "node ports", "autoscaled"],
)
def test_kubernetes_knows_every_field_of_what_is_rendered(
    tmp_path: Path, values: dict[str, Any], versions: tuple[str, ...]
) -> None:
    known = [
        found
        for found in render(tmp_path, CHART, values)
        if not found["apiVersion"].startswith("monitoring.coreos.com/")
    ]
    assert {found["kind"] for found in known} > {"StatefulSet", "Job", "Service", "PodDisruptionBudget"}
    for version in versions:
        assert refused_fields(known, version) == ""


def test_a_field_that_kubernetes_does_not_know_is_found(objects: list[dict[str, Any]]) -> None:
    [brokers] = of_kind(objects, "StatefulSet")
    mistyped = {**brokers, "spec": {**brokers["spec"], "mistyped": 1}}
    assert "mistyped" in refused_fields([mistyped], VERSIONS[-1])


def test_names_stay_within_what_kubernetes_takes(tmp_path: Path) -> None:
    """A pod of a StatefulSet has a label with its name and a hash: 52 letters are left to the name."""
    values = {**EVERYTHING, "broker": {"replicas": 1000}}
    long = "a-release-whose-name-is-as-long-as-helm-takes-it-ones"
    for found in render(tmp_path, CHART, values, release=long):
        name = found["metadata"]["name"]
        assert len(name) <= (52 if found["kind"] == "StatefulSet" else 63), name
        assert all(len(str(value)) <= 63 for value in found["metadata"]["labels"].values())


def test_a_config_that_no_pod_could_start_with_ends_an_upgrade_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {**OUTSIDE, "config": {"log": {"carry_bites": 1}}, "migrator": {"enabled": False}}
    hooks = {
        found["kind"]: found
        for found in render(tmp_path, CHART, values)
        if "pre-upgrade" in found["metadata"].get("annotations", {}).get("helm.sh/hook", "")
    }
    [check] = hooks["Job"]["spec"]["template"]["spec"]["containers"]
    assert hooks["Job"]["spec"]["backoffLimit"] == 0
    file = tmp_path / "dray.yaml"
    file.write_text(hooks["ConfigMap"]["data"]["dray.yaml"])
    for variable in check["env"]:
        monkeypatch.setenv(variable["name"], variable["value"].replace("$(POD_NAME)", "check"))
    command = [each.replace("/etc/dray/dray.yaml", str(file)) for each in check["args"]]
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 2
    assert "there is no such setting; did you mean log.carry_bytes?" in capsys.readouterr().err
    file.write_text(yaml.safe_dump({"log": {"carry_bytes": 0}}))
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 0


def test_the_defaults_render_and_a_compactor_can_be_left_out(tmp_path: Path) -> None:
    plain = render(tmp_path, CHART, {"plaintext": True, "compactor": {"enabled": False}})
    assert of_kind(plain, "Deployment") == []
    [brokers] = of_kind(plain, "StatefulSet")
    assert brokers["spec"]["replicas"] == 3
    assert "envFrom" not in container(brokers)
    version = re.search(r'appVersion: "(.*)"', (CHART / "Chart.yaml").read_text())
    assert version is not None
    assert container(brokers)["image"] == f"dray:{version[1]}"


def test_further_listeners_are_each_pods_own(tmp_path: Path) -> None:
    files = {"certificate_file": "/etc/dray-tls/tls.crt", "key_file": "/etc/dray-tls/tls.key"}
    secure = {
        "port": 9094,
        "protocol": "SASL_SSL",
        "mechanisms": ["SCRAM-SHA-512"],
        **files,
        "connections": 500,
    }
    mutual = {
        "port": 9095,
        "protocol": "SSL",
        **files,
        "client_auth": "required",
        "client_ca_file": "/etc/dray-tls/ca.crt",
        "mapping_rules": "RULE:^CN=([^,]+).*$/$1/",
    }
    listeners = {"SECURE": secure, "MUTUAL": mutual}
    values = {**ZONES, "plaintext": False, "listeners": listeners, "tlsSecret": "dray-tls"}
    found = render(tmp_path, CHART, values)
    brokers = of_kind(found, "StatefulSet")[0]
    pod = f"{brokers['metadata']['name']}-1"
    settings = settings_in(pod, found, brokers, tmp_path)
    place = settings.broker.listeners["SECURE"]
    assert (str(place), place.protocol, place.connections) == ("0.0.0.0:9094", "SASL_SSL", 500)
    assert settings.broker.listeners["MUTUAL"].mapping_rules == mutual["mapping_rules"]
    assert settings.broker.listeners["MUTUAL"].client_auth == "required"
    advertised = settings.broker.advertised_listeners["MUTUAL"]
    assert str(advertised) == f"{pod}.test-brokers.data.svc.cluster.local:9095"
    ports = {port["containerPort"] for port in container(brokers)["ports"]}
    assert ports == {9644, 9094, 9095}
    assert settings.broker.listen is None
    assert settings.broker.advertised is None
    for service in of_kind(found, "Service"):
        assert {port["port"] for port in service["spec"]["ports"]} - {9644} == {9094, 9095}
    mounted = {mount["name"]: mount["mountPath"] for mount in container(brokers)["volumeMounts"]}
    assert mounted["tls"] == "/etc/dray-tls"
    volumes = {volume["name"]: volume for volume in brokers["spec"]["template"]["spec"]["volumes"]}
    assert volumes["tls"]["secret"] == {"secretName": "dray-tls"}


def test_no_listener_that_asks_nobody_comes_unasked(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"give `listeners` .*, or plaintext: true"):
        render(tmp_path, CHART, {**ZONES, "plaintext": False})
    found = render(tmp_path, CHART, {"plaintext": True})
    [brokers] = of_kind(found, "StatefulSet")
    assert str(settings_in("x", found, brokers, tmp_path).broker.listen) == "0.0.0.0:9092"


OVER_HTTPS: dict[str, Any] = {
    **MIGRATION,
    "compactor": {"enabled": True},
    "httpSecret": "dray-http",
    "monitoring": {"podMonitor": True, "serviceMonitor": True},
    "config": {
        **MIGRATION["config"],
        "http": {
            "token_file": "/etc/dray-http/token",
            "certificate_file": "/etc/dray-http/tls.crt",
            "key_file": "/etc/dray-http/tls.key",
        },
    },
}
PROBES = ("readinessProbe", "startupProbe", "livenessProbe")


def test_health_and_metrics_over_https_with_a_token(tmp_path: Path) -> None:
    found = render(tmp_path, CHART, OVER_HTTPS)
    workloads = of_kind(found, "StatefulSet") + of_kind(found, "Deployment")
    assert len(workloads) == 3
    for workload in workloads:
        only, pod = container(workload), workload["spec"]["template"]
        assert {only[probe]["httpGet"]["scheme"] for probe in PROBES} == {"HTTPS"}
        assert pod["metadata"]["annotations"]["prometheus.io/scheme"] == "https"
        mounted = {each["name"]: each["mountPath"] for each in only["volumeMounts"]}
        http = settings_in("pod-0", found, workload, tmp_path).http
        for file in (http.token_file, http.certificate_file, http.key_file):
            assert file is not None
            assert file.startswith(mounted["http"] + "/")
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        assert volumes["http"]["secret"] == {"secretName": "dray-http"}
    [monitor], [same] = of_kind(found, "PodMonitor"), of_kind(found, "ServiceMonitor")
    assert monitor["spec"]["podMetricsEndpoints"] == same["spec"]["endpoints"]
    [service] = [each for each in of_kind(found, "Service") if each["metadata"]["name"] == "test-metrics"]
    assert same["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    for workload in workloads:
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert service["spec"]["selector"].items() <= labels.items()
    assert monitor["spec"]["podMetricsEndpoints"] == [
        {
            "port": "http",
            "path": "/metrics",
            "scheme": "https",
            "tlsConfig": {
                "ca": {"secret": {"name": "dray-http", "key": "ca.crt"}},
                "serverName": "test.data.svc.cluster.local",
            },
            "authorization": {"credentials": {"name": "dray-http", "key": "token"}},
        }
    ]


def test_without_a_certificate_probes_and_metrics_are_http(
    objects: list[dict[str, Any]], tmp_path: Path
) -> None:
    for workload in of_kind(objects, "StatefulSet") + of_kind(objects, "Deployment"):
        assert {container(workload)[probe]["httpGet"]["scheme"] for probe in PROBES} == {"HTTP"}
        assert "prometheus.io/scheme" not in workload["spec"]["template"]["metadata"]["annotations"]
    values = {"plaintext": True, "monitoring": {"podMonitor": True}}
    [monitor] = of_kind(render(tmp_path, CHART, values), "PodMonitor")
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "http", "path": "/metrics"}]


def test_what_prometheus_needs_beyond_that_is_given(tmp_path: Path) -> None:
    other = {
        "interval": "15s",
        "authorization": {"credentials": {"name": "scraper", "key": "one"}},
        "tlsConfig": {"serverName": "dray"},
    }
    values = {**OVER_HTTPS, "monitoring": {"podMonitor": True, "endpoint": other}}
    [monitor] = of_kind(render(tmp_path, CHART, values), "PodMonitor")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["interval"], endpoint["scheme"]) == ("15s", "https")
    assert endpoint["authorization"] == other["authorization"]
    assert endpoint["tlsConfig"]["serverName"] == "dray"
    assert endpoint["tlsConfig"]["ca"] == {"secret": {"name": "dray-http", "key": "ca.crt"}}


def test_files_that_no_pod_would_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        RuntimeError, match=r"config\.http\.\w+ = /etc/dray-http/.*: give the Secret .* httpSecret"
    ):
        render(tmp_path, CHART, {**OVER_HTTPS, "httpSecret": ""})


def notes(directory: Path, values: dict[str, Any]) -> str:
    """What Helm says after an installation: only a cluster has it said, so it is rendered as an object."""
    chart = directory / "chart"
    shutil.copytree(CHART, chart, dirs_exist_ok=True)
    said = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "notes.yaml").write_text("kind: Notes\nsaid: |\n" + textwrap.indent(said, "  "))
    [found] = of_kind(render(directory, chart, values), "Notes")
    return str(found["said"])


def test_the_notes_send_query_engines_to_a_role_of_their_own(tmp_path: Path) -> None:
    assert 'under "Who can destroy what"' in notes(tmp_path, ZONES)
    page = (Path(__file__).parents[2] / "docs" / "table-changes.md").read_text()
    assert "s3:DeleteObject" in page.partition("## Who can destroy what\n")[2]


def test_the_notes_say_how_the_first_user_is_added_where_users_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "user add" not in notes(tmp_path, ZONES)
    secure = {"port": 9094, "protocol": "SASL_PLAINTEXT"}
    said = notes(tmp_path, {**ZONES, "listeners": {"SECURE": secure}})
    [line] = [each for each in said.splitlines() if "user add" in each]
    in_pod, _, secret = line.partition(" -- drayd ")[2].partition(" < ")
    assert secret == "admin.password"
    file = tmp_path / "dray.yaml"
    file.write_text(f"data_dir: {tmp_path / 'data'}\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"correct-horse\n")))
    with pytest.raises(SystemExit) as ended:
        main(in_pod.replace("/etc/dray/dray.yaml", str(file)).split())
    assert ended.value.code == 0
    assert "user admin has a password" in capsys.readouterr().out


def test_what_watches_the_cluster_comes_if_asked_for(tmp_path: Path, objects: list[dict[str, Any]]) -> None:
    kinds = ("PrometheusRule", "PodMonitor")
    assert [found for found in objects if found["kind"] in kinds] == []
    values = {**ZONES, "monitoring": {"dashboards": True, "rules": True, "podMonitor": True}}
    found = render(tmp_path, CHART, values)
    [rules] = of_kind(found, "PrometheusRule")
    assert rules["spec"] == yaml.safe_load(alerts.FILE.read_text())
    [boards] = [
        each for each in of_kind(found, "ConfigMap") if "grafana_dashboard" in each["metadata"]["labels"]
    ]
    for board in dashboards.DASHBOARDS:
        assert json.loads(boards["data"][f"dray-{board.name}.json"]) == json.loads(dashboards.rendered(board))
    [monitor] = of_kind(found, "PodMonitor")
    for workload in of_kind(found, "StatefulSet") + of_kind(found, "Deployment"):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert "http" in {port["name"] for port in container(workload)["ports"]}
    job = f"data/{monitor['metadata']['name']}"  # as the operator calls it
    assert re.fullmatch(r"(.*/)?dray.*", job)
