"""TLS beside plaintext, of Dray and of Apache Kafka, in one run.

    python -m bench.tls [--runs 3] [--without-kafka] [--client java] [--compression lz4] [--size 10240]
                        [--rate 100] [--records N] [--tls 1.3]

Each broker has both listeners. Runs alternate between all of them, forwards and backwards, since the machine
may be shared; what is printed are medians, and the ratio to plaintext of neighbouring runs. Seconds of
processor time per gigabyte say more than speed where client and broker share the cores.

What TLS costs depends on the client: Java's writes records of TLS of 16 KiB, librdkafka one for each piece of
a request: for each record, unless batches are compressed (note 0084). With --compression records are such
that lz4 halves them, and MB/s are those before compression.

A run is a gigabyte with librdkafka. With Java two are produced, and four are fetched (librdkafka writes the
other two): a JVM is slow at AES-GCM until it has compiled it, and a short run shows little else.

With --rate nothing is fetched, and what is printed is how long a produced record takes while so many
megabytes come in a second.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.services.certificates import Certificates, make_certificates
from tests.services.dray import DrayProcess
from tests.services.kafka import KafkaProcess
from tests.services.maven import JarsMissing
from tests.services.process import free_port

from bench import driver, java_clients
from bench.driver import Load
from bench.harness import Sample, Target, settle, watched
from bench.scenarios import RUN_SECONDS, sample_of

GIGABYTE = 1_000_000 << 10
JAVA_PRODUCED, JAVA_FETCHED = 2 * GIGABYTE, 4 * GIGABYTE
PARTITIONS = 16


@dataclass(frozen=True, slots=True)
class Work:
    """What one run does."""

    client: str
    size: int
    produced: int
    fetched: int
    rate: float = 0.0  # records in a second; 0: as many as go
    options: dict[str, object] = field(default_factory=dict)  # of librdkafka's producers


@dataclass
class Side:
    """A broker's listener, and how clients connect there."""

    name: str
    target: Target
    bootstrap: str
    options: dict[str, object] = field(default_factory=dict)
    produced: list[Sample] = field(default_factory=list)
    fetched: list[Sample] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tls", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--records", type=int, help="in each run")
    parser.add_argument("--size", type=int, default=1024, help="of a record, in bytes")
    parser.add_argument("--compression", default="none", help="of librdkafka's batches: lz4, zstd, ...")
    parser.add_argument("--rate", type=float, default=0.0, help="megabytes in a second, of librdkafka")
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--tls", default="1.3", choices=("1.2", "1.3"))
    parser.add_argument("--client", default="librdkafka", choices=("librdkafka", "java"))
    arguments = parser.parse_args()
    work = work_of(arguments)
    console = Console(highlight=False, width=150)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dray-tls-")))
        certificates = make_certificates(directory / "certificates")
        options = client_options(certificates, arguments.client, arguments.tls)
        sides = start_dray(stack, directory, certificates, options)
        if not arguments.without_kafka:
            try:
                sides += start_kafka(stack, directory, certificates, options)
            except JarsMissing as reason:
                console.print(f"without Kafka: {reason}")
        for number in range(arguments.runs + 1):
            for side in sides if number % 2 else sides[::-1]:
                produced, fetched = run(side, work)
                if number:  # the first one warms up
                    side.produced.append(produced)
                    if fetched is not None:
                        side.fetched.append(fetched)
        show(console, sides)


def work_of(arguments: argparse.Namespace) -> Work:
    java, size = arguments.client == "java", arguments.size
    if java and (arguments.rate or arguments.compression != "none"):
        raise SystemExit("--rate and --compression are for librdkafka: leave --client java out")
    options: dict[str, object] = {}
    if arguments.compression != "none":
        options = {"payload": "words", "compression.type": arguments.compression}
    return Work(
        arguments.client,
        size,
        arguments.records or (JAVA_PRODUCED if java else GIGABYTE) // size,
        0 if arguments.rate else arguments.records or (JAVA_FETCHED if java else GIGABYTE) // size,
        arguments.rate * 1e6 / size,
        options,
    )


def client_options(certificates: Certificates, client: str, tls: str) -> dict[str, object]:
    if client == "java":
        return java_clients.tls_options(certificates.authority) | {"ssl.enabled.protocols": f"TLSv{tls}"}
    options: dict[str, object] = {
        "security.protocol": "SSL",
        "ssl.ca.location": certificates.authority,
        "ssl.sigalgs.list": "ECDSA+SHA256:RSA+SHA256:RSA-PSS+SHA256",
    }
    if tls == "1.2":
        options["ssl.cipher.suites"] = "ECDHE-ECDSA-AES256-GCM-SHA384"
    return options


