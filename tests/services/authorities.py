"""Certificate authorities that only the tests know, and certificates that are expired, to come or revoked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)
PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Identity:
    """The files of a certificate and its key; `both` has the key before the certificate."""

    certificate: Path
    key: Path
    both: Path
    serial: int


def _name(text: str) -> x509.Name:
    return x509.Name.from_rfc4514_string(text)


def _key_text(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


class Authority:
    """A root, or below another one (`above`)."""

    def __init__(self, directory: Path, name: str = "CN=Dray tests", above: Authority | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        signer = above or self
        self.serial = 1 if above is None else above.next_serial()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._serial = 1
        self.file = directory / "authority.pem"
        now = datetime.now(UTC)
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(signer._name)
            .public_key(self._key.public_key())
            .serial_number(self.serial)
            .not_valid_before(now - 10 * DAY)
            .not_valid_after(now + 10 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(signer._key, hashes.SHA256())
        )
        self.file.write_bytes(self._certificate.public_bytes(PEM))

    def next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def issue(
        self,
        name: str,
        hosts: tuple[str, ...] = (),
        begins: timedelta = -DAY,
        ends: timedelta = DAY,
    ) -> Identity:
        """`hosts`: names and addresses of a server. Times are counted from now."""
        self.next_serial()
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        names = [_general(host) for host in hosts]
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(self._serial)
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(PEM)
        stem = self._directory / f"certificate-{self._serial}"
        made = Identity(
            stem.with_suffix(".crt"), stem.with_suffix(".key"), stem.with_suffix(".pem"), self._serial
        )
        made.certificate.write_bytes(certificate)
        made.key.write_bytes(_key_text(key))
        made.both.write_bytes(_key_text(key) + certificate)
        return made

    def revocations(self, *serials: int) -> bytes:
        """A list in PEM of what was revoked."""
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(now - DAY).next_update(now + DAY)
        for serial in serials:
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - DAY)
            builder = builder.add_revoked_certificate(revoked.build())
        return builder.sign(self._key, hashes.SHA256()).public_bytes(PEM)


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def common_name(certificate: bytes) -> str:
    """Of a certificate in DER."""
    [found] = x509.load_der_x509_certificate(certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found.value)
