"""Where values come from, which one wins, and the one line for each thing that can be wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dray.base.config.kinds import MIB, Address
from dray.daemons.assembly.settings import api_settings, log_settings
from dray.daemons.config import ConfigError, FlagValue, Settings, load
from dray.daemons.config.problems import FORMER
from dray.daemons.config.schema import fields


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "dray.yaml"
    path.write_text(text)
    return path


def problem_of_file(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text), {})
    return one_line(caught.value).replace(str(tmp_path) + "/", "")


def problem_of_environment(**environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(None, environment)
    return one_line(caught.value)


def one_line(error: ConfigError) -> str:
    text = str(error)
    assert "\n" not in text
    return text


def test_defaults_stand_alone() -> None:
    loaded = load()
    assert loaded.settings.broker.listen == Address("127.0.0.1", 9092)
    assert loaded.origins == {}


def test_every_default_is_allowed_by_its_own_kind() -> None:
    for field in fields():
        assert field.kind.parse(field.kind.render(field.default)) == field.default, field.key
        assert field.description, field.key


def test_later_sources_win_setting_by_setting(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "broker:\n  listen: 127.0.0.1:1001\n  rack: a\n  id: 1\n"
        "limits: {buffer_bytes: 512MiB}\nlog: {flush_linger: 5ms}\n",
    )
    environment = {"DRAY_BROKER__LISTEN": "127.0.0.1:1002", "DRAY_BROKER__ID": "2", "HOME": "/somewhere"}
    loaded = load(file, environment, [FlagValue("--listen", "broker.listen", "127.0.0.1:1003")])
    broker = loaded.settings.broker
    assert (broker.rack, broker.id, broker.listen) == ("a", 2, Address("127.0.0.1", 1003))
    assert loaded.settings.limits.buffer_bytes == 512 * MIB
    assert loaded.settings.log.flush_linger == pytest.approx(0.005)
    assert loaded.origins["broker.listen"] == "--listen"
    assert loaded.origins["broker.id"] == "DRAY_BROKER__ID"
    assert loaded.origins["broker.rack"] == f"{file}:3"
    assert "broker.zone" not in loaded.origins


def test_maps_merge_entry_by_entry(tmp_path: Path) -> None:
    file = write(tmp_path, "topics:\n  defaults: {retention.ms: 5, cleanup.policy: delete}\n")
    loaded = load(file, {"DRAY_TOPICS__DEFAULTS__RETENTION_MS": "7"})
    assert loaded.settings.topics.defaults == {"retention.ms": "7", "cleanup.policy": "delete"}
    assert load(None, {"DRAY_TOPICS__DEFAULTS": "{retention.ms: 9}"}).settings.topics.defaults == {
        "retention.ms": "9"
    }


@pytest.mark.parametrize("text", ["", "# nothing\n", "broker:\n", "broker: {}\n", "---\n"])
def test_an_empty_file_or_section_is_no_mistake(tmp_path: Path, text: str) -> None:
    assert load(write(tmp_path, text), {}).settings == load().settings


def test_paths_follow_the_data_directory() -> None:
    settings = load(None, {"DRAY_DATA_DIR": "/somewhere"}).settings
    assert settings.metadata_path == Path("/somewhere/metadata.sqlite")
    assert settings.objects_url == "file:/somewhere/objects"
    settings = load(None, {"DRAY_METADATA__PATH": "/m.db", "DRAY_OBJECTS__URL": "s3://b/p"}).settings
    assert settings.metadata_path == Path("/m.db")
    assert settings.objects_url == "s3://b/p"


def test_how_often_the_tally_is_raised_follows_where_the_objects_are() -> None:
    assert load().settings.tally_interval == 5.0
    assert load(None, {"DRAY_OBJECTS__URL": "s3://bucket"}).settings.tally_interval == 30.0
    assert load(None, {"DRAY_CLUSTER__TALLY_INTERVAL": "1m"}).settings.tally_interval == 60.0


def test_the_number_of_domains_follows_the_engine() -> None:
    expected = {"sqlite": 4, "memory": 4, "oxia": 16, "etcd": 16}
    for engine, domains in expected.items():
        assert load(None, {"DRAY_METADATA__ENGINE": engine}).settings.domains == domains
    both = {"DRAY_METADATA__ENGINE": "oxia", "DRAY_CLUSTER__DOMAINS": "3"}
    assert load(None, both).settings.domains == 3


def test_the_linger_follows_the_store() -> None:
    assert log_settings(load().settings).linger_seconds == 0.0
    remote = load(None, {"DRAY_OBJECTS__URL": "s3://bucket"}).settings
    assert log_settings(remote).linger_seconds == pytest.approx(0.1)
    both = {"DRAY_OBJECTS__URL": "s3://bucket", "DRAY_LOG__FLUSH_LINGER": "0s"}
    assert log_settings(load(None, both).settings).linger_seconds == 0.0


@pytest.mark.parametrize(
    "variable",
    [
        "DRAY_CONFIG",
        "DRAY_BOOTSTRAP",
        "DRAY_COMMAND_CONFIG",
        "DRAY_REQUIRE",
        "DRAY_PORT",
        "DRAY_SERVICE_HOST",
        "DRAY_SERVICE_PORT_KAFKA",
        "DRAY_BROKER_PORT_9092_TCP_ADDR",
    ],
)
def test_variables_that_are_no_settings_are_left_alone(variable: str) -> None:
    assert load(None, {variable: "whatever"}).origins == {}


# --- what is wrong, in one line


def test_a_wrong_type_in_the_file(tmp_path: Path) -> None:
    assert problem_of_file(tmp_path, "broker:\n  listen: [1, 2]\n") == (
        "broker.listen = [1, 2] (from dray.yaml:2): must be off, or HOST:PORT, such as 127.0.0.1:9092 or "
        "[::1]:9092 (port 0: any free port)"
    )


def test_a_number_given_as_text_is_a_wrong_type(tmp_path: Path) -> None:
    assert problem_of_file(tmp_path, "topics: {partitions: '3'}\n") == (
        "topics.partitions = '3' (from dray.yaml:1): must be a whole number from 1 to 10000"
    )


def test_out_of_range_in_the_environment() -> None:
    assert problem_of_environment(DRAY_TOPICS__PARTITIONS="0") == (
        "topics.partitions = 0 (from DRAY_TOPICS__PARTITIONS): must be a whole number from 1 to 10000"
    )


def test_a_duration_without_unit() -> None:
    assert problem_of_environment(DRAY_LOG__ORPHAN_TTL="60") == (
        "log.orphan_ttl = '60' (from DRAY_LOG__ORPHAN_TTL): must be a duration from 1s to 365d, "
        "with its unit (us, ms, s, m, h or d), such as 100ms"
    )


def test_a_bad_size() -> None:
    assert problem_of_environment(DRAY_LIMITS__BUFFER_BYTES="much") == (
        "limits.buffer_bytes = 'much' (from DRAY_LIMITS__BUFFER_BYTES): must be "
        "a size from 1MiB to 1TiB, such as 64MiB"
    )


def test_a_bad_choice() -> None:
    assert problem_of_environment(DRAY_LOGGING__LEVEL="loud") == (
        "logging.level = 'loud' (from DRAY_LOGGING__LEVEL): must be one of debug, info, warning, error"
    )


def test_a_bad_flag() -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {}, [FlagValue("--broker-id", "broker.id", "me")])
    assert one_line(caught.value) == (
        "broker.id = 'me' (from --broker-id): must be auto, or a whole number from 0 to 2147483647"
    )


def test_an_unknown_key_offers_the_nearest(tmp_path: Path) -> None:
    assert problem_of_file(tmp_path, "broker:\n  lissten: x\n") == (
        "broker.lissten = 'x' (from dray.yaml:2): there is no such setting; did you mean broker.listen?"
    )


def test_an_unknown_key_lists_what_is_known(tmp_path: Path) -> None:
    assert problem_of_file(tmp_path, "logging:\n  zzzzzzzz: x\n") == (
        "logging.zzzzzzzz = 'x' (from dray.yaml:2): there is no such setting; "
        "known here: logging.format, logging.level"
    )


def test_an_unknown_section(tmp_path: Path) -> None:
    assert problem_of_file(tmp_path, "brokers: {}\n") == (
        "brokers = {} (from dray.yaml:1): there is no such setting; did you mean broker?"
    )


def test_a_section_that_is_no_section(tmp_path: Path) -> None:
    assert problem_of_file(tmp_path, "logging: loud\n") == (
        "logging = 'loud' (from dray.yaml:1): must be a section with the keys format, level"
    )


def test_a_file_that_is_no_mapping(tmp_path: Path) -> None:
    assert problem_of_file(tmp_path, "- a\n- b\n") == (
        "the config file (from dray.yaml:1) must hold sections: "
        "cluster, broker, metadata, objects, foreign, upstream, log, limits, topics, groups, routing, "
        "compaction, iceberg, spark, console, security, oauth, http, logging, metrics"
    )


def test_a_key_given_twice(tmp_path: Path) -> None:
    assert problem_of_file(tmp_path, "broker:\n  rack: a\n  rack: b\n") == (
        "broker.rack is given twice (from dray.yaml:3): remove one"
    )


def test_bad_yaml(tmp_path: Path) -> None:
    line = problem_of_file(tmp_path, "broker: {listen: [\n")
    assert re.match(r"the config file dray.yaml is not YAML: .* at line 2, column 1$", line), line


@pytest.mark.parametrize(
    "text", ["broker: {zone: !!python/name:os.system x}\n", "broker: &a {zone: *a}\n", "\x00", "a: *b"]
)
def test_yaml_tricks_are_one_line_too(tmp_path: Path, text: str) -> None:
    problem_of_file(tmp_path, text)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "absent.yaml", {})
    assert one_line(caught.value) == (
        f"cannot read the config file {tmp_path}/absent.yaml: No such file or directory"
    )


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "dray.yaml"
    path.write_bytes(b"ab\xff")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load(path, {})


def test_an_unknown_variable_offers_the_nearest() -> None:
    assert problem_of_environment(DRAY_BROKER_LISTEN="x") == (
        "DRAY_BROKER_LISTEN = 'x' (from the environment): there is no such setting; "
        "did you mean DRAY_BROKER__LISTEN?"
    )


def test_a_bad_map_entry_is_named(tmp_path: Path) -> None:
    assert problem_of_file(
        tmp_path, "topics:\n  defaults:\n    cleanup.policy: delete\n    retention.ms: [1]\n"
    ) == (
        "topics.defaults.retention.ms = [1] (from dray.yaml:4): must be topic config names with values, "
        "such as {retention.ms: 86400000}"
    )


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        (
            {"DRAY_LIMITS__BUFFER_BYTES": "1MiB"},
            "log.object_bytes = '8MiB' (from the default): must be at most "
            "limits.buffer_bytes, which is 1MiB",
        ),
        (
            {"DRAY_LIMITS__BUFFER_BYTES": "64MiB"},
            "limits.frame_bytes = '100MiB' (from the default): "
            "must be at most 15/16 of limits.buffer_bytes, which is 64MiB",
        ),
        (
            {"DRAY_LIMITS__ANSWER_BYTES": "64MiB"},
            "limits.frame_bytes = '100MiB' (from the default): "
            "must be at most limits.answer_bytes, which is 64MiB",
        ),
        (
            {"DRAY_BROKER__HTTP": "127.0.0.1:9092"},
            "broker.http = '127.0.0.1:9092' (from DRAY_BROKER__HTTP): "
            "must be another address than broker.listen",
        ),
        (
            {"DRAY_BROKER__LISTEN": "0.0.0.0:9092"},
            "broker.listen = '0.0.0.0:9092' (from DRAY_BROKER__LISTEN): must be an address that clients can "
            "connect to, or broker.advertised must name one",
        ),
    ],
)
def test_settings_that_do_not_fit_together(environment: dict[str, str], line: str) -> None:
    assert problem_of_environment(**environment) == line


def test_a_wildcard_may_be_listened_on_when_an_address_is_advertised() -> None:
    load(None, {"DRAY_BROKER__LISTEN": "0.0.0.0:9092", "DRAY_BROKER__ADVERTISED": "kafka.example:9092"})


# --- secrets


SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"objects: {{secrets: {{secret_access_key: [{SECRET}]}}}}\n",
        f"objects: {{secrets: {SECRET}}}\n",
        f"objects: {{secrets: [{SECRET}]}}\n",
        f"objects: {{options: {{secret_access_key: {SECRET}}}}}\n",
        f"objects: {{options: {{aws_access_key_id: {SECRET}}}}}\n",
        f"objects: {{secret_access_key: {SECRET}}}\n",
    ],
)
def test_no_error_line_holds_a_secret(tmp_path: Path, text: str) -> None:
    assert SECRET not in problem_of_file(tmp_path, text)


def test_a_secret_in_a_misspelt_variable_is_masked() -> None:
    assert SECRET not in problem_of_environment(DRAY_OBJECTS_SECRETS_SECRET_ACCESS_KEY=SECRET)


def test_secrets_reach_the_settings_and_nothing_that_prints_them(tmp_path: Path) -> None:
    settings = load(None, {"DRAY_OBJECTS__SECRETS__SECRET_ACCESS_KEY": SECRET}).settings
    assert settings.objects.secrets["secret_access_key"].text == SECRET
    assert SECRET not in repr(settings)


def test_a_setting_that_is_gone_is_a_warning(tmp_path: Path) -> None:
    """For a release: who upgrades should not have a broker that does not start."""
    file = write(tmp_path, "security:\n  tls_library: system\n  authorization: none\n")
    loaded = load(file, {"DRAY_SECURITY__TLS_LIBRARY": "bundled"})
    gone = "is gone: listeners encrypt with the OpenSSL of Python; remove it"
    assert [warning.replace(str(tmp_path) + "/", "") for warning in loaded.warnings] == [
        f"security.tls_library (from dray.yaml:2) {gone}",
        f"security.tls_library (from DRAY_SECURITY__TLS_LIBRARY) {gone}",
    ]
    assert loaded.settings.security.authorization == "none"


@pytest.mark.parametrize("key", FORMER)
def test_every_setting_that_is_gone_may_be_named_for_one_release(tmp_path: Path, key: str) -> None:
    """In a file, in the environment and by a flag."""
    *sections, name = key.split(".")
    text = "".join(f"{'  ' * depth}{section}:\n" for depth, section in enumerate(sections))
    file = write(tmp_path, f"{text}{'  ' * len(sections)}{name}: 7\n")
    variable = "DRAY_" + key.replace(".", "__").upper()
    loaded = load(file, {variable: "7"}, [FlagValue("--old", key, "7")])
    gone = f"is gone: {FORMER[key]}; remove it"
    assert [warning.replace(str(tmp_path) + "/", "") for warning in loaded.warnings] == [
        f"{key} (from dray.yaml:{len(sections) + 1}) {gone}",
        f"{key} (from {variable}) {gone}",
        f"{key} (from --old) {gone}",
    ]
    assert loaded.settings == Settings()
    assert loaded.origins == {}


def test_what_is_gone_is_no_setting() -> None:
    assert not set(FORMER) & {known.key for known in fields()}


ASKS = '{"address": "10.0.0.5:9094", "protocol": "SASL_PLAINTEXT"}'


@pytest.mark.parametrize(
    ("given", "listening"),
    [
        ({}, ["PLAINTEXT"]),
        ({"DRAY_BROKER__LISTENERS__SECURE": ASKS}, ["SECURE"]),
        ({"DRAY_BROKER__LISTENERS": f'{{"SECURE": {ASKS}}}'}, ["SECURE"]),
        ({"DRAY_BROKER__LISTENERS": "{}"}, ["PLAINTEXT"]),
        (
            {"DRAY_BROKER__LISTENERS__SECURE": ASKS, "DRAY_BROKER__LISTEN": "127.0.0.1:9092"},
            ["PLAINTEXT", "SECURE"],
        ),
        ({"DRAY_BROKER__LISTENERS__SECURE": ASKS, "DRAY_BROKER__LISTEN": "off"}, ["SECURE"]),
    ],
)
def test_a_listener_that_asks_nobody_is_off_where_others_are_given(
    given: dict[str, str], listening: list[str]
) -> None:
    loaded = load(environment=given)
    assert list(loaded.settings.broker.all_listeners) == listening


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"DRAY_BROKER__LISTEN": "off"},
            "broker.listen = 'off' (from DRAY_BROKER__LISTEN): must be an address ",
        ),
        (
            {"DRAY_BROKER__LISTENERS__SECURE": ASKS, "DRAY_BROKER__ADVERTISED": "broker.example:9092"},
            "(from DRAY_BROKER__ADVERTISED): must be absent where broker.listen is off, as it is with ",
        ),
    ],
)
def test_what_belongs_to_no_listener_is_one_line(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(environment=given)
    assert says in str(error.value)


def test_off_is_shown_as_it_was_written(tmp_path: Path) -> None:
    """YAML makes false of it."""
    assert problem_of_file(tmp_path, "broker: {listen: off}").startswith("broker.listen = 'off' ")


def test_zones_by_address_range(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "routing: {zones: {a: 10.1.0.0/16, b: [10.2.0.0/16, 'fd00::/64']}}\n"
        "broker: {listeners: {ZONE_A: {address: '127.0.0.1:1', zone: a}}}\n",
    )
    settings = load(file, {}).settings
    assert {name: [*map(str, ranges)] for name, ranges in settings.routing.zones.items()} == {
        "a": ["10.1.0.0/16"],
        "b": ["10.2.0.0/16", "fd00::/64"],
    }
    assert api_settings(settings).listener_zones == {"ZONE_A": "a"}
    for bad in ("{a: 10.1.0.0/33}", "{a: 10.1.2.3/16}", "{a: here}", "{a: []}", "{a b: 10.1.0.0/16}"):
        assert "zones with their ranges of addresses" in problem_of_environment(DRAY_ROUTING__ZONES=bad)
