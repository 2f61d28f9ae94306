"""The C load generator: compiled once, run as processes. See `driver.c`."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.services.tools import cache_directory

SOURCE = Path(__file__).with_name("driver.c")


class DriverFailed(Exception):
    """The load generator did not finish its work: the run counts for nothing."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one client process did."""

    records: int
    bytes: int
    seconds: float
    cpu_seconds: float
    p50_ms: float = 0.0  # until records are acknowledged, where they are sent at a rate
    p99_ms: float = 0.0

    @property
    def megabytes_per_second(self) -> float:
        return self.bytes / self.seconds / 1e6

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds


def librdkafka() -> Path:
    """The library inside the confluent-kafka wheel: pinned by the lock file, alike on every machine."""
    package = importlib.util.find_spec("confluent_kafka")
    if package is None or package.origin is None:
        raise DriverFailed("confluent-kafka is not installed")
    bundled = Path(package.origin).parent.parent / "confluent_kafka.libs"
    libraries = sorted(bundled.glob("librdkafka-*.so*"))
    if not libraries:
        raise DriverFailed("this confluent-kafka wheel bundles no librdkafka")
    return libraries[0]


def compile_driver() -> Path:
    library = librdkafka()
    digest = hashlib.sha256(SOURCE.read_bytes() + str(library).encode()).hexdigest()[:16]
    program = cache_directory() / f"driver-{digest}"
    if not program.exists():
        unfinished = program.with_suffix(".new")
        command = [
            "gcc",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            str(SOURCE),
            "-o",
            str(unfinished),
            str(library),
        ]
        subprocess.run([*command, f"-Wl,-rpath,{library.parent}"], check=True, timeout=60)
        unfinished.rename(program)
    return program


class Driver:
    """One client process, running."""

    def __init__(self, mode: str, bootstrap: str, topic: str, options: Mapping[str, object]) -> None:
        pairs = [f"{key}={str(value).lower()}" for key, value in options.items()]
        self._process = subprocess.Popen(
            [str(compile_driver()), mode, bootstrap, topic, *pairs],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self) -> None:
        """A fetch from the latest offsets says when it knows them: what is produced after that is read."""
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            raise DriverFailed(self._process.communicate()[1].strip())

    def result(self, timeout: float = 300.0) -> Load:
        try:
            output, errors = self._process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise DriverFailed(f"the driver did not finish in {timeout:.0f} s") from None
        if self._process.returncode != 0:
            raise DriverFailed(f"{output}{errors}".strip())
        answer = json.loads(output.splitlines()[-1])
        return Load(
            records=int(answer["records"]),
            bytes=int(answer["bytes"]),
            seconds=float(answer["seconds"]),
            cpu_seconds=float(answer["cpu_seconds"]),
            p50_ms=float(answer["p50_ms"]),
            p99_ms=float(answer["p99_ms"]),
        )


def produce(bootstrap: str, topic: str, **options: object) -> Driver:
    return Driver("produce", bootstrap, topic, options)


def fetch(bootstrap: str, topic: str, **options: object) -> Driver:
    return Driver("fetch", bootstrap, topic, options)
