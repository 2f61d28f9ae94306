"""The compose file's cluster, end to end: its very commands and environment, on a network with its names."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Iterator

import pytest
from tests.services.compose import CLIENT, Compose
from tests.services.consumers import wait_for
from tests.services.tools import require_tool

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]  # the first run builds the image

RECORDS = [f"record {number}" for number in range(500)]


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    with Compose(tmp_path_factory.mktemp("compose")) as compose:
        yield compose


def kcat(compose: Compose, *arguments: str, sent: str = "") -> str:
    """A client on a host of its own in the network."""
    command = [*compose.network.on(CLIENT), str(require_tool("kcat")), *arguments]
    done = subprocess.run(command, input=sent, capture_output=True, text=True, timeout=240, check=True)
    return done.stdout


def test_records_go_through_one_broker_come_from_another_and_are_rows(compose: Compose) -> None:
    listed = json.loads(kcat(compose, "-b", "broker-a:9192", "-L", "-J"))
    assert {broker["name"] for broker in listed["brokers"]} == {f"{name}:9192" for name in compose.brokers}
    compose.run(
        "broker-a", "admin", "topics", "create", "orders", "--partitions", "1", "--bootstrap", "broker-a:9192"
    )
    kcat(compose, "-b", "broker-b:9192", "-P", "-t", "orders", "-p", "0", sent="\n".join(RECORDS) + "\n")
    read = kcat(
        compose, "-b", "broker-c:9192", "-C", "-t", "orders", "-p", "0", "-o", "beginning", "-e", "-q"
    )
    assert read.splitlines() == RECORDS
    compose.run("compactor", "compactor", "--once")
    printed = compose.run("compactor", "query", "select count(*) as n from orders", "--format", "csv")
    [row] = csv.DictReader(io.StringIO(printed))
    assert int(row["n"]) == len(RECORDS)
    again = kcat(
        compose, "-b", "broker-a:9192", "-C", "-t", "orders", "-p", "0", "-o", "beginning", "-e", "-q"
    )
    assert again.splitlines() == RECORDS, "read from the file now"


def test_the_healthcheck_of_the_file_passes_in_every_broker_and_fails_in_one_that_stopped(
    compose: Compose,
) -> None:
    for name in compose.brokers:
        assert healthy(compose, name)
    stopped = compose.processes["broker-c"]
    assert stopped.terminate(120) == 0
    assert not healthy(compose, "broker-c")
    wait_for("the others know", lambda: len(brokers_told(compose)) == 2)
    stopped.start(120)
    assert healthy(compose, "broker-c")


def healthy(compose: Compose, name: str) -> bool:
    """With the image's own Python, as the engine would run it."""
    kind, python, *arguments = compose.services[name]["healthcheck"]["test"]
    assert (kind, python) == ("CMD", "python")
    process = compose.processes[name]
    command = compose.image.command([], {}, process.volumes, entrypoint=["python", *arguments])
    return subprocess.run([*process.before, *command], capture_output=True, check=False).returncode == 0


def brokers_told(compose: Compose) -> set[str]:
    listed = json.loads(kcat(compose, "-b", "broker-a:9192", "-L", "-J"))
    return {broker["name"] for broker in listed["brokers"]}
