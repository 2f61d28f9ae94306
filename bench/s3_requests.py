"""What the flush settings cost in requests to S3: `python -m bench.s3_requests`.

A broker with its objects on a real S3 server, whose access log counts the requests. An object closes when it
reaches `log.object_bytes` or when its first record has waited for `log.flush_linger`; each metadata domain
fills its own. So a load of r bytes/s over D domains implies puts of min(object_bytes, r/D * linger) bytes.
Ends with 1 if what was counted is further than 10 % from that.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from tests.services.dray import DrayProcess
from tests.services.s3 import BUCKET, S3Process
from tests.services.topics import create_topic

MIB = 1024 * 1024
RECORD = 8 * 1024
TICK_SECONDS = 0.002
TOLERANCE = 0.1


@dataclass(frozen=True)
class Row:
    name: str
    domains: int
    linger_ms: int
    object_bytes: int
    total_bytes: int
    bytes_per_second: int


ROWS = (
    Row("size", 1, 10_000, 4 * MIB, 256 * MIB, 40 * MIB),
    Row("linger", 1, 100, 8 * MIB, 40 * MIB, 4 * MIB),
    Row("linger", 4, 100, 8 * MIB, 64 * MIB, 8 * MIB),
    Row("linger", 4, 250, 8 * MIB, 64 * MIB, 8 * MIB),
)


def produce(bootstrap: str, row: Row, partitions: int) -> float:
    """At the row's rate, evenly over the partitions and in time; the seconds it took."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 1,
            "batch.size": 16 * RECORD,
            "acks": "all",
            "log_level": 0,
        }
    )
    value = bytes(RECORD)
    began, sent = time.monotonic(), 0
    while sent * RECORD < row.total_bytes:
        due = min(row.total_bytes, int((time.monotonic() - began) * row.bytes_per_second)) // RECORD
        while sent < due:
            try:
                producer.produce("requests", value, partition=sent % partitions)
                sent += 1
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
        time.sleep(TICK_SECONDS)
    took = time.monotonic() - began
    if producer.flush(60):
        raise RuntimeError("not everything was acknowledged")
    return took


def measure(folder: Path, row: Row) -> bool:
    log = folder / "access.log"
    with S3Process(folder / "s3", arguments=["--access-log", str(log)]) as s3:
        options = {f"DRAY_OBJECTS__OPTIONS__{name.upper()}": value for name, value in s3.options().items()}
        secrets = {f"DRAY_OBJECTS__SECRETS__{name.upper()}": value for name, value in s3.secrets().items()}
        settings = {
            "DRAY_OBJECTS__URL": f"s3://{BUCKET}/bench",
            "DRAY_CLUSTER__DOMAINS": str(row.domains),
            "DRAY_LOG__FLUSH_LINGER": f"{row.linger_ms}ms",
            "DRAY_LOG__OBJECT_BYTES": str(row.object_bytes),
        }
        with DrayProcess(folder / "drayd", settings=options | secrets | settings) as broker:
            partitions = 4 * row.domains
            create_topic(broker.bootstrap, "requests", partitions)
            before = requests_in(log)
            took = produce(broker.bootstrap, row, partitions)
            counted = requests_in(log) - before
    rate = row.total_bytes / took / row.domains
    size = min(row.object_bytes, rate * row.linger_ms / 1000)
    implied, found = 1e9 / size, counted.total() / (row.total_bytes / 1e9)
    print(
        f"{row.name:>7} {row.domains:>8} {row.linger_ms:>7} ms {row.object_bytes // MIB:>4} MiB "
        f"{row.total_bytes / took / 1e6:>7.1f} {implied:>9.0f} {found:>9.0f} {found / implied:>7.2f}  "
        + " ".join(f"{what}={count}" for what, count in counted.most_common()),
        flush=True,
    )
    return abs(found / implied - 1) <= TOLERANCE


def requests_in(log: Path) -> Counter[str]:
    """By kind, such as s3_PutObject: the server's access log has one line per request."""
    if not log.exists():
        return Counter()
    words = (word for line in log.read_text().splitlines() for word in line.split() if word.startswith("s3_"))
    return Counter(words)


def main() -> int:
    print(
        f"{'bound':>7} {'domains':>8} {'linger':>10} {'object':>8} {'MB/s':>7} "
        f"{'implied':>9} {'counted':>9} {'ratio':>7}"
    )
    print(f"{'':>51} {'requests per GB':>19}")
    fine = True
    with tempfile.TemporaryDirectory() as folder:
        for number, row in enumerate(ROWS):
            fine &= measure(Path(folder) / str(number), row)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
