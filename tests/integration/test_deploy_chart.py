"""The chart passes Helm's checks, and what it renders is a config and commands that Dray takes."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.services.helm import render, run_helm
from tools import alerts, dashboards

from dray.cli.main import load_command, main
from dray.config import Settings, load

pytestmark = pytest.mark.timeout(1000)  # the first run builds Helm

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "dray"
THREE_ZONES = {
    "zones": [
        {"name": f"eu-west-1{zone}", "brokers": 2, "nodeSelector": {"topology.kubernetes.io/zone": zone}}
        for zone in "abc"
    ],
    "existingSecret": "dray-credentials",
}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return render(tmp_path_factory.mktemp("chart"), CHART, THREE_ZONES)


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [found for found in objects if found["kind"] == kind]


def container(workload: dict[str, Any]) -> dict[str, Any]:
    [only] = workload["spec"]["template"]["spec"]["containers"]
    return dict(only)


def settings_in(pod: str, objects: list[dict[str, Any]], workload: dict[str, Any], path: Path) -> Settings:
    """As a pod of that name would load them."""
    [config] = of_kind(objects, "ConfigMap")
    file = path / "dray.yaml"
    file.write_text(config["data"]["dray.yaml"])
    variables = {
        variable["name"]: variable.get("value", pod).replace("$(POD_NAME)", pod)
        for variable in container(workload).get("env", ())
    }
    return load(file, variables).settings


@pytest.mark.parametrize("values", [(), ("--set", "broker.autoscaling.enabled=true")])
def test_helm_finds_nothing_wrong(tmp_path: Path, values: tuple[str, ...]) -> None:
    assert "0 chart(s) failed" in run_helm(tmp_path, "lint", "--strict", str(CHART), *values)


def test_a_zone_has_brokers_of_its_own(objects: list[dict[str, Any]], tmp_path: Path) -> None:
    sets = of_kind(objects, "StatefulSet")
    assert len(sets) == 3
    ids = set()
    for found in sets:
        zone = found["metadata"]["labels"]["dray/zone"]
        assert found["spec"]["template"]["spec"]["nodeSelector"]["topology.kubernetes.io/zone"] in zone
        for number in range(found["spec"]["replicas"]):
            pod = f"{found['metadata']['name']}-{number}"
            settings = settings_in(pod, objects, found, tmp_path)
            assert settings.broker.zone == settings.broker.rack == zone
            assert str(settings.broker.advertised) == f"{pod}.test-brokers.data.svc.cluster.local:9092"
            ids.add(broker_id(found, pod))
    assert ids == {0, 1, 1000, 1001, 2000, 2001}


def broker_id(workload: dict[str, Any], pod: str) -> int:
    """The id as the pod's own shell works it out, with a drayd that only says what it was given."""
    [script] = container(workload)["args"]
    assert container(workload)["command"] == ["tini", "--", "sh", "-c"]
    spoken = subprocess.run(
        ["sh", "-c", script.replace("exec drayd", "echo")],
        env={"POD_NAME": pod, "PATH": "/bin:/usr/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    name, *arguments = spoken
    with load_command(name).make_context(name, arguments) as context:
        assert str(context.params["config"]) == "/etc/dray/dray.yaml"
        return int(context.params["broker_id"])


def test_services_find_the_brokers(objects: list[dict[str, Any]]) -> None:
    services = {found["metadata"]["name"]: found["spec"] for found in of_kind(objects, "Service")}
    for found in of_kind(objects, "StatefulSet"):
        labels = found["spec"]["template"]["metadata"]["labels"]
        assert found["spec"]["serviceName"] in services
        assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()
        for service in services.values():
            assert service["selector"].items() <= labels.items()
        ports = {port["name"]: port["containerPort"] for port in container(found)["ports"]}
        assert ports == {"kafka": 9092, "http": 9644}
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


MIGRATION: dict[str, Any] = {
    **THREE_ZONES,
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
        assert set(volumes) == set(mounted)
    labels = pod["metadata"]["labels"]
    for service in of_kind(found, "Service"):
        assert not service["spec"]["selector"].items() <= labels.items()


def test_a_migrator_without_a_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"needs config\.upstream\.clusters"):
        render(tmp_path, CHART, {"migrator": {"enabled": True}})


def test_secrets_come_from_a_secret_and_pods_have_no_powers(objects: list[dict[str, Any]]) -> None:
    for workload in of_kind(objects, "StatefulSet") + of_kind(objects, "Deployment"):
        pod, only = workload["spec"]["template"]["spec"], container(workload)
        assert only["envFrom"] == [{"secretRef": {"name": "dray-credentials"}}]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert only["securityContext"]["allowPrivilegeEscalation"] is False
        assert only["securityContext"]["readOnlyRootFilesystem"] is True
        mounted = {mount["mountPath"]: mount["name"] for mount in only["volumeMounts"]}
        assert mounted.keys() == {"/etc/dray", "/var/lib/dray", "/tmp"}, "all that can be written to"
        assert set(mounted.values()) == {volume["name"] for volume in pod["volumes"]}
        assert pod["enableServiceLinks"] is False
        grace = workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert grace >= 2 * Settings().broker.shutdown_grace + 5
    assert of_kind(objects, "Secret") == []


def autoscaled(**zone: Any) -> dict[str, Any]:
    zones = [{"name": "eu.a", "brokers": 2, **zone}, {"name": "eu.b", "brokers": 3}]
    return {"zones": zones, "broker": {"autoscaling": {"enabled": True, "maxBrokers": 8}}}


def test_an_autoscaler_has_the_brokers_of_its_zone_and_nothing_else_sets_their_number(tmp_path: Path) -> None:
    objects = render(tmp_path, CHART, autoscaled(maxBrokers=4))
    sets = {found["metadata"]["name"]: found for found in of_kind(objects, "StatefulSet")}
    scalers = of_kind(objects, "HorizontalPodAutoscaler")
    assert [scaler["spec"]["scaleTargetRef"] for scaler in scalers] == [
        {"apiVersion": found["apiVersion"], "kind": found["kind"], "name": name}
        for name, found in sets.items()
    ]
    bounds = [(scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) for scaler in scalers]
    assert bounds == [(2, 4), (3, 8)]
    for scaler in scalers:
        [metric] = scaler["spec"]["metrics"]
        assert metric["resource"]["name"] == "cpu"
        assert metric["resource"]["target"] == {"type": "Utilization", "averageUtilization": 70}
        down = scaler["spec"]["behavior"]["scaleDown"]
        assert [(policy["type"], policy["value"]) for policy in down["policies"]] == [("Pods", 1)]
        assert down["stabilizationWindowSeconds"] == 600
    for found in sets.values():
        assert "replicas" not in found["spec"], "an upgrade would undo what the autoscaler did"
        assert container(found)["resources"]["requests"]["cpu"] == "1", "that is what 70 % are of"
    [compactor] = of_kind(objects, "Deployment")
    assert compactor["spec"]["replicas"] == 1


def test_an_autoscaler_is_off_unless_it_is_asked_for(objects: list[dict[str, Any]]) -> None:
    assert of_kind(objects, "HorizontalPodAutoscaler") == []
    assert [found["spec"]["replicas"] for found in of_kind(objects, "StatefulSet")] == [2, 2, 2]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (autoscaled(maxBrokers=1), "zone eu.a: maxBrokers 1 is not between its 2 brokers and 1000"),
        (autoscaled(maxBrokers=1001), "zone eu.a: maxBrokers 1001 is not between"),
        (
            {"broker": {"autoscaling": {"enabled": True}, "resources": {"requests": {"cpu": None}}}},
            "needs broker.resources.requests.cpu",
        ),
    ],
)
def test_an_autoscaler_that_could_not_work_is_refused(
    tmp_path: Path, values: dict[str, Any], says: str
) -> None:
    with pytest.raises(RuntimeError, match=re.escape(says)):
        render(tmp_path, CHART, values)


