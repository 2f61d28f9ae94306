"""TLS beside plaintext, of Dray and of Apache Kafka, in one run.

    python -m bench.tls [--runs 3] [--records 1000000] [--without-kafka] [--tls 1.3] [--library bundled]
                        [--client java]

Each broker has both listeners. Runs alternate between all of them, forwards and backwards, since the machine
may be shared; what is printed are medians, and the ratio to plaintext of neighbouring runs. Seconds of
processor time per gigabyte say more than speed where client and broker share the cores.

What TLS costs depends on the client: Java's writes records of TLS of 16 KiB, librdkafka one for each piece of
a request (note 0084).
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

RECORD_BYTES = 1024
PARTITIONS = 16
GOAL = 0.6


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
    parser.add_argument("--records", type=int, default=1_000_000, help="of 1 KiB, in each run")
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--tls", default="1.3", choices=("1.2", "1.3"))
    parser.add_argument("--library", default="bundled", choices=("bundled", "system"), help="of Dray's TLS")
    parser.add_argument("--client", default="librdkafka", choices=("librdkafka", "java"))
    arguments = parser.parse_args()
    console = Console(highlight=False, width=150)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dray-tls-")))
        certificates = make_certificates(directory / "certificates")
        options = client_options(certificates, arguments.client, arguments.tls)
        sides = start_dray(stack, directory, certificates, options, arguments.library)
        if not arguments.without_kafka:
            try:
                sides += start_kafka(stack, directory, certificates, options)
            except JarsMissing as reason:
                console.print(f"without Kafka: {reason}")
        for number in range(arguments.runs + 1):
            for side in sides if number % 2 else sides[::-1]:
                produced, fetched = run(side, arguments.records, arguments.client)
                if number:  # the first one warms up
                    side.produced.append(produced)
                    side.fetched.append(fetched)
        show(console, sides)


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
    stack: ExitStack,
    directory: Path,
    made: Certificates,
    options: dict[str, object],
    library: str = "bundled",
) -> list[Side]:
    port = free_port()
    listener = (
        f'{{"address": "127.0.0.1:{port}", "protocol": "SSL", "certificate_file": "{made.certificate}", '
        f'"key_file": "{made.key}"}}'
    )
    process = DrayProcess(
        directory / "dray",
        settings={"DRAY_BROKER__LISTENERS__TLS": listener, "DRAY_SECURITY__TLS_LIBRARY": library},
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


def run(side: Side, records: int, client: str) -> tuple[Sample, Sample]:
    """Produce, then read all of it from the start."""
    with side.target.topic(PARTITIONS) as topic:
        settle()
        with watched(side.target.server.pid) as usage:
            load = produce(side, topic, records, client)
        produced = sample_of(load, usage)
        settle()
        with watched(side.target.server.pid) as usage:
            load = fetch(side, topic, records, client)
        return produced, sample_of(load, usage)


def produce(side: Side, topic: str, records: int, client: str) -> Load:
    if client == "java":
        return java_clients.produce(
            side.bootstrap, topic, records=records, size=RECORD_BYTES, options=side.options
        )
    common: dict[str, object] = {"timeout": RUN_SECONDS, "records": records, **side.options}
    return driver.produce(side.bootstrap, topic, acks="all", size=RECORD_BYTES, **common).result(RUN_SECONDS)


def fetch(side: Side, topic: str, records: int, client: str) -> Load:
    if client == "java":
        return java_clients.fetch(
            side.bootstrap, topic, records=records, size=RECORD_BYTES, options=side.options
        )
    common: dict[str, object] = {"timeout": RUN_SECONDS, "records": records, **side.options}
    return driver.fetch(side.bootstrap, topic, partitions=PARTITIONS, **common).result(RUN_SECONDS)


def show(console: Console, sides: list[Side]) -> None:
    table = Table("", "what", "MB/s", "of plain", "CPU s/GB", "of plain", "client CPU s/GB", "peak MB")
    for kind in ("produced", "fetched"):
        for side in sides:
            samples: list[Sample] = getattr(side, kind)
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
            )
    console.print(table)
    console.print(f"the goal: TLS at least {GOAL}x of plaintext, and at least what Kafka has with TLS")


if __name__ == "__main__":
    main()
