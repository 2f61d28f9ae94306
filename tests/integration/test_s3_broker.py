"""A broker with its objects on a real S3 server: what was acknowledged survives the end of both."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.services.counting import CountingProducer
from tests.services.dray import DrayProcess, drayd_path
from tests.services.logbook import read_partition
from tests.services.process import free_port
from tests.services.s3 import ACCESS_KEY, BUCKET, SECRET_KEY, S3Process
from tests.services.topics import create_topic

TOPIC = "on-s3"
PARTITIONS = 3
URL = f"s3://{BUCKET}/some/prefix"


def settings_of(options: Mapping[str, str], secrets: Mapping[str, str], url: str = URL) -> dict[str, str]:
    settings = {"DRAY_OBJECTS__URL": url}
    settings |= {f"DRAY_OBJECTS__OPTIONS__{name.upper()}": value for name, value in options.items()}
    return settings | {f"DRAY_OBJECTS__SECRETS__{name.upper()}": value for name, value in secrets.items()}


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Process]:
    with S3Process(tmp_path / "s3") as server:
        yield server


def test_nothing_acknowledged_is_lost_when_s3_and_the_broker_are_killed(
    tmp_path: Path, s3: S3Process
) -> None:
    options = s3.options() | {"timeout": "2s", "backoff": "20ms", "max_backoff": "200ms"}
    settings = settings_of(options, s3.secrets()) | {"DRAY_LOG__FLUSH_LINGER": "20ms"}
    with DrayProcess(tmp_path / "drayd", settings=settings) as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        with CountingProducer(broker.bootstrap, TOPIC, PARTITIONS, name="sender", idempotent=True) as sender:
            sender.wait_for_progress(500)
            s3.kill()
            s3.start()
            sender.wait_for_progress(500)
            broker.kill()
            broker.start()
            sender.wait_for_progress(500)
            s3.freeze()
            time.sleep(0.5)  # a fault that lasts, not a wait for something
            s3.thaw()
            sender.wait_for_progress(500)
            s3.kill()
            broker.kill()
            s3.start()
            broker.start()
            sender.wait_for_progress(500)
            sender.finish()
        # A broker that remembers nothing: all of it comes from the bucket.
        broker.terminate()
        broker.start()
        for partition in range(PARTITIONS):
            sender.check(partition, read_partition(broker.bootstrap, TOPIC, partition))
        assert broker.terminate() == 0
    log = broker.log_path.read_text()
    assert SECRET_KEY not in log
    assert ACCESS_KEY not in log


# --- what keeps a broker from starting


def run_broker(tmp_path: Path, settings: Mapping[str, str]) -> tuple[int, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DRAY_", "AWS_"))}
    addresses = ("--http", "off", "--listen", f"127.0.0.1:{free_port()}")
    done = subprocess.run(
        [str(drayd_path()), "broker", "--data-dir", str(tmp_path / "data"), *addresses],
        env={**inherited, **settings},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


WRONG_KEYS = {"access_key_id": ACCESS_KEY, "secret_access_key": "a-wrong-hidden-key"}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"url": "s3://no-such-bucket/x"}, "the bucket does not exist: create it, or correct objects.url"),
        ({"secrets": WRONG_KEYS}, "access is refused: check objects.secrets"),
        ({"options": {"endpoint": "http://127.0.0.1:9"}}, "no answer: check objects.options.endpoint"),
        ({"options": {"region": "us-west-9"}}, "AuthorizationHeaderMalformed"),
    ],
    ids=["bucket", "credentials", "endpoint", "region"],
)
def test_what_cannot_work_is_one_line_at_the_start(
    tmp_path: Path, s3: S3Process, change: dict[str, dict[str, str]], line: str
) -> None:
    options = s3.options() | {"retries": "1", "backoff": "1ms"} | change.get("options", {})
    url = change.get("url", URL)
    assert isinstance(url, str)
    code, errors = run_broker(tmp_path, settings_of(options, change.get("secrets", s3.secrets()), url))
    assert code == 1
    assert errors.count("\n") == 1
    assert line in errors
    assert url in errors
    assert SECRET_KEY not in errors
    assert "a-wrong-hidden-key" not in errors


def test_a_bucket_that_may_only_be_read_is_one_line_at_the_start(tmp_path: Path) -> None:
    with S3Process(tmp_path / "s3", arguments=["--readonly"]) as s3:
        code, errors = run_broker(tmp_path, settings_of(s3.options(), s3.secrets()))
    assert code == 1
    assert errors.count("\n") == 1
    assert "access is refused" in errors
    assert "AccessDenied" in errors


@pytest.mark.parametrize(
    ("url", "options", "secrets", "line"),
    [
        ("s3://b", {"unsigned_payload": "true", "endpoint": "http://x"}, {}, "needs an https endpoint"),
        ("s3://b", {"ca_file": "/no/such.pem"}, {}, "cannot read /no/such.pem"),
        ("gs://b", {"colour": "blue"}, {}, "colour"),
        ("gs://b", {}, {"service_account_key": "not-json-and-hidden"}, "object store gs://b"),
        ("az://c", {"account_name": "me"}, {"access_key": "not base64, and hidden"}, "object store az://c"),
        ("az://c", {}, {}, "object store az://c"),
    ],
)
def test_options_that_make_no_sense_are_found_without_asking_anybody(
    tmp_path: Path, url: str, options: dict[str, str], secrets: dict[str, str], line: str
) -> None:
    code, errors = run_broker(tmp_path, settings_of(options, secrets, url))
    assert code == 2
    assert errors.count("\n") == 1
    assert line in errors
    assert "hidden" not in errors
