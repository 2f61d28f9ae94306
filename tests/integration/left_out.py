"""What is not run on a cluster (DRAY_TEST_TARGET=cluster), and why. Everything else is."""

from __future__ import annotations

from typing import Final

ON_SERVERS: Final = ("integration", "referee")
"""The rooms whose tests ask the one server that is the target."""

ONE_MACHINE: Final = "about one machine: its data directory, its SQLite file, what its terminal shows"
OWN_SERVERS: Final = "brings the servers that it is about, whatever the target"
NO_BROKER: Final = "asks no broker"
KAFKA_ITSELF: Final = "asks Apache Kafka, not Dray"

MODULES: Final = {
    "test_cli_readme": ONE_MACHINE,
    "test_cli_serve": ONE_MACHINE,
    "test_cluster_up": ONE_MACHINE,
    "test_pipeline": ONE_MACHINE + "; test_cluster_pipeline is the same for a cluster",
    "test_pipeline_deleted": ONE_MACHINE,
    "test_lost_objects": ONE_MACHINE + ", where the WAL objects are looked for",
    "test_pipeline_clients": ONE_MACHINE + ", where the WAL objects are looked for",
    "test_limits": ONE_MACHINE + ", and the memory of its one process",
    "test_shared_bucket": ONE_MACHINE + "; where a stranger comes by another data directory",
    "test_spark_masters": ONE_MACHINE,
    "test_watching": ONE_MACHINE,
    "test_console_at_size": ONE_MACHINE,
    "test_outages": OWN_SERVERS,
    "test_rolled_builds": ONE_MACHINE,
    "test_etcd_broker": OWN_SERVERS,
    "test_etcd_leaders": OWN_SERVERS,
    "test_etcd_store": OWN_SERVERS,
    "test_etcd_suite": OWN_SERVERS,
    "test_oxia_brokers": OWN_SERVERS,
    "test_oxia_leaders": OWN_SERVERS,
    "test_azure": OWN_SERVERS,
    "test_s3_broker": OWN_SERVERS,
    "test_s3_store": OWN_SERVERS,
    "test_kafka_tools": OWN_SERVERS,
    "test_unfolding": OWN_SERVERS,
    "test_compaction_spark": NO_BROKER,
    "test_deploy_chart": NO_BROKER,
    "test_level": NO_BROKER,
    "test_deploy_install": OWN_SERVERS,
    "test_groups_speed": NO_BROKER,
    "test_iceberg_glue": NO_BROKER,
    "test_iceberg_google": NO_BROKER,
    "test_iceberg_guarded": NO_BROKER,
    "test_iceberg_nessie": NO_BROKER,
    "test_iceberg_rest": NO_BROKER,
    "test_iceberg_s3": NO_BROKER,
    "test_iceberg_spark": NO_BROKER,
    "test_iceberg_trino": NO_BROKER,
    "test_iceberg_vended": NO_BROKER,
}

TESTS: Final = {
    ("test_golden_groups", "test_recordings_are_what_kafka_says"): KAFKA_ITSELF,
    ("test_referee", "test_recordings_are_what_kafka_says"): KAFKA_ITSELF,
    ("test_referee", "test_dray_answers_as_kafka_does[describe-cluster]"): (
        "names all brokers of the cluster, and Kafka had one; test_clients_admin compares the names"
    ),
    ("test_spark_source", "test_files_of_the_table_and_the_log_behind_it"): ONE_MACHINE,
    ("test_load", "test_slow_puts_do_not_grow_memory_past_the_buffer"): (
        "a broker with an object store of its own, slow on purpose"
    ),
}


def why_left_out(module: str, test: str) -> str | None:
    """`test` is its name, with or without the parameters."""
    for name in (test, test.partition("[")[0]):
        if (module, name) in TESTS:
            return TESTS[module, name]
    return MODULES.get(module)
