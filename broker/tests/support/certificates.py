"""Certificates for tests, made when they are needed: nothing with an expiry date is in the repository."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

PASSWORD = "store-secret"


@dataclass(frozen=True)
class Made:
    """A certificate, its key, and the certificates of its issuers."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    issuers: tuple[x509.Certificate, ...] = ()

    @property
    def pem(self) -> bytes:
        """The chain without the root."""
        return b"".join(each.public_bytes(Encoding.PEM) for each in (self.certificate, *self.issuers[:-1]))

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def key_pem(self, password: str | None = None) -> bytes:
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)

    def write(self, path: Path, password: str | None = None) -> Path:
        """Chain and key in one PEM file."""
        path.write_bytes(self.pem + self.key_pem(password))
        return path

    def write_certificate(self, path: Path) -> Path:
        path.write_bytes(self.certificate.public_bytes(Encoding.PEM))
        return path

    def write_pkcs12(self, path: Path, alias: str = "broker", password: str = PASSWORD) -> Path:
        encryption = BestAvailableEncryption(password.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                alias.encode(), self.key, self.certificate, list(self.issuers), encryption
            )
        )
        return path


def name(text: str) -> x509.Name:
    """``CN=a,O=b``, most specific part first."""
    return x509.Name.from_rfc4514_string(text)


def make(
    subject: str = "CN=localhost,O=Understudy",
    issuer: Made | None = None,
    *,
    names: tuple[str, ...] = ("localhost", "127.0.0.1"),
    authority: bool = False,
    days: float = 90,
) -> Made:
    """A certificate, self-signed without an issuer."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(issuer.certificate.subject if issuer else name(subject))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if names and not authority:
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(each) for each in names]), False)
    certificate = builder.sign(issuer.key if issuer else key, hashes.SHA256())
    return Made(certificate, key, (issuer.certificate, *issuer.issuers) if issuer else ())


def revocation_list(issuer: Made, *revoked: Made) -> bytes:
    """PEM of the revocation list of an authority."""
    now = datetime.now(UTC)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.certificate.subject)
        .last_update(now - timedelta(days=1))
        .next_update(now + timedelta(days=30))
    )
    for each in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(each.certificate.serial_number).revocation_date(now)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(issuer.key, hashes.SHA256()).public_bytes(Encoding.PEM)


def write_trust(path: Path, *trusted: Made, password: str = PASSWORD) -> Path:
    """A PKCS12 trust store that Java reads: its certificates are marked as trusted."""
    certificates = [
        pkcs12.PKCS12Certificate(each.certificate, f"ca{index}".encode()) for index, each in enumerate(trusted)
    ]
    path.write_bytes(pkcs12.serialize_java_truststore(certificates, BestAvailableEncryption(password.encode())))
    return path


def _alternative(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def served_certificate(port: int) -> bytes:
    """The certificate that a new connection to a server on loopback gets, DER; empty if it does not accept one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as connection:
            return connection.getpeercert(binary_form=True) or b""
    except ConnectionError:
        return b""
