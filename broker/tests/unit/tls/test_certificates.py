"""Facts of certificates: names as Java writes them, and the end of validity."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from support.certificates import make
from understudy.tls.certificates import facts_of, normalised, pem_blocks, subject_of


def der_of(*attributes: tuple[x509.ObjectIdentifier, str]) -> bytes:
    """A certificate with these attributes, least specific first."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(identifier, value) for identifier, value in attributes])
    now = datetime(2051, 3, 4, 5, 6, 7, tzinfo=UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(datetime(2020, 1, 1, tzinfo=UTC)).not_valid_after(now)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("attributes", "text", "rfc2253"),
    [
        (
            [(NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "Example"), (NameOID.COMMON_NAME, "bob")],
            "CN=bob, O=Example, C=DE",
            "CN=bob,O=Example,C=DE",
        ),
        (
            [(NameOID.ORGANIZATION_NAME, "A, B"), (NameOID.COMMON_NAME, "müller")],
            'CN=müller, O="A, B"',
            "CN=müller,O=A\\, B",
        ),
        (
            [(NameOID.STATE_OR_PROVINCE_NAME, "x"), (NameOID.EMAIL_ADDRESS, "a@b")],
            "EMAILADDRESS=a@b, ST=x",
            "1.2.840.113549.1.9.1=#1603614062,ST=x",
        ),
        (
            [(NameOID.DOMAIN_COMPONENT, "org"), (NameOID.USER_ID, "u1"), (x509.ObjectIdentifier("1.2.3.4"), "v")],
            "OID.1.2.3.4=v, UID=u1, DC=org",
            "1.2.3.4=#0c0176,UID=u1,DC=org",
        ),
    ],
)
def test_names_as_java_writes_them(
    attributes: list[tuple[x509.ObjectIdentifier, str]], text: str, rfc2253: str
) -> None:
    subject = subject_of(der_of(*attributes))
    assert (subject.text, subject.rfc2253) == (text, rfc2253)


def test_the_end_of_validity_in_both_forms_of_time() -> None:
    far = facts_of(der_of((NameOID.COMMON_NAME, "a")))
    assert datetime.fromtimestamp(far.not_after_ms / 1000, UTC) == datetime(2051, 3, 4, 5, 6, 7, tzinfo=UTC)
    near = make(days=10)
    assert facts_of(near.der).not_after_ms == near.certificate.not_valid_after_utc.timestamp() * 1000
    assert facts_of(near.der).sha256 == near.certificate.fingerprint(hashes.SHA256()).hex()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("CN=a, O=b", "cn=a,o=b"),
        ('O="A, B", C=DE', "O=A\\, B,C=DE"),
        ("EMAILADDRESS=a@b, S=x", "E=a@b,ST=x"),
    ],
)
def test_names_are_equal_however_they_are_written(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


@pytest.mark.parametrize("other", ["CN=A, O=b", "O=b, CN=a", "CN=a", "CN=a, O=b, C=c", "CN=a\\, O=b"])
def test_names_that_differ(other: str) -> None:
    assert normalised("CN=a, O=b") != normalised(other)


def test_a_certificate_that_is_cut_off_is_refused() -> None:
    der = make().der
    for length in range(0, 200, 3):
        with pytest.raises(ValueError, match="certificate"):
            facts_of(der[:length])


def test_blocks_of_a_pem_file() -> None:
    made = make()
    data = b"# a comment\n" + made.pem + made.key_pem()
    assert list(pem_blocks(data, "CERTIFICATE")) == [made.der]
    assert len(list(pem_blocks(data, "PRIVATE KEY"))) == 1
