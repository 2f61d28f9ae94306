"""From the config of a listener to its certificates, its clients' principals, and its limits."""

from __future__ import annotations

import json
import ssl
import sys
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from structlog.testing import capture_logs
from tests.services.authorities import Authority

from dray.config import ConfigError, Settings, load
from dray.config.listeners import CertificateFiles, ListenerAddress, ListenerPlace
from dray.daemon.client_certificates import identifications, read_certificates
from dray.daemon.settings import server_settings
from dray.security.audit import AuditedAct, AuditLog
from dray.server.bundled_tls import BundledEncryption
from dray.server.encryption import SystemEncryption
from dray.server.handshakes import PeerRefused
from dray.server.tls import CertificateUnusable

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
    _, mutual, both = server_settings(config, certificates, known).listeners
    assert (mutual.max_connections, both.max_connections) == (7, None)
    assert mutual.encryption is not None
    assert both.encryption is not None
    assert isinstance(mutual.encryption(), BundledEncryption)
    contexts = certificates["MUTUAL"].context, certificates["BOTH"].context
    assert [context.verify_mode for context in contexts] == [ssl.CERT_REQUIRED, ssl.CERT_OPTIONAL]
    assert mutual.identify is not None
    assert mutual.identify(der(authority, "CN=App,OU=Dray"), PEER) == "User:app"
    assert mutual.identify(der(authority, "CN=App"), PEER) == "User:CN=App"
    assert mutual.identify(None, PEER) is None
    assert both.identify is None, "SASL says who a client is"


def test_the_other_library_can_be_chosen(authority: Authority) -> None:
    config = settings(SECURE={"address": ADDRESS, "protocol": "SSL", **files(authority)})
    assert config.security.tls_library == "bundled"
    [certificate] = read_certificates(config).values()
    assert isinstance(certificate.encryption(), BundledEncryption)
    chosen = config.security.model_copy(update={"tls_library": "system"})
    [certificate] = read_certificates(config.model_copy(update={"security": chosen})).values()
    assert isinstance(certificate.encryption(), SystemEncryption)


@pytest.mark.parametrize("absent", ["the binding", "a function of it"])
def test_without_the_bundled_library_listeners_encrypt_with_the_other(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, absent: str
) -> None:
    monkeypatch.delitem(sys.modules, "dray.server.bundled_tls")
    if absent == "the binding":
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.bindings._rust", None)
    else:
        library = SimpleNamespace(lib=SimpleNamespace(), ffi=SimpleNamespace())
        monkeypatch.setattr("cryptography.hazmat.bindings._rust._openssl", library)
    one = {"address": ADDRESS, "protocol": "SSL", **files(authority)}
    with capture_logs() as lines:
        certificates = read_certificates(settings(ONE=one, TWO=one))
    assert [type(made.encryption()) for made in certificates.values()] == [SystemEncryption] * 2
    assert [(line["log_level"], line["setting"]) for line in lines] == [("warning", "security.tls_library")]
    assert "\n" not in lines[0]["reason"]


def test_the_bundled_library_is_loaded_only_where_a_listener_encrypts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "dray.server.bundled_tls")
    read_certificates(settings(OPEN={"address": ADDRESS, "protocol": "SASL_PLAINTEXT"}))
    assert "dray.server.bundled_tls" not in sys.modules


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
