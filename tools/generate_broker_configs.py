"""Write src/dray/broker/api/shared/broker_defaults.py from what a running Apache Kafka says of its own
configs.

Run with the address of a broker and its id: `python tools/generate_broker_configs.py 127.0.0.1:9092 1`.
`tests/referee/test_referee.py` compares what is written with Kafka.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dray.kafka.client import KafkaConnection
from dray.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

MODULE = (
    Path(__file__).resolve().parent.parent
    / "src"
    / "dray"
    / "broker"
    / "api"
    / "shared"
    / "broker_defaults.py"
)
BROKER, DEFAULT = 4, 5

HEADING = '''# ruff: noqa: E501
"""The configs of Apache Kafka {version}'s brokers: DescribeConfigs\' number for the type, and the default,
if there is one. Written by tools/generate_broker_configs.py: do not edit.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class BrokerDefault(NamedTuple):
    type: int
    value: str | None


def _parse(line: str) -> tuple[str, BrokerDefault]:
    name, kind, *value = line.split(" ", 2)
    return name, BrokerDefault(int(kind), value[0].strip("'") if value else None)


_LINES: Final = """\\
'''
FOOTING = '''"""

BROKER_DEFAULTS: Final[dict[str, BrokerDefault]] = dict(_parse(line) for line in _LINES.splitlines())
'''


async def lines(bootstrap: str, broker_id: str) -> list[str]:
    host, port = bootstrap.rsplit(":", 1)
    connection = await KafkaConnection.connect(host, int(port), client_id="generate")
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name=broker_id, configuration_keys=None)
    response = await connection.request(
        DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4
    )
    await connection.close()
    found = []
    for config in response.results[0].configs:
        defaults = [one.value for one in config.synonyms if one.source == DEFAULT and one.name == config.name]
        value = f" {defaults[0] or chr(39) * 2}" if defaults and defaults[0] is not None else ""
        found.append(f"{config.name} {config.config_type}{value}")
    return sorted(found)


def main(bootstrap: str, broker_id: str, version: str = "4.2") -> None:
    rows = asyncio.run(lines(bootstrap, broker_id))
    text = HEADING.replace("{version}", version) + "".join(f"{row}\n" for row in rows) + FOOTING
    MODULE.write_text(text)
    print(f"{len(rows)} configs written")


if __name__ == "__main__":
    main(*sys.argv[1:])