def start_dray(
    stack: ExitStack, directory: Path, made: Certificates, options: dict[str, object]
) -> list[Side]:
    port = free_port()
    listener = (
        f'{{"address": "127.0.0.1:{port}", "protocol": "SSL", "certificate_file": "{made.certificate}", '
        f'"key_file": "{made.key}"}}'
    )
    process = DrayProcess(
        directory / "dray",
        settings={"DRAY_BROKER__LISTENERS__TLS": listener},
    )
    stack.enter_context(process)
    target = Target("Dray", process, process.bootstrap)
    return [
        Side("Dray", target, process.bootstrap),
        Side("Dray TLS", target, f"127.0.0.1:{port}", options),
    ]


def start_kafka(
    stack: ExitStack, directory: Path, made: Certificates, options: dict[str, object]
) -> list[Side]:
    plain, encrypted, controller = free_port(), free_port(), free_port()
    both = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{encrypted}"
    store = directory / "kafka.pem"
    store.write_text(made.key.read_text() + made.certificate.read_text())
    process = KafkaProcess(
        directory / "kafka",
        {
            "listeners": f"{both},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "advertised.listeners": both,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
        },
    )
    process.port = plain
    stack.enter_context(process)
    target = Target("Kafka", process, process.bootstrap)
    return [
        Side("Kafka", target, process.bootstrap),
        Side("Kafka TLS", target, f"127.0.0.1:{encrypted}", options),
    ]


def run(side: Side, work: Work) -> tuple[Sample, Sample | None]:
    """Produce, then read all of it from the start."""
    with side.target.topic(PARTITIONS) as topic:
        settle()
        with watched(side.target.server.pid) as usage:
            load = produce(side, topic, work)
        produced = sample_of(load, usage)
        if not work.fetched:
            return produced, None
        if work.fetched > work.produced:
            missing = {"records": work.fetched - work.produced, "size": work.size, "timeout": RUN_SECONDS}
            driver.produce(side.target.bootstrap, topic, **missing).result(RUN_SECONDS)
        settle()
        with watched(side.target.server.pid) as usage:
            load = fetch(side, topic, work)
        return produced, sample_of(load, usage)


def produce(side: Side, topic: str, work: Work) -> Load:
    if work.client == "java":
        return java_clients.produce(
            side.bootstrap, topic, records=work.produced, size=work.size, options=side.options
        )
    options: dict[str, object] = {"timeout": RUN_SECONDS, "records": work.produced, "size": work.size}
    options |= {"acks": "all", "rate": work.rate, **work.options, **side.options}
    return driver.produce(side.bootstrap, topic, **options).result(RUN_SECONDS)


def fetch(side: Side, topic: str, work: Work) -> Load:
    if work.client == "java":
        return java_clients.fetch(
            side.bootstrap, topic, records=work.fetched, size=work.size, options=side.options
        )
    common: dict[str, object] = {"timeout": RUN_SECONDS, "records": work.fetched, **side.options}
    return driver.fetch(side.bootstrap, topic, partitions=PARTITIONS, **common).result(RUN_SECONDS)


def show(console: Console, sides: list[Side]) -> None:
    columns = ["", "what", "MB/s", "of plain", "CPU s/GB", "of plain", "client CPU s/GB", "peak MB"]
    table = Table(*columns, "p50 ms", "p99 ms")
    for kind in ("produced", "fetched"):
        for side in sides:
            samples: list[Sample] = getattr(side, kind)
            if not samples:
                continue
            plain = next(other for other in sides if other.name == side.name.split()[0])
            beside: list[Sample] = getattr(plain, kind)

            def median(of: str, samples: list[Sample] = samples) -> float:
                return float(statistics.median(getattr(sample, of) for sample in samples))

            pairs = list(zip(samples, beside, strict=True))
            speed = statistics.median(a.megabytes_per_second / b.megabytes_per_second for a, b in pairs)
            cpu = statistics.median(a.cpu_seconds_per_gigabyte / b.cpu_seconds_per_gigabyte for a, b in pairs)
            table.add_row(
                side.name,
                kind,
                f"{median('megabytes_per_second'):,.0f}",
                f"{speed:.2f}x",
                f"{median('cpu_seconds_per_gigabyte'):.2f}",
                f"{cpu:.2f}x",
                f"{median('client_cpu_seconds_per_gigabyte'):.2f}",
                f"{median('peak_megabytes'):,.0f}",
                f"{median('p50_ms'):.1f}" if median("p50_ms") else "",
                f"{median('p99_ms'):.1f}" if median("p99_ms") else "",
            )
    console.print(table)


if __name__ == "__main__":
    main()
