"""Kafka's client properties as people write them, and every mistake in them as one line without a secret."""

from __future__ import annotations

import pickle
import ssl
from pathlib import Path

import pytest
from tests.services.certificates import Certificates, make_certificates
from tests.unit.kafka.client.client_fakes import Clock

from dray.kafka.client.properties import (
    ClientSecurity,
    PropertiesRefused,
    parse_properties,
    parse_security,
    read_security,
)
from dray.kafka.sasl.client import ClientCredential

SECRET = "hunter2"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{SCRAM} required username="alice" password="{SECRET}";'
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": JAAS}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1\nb: 2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("# a=1\n ! b=2\n\n  c = 3 \n", {"c": "3 "}),
        ("a=one\\\n   two\\\n#three\r\nb=4", {"a": "onetwo#three", "b": "4"}),
        ("a=C:\\\\x\\ty\\u00e4\\z", {"a": "C:\\x\tyäz"}),
        ("a\\=b\\ c = =d", {"a=b c": "=d"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=\nb\nc\\", {"a": "", "b": "", "c": ""}),
    ],
)
def test_javas_format(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


def test_a_file_as_people_have_it(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# for kafka-topics.sh --command-config\nbootstrap.servers=there:9093\nacks=all\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={SCRAM} required \\\n  username="alice" \\\n  password="{SECRET}";\n'
    )
    found = read_security(file)
    assert found.credential == ClientCredential("SCRAM-SHA-256", "alice", SECRET)
    assert found.tls is not None
    assert found.tls.check_name
    assert found.tls.authorities is None
    assert SECRET not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found


def test_without_a_word_about_security_there_is_none() -> None:
    assert parse_security({"group.id": "g"}) == ClientSecurity()
    dialer = ClientSecurity().dialer("me", Clock(), 100)
    assert (dialer.client_id, dialer.tls, dialer.login, dialer.largest_frame) == ("me", None, None, 100)


@pytest.mark.parametrize(
    ("jaas", "password"),
    [
        (f"{SCRAM} required password='a b' username=alice;", "a b"),
        (f'{SCRAM} REQUIRED username="alice" password="a\\"b\\\\c;=" ;', 'a"b\\c;='),
    ],
)
def test_jaas_is_read_as_java_does(jaas: str, password: str) -> None:
    found = parse_security(SASL | {"sasl.jaas.config": jaas}).credential
    assert found == ClientCredential("SCRAM-SHA-512", "alice", password)


def test_a_password_in_a_file_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    given = {"username": "alice", "password.file": str(file)}
    found = parse_security({"security.protocol": "sasl_plaintext", "sasl.mechanism": "scram-sha-256"} | given)
    assert found.credential == ClientCredential("SCRAM-SHA-256", "alice", SECRET)


def test_plain_needs_tls_or_a_word(tmp_path: Path) -> None:
    jaas = f'{PLAIN} required username="alice" password="{SECRET}";'
    given = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    with pytest.raises(PropertiesRefused, match="would send the password in clear"):
        parse_security({"security.protocol": "SASL_PLAINTEXT"} | given)
    allowed = given | {"plain.without.tls": "true"}
    assert parse_security({"security.protocol": "SASL_PLAINTEXT"} | allowed).credential is not None
    assert parse_security({"security.protocol": "SASL_SSL"} | given).credential is not None


def test_the_server_is_verified_unless_said_otherwise(certificates: Certificates) -> None:
    given = {"security.protocol": "SSL", "ssl.truststore.location": str(certificates.authority)}
    context = parse_security(given).dialer("me", Clock()).tls
    assert context is not None
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert len(context.get_ca_certs()) == 1, "no other authority than the one named"
    context = parse_security(given | {"ssl.endpoint.identification.algorithm": ""}).dialer("me", Clock()).tls
    assert context is not None
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_a_client_certificate(certificates: Certificates, tmp_path: Path) -> None:
    store = tmp_path / "client.pem"
    store.write_text(certificates.key.read_text() + certificates.certificate.read_text())
    given = {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    inline = {"ssl.truststore.certificates": certificates.authority.read_text()}
    found = parse_security(given | inline)
    assert found.tls is not None
    assert found.tls.identity == str(store)
    found.dialer("me", Clock())


MISTAKES: dict[str, tuple[dict[str, str], str]] = {
    "protocol": ({"security.protocol": "TLS"}, "security.protocol = 'TLS': must be one of PLAINTEXT, SSL"),
    "unknown": ({"sasl.login.class": "x"}, "sasl.login.class: is not known here; known: security.protocol"),
    "password": ({"password": SECRET}, "password: is not taken; write it to a file"),
    "no effect": (
        {"sasl.mechanism": "PLAIN"},
        "sasl.mechanism: has no effect, since security.protocol is PLAINTEXT",
    ),
    "no TLS": (SASL | {"ssl.key.password": SECRET}, "ssl.key.password: has no effect"),
    "mechanism": (SASL | {"sasl.mechanism": "GSSAPI"}, "sasl.mechanism: must be one of SCRAM-SHA-256, SCR"),
    "no user": (
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
        "sasl.jaas.config: is needed (MODULE required",
    ),
    "both": (
        SASL | {"username": "bob"},
        "sasl.jaas.config: give it, or username and password.file, not both",
    ),
    "no password": (
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "username": "bob"},
        "sasl.jaas.config: is needed",
    ),
    "password file": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "username": "bob",
            "password.file": "/none",
        },
        "password.file: cannot read '/none': No such file or directory",
    ),
    "semicolon": (SASL | {"sasl.jaas.config": JAAS[:-1]}, "(mind the semicolon)"),
    "quote": (
        SASL | {"sasl.jaas.config": JAAS.replace('";', ";")},
        "sasl.jaas.config: a quote is not closed",
    ),
    "flag": (SASL | {"sasl.jaas.config": JAAS.replace("required", "")}, "sasl.jaas.config: must be MODULE"),
    "module": (
        SASL | {"sasl.jaas.config": JAAS.replace("Scram", "Oauth")},
        "sasl.jaas.config: the module must be one of org.apache",
    ),
    "other module": (
        SASL | {"sasl.jaas.config": JAAS.replace(SCRAM, PLAIN)},
        "sasl.jaas.config: its module is for PLAIN, sasl.mechanism is SCRAM-SHA-512",
    ),
    "split password": (
        SASL | {"sasl.jaas.config": f"{SCRAM} required username=alice password=x {SECRET};"},
        'sasl.jaas.config: its options must be username="..." and password="..."',
    ),
    "option": (
        SASL | {"sasl.jaas.config": JAAS.replace(";", ' tokenauth="true";')},
        'sasl.jaas.config: its options must be username="..." and password="..."',
    ),
    "empty": (
        SASL | {"sasl.jaas.config": JAAS.replace("alice", "")},
        "the user name and the password must not be empty",
    ),
    "allowance": (SASL | {"plain.without.tls": "yes"}, "plain.without.tls: must be true or false"),
    "store type": (
        {"security.protocol": "SSL", "ssl.truststore.type": "JKS"},
        "ssl.truststore.type = 'JKS': must be PEM",
    ),
    "algorithm": (
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"},
        "ssl.endpoint.identification.algorithm: must be https, or empty",
    ),
    "two stores": (
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "/none",
            "ssl.truststore.certificates": "x",
        },
        "ssl.truststore.location, ssl.truststore.certificates: give one of them",
    ),
    "no store": (
        {"security.protocol": "SSL", "ssl.truststore.location": "/none"},
        "ssl.truststore.location: cannot read '/none': No such file",
    ),
    "no certificate": (
        {"security.protocol": "SSL", "ssl.truststore.certificates": "x"},
        "ssl.truststore.location: holds no certificates in PEM",
    ),
    "no key": (
        {"security.protocol": "SSL", "ssl.keystore.location": "/none", "ssl.key.password": SECRET},
        "ssl.keystore.location: No such file or directory",
    ),
    "not a key": (
        {"security.protocol": "SSL", "ssl.keystore.location": __file__, "ssl.key.password": SECRET},
        "ssl.keystore.location: holds no private key",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_one_line_without_a_secret(what: str) -> None:
    given, words = MISTAKES[what]
    with pytest.raises(PropertiesRefused) as caught:
        parse_security(given)
    text = str(caught.value)
    assert words in text
    assert "\n" not in text
    assert SECRET not in text


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PropertiesRefused, match=r"cannot read .*: Is a directory"):
        read_security(tmp_path)
    file = tmp_path / "store.jks"
    file.write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(PropertiesRefused, match=r"is no UTF-8 text \(a Java store must be PEM\)"):
        read_security(file)
    file.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(PropertiesRefused, match="is larger than 1048576 bytes"):
        read_security(file)
