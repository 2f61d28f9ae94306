"""Write src/dray/kafka/protocol/messages from Kafka's schema as the installed `kio` package holds it, and
what is stored in Kafka's own topics from `tools/schemas`.

`python -m tools.generate_messages` writes the files; `generate()` gives them as text, which a test compares
with what is committed.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.generator.module import module_source
from tools.generator.plain_schema import load_plain
from tools.generator.schema import load
from tools.generator.table import table_source

MESSAGES = Path(__file__).resolve().parent.parent / "src" / "dray" / "kafka" / "protocol" / "messages"

APIS = [
    "produce",
    "fetch",
    "list_offsets",
    "metadata",
    "offset_commit",
    "offset_fetch",
    "find_coordinator",
    "join_group",
    "heartbeat",
    "leave_group",
    "sync_group",
    "describe_groups",
    "list_groups",
    "sasl_handshake",
    "api_versions",
    "create_topics",
    "delete_topics",
    "delete_records",
    "init_producer_id",
    "offset_for_leader_epoch",
    "describe_acls",
    "create_acls",
    "delete_acls",
    "describe_configs",
    "alter_configs",
    "sasl_authenticate",
    "create_partitions",
    "delete_groups",
    "incremental_alter_configs",
    "offset_delete",
    "describe_cluster",
    "consumer_group_heartbeat",
    "consumer_group_describe",
    "describe_topic_partitions",
    "alter_replica_log_dirs",
    "describe_log_dirs",
    "elect_leaders",
    "alter_partition_reassignments",
    "list_partition_reassignments",
    "describe_client_quotas",
    "alter_client_quotas",
    "describe_user_scram_credentials",
    "alter_user_scram_credentials",
    "describe_quorum",
    "update_features",
    "describe_producers",
    "list_transactions",
    "describe_transactions",
    "list_config_resources",
]
DATA = ["consumer_protocol_subscription", "consumer_protocol_assignment"]
# What brokers of Kafka write into topics of their own: a module, and its messages in tools/schemas.
STORED = {
    "stored_offsets": ["OffsetCommitKey", "OffsetCommitValue"],
    "stored_remote_segments": [
        "RemoteLogSegmentMetadataRecord",
        "RemoteLogSegmentMetadataUpdateRecord",
        "RemotePartitionDeleteMetadataRecord",
    ],
}


def generate() -> dict[str, str]:
    """Each file's name and text."""
    kio_version = version("kio")
    origin = f"kio {kio_version}"
    apis = {api: load(api) for api in APIS}
    files = {f"{api}.py": module_source(messages, origin) for api, messages in apis.items()}
    files |= {f"{name}.py": module_source(load(name), origin) for name in DATA}
    files |= {
        f"{name}.py": module_source([load_plain(message) for message in messages], "tools/schemas")
        for name, messages in STORED.items()
    }
    files["schemas.py"] = table_source(apis, kio_version)
    return _formatted(files)


def _formatted(files: dict[str, str]) -> dict[str, str]:
    with TemporaryDirectory() as directory:
        for name, text in files.items():
            (Path(directory) / name).write_text(text)
        command = [
            sys.executable,
            "-m",
            "ruff",
            "format",
            "--quiet",
            "--isolated",
            "--line-length",
            "110",
            directory,
        ]
        subprocess.run(command, check=True)
        return {name: (Path(directory) / name).read_text() for name in files}


def main() -> None:
    files = generate()
    for path in MESSAGES.glob("*.py"):
        if path.name != "__init__.py" and path.name not in files:
            path.unlink()
    for name, text in files.items():
        (MESSAGES / name).write_text(text)
    print(f"{len(files)} modules written")


if __name__ == "__main__":
    main()
