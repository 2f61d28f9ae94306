"""Names of certificates. What is expected was printed by Java 17's `X500Principal.getName()`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as some

from dray.broker.security.principals import UnreadableCertificate, distinguished_name

KEY = ec.generate_private_key(ec.SECP256R1())
Pair = tuple[x509.ObjectIdentifier, str]


def certificate(*groups: tuple[Pair, ...], kind: _ASN1Type | None = None) -> bytes:
    name = x509.Name(
        x509.RelativeDistinguishedName([x509.NameAttribute(oid, value, kind) for oid, value in group])
        for group in groups
    )
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name([]))
        .public_key(KEY.public_key())
        .serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(KEY, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.DER)


COMMON, UNIT = NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
GOOD = certificate(((COMMON, "app"),), ((UNIT, "unit"),))

BY_JAVA: list[tuple[tuple[tuple[Pair, ...], ...], str]] = [
    (
        (
            ((NameOID.COUNTRY_NAME, "DE"),),
            ((NameOID.ORGANIZATION_NAME, "Dray, Inc."),),
            ((COMMON, "app one"),),
        ),
        r"CN=app one,O=Dray\, Inc.,C=DE",
    ),
    (
        (((NameOID.EMAIL_ADDRESS, "a@b.example"),), ((COMMON, "x"),)),
        "CN=x,1.2.840.113549.1.9.1=#160b6140622e6578616d706c65",
    ),
    ((((COMMON, " lead and trail  "),),), r"CN=\ lead and trail\ \ "),
    ((((COMMON, '#a+b"c\\d<e>f;g=h#'),),), r"CN=\#a\+b\"c\\d\<e\>f\;g\=h\#"),
    ((((COMMON, "zoë 東京"),),), "CN=zoë 東京"),
    ((((COMMON, "two"), (UNIT, "unit")), ((NameOID.LOCALITY_NAME, "B"),)), "L=B,CN=two+OU=unit"),
    (
        (
            ((NameOID.USER_ID, "u1"),),
            ((NameOID.DOMAIN_COMPONENT, "example"),),
            ((NameOID.STREET_ADDRESS, "S 1"),),
            ((NameOID.STATE_OR_PROVINCE_NAME, "BY"),),
        ),
        "ST=BY,STREET=S 1,DC=example,UID=u1",
    ),
    (
        (((NameOID.SERIAL_NUMBER, "123"),), ((NameOID.SURNAME, "S"),), ((NameOID.TITLE, "Dr"),)),
        "2.5.4.12=#0c024472,2.5.4.4=#0c0153,2.5.4.5=#1303313233",
    ),
    ((((COMMON, "a\0b"),),), r"CN=a\00b"),
    ((((COMMON, "line\nbreak\r"),),), "CN=line\nbreak\\\r"),
    ((((COMMON, " "),),), r"CN=\ "),
]


@pytest.mark.parametrize(("groups", "expected"), BY_JAVA)
def test_names_are_written_as_java_writes_them(groups: tuple[tuple[Pair, ...], ...], expected: str) -> None:
    assert distinguished_name(certificate(*groups)) == expected


def test_a_name_that_is_no_utf_8_is_no_name() -> None:
    """Java writes a mark in place of what it cannot read: two names would become one."""
    made = certificate(((COMMON, "zoë"),), kind=_ASN1Type.BMPString)
    with pytest.raises(UnreadableCertificate):
        distinguished_name(made)


@given(some.binary(max_size=200))
def test_any_bytes_are_a_name_or_refused(data: bytes) -> None:
    try:
        distinguished_name(data)
    except UnreadableCertificate:
        return


@given(some.data())
def test_a_certificate_with_a_fault_is_a_name_or_refused(data: some.DataObject) -> None:
    good = bytearray(GOOD)
    good[data.draw(some.integers(0, len(good) - 1))] = data.draw(some.integers(0, 255))
    try:
        distinguished_name(bytes(good[: data.draw(some.integers(0, len(good)))]))
    except UnreadableCertificate:
        return
