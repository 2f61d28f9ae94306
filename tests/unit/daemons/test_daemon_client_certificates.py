"""From the config of a listener to its certificates, its clients' principals, and its limits."""

from __future__ import annotations

import json
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from tests.services.authorities import Authority

from dray.broker.security.audit import AuditedAct, AuditLog
from dray.broker.server.tls.handshakes import PeerRefused
from dray.broker.server.tls.listener import CertificateUnusable
from dray.daemons.assembly.settings import server_settings
from dray.daemons.broker.security import identifications, read_certificates
from dray.daemons.config import ConfigError, Settings, load
from dray.daemons.config.listeners import CertificateFiles, ListenerAddress, ListenerPlace

PEER = "10.0.0.1:1234"
ADDRESS = "127.0.0.1:0"


def settings(**listeners: object) -> Settings:
    return load(environment={"DRAY_BROKER__LISTENERS": json.dumps(listeners)}).settings


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def files(authority: Authority) -> dict[str, object]:
    pair = authority.issue("CN=server", ("127.0.0.1",))
    return {"certificate_file": str(pair.certificate), "key_file": str(pair.key)}


def der(authority: Authority, name: str) -> bytes:
    made = authority.issue(name)
    return x509.load_pem_x509_certificate(made.certificate.read_bytes()).public_bytes(Encoding.DER)


def test_a_listener_reaches_the_server_whole(authority: Authority) -> None:
    config = settings(
        MUTUAL={
            "address": ADDRESS,
            "protocol": "SSL",
            **files(authority),
            "client_auth": "required",
            "client_ca_file": str(authority.file),
            "mapping_rules": "RULE:^CN=(.*?),OU=.*$/$1/L,DEFAULT",
            "connections": 7,
        },
        BOTH={
            "address": ADDRESS,
            "protocol": "SASL_SSL",
            **files(authority),
            "client_auth": "requested",
            "client_ca_file": str(authority.file),
        },
    )
    certificates = read_certificates(config)
    known = identifications(config)
    mutual, both = server_settings(config, certificates, known).listeners
    assert (mutual.max_connections, both.max_connections) == (7, None)
    assert mutual.encryption is not None
    assert both.encryption is not None
    contexts = certificates["MUTUAL"].context, certificates["BOTH"].context
    assert [context.verify_mode for context in contexts] == [ssl.CERT_REQUIRED, ssl.CERT_OPTIONAL]
    assert mutual.identify is not None
    assert mutual.identify(der(authority, "CN=App,OU=Dray"), PEER) == "User:app"
    assert mutual.identify(der(authority, "CN=App"), PEER) == "User:CN=App"
    assert mutual.identify(None, PEER) is None
    assert both.identify is None, "SASL says who a client is"


def test_a_name_that_no_rule_maps_is_no_principal(authority: Authority) -> None:
    config = settings(
        MUTUAL={
            "address": ADDRESS,
            "protocol": "SSL",
            **files(authority),
            "client_auth": "required",
            "client_ca_file": str(authority.file),
            "mapping_rules": "RULE:^CN=known$/known/",
        }
    )
    noted: list[AuditedAct] = []
    audit = AuditLog(lambda: 0.0, lambda act, *_: noted.append(act))
    identify = identifications(config, audit)["MUTUAL"]
    assert identify(None, PEER) is None
    assert identify(der(authority, "CN=known"), PEER) == "User:known"
    with pytest.raises(PeerRefused, match=r"^no mapping rule applies to 'CN=other'$") as refused:
        identify(der(authority, "CN=other"), PEER)
    assert refused.value.kind == "no mapping rule applies"
    with pytest.raises(PeerRefused):
        identify(b"no certificate", PEER)
    where = ("10.0.0.1", "AUTHENTICATE", "LISTENER", "MUTUAL")
    assert noted == [
        (True, "User:known", *where, "certificate"),
        (False, "User:CN=other", *where, "certificate: no mapping rule applies"),
        (False, "", *where, "certificate: unreadable certificate"),
    ]


def test_rules_that_are_not_understood_are_one_line_with_the_setting(authority: Authority) -> None:
    config = settings(
        MUTUAL={
            "address": ADDRESS,
            "protocol": "SSL",
            **files(authority),
            "client_auth": "required",
            "client_ca_file": str(authority.file),
            "mapping_rules": "RULE:(/x/",
        }
    )
    with pytest.raises(CertificateUnusable, match=r"^broker\.listeners\.MUTUAL: mapping_rules: [^\n]+$"):
        identifications(config)


TLS = {"address": ADDRESS, "protocol": "SSL", "certificate_file": "c", "key_file": "k"}
SASL = {"address": ADDRESS, "protocol": "SASL_PLAINTEXT"}
AUTH = {"client_auth": "required", "client_ca_file": "a"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({**TLS, "client_auth": "maybe"}, "client_auth is one of none, requested, required"),
        ({**TLS, "client_auth": "required"}, "with client_ca_file"),
        ({**TLS, "client_ca_file": "a"}, "with client_ca_file"),
        ({**TLS, "mapping_rules": "DEFAULT"}, "mapping_rules are text, with client_auth"),
        ({**TLS, **AUTH, "protocol": "SASL_SSL", "mapping_rules": "DEFAULT"}, "SASL says who a client is"),
        ({**TLS, "connections": 0}, "connections are a whole number from 1 on"),
        ({**TLS, "zone": "a b"}, "zone is 1 to 100 letters"),
        ({**TLS, "mechanisms": ["PLAIN"]}, "without mechanisms: with SSL it has address, protocol"),
        ({**TLS, "further_certificates": [{"key_file": "k"}]}, "with certificate_file and key_file"),
        ({**TLS, "further_certificates": "x"}, "further_certificates are a list"),
        ({"address": ADDRESS, "protocol": "SSL"}, "with certificate_file and key_file"),
        ({**SASL, "mechanisms": ["SCRAM"]}, "mechanisms are a list of SCRAM-SHA-256"),
        ({**SASL, "mechanism": ["PLAIN"]}, "without mechanism: with SASL_PLAINTEXT it has"),
        ({"address": ADDRESS, "protocol": "TLS"}, "protocol is one of PLAINTEXT, SSL"),
        ({"protocol": "SSL"}, "HOST:PORT"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_write(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(MUTUAL=given)
    text = str(refused.value)
    assert words in text
    assert "broker.listeners" in text
    assert "\n" not in text


def test_a_listener_is_written_as_it_was_read() -> None:
    """So does a supervisor hand it to its brokers."""
    whole = {
        **TLS,
        **AUTH,
        "mapping_rules": "RULE:x/y/",
        "connections": 5,
        "zone": "eu-west-1a",
        "further_certificates": [{"certificate_file": "c2", "key_file": "k2"}],
    }
    kind = ListenerPlace(free_port=True)
    place = kind.parse(whole)
    assert place.further_certificates == (CertificateFiles("c2", "k2"),)
    assert kind.parse(kind.render(place)) == place
    assert kind.render(place) == whole
    assert kind.render(ListenerAddress("h", 1)) == "h:1"
    limited = kind.parse({"address": "h:1", "connections": 3})
    assert kind.parse(kind.render(limited)) == limited


def test_only_a_required_certificate_makes_clients_known() -> None:
    kind = ListenerPlace(free_port=True)
    assert kind.parse({**TLS, **AUTH}).knows_clients
    assert not kind.parse({**TLS, **AUTH, "client_auth": "requested"}).knows_clients
    assert not kind.parse(TLS).knows_clients
