"""Every setting reaches every process that uses it: found in what the rooms of the processes hold."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.unit.daemons.held_values import HeldValues, Place
from tests.unit.daemons.recorded_processes import COMMANDS, run_all
from tests.unit.daemons.setting_samples import Sample, samples

import dray
from dray.base.config.kinds import Switch
from dray.daemons.config.schema import fields

SAMPLES = samples()

WITH_OXIA = {
    "metadata.engine": "oxia",
    "metadata.oxia.tls": "true",
    "metadata.oxia.ca_file": "sample-oxia-ca",
    "metadata.oxia.certificate_file": "sample-oxia-certificate",
    "metadata.oxia.key_file": "sample-oxia-key",
    "metadata.oxia.server_name": "sample-oxia-server",
    "metadata.oxia.addresses": "sample-1:1,sample-2:2",
    "metadata.oxia.namespace": "sample-oxia-namespace",
    "metadata.oxia.secrets": "{token: sample-oxia-token}",
}
WITH_ETCD = {
    "metadata.engine": "etcd",
    "metadata.etcd.tls": "true",
    "metadata.etcd.ca_file": "sample-etcd-ca",
    "metadata.etcd.certificate_file": "sample-etcd-certificate",
    "metadata.etcd.key_file": "sample-etcd-key",
    "metadata.etcd.server_name": "sample-etcd-server",
    "metadata.etcd.endpoints": "sample-1:1,sample-2:2",
    "metadata.etcd.prefix": "sample-etcd-prefix",
    "metadata.etcd.user": "sample-etcd-user",
    "metadata.etcd.secrets": "{password: sample-password}",
}
WITH_REST = {
    "iceberg.catalog": "rest",
    "iceberg.uri": "https://catalog.sample",
    "iceberg.sigv4_region": "sample-sigv4-region",
}

WITH_QUICK_GROUPS = {"groups.consumer_session_timeout": "6s"}
"""Below what members may ask for by default: the least that they may goes down with it."""

SEEN_BY_ANOTHER = {
    "metadata.engine": "metadata.oxia.addresses",
    "metadata.oxia.tls": "metadata.oxia.ca_file",
    "metadata.etcd.tls": "metadata.etcd.ca_file",
}
"""What is not held by itself: without it, the other does not arrive."""

ELSEWHERE = {
    "metadata.ballast": "test_daemon_ballast.py::test_a_broker_on_sqlite_has_one_of_the_size_that_is_set",
    "objects.secrets_directory": "test_daemon_settings.py::"
    "test_stores_and_tables_read_credentials_from_files",
    "broker.shutdown_grace": "a node asks for it when it stops: test_daemon_node.py::"
    "test_a_store_that_hangs_does_not_keep_a_stop_from_ending",
    "compaction.enabled": "decides whether there is a compactor: "
    "test_daemon_compactor_metrics.py::test_the_flag_and_the_default, test_cluster_up.py",
    "broker.longest_session": "a session of a connection has it: "
    "test_daemon_security.py::test_sessions_last_as_long_as_the_config_says",
    "security.authorization": "test_daemon_security.py::test_clients_are_authorized_as_the_config_says",
    "security.super_users": "the same",
    "security.allow_if_no_acl": "the same",
    "oauth.key_set_file": "test_daemon_security.py::test_tokens_need_keys",
    "oauth.key_set_url": "test_daemon_security.py::test_keys_may_come_from_an_address",
    "oauth.key_set_ca_file": "the same",
    "oauth.issuer": "test_daemon_security.py::test_what_a_token_must_say_comes_from_the_config",
    "oauth.audiences": "the same",
    "oauth.subject_claim": "the same",
    "http.token_file": "test_daemon_http_security.py::test_the_files_of_the_config_arrive",
    "http.certificate_file": "the same",
    "http.key_file": "the same",
    "http.ca_file": "the same",
    "http.client_ca_file": "test_daemon_http_security.py, with a certificate of a client",
    "iceberg.foreign_rows": "test_daemon_settings.py::test_rows_of_others_are_held_or_taken_out",
    "console.enabled": "decides whether there is a console: test_console.py",
    "console.listen": "test_console.py::test_a_broker_serves_though_the_consoles_address_is_taken",
    "console.auth": "test_console_with_login.py, in a real process",
    "console.mechanism": "test_console_with_login.py, in a real process",
    "console.oidc_issuer": "test_console_with_oidc.py, in a real process",
    "console.oidc_client_id": "test_console_with_oidc.py, in a real process",
    "console.oidc_client_secret_file": "test_console_with_oidc.py, in a real process",
    "console.oidc_scopes": "test_console_with_oidc.py, in a real process",
    "console.oidc_ca_file": "test_daemon_console_address.py::test_a_login_at_a_provider_is_made_of_its_files",
    "console.hosts": "test_console_with_login.py, in a real process",
    "console.certificate_file": "test_console_with_login.py, in a real process",
    "console.key_file": "test_console_with_login.py, in a real process",
    "console.behind_proxy": "test_daemon_console_address.py",
    "console.command_config": "test_daemon_children.py::test_the_console_gets_its_own",
    "console.runs": "the same",
    "console.listener": "test_cli_up_console.py",
    "console.masked": "test_console_with_login.py, in a real process",
    "foreign.stores": "test_daemon_foreign.py::test_the_stores_of_the_config_arrive",
    "foreign.options": "the same",
    "foreign.secrets": "the same",
    "foreign.keys": "the same",
    "upstream.clusters": "test_upstream_clusters.py::test_a_cluster_is_found_by_its_name",
    "upstream.http": "test_daemon_migrator.py::test_the_flag_of_a_migrator",
    "upstream.give_up_time": "test_daemon_migrator.py::test_the_settings_of_the_config_arrive",
    "upstream.straggler_watch": "the same",
    "upstream.group_interval": "the same",
    "upstream.mirror_bytes": "test_daemon_migrator.py::test_the_memory_of_the_config_arrives",
    "upstream.forward_bytes": "test_daemon_forwarding.py::test_the_limits_of_the_config_arrive",
    "metrics.topics": "the metrics have it: test_daemon_topic_and_group_numbers.py::"
    "test_produce_and_fetch_are_counted_by_topic",
    "iceberg.enabled": "decides whether there are tables at all: "
    "test_without_tables_there_are_none_in_any_process",
}
"""What no room holds, and the test that it has instead."""


FIXED = frozenset(
    f"{room}.{knob}"
    for room, knobs in {
        "ApiSettings": "decompressed_bytes describe_partition_limit features fetch_bytes idle_seconds "
        "one_answer_bytes",
        "CatalogSettings": "sigv4_service timeout_seconds",
        "ClassicGroupSettings": "largest_group largest_group_bytes largest_member_bytes "
        "new_member_join_timeout_ms session_timeout_maximum_ms session_timeout_minimum_ms",
        "CompactionSettings": "bottom_raw_bytes collect_seconds cycle_bytes doubt_pause_seconds "
        "enabled failed_pause_seconds max_inputs metadata_orphan_seconds parquet_max_files reread_seconds "
        "revert_foreign_rows round_keys streams_at_once table_patience_seconds takeover_seconds "
        "topics_at_once wal_max_entries",
        "ConsumerGroupSettings": "assignors heartbeat_interval_maximum_ms largest_group "
        "largest_member_bytes regex_refresh_interval_ms regex_refresh_pause_ms",
        "GroupsSettings": "consumer_heartbeat_interval largest_metadata max_session_timeout max_size "
        "memory_groups min_session_timeout sweep_interval topic_interval",
        "HttpSettings": "client_certificates encryption handshake_seconds idle_seconds max_connections "
        "max_connections_per_address port request_seconds tokens",
        "LogSettings": "ahead_bytes audit_every_rounds bounds_seconds cache_idle_seconds carry carry_backlog "
        "collect_seconds collect_share commit_seconds doubt_seconds index_cache_entries job_seconds "
        "max_commit_bytes pack_look_seconds parquet_footer_cache_bytes parquet_groups_ahead "
        "producer_expiry_ms producer_id_block retry_limit retry_seconds segment_cache_bytes settle_seconds "
        "snapshot_every_entries stream_id_block uploads_in_flight",
        "EtcdSettings": "connect_timeout max_request_bytes max_txn_ops patience request_timeout "
        "serializable_reads",
        "OxiaSettings": "first_answer patience request_timeout",
        "ServerSettings": "backlog bulk_kinds decompressed_bytes fetch_bytes first_request_seconds "
        "frame_seconds handshake_seconds idle_seconds linger_seconds listeners max_in_flight "
        "max_unsent_bytes one_answer_bytes receive_buffer_bytes short_frame_bytes_per_second short_seconds "
        "slowest_frame_bytes_per_second small_frame_bytes stranger_frame_bytes unread_seconds",
        "TopicsOptions": "max_partitions reread_interval sweep_grace sweep_interval unknown_id_pause",
    }.items()
    for knob in knobs.split()
)
"""Knobs that no setting turns: they are for tests and simulations, or follow from something else. (Ports and
listeners are the same here each time.)"""


def environment(settings: Mapping[str, str], directory: Path) -> dict[str, str]:
    """With every other setting as it is by default, but for ports that are free."""
    metadata = directory / "metadata.sqlite"
    metadata.touch()
    given = {"data_dir": str(directory), "broker.listen": "127.0.0.1:0", "broker.http": "127.0.0.1:0"}
    variables = {known.key: known.variable for known in fields()}
    return {variables[key]: text for key, text in (given | dict(settings)).items()}


class Runs:
    """Of all processes with one config, beside those with the defaults."""

    def __init__(
        self, defaults: dict[str, HeldValues], changed: dict[str, HeldValues], restless: set[Place]
    ) -> None:
        self._defaults = defaults
        self._changed = changed
        self._restless = restless

    def arrivals(self, sample: Sample) -> dict[str, set[Place]]:
        """By process, the places that hold the sample and did not hold it by default."""
        found = {}
        for process, held in self._changed.items():
            before = self._defaults[process]
            found[process] = {
                place
                for place in held.places() - self._restless
                if (held.at(place) - before.at(place)) & sample.forms
            }
        return {process: places for process, places in found.items() if places}

    def holds_still(self, process: str, place: Place) -> bool:
        return self._changed[process].at(place) == self._defaults[process].at(place)

    def left_behind(self, place: Place) -> list[str]:
        """The processes in which some instance holds at this place what it holds by default."""
        left = []
        for process, held in self._changed.items():
            before = self._defaults[process]
            if place in held.plain and place in before.plain:
                if held.plain[place] & before.plain[place]:
                    left.append(process)
            elif place in held.collected and held.collected[place] == before.collected.get(place):
                left.append(process)
        return left


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings")


@pytest.fixture(scope="module")
def defaults(directory: Path) -> dict[str, HeldValues]:
    return run_all(environment({}, directory))


@pytest.fixture(scope="module")
def changed(directory: Path, defaults: dict[str, HeldValues]) -> dict[str, Runs]:
    """Everything at once, but for what belongs to another engine or catalog."""
    other = directory / "other"
    other.mkdir()
    texts = {key: sample.text for key, sample in SAMPLES.items()}
    texts |= {"data_dir": str(other), "metadata.path": str(other / "sample.sqlite")}
    (other / "sample.sqlite").touch()
    plain = {
        key: text for key, text in texts.items() if not key.startswith(("metadata.oxia", "metadata.etcd"))
    }

    def of(prefix: str) -> dict[str, str]:
        return {key: text for key, text in texts.items() if key.startswith(prefix)}

    switched = {key: _turned(key) for key in SWITCHES if key in plain or not key.startswith("metadata.")}
    variants = {
        "embedded": plain | switched,
        "oxia": of("metadata.oxia.") | WITH_OXIA,
        "etcd": of("metadata.etcd.") | WITH_ETCD,
        "rest": WITH_REST,
        "quick groups": WITH_QUICK_GROUPS,
    }
    again = run_all(environment({}, directory))
    restless = {  # counters, ports, times: they differ from run to run
        place
        for process, held in again.items()
        for place in held.places() | defaults[process].places()
        if held.at(place) != defaults[process].at(place)
    }
    return {
        name: Runs(defaults, run_all(environment(given, directory)), restless)
        for name, given in variants.items()
    }


def _turned(key: str) -> str:
    [known] = [known for known in fields() if known.key == key]
    return str(not known.default).lower()


def sample_of(key: str, directory: Path) -> tuple[str, Sample]:
    """In which of the runs a setting was changed, and to what."""
    for variant, given in (("oxia", WITH_OXIA), ("etcd", WITH_ETCD), ("rest", WITH_REST)):
        if key in given and key != "iceberg.uri":
            forms = {
                given[key],
                given[key].partition(",")[0],
                given[key].rpartition(": ")[2].removesuffix("}"),
            }
            return variant, Sample(given[key], frozenset(forms))
    if key == "data_dir":
        return "embedded", Sample("", frozenset({str(directory / "other" / "spark.log")}))
    if key == "metadata.path":
        return "embedded", Sample("", frozenset({str(directory / "other" / "sample.sqlite")}))
    for variant in ("oxia", "etcd"):
        if key.startswith(f"metadata.{variant}."):
            return variant, SAMPLES[key]
    return "embedded", SAMPLES[key]


SWITCHES = [
    known.key
    for known in fields()
    if isinstance(known.kind, Switch) and known.key not in ELSEWHERE and known.key not in SEEN_BY_ANOTHER
]
HELD = [
    known.key
    for known in fields()
    if known.key not in ELSEWHERE and known.key not in SEEN_BY_ANOTHER and known.key not in SWITCHES
]


@pytest.mark.parametrize("key", HELD)
def test_it_reaches_every_process_that_uses_it(key: str, changed: dict[str, Runs], directory: Path) -> None:
    """It arrives somewhere; and where it arrives in one process, no process keeps the default."""
    variant, sample = sample_of(key, directory)
    runs = changed[variant]
    found = runs.arrivals(sample)
    assert found, f"{key}: no room of any process holds {sorted(map(str, sample.forms))}"
    for place in set().union(*found.values()):
        assert not runs.left_behind(place), (
            f"{key}: {'.'.join(place)} has it in {sorted(found)}, not everywhere"
        )


@pytest.mark.parametrize("key", SWITCHES)
def test_a_switch_reaches_every_process_that_uses_it(
    key: str, directory: Path, defaults: dict[str, HeldValues]
) -> None:
    [known] = [known for known in fields() if known.key == key]
    given = {key: _turned(key)}
    if key.startswith("metadata.etcd."):
        given["metadata.engine"] = "etcd"
        defaults = run_all(environment({"metadata.engine": "etcd"}, directory))
    after = run_all(environment(given, directory))
    turned = {
        (process, place)
        for process, held in after.items()
        for place, values in held.plain.items()
        if place[0].endswith(("Settings", "Options"))
        and defaults[process].plain.get(place) == {known.default}
        and not values & {known.default}
    }
    assert turned, f"{key}: no room of any process holds it"
    for place in {place for _, place in turned}:
        having = {process for process in COMMANDS if place in after[process].plain}
        assert having == {process for process, turned_place in turned if turned_place == place}


def test_every_knob_of_a_room_is_turned_by_a_setting(
    changed: dict[str, Runs], defaults: dict[str, HeldValues]
) -> None:
    """From the other side: what a room takes as its settings came from the config, or is listed as fixed."""
    still: dict[str, str] = {}
    for process, before in defaults.items():
        for name, attribute in before.places():
            place = (name, attribute)
            if name.endswith(("Settings", "Options")) and all(
                runs.holds_still(process, place) for runs in changed.values()
            ):
                still.setdefault(f"{name}.{attribute}", process)
    unknown = {knob: process for knob, process in still.items() if knob not in FIXED}
    assert unknown == {}, "knobs that no setting turns"


def test_without_tables_there_are_none_in_any_process(directory: Path) -> None:
    without = [process for process in COMMANDS if process not in ("table", "query")]  # which say so
    after = run_all(environment({"iceberg.enabled": "false"}, directory), without)
    for process, held in after.items():
        assert not any(name == "IcebergTables" for name, _ in held.places()), process
    assert any(name == "IcebergTables" for name, _ in run_all(environment({}, directory))["gc"].places())


def test_every_setting_is_read() -> None:
    """A room is given its whole section: that it holds a setting does not say that it uses it."""
    trees = [ast.parse(path.read_text()) for path in Path(dray.__file__).parent.rglob("*.py")]
    read = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {known.key for known in fields() if known.path[-1] not in read} == set()


def test_no_setting_is_left_out() -> None:
    """One of a new kind wants a sample, or a place in one of the lists above."""
    named = {*SAMPLES, *WITH_OXIA, *WITH_ETCD, *WITH_REST, *ELSEWHERE, *SWITCHES, "data_dir"}
    assert {known.key for known in fields()} - named == set()
    for key, other in SEEN_BY_ANOTHER.items():
        assert key in named
        assert other in HELD
