"""`drayd up` and `drayd broker` as processes: they start, say what is in their way, and stop."""

from __future__ import annotations

import json
import os
import pty
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.services.consumers import wait_for
from tests.services.dray import DrayProcess, drayd_path
from tests.services.process import free_port


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a drayd that should end by itself."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DRAY_")}
    return subprocess.run(
        [str(drayd_path()), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment | settings,
        check=False,
    )


def refused(ran: subprocess.CompletedProcess[str], code: int = 1) -> str:
    assert ran.returncode == code, ran
    assert ran.stderr.count("\n") == 1, ran.stderr
    assert ran.stdout == ""
    return ran.stderr


@pytest.fixture
def up(tmp_path: Path) -> Iterator[DrayProcess]:
    with DrayProcess(tmp_path / "up", subcommand="up") as process:
        assert isinstance(process, DrayProcess)
        yield process


def test_up_serves_clients_and_health_and_stops_cleanly(up: DrayProcess) -> None:
    assert up.http_status("/healthz") == 200
    assert up.http_status("/readyz") == 200
    producer = Producer({"bootstrap.servers": up.bootstrap, "enable.idempotence": True})
    producer.produce("greetings", b"hello")
    assert producer.flush(60) == 0
    metrics = up.http_text("/metrics")
    assert 'dray_requests_total{api="Produce",outcome="ok"} 1.0' in metrics
    assert "dray_carried_batches_total 1.0" in metrics, "it rode in its commit"
    assert "dray_wal_flush_bytes_count 0.0" in metrics
    assert up.terminate() == 0
    # One JSON object per line, since its standard error was no terminal.
    events = [json.loads(line)["event"] for line in up.log_tail().splitlines()]
    assert "broker is serving" in events
    assert events[-1] == "broker has stopped"


def test_what_is_stored_is_for_nobody_else(up: DrayProcess) -> None:
    """Records and the keys of users. A directory that others may enter is told, and left as it is."""
    producer = Producer({"bootstrap.servers": up.bootstrap})
    for value in (b"carried", os.urandom(900_000)):
        producer.produce("private", value)
        assert producer.flush(60) == 0
    directory = up.data_directory
    found = [directory, *directory.rglob("*")]
    names = {path.name for path in found}
    assert {"metadata.sqlite", "metadata.sqlite-wal", "metadata.sqlite-shm", "objects", "lock"} <= names
    assert any(path.is_file() and directory / "objects" in path.parents for path in found)
    open_to_others = [path for path in found if path.stat().st_mode & 0o077]
    assert open_to_others == []
    assert "chmod 700" not in up.log_tail()
    assert up.terminate() == 0
    directory.chmod(0o755)
    up.start()
    warned = [line for line in map(json.loads, up.log_tail().splitlines()) if "chmod 700" in line["event"]]
    assert [(line["level"], line["directory"]) for line in warned] == [("warning", str(directory))]
    assert directory.stat().st_mode & 0o777 == 0o755


def test_records_are_there_after_a_restart_and_after_a_kill(up: DrayProcess) -> None:
    stops: list[Callable[[], object]] = [up.terminate, up.kill]
    for number, stop in enumerate(stops):
        producer = Producer({"bootstrap.servers": up.bootstrap})
        producer.produce("kept", b"record")
        assert producer.flush(60) == 0
        stop()
        up.start()
        described = json.loads(
            run("admin", "topics", "describe", "kept", "--json", "--bootstrap", up.bootstrap).stdout
        )
        assert described[0]["partitions"][0]["end"] == number + 1


def test_a_file_that_only_the_migrator_may_read_does_not_stop_a_broker(tmp_path: Path) -> None:
    file = tmp_path / "of-the-migrator.properties"
    source = {"bootstrap": "127.0.0.1:1", "command_config": str(file)}
    settings = {"DRAY_UPSTREAM__CLUSTERS": json.dumps({"old": source})}
    with DrayProcess(tmp_path / "broker", settings=settings) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("greetings", b"hello")
        assert producer.flush(60) == 0
        assert broker.terminate() == 0
        [line] = [line for line in broker.log_tail().splitlines() if "is not passed on to a source" in line]
        assert (json.loads(line)["upstream"], json.loads(line)["level"]) == ("old", "error")
    migrator = run("migrator", "--data-dir", str(tmp_path / "migrator"), **settings)
    assert "cannot read" in refused(migrator, 2)


def test_a_second_up_on_the_same_directory_says_so(up: DrayProcess) -> None:
    ran = run("up", "--data-dir", str(up.data_directory), "--listen", "127.0.0.1:0", "--http", "off")
    assert refused(ran) == (
        f"drayd: drayd is already running on {up.data_directory} (pid {up.pid}): "
        "stop it, or choose another --data-dir\n"
    )


def test_a_second_up_on_the_same_port_says_so(up: DrayProcess, tmp_path: Path) -> None:
    ran = run("up", "--data-dir", str(tmp_path / "other"), "--listen", up.bootstrap, "--http", "off")
    assert refused(ran) == (
        f"drayd: the address {up.bootstrap} is already in use: "
        "stop what listens there, or choose another --listen\n"
    )


def test_a_taken_http_port_says_so(up: DrayProcess, tmp_path: Path) -> None:
    http = f"127.0.0.1:{up.http_port}"
    ran = run(
        *("up", "--data-dir", str(tmp_path / "other"), "--listen", "127.0.0.1:0", "--http", http),
        DRAY_LOGGING__LEVEL="error",
    )
    assert refused(ran) == (
        f"drayd: the address {http} is already in use: stop what listens there, or choose another --http\n"
    )


def test_brokers_share_a_directory_but_not_an_id(tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = DrayProcess(tmp_path / "a", data_directory=data, arguments=["--broker-id", "7"])
    second = DrayProcess(tmp_path / "b", data_directory=data)
    with first, second:
        ran = run("broker", "--data-dir", str(data), "--listen", "127.0.0.1:0", "--broker-id", "7")
        assert refused(ran) == (
            f"drayd: broker 7 is already running on {data} (pid {first.pid}): "
            "stop it, or choose another --broker-id\n"
        )
        cluster = json.loads(run("admin", "cluster", "--json", "--bootstrap", second.bootstrap).stdout)
        assert {(broker["id"], broker["port"]) for broker in cluster["brokers"]} == {
            (7, first.port),
            (0, second.port),
        }
        assert first.terminate() == 0
        assert second.terminate() == 0


def test_an_id_taken_elsewhere_is_one_line(tmp_path: Path) -> None:
    """Another data directory, the same metadata: only the metadata store can tell."""
    settings = {
        "DRAY_METADATA__PATH": str(tmp_path / "metadata.sqlite"),
        "DRAY_OBJECTS__URL": f"file:{tmp_path / 'objects'}",
        "DRAY_BROKER__SESSION_TTL": "2s",
        "DRAY_LOGGING__LEVEL": "error",
    }
    with DrayProcess(tmp_path / "a", settings=settings, arguments=["--broker-id", "7"]) as first:
        assert isinstance(first, DrayProcess)
        arguments = ["--data-dir", str(tmp_path / "b"), "--listen", "127.0.0.1:0", "--http", "off"]
        ran = run("broker", *arguments, "--broker-id", "7", **settings)
        assert refused(ran) == (
            f"drayd: broker id 7 is taken by the broker at {first.bootstrap}: "
            "give this one another id, or stop that one\n"
        )


def test_a_killed_broker_gets_its_id_back_at_once(tmp_path: Path) -> None:
    process = DrayProcess(
        tmp_path, arguments=["--broker-id", "7"], settings={"DRAY_BROKER__SESSION_TTL": "5m"}
    )
    with process:
        process.kill()
        process.start(timeout=120)  # far less than the session of the one before would last


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (["PRAGMA application_id = 1148346745", "PRAGMA user_version = 99"], "written by a newer Dray"),
        (["CREATE TABLE strangers (name TEXT)"], "not one of Dray's"),
    ],
)
def test_a_metadata_file_that_is_not_ours_is_left_alone(
    tmp_path: Path, statements: Sequence[str], reason: str
) -> None:
    path = tmp_path / "metadata.sqlite"
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    before = path.read_bytes()
    ran = run("up", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--http", "off")
    assert reason in refused(ran)
    assert path.read_bytes() == before


def test_an_object_store_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text("a file where the folder should be")
    ran = run("up", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--http", "off")
    assert refused(ran).startswith(f"drayd: cannot open the object store file:{tmp_path / 'objects'}: ")


def test_object_options_that_make_no_sense_are_a_wrong_config(tmp_path: Path) -> None:
    ran = run("up", "--data-dir", str(tmp_path), DRAY_OBJECTS__OPTIONS__REGION="eu")
    assert "it has no option 'region'" in refused(ran, code=2)


def test_an_address_that_is_not_this_machines_is_one_line(tmp_path: Path) -> None:
    ran = run("up", "--data-dir", str(tmp_path), "--listen", "192.0.2.1:9092", "--http", "off")
    assert refused(ran).startswith("drayd: cannot listen on 192.0.2.1:9092: ")
    ran = run(
        *("up", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--http", "192.0.2.1:80"),
        DRAY_LOGGING__LEVEL="error",
    )
    assert refused(ran).startswith("drayd: cannot listen on 192.0.2.1:80: ")


def test_a_terminal_gets_a_banner_and_ctrl_c_stops(tmp_path: Path) -> None:
    port = free_port()
    pid, terminal = pty.fork()
    if pid == 0:
        arguments = ["up", "--data-dir", str(tmp_path), "--listen", f"127.0.0.1:{port}", "--http", "off"]
        os.execv(drayd_path(), ["drayd", *arguments])
    try:
        shown = ""
        while "Ctrl-C" not in shown:
            shown += os.read(terminal, 65536).decode()
    finally:
        os.kill(pid, signal.SIGINT)
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    assert "Dray is up." in shown
    assert f"kcat -b 127.0.0.1:{port}" in shown
    assert os.waitstatus_to_exitcode(status) == 0


def test_hanging_up_reads_again_and_ends_nothing(tmp_path: Path) -> None:
    """In the broker, and in the compactor or console that runs beside it."""
    config = tmp_path / "dray.yaml"
    config.write_text("logging: {level: error}\n")
    beside = {"DRAY_CONSOLE__ENABLED": "true", "DRAY_CONSOLE__LISTEN": f"127.0.0.1:{free_port()}"}
    arguments = ("--config", str(config))
    with DrayProcess(tmp_path / "up", subcommand="up", settings=beside, arguments=arguments) as up:
        assert isinstance(up, DrayProcess)
        config.write_text("logging: {level: info}\n")
        os.kill(up.pid, signal.SIGHUP)
        wait_for("both have read it", lambda: up.log_tail().count("read again: files of") == 2)
        assert up.http_status("/readyz") == 200
        assert up.terminate() == 0
        assert "is started again" not in up.log_tail()


def test_a_terminal_that_goes_takes_up_with_it(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        arguments = ["up", "--data-dir", str(tmp_path), "--listen", f"127.0.0.1:{free_port()}"]
        os.execv(drayd_path(), ["drayd", *arguments, "--http", "off", "--no-console", "--no-compactor"])
    shown = ""
    while "Ctrl-C" not in shown:
        shown += os.read(terminal, 65536).decode()
    os.close(terminal)  # the kernel hangs up
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_gc_tells_what_it_saw(up: DrayProcess) -> None:
    producer = Producer({"bootstrap.servers": up.bootstrap})
    producer.produce("collected", bytes(20_000))  # too large to be carried: it makes an object
    assert producer.flush(60) == 0
    assert (
        run("admin", "topics", "delete", "collected", "--execute", "--bootstrap", up.bootstrap).returncode
        == 0
    )
    assert up.terminate() == 0
    soon_sure = {"DRAY_CLUSTER__TALLY_INTERVAL": "500ms"}
    seen = json.loads(run("admin", "gc", "--data-dir", str(up.data_directory), "--json", **soon_sure).stdout)
    assert seen["objects"] == 1
    assert seen["audited"] == 1
    table = run("admin", "gc", "--data-dir", str(up.data_directory), "--now", **soon_sure).stdout
    assert "audited" in table
