"""What a broker says of its listeners, and what they ask."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from tests.services.known_users import KnownUsers
from tests.unit.broker.topics.fakes import eventually

from dray.base.runtime import SystemRuntime
from dray.broker.security.jwks import ClaimRules, KeySetAddress
from dray.broker.server.tls.listener import CertificateUnusable
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.settings import broker_configs
from dray.daemons.broker.process import check_settings
from dray.daemons.broker.security import (
    BrokerSecurity,
    KeySetFile,
    KeySetUnusable,
    authorization,
    claim_rules,
    key_source,
    read_certificates,
    sasl_sessions,
    warn_of_absent_super_users,
    warn_of_open_listeners,
    warn_of_weak_logins,
)
from dray.daemons.config import ConfigError, Settings, load
from dray.kafka.acls import AclOperation, AclResourceType
from dray.kafka.sasl.credentials import ScramCredential, ScramMechanism
from dray.metadata.memory import MemoryStore

PUBLIC = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)


def settings(listen: str = "127.0.0.1:0", key_set_file: str = "none", **listeners: object) -> Settings:
    return load(
        environment={
            "DRAY_OAUTH__KEY_SET_FILE": key_set_file,
            "DRAY_BROKER__LISTEN": listen,
            "DRAY_BROKER__ADVERTISED": "broker.example:9092",
            "DRAY_BROKER__LISTENERS": json.dumps(listeners),
        }
    ).settings


ASKING = {"address": "10.0.0.5:9093", "protocol": "SASL_PLAINTEXT", "mechanisms": ["SCRAM-SHA-512", "PLAIN"]}


MUTUAL = {
    "address": "10.0.0.5:9094",
    "protocol": "SSL",
    "certificate_file": "c",
    "key_file": "k",
    "client_ca_file": "a",
}


@pytest.mark.parametrize(
    ("config", "warned"),
    [
        (settings(), []),
        (settings("[::1]:0"), []),
        (settings("localhost:0"), []),
        (settings("0.0.0.0:9092"), ["broker.listen"]),
        (settings("broker.example:9092"), ["broker.listen"]),
        (settings(OPEN="10.0.0.5:9192"), ["broker.listeners.OPEN"]),
        (settings(SECURE=ASKING), []),
        (settings(MUTUAL={**MUTUAL, "client_auth": "required"}), []),
        (settings(MUTUAL={**MUTUAL, "client_auth": "requested"}), ["broker.listeners.MUTUAL"]),
    ],
)
def test_an_address_for_everybody_is_told_loudly(config: Settings, warned: list[str]) -> None:
    with structlog.testing.capture_logs() as lines:
        warn_of_open_listeners(config)
    assert [line["setting"] for line in lines if line["log_level"] == "warning"] == warned


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        (settings("0.0.0.0:9092", SECURE=ASKING), "broker.listen = 0.0.0.0:9092: "),
        (settings(SECURE=ASKING, OPEN="10.0.0.5:9192"), "broker.listeners.OPEN = 10.0.0.5:9192: "),
        (
            settings(SECURE={**MUTUAL, "client_auth": "required"}, OPEN="10.0.0.5:9192"),
            "broker.listeners.OPEN",
        ),
        (settings("127.0.0.1:9092", SECURE=ASKING), None),
        (settings("0.0.0.0:9092"), None),
        (settings(SECURE=ASKING, OPEN="127.0.0.1:9192"), None),
    ],
)
def test_a_way_around_the_login_is_refused_at_the_start(config: Settings, refused: str | None) -> None:
    if refused is None:
        check_settings(config)
        return
    with pytest.raises(Failure, match=re.escape(refused)) as failure:
        check_settings(config)
    assert "SECURE" in str(failure.value)
    assert "security.authorization: acls" in str(failure.value)
    security = replace(config.security, authorization="acls")
    check_settings(replace(config, security=security))


@pytest.mark.parametrize(
    ("listener", "warned"),
    [
        ({}, ["broker.listeners.SECURE"]),
        ({"mechanisms": ["SCRAM-SHA-512"]}, []),
        ({"mechanisms": ["OAUTHBEARER"]}, ["broker.listeners.SECURE", "oauth.audiences", "oauth.issuer"]),
        ({"address": "127.0.0.1:9093"}, []),
        (
            {"protocol": "SASL_SSL", "certificate_file": "c", "key_file": "k", "mechanisms": ["OAUTHBEARER"]},
            ["oauth.audiences", "oauth.issuer"],
        ),
    ],
)
def test_what_can_be_taken_on_the_wire_is_told_once(listener: dict[str, object], warned: list[str]) -> None:
    given = {key: value for key, value in ASKING.items() if key != "mechanisms"} | listener
    with structlog.testing.capture_logs() as lines:
        warn_of_weak_logins(settings(key_set_file="keys.json", SECURE=given))
    assert [line["setting"] for line in lines] == warned


def test_tokens_of_one_application_are_no_reason_to_warn() -> None:
    given = settings(
        key_set_file="keys.json", SECURE={**ASKING, "address": "127.0.0.1:1", "mechanisms": ["OAUTHBEARER"]}
    )
    oauth = replace(given.oauth, audiences="dray", issuer="https://login.example")
    with structlog.testing.capture_logs() as lines:
        warn_of_weak_logins(replace(given, oauth=oauth))
    assert lines == []


def test_kafka_s_configs_show_what_is_configured(tmp_path: Path) -> None:
    tls = {"certificate_file": "c", "key_file": "k"}
    asking = {"address": "127.0.0.1:9094", "protocol": "SASL_SSL", **tls}
    config = settings(
        key_set_file=str(tmp_path / "keys.json"),
        PEOPLE={**asking, "mechanisms": ["SCRAM-SHA-512", "OAUTHBEARER"], "connections": 7},
        PROGRAMS={
            "address": "127.0.0.1:9095",
            "protocol": "SSL",
            **tls,
            "client_auth": "required",
            "client_ca_file": "a",
            "mapping_rules": "RULE:^CN=(.*)$/$1/",
        },
    )
    shown = broker_configs(config)
    assert {
        name: value for name, value in shown.items() if name.startswith(("listener.", "sasl.", "ssl."))
    } == {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PEOPLE:SASL_SSL,PROGRAMS:SSL",
        "listener.name.people.max.connections": "7",
        "listener.name.people.sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.people.ssl.client.auth": "none",
        "listener.name.programs.ssl.client.auth": "required",
        "listener.name.programs.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": "3600000",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{tmp_path}/keys.json",
        "sasl.oauthbearer.sub.claim.name": "sub",
        "ssl.client.auth": "none",
    }
    assert "connections.max.reauth.ms" not in shown, "Kafka's default is ours"
    longest = replace(config, broker=replace(config.broker, longest_session=90.0))
    assert broker_configs(longest)["connections.max.reauth.ms"] == "90000"
    assert "sasl.enabled.mechanisms" not in broker_configs(settings())


def test_only_listeners_that_ask_have_sessions() -> None:
    made = sasl_sessions(
        settings(OPEN="10.0.0.5:9192", SECURE=ASKING), KnownUsers(), SystemRuntime(threads=1)
    )
    assert list(made) == ["SECURE"]
    one, other = made["SECURE"](), made["SECURE"]()
    assert one.mechanisms == ["SCRAM-SHA-512", "PLAIN"]
    assert one is not other, "one per connection"


@pytest.mark.parametrize(("longest", "milliseconds"), [("off", 0), ("90s", 90_000)])
def test_sessions_last_as_long_as_the_config_says(longest: str, milliseconds: int) -> None:
    config = load(
        environment={
            "DRAY_BROKER__LONGEST_SESSION": longest,
            "DRAY_BROKER__LISTENERS": json.dumps({"SECURE": ASKING}),
        }
    ).settings
    [make] = sasl_sessions(config, KnownUsers(), SystemRuntime(threads=1)).values()
    assert make()._longest_session_ms == milliseconds


def keys_of(*names: str) -> str:
    return json.dumps({"keys": [{**PUBLIC, "kid": name} for name in names]})


def test_keys_are_re_read_and_a_broken_file_leaves_the_old_ones(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(keys_of("one"))
    file = KeySetFile(path)
    assert not file.refresh()
    path.write_text(keys_of("one", "two"))
    assert file.refresh()
    assert len(file.current) == 2
    for broken in ("", "{}", keys_of("one")[:50]):
        path.write_text(broken)
        for _ in range(2):
            with pytest.raises(KeySetUnusable, match=r"^[^\n]+$"):
                file.refresh()
        assert len(file.current) == 2
    path.unlink()
    with pytest.raises(KeySetUnusable):
        file.refresh()
    path.write_text(keys_of("three"))
    assert file.refresh()
    assert len(file.current) == 1


def test_tokens_need_keys() -> None:
    asking = {**ASKING, "mechanisms": ["OAUTHBEARER"]}
    with pytest.raises(ConfigError, match=r"oauth\.key_set_file"):
        settings(SECURE=asking)
    with pytest.raises(KeySetUnusable, match=r"^oauth\.key_set_file: cannot read /no/keys: [^\n]+$"):
        key_source(settings(SECURE=asking, key_set_file="/no/keys"), SystemRuntime(threads=1))
    source = key_source(settings(SECURE=ASKING, key_set_file="/no/keys"), SystemRuntime(threads=1))
    assert source is None, "nobody needs it"


def with_keys_from(url: str, authorities: str = "system") -> Settings:
    return load(
        environment={
            "DRAY_OAUTH__KEY_SET_URL": url,
            "DRAY_OAUTH__KEY_SET_CA_FILE": authorities,
            "DRAY_BROKER__LISTENERS": json.dumps({"SECURE": {**ASKING, "mechanisms": ["OAUTHBEARER"]}}),
        }
    ).settings


def test_keys_may_come_from_an_address(tmp_path: Path) -> None:
    runtime = SystemRuntime(threads=1)
    source = key_source(with_keys_from("https://keys.example/jwks"), runtime)
    assert isinstance(source, KeySetAddress)
    assert source._refresh_seconds == 3600
    for url in ("http://keys.example/jwks", "file:///jwks"):
        with pytest.raises(ConfigError, match=r"oauth\.key_set_url"):
            with_keys_from(url)
    with pytest.raises(KeySetUnusable, match=r"^oauth\.key_set_url: it must have no user"):
        key_source(with_keys_from("https://u:p@keys.example/jwks"), runtime)
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for path, reason in (
        (str(broken), "it holds no certificates in PEM|NO_CERT"),
        ("/no/ca", "No such file"),
    ):
        with pytest.raises(KeySetUnusable, match=rf"^oauth\.key_set_ca_file: {path}: [^\n]*({reason})"):
            key_source(with_keys_from("https://keys.example/jwks", path), runtime)


def test_what_a_token_must_say_comes_from_the_config() -> None:
    environment = {
        "DRAY_OAUTH__AUDIENCES": "a,b",
        "DRAY_OAUTH__ISSUER": "i",
        "DRAY_OAUTH__SUBJECT_CLAIM": "email",
    }
    rules = claim_rules(load(environment=environment).settings)
    assert rules == ClaimRules(frozenset({"a", "b"}), "i", subject_claim="email")
    assert claim_rules(load(environment={}).settings) == ClaimRules()


def test_a_certificate_that_is_not_there_is_one_line_with_its_setting() -> None:
    listener = {"address": "127.0.0.1:0", "protocol": "SSL", "certificate_file": "/no/c", "key_file": "/no/k"}
    with pytest.raises(CertificateUnusable, match=r"^broker\.listeners\.TLS: cannot read /no/c: [^\n]+$"):
        read_certificates(settings(TLS=listener))


@pytest.mark.parametrize("allows", [True, False])
def test_clients_are_authorized_as_the_config_says(allows: bool) -> None:
    runtime = SystemRuntime(threads=1)
    store = MemoryStore(runtime)
    assert authorization(load().settings, runtime, store) is None
    config = load(
        environment={
            "DRAY_SECURITY__AUTHORIZATION": "acls",
            "DRAY_SECURITY__SUPER_USERS": "User:admin; User:CN=broker,O=Example",
            "DRAY_SECURITY__ALLOW_IF_NO_ACL": str(allows).lower(),
        }
    ).settings
    made = authorization(config, runtime, store)
    assert made is not None
    asked = AclOperation.WRITE, AclResourceType.TOPIC, "orders"
    for principal in ("User:admin", "User:CN=broker,O=Example"):
        assert made.access(principal, "127.0.0.1:1").may(*asked)
    for other in ("User:alice", "User:CN=broker", None):
        assert made.access(other, "127.0.0.1:1").may(*asked) == allows
    assert made.access(None, "127.0.0.1:1").principal == "User:ANONYMOUS"
    runtime.close()


@pytest.mark.parametrize(
    ("users", "problem"),
    [
        ("", "else nobody could create the first ACL"),
        ("admin", "must be principals such as User:admin"),
        ("User:*", "must be principals such as User:admin"),
        ("User:", "must be principals such as User:admin"),
        ("User:admin;Group:wheel", "must be principals such as User:admin"),
    ],
)
def test_super_users_that_are_none(users: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(environment={"DRAY_SECURITY__AUTHORIZATION": "acls", "DRAY_SECURITY__SUPER_USERS": users})


SASL = {"address": "127.0.0.1:9099", "protocol": "SASL_PLAINTEXT", "mechanisms": ["SCRAM-SHA-512", "PLAIN"]}
TOKENS = {"address": "127.0.0.1:9099", "protocol": "SASL_PLAINTEXT", "mechanisms": ["OAUTHBEARER"]}


@pytest.mark.parametrize(
    ("listener", "super_users", "known", "warning"),
    [
        (SASL, "User:admin", "", "add one with drayd admin user add admin --password-file FILE --data-dir"),
        (SASL, "User:root;User:admin", "admin", None),
        (SASL, "User:ANONYMOUS", "", None),
        (None, "User:admin", "admin", "no listener asks clients who they are"),
        (TOKENS, "User:admin", "", None),
    ],
)
def test_super_users_that_cannot_log_in_are_one_line(
    listener: dict[str, object] | None, super_users: str, known: str, warning: str | None
) -> None:
    environment = {"DRAY_SECURITY__AUTHORIZATION": "acls", "DRAY_SECURITY__SUPER_USERS": super_users}
    if listener is not None:
        environment["DRAY_BROKER__LISTENERS"] = json.dumps({"SECURE": listener})
        environment["DRAY_OAUTH__KEY_SET_FILE"] = "keys.json"

    users = KnownUsers({known: {ScramMechanism.SHA_256: ScramCredential(b"", b"", b"", 4096)}})
    with structlog.testing.capture_logs() as lines:
        warn_of_absent_super_users(load(environment=environment).settings, users)
    if warning is None:
        assert lines == []
    else:
        [line] = lines
        assert warning in line["event"]


async def test_a_broker_that_starts_says_that_no_super_user_can_log_in() -> None:
    environment = {"DRAY_SECURITY__AUTHORIZATION": "acls", "DRAY_SECURITY__SUPER_USERS": "User:admin"}
    environment["DRAY_BROKER__LISTENERS"] = json.dumps({"SECURE": SASL})
    runtime = SystemRuntime(threads=1)
    security = BrokerSecurity(load(environment=environment).settings, runtime, MemoryStore(runtime))
    with structlog.testing.capture_logs() as lines:
        await security.start()
    await security.stop()
    runtime.close()
    assert [line["log_level"] for line in lines if "no super user has a password" in line["event"]] == [
        "warning"
    ]


def test_the_warning_of_an_open_listener_says_whom_its_clients_are() -> None:
    config = load(
        environment={
            "DRAY_SECURITY__AUTHORIZATION": "acls",
            "DRAY_SECURITY__SUPER_USERS": "User:admin",
            "DRAY_BROKER__LISTEN": "broker.example:9092",
        }
    ).settings
    with structlog.testing.capture_logs() as lines:
        warn_of_open_listeners(config)
    [line] = lines
    assert "User:ANONYMOUS" in line["event"]


def test_there_is_an_audit_log_wherever_clients_are_known() -> None:
    runtime = SystemRuntime(threads=1)
    store = MemoryStore(runtime)
    assert authorization(settings(OPEN="10.0.0.5:9192"), runtime, store) is None
    requested = {**MUTUAL, "client_auth": "requested"}
    for config in (settings(SECURE=ASKING), settings(MUTUAL=requested)):
        found = authorization(config, runtime, store)
        assert found is not None
        assert found.acls is None
        access = found.access("User:app", "10.0.0.1:1")
        assert access.may(AclOperation.ALTER, AclResourceType.CLUSTER, "kafka-cluster")
        assert access.may_on_some(AclOperation.WRITE, AclResourceType.TOPIC)


async def test_what_the_audit_log_has_counted_is_written_in_time() -> None:
    class Impatient(SystemRuntime):
        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(0.001 if seconds == 10.0 else seconds)

    runtime = Impatient(threads=1)
    security = BrokerSecurity(settings(SECURE=ASKING), runtime, MemoryStore(runtime))
    assert security.authorization is not None
    written: list[bool] = []
    security.authorization.audit.write_counted = (  # type: ignore[method-assign]
        lambda everything=False: written.append(everything)
    )
    await security.start()
    await eventually(lambda: len(written) >= 2)
    assert not any(written)
    await security.stop()
    assert written[-1], "what is not over yet, too"