def test_the_defaults_render_and_a_compactor_can_be_left_out(tmp_path: Path) -> None:
    plain = render(tmp_path, CHART, {"compactor": {"enabled": False}})
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
    values = {**THREE_ZONES, "listeners": {"SECURE": secure, "MUTUAL": mutual}, "tlsSecret": "dray-tls"}
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
    assert ports == {9092, 9644, 9094, 9095}
    for service in of_kind(found, "Service"):
        assert {9094, 9095} <= {port["port"] for port in service["spec"]["ports"]}
    mounted = {mount["name"]: mount["mountPath"] for mount in container(brokers)["volumeMounts"]}
    assert mounted["tls"] == "/etc/dray-tls"
    volumes = {volume["name"]: volume for volume in brokers["spec"]["template"]["spec"]["volumes"]}
    assert volumes["tls"]["secret"] == {"secretName": "dray-tls"}


OVER_HTTPS: dict[str, Any] = {
    **MIGRATION,
    "compactor": {"enabled": True},
    "httpSecret": "dray-http",
    "monitoring": {"podMonitor": True},
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
    assert len(workloads) == 5
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
    [monitor] = of_kind(found, "PodMonitor")
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
    [monitor] = of_kind(render(tmp_path, CHART, {"monitoring": {"podMonitor": True}}), "PodMonitor")
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "http", "path": "/metrics"}]


def test_what_prometheus_needs_beyond_that_is_given(tmp_path: Path) -> None:
    other = {
        "interval": "15s",
        "authorization": {"credentials": {"name": "scraper", "key": "one"}},
        "tlsConfig": {"serverName": "dray"},
    }
    values = {**OVER_HTTPS, "monitoring": {"podMonitor": True, "podMonitorEndpoint": other}}
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


def test_the_notes_say_how_the_first_user_is_added_where_users_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "user add" not in notes(tmp_path, THREE_ZONES)
    secure = {"port": 9094, "protocol": "SASL_PLAINTEXT"}
    said = notes(tmp_path, {**THREE_ZONES, "listeners": {"SECURE": secure}})
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
    values = {**THREE_ZONES, "monitoring": {"dashboards": True, "rules": True, "podMonitor": True}}
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
