"""Contents of key stores, trust stores and revocation lists as PEM.

Nothing is written to a disk: the result stays in memory. PKCS12 is decoded by the library cryptography, which is
imported only for that type.
"""

from __future__ import annotations

from base64 import encodebytes
from collections.abc import Callable
from dataclasses import field
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.tls.certificates import pem_blocks
from understudy.tls.settings import JAVA_TYPES, PEM, PEMCFG, PKCS12, Store, conversion_hint

ReadFile = Callable[[str], bytes]
"""Reads a file. Raises OSError."""

_JAVA_MAGIC: Final = {bytes.fromhex("feedfeed"): JAVA_TYPES[0], bytes.fromhex("cececece"): JAVA_TYPES[1]}
_DER_SEQUENCE: Final = b"\x30"


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate chain and its key."""

    pem: bytes = field(repr=False)
    """Certificate chain, then private key, in PEM for OpenSSL."""
    password: str | None = field(repr=False)
    """Password of the key in ``pem``; None if it is not encrypted."""
    certificate: bytes
    """DER of the certificate itself."""


def read_identity(store: Store, read: ReadFile) -> Identity:
    """The certificate and the key of a key store.

    Raises:
        ConfigError: the file cannot be read, has another type, or lacks the key or the certificate; names the file.
    """
    data = _read(store, store.path, read)
    kind = _kind(store, data)
    if kind == PEMCFG:
        data = b"\n".join(_read(store, path, read) for path in _pemcfg(store, data))
    elif kind == PKCS12:
        return _pkcs12_identity(store, data)
    certificates = _certificates(store, data)
    if not any(pem_blocks(data, "PRIVATE KEY")):
        raise store.error("contains no private key")
    return Identity(data, store.password, certificates[0])


def read_trusted(store: Store, read: ReadFile) -> bytes:
    """Certificates of a trust store in DER form.

    Raises:
        ConfigError: the file cannot be read, has another type, or contains no certificate; names the file.
    """
    data = _read(store, store.path, read)
    kind = _kind(store, data)
    if kind == PKCS12:
        loaded = _pkcs12(store, data)
        from cryptography.hazmat.primitives.serialization import Encoding

        entries = (loaded.cert, *loaded.additional_certs)
        found = [entry.certificate.public_bytes(Encoding.DER) for entry in entries if entry is not None]
        if not found:
            raise store.error("contains no certificate")
        return b"".join(found)
    if kind == PEMCFG:
        data = b"\n".join(_read(store, path, read) for path in _pemcfg(store, data))
    return b"".join(_certificates(store, data))


def read_revoked(path: str, read: ReadFile) -> bytes:
    """The revocation lists of a file as PEM. Raises ConfigError."""
    try:
        data = read(path)
    except OSError as error:
        raise ConfigError(f"crlPath {path}: {error.strerror or error}") from error
    if data.startswith(_DER_SEQUENCE):
        return b"-----BEGIN X509 CRL-----\n" + encodebytes(data) + b"-----END X509 CRL-----\n"
    if not any(pem_blocks(data, "X509 CRL")):
        raise ConfigError(f"crlPath {path}: contains no revocation list")
    return data


def _read(store: Store, path: str, read: ReadFile) -> bytes:
    try:
        return read(path)
    except OSError as error:
        place = "" if path == store.path else f"{path}: "
        raise store.error(f"{place}{error.strerror or error}") from error


def _kind(store: Store, data: bytes) -> str:
    """The type of a store. Raises ConfigError: it is a Java type, or not the one that was given."""
    java = _JAVA_MAGIC.get(data[:4])
    if java is not None:
        raise store.error(f"is a Java key store ({java})", hint=conversion_hint(store.path))
    if data.startswith(_DER_SEQUENCE):
        found = PKCS12
    elif b"-----BEGIN " in data:
        found = PEM
    elif any(line.lstrip().startswith(b"source.") for line in data.splitlines()):
        found = PEMCFG
    else:
        raise store.error("is neither PEM nor PEMCFG nor PKCS12")
    if store.kind not in (None, found):
        raise store.error(f"looks like {found}, but {store.parameter}Type is {store.kind}")
    return found


def _pemcfg(store: Store, data: bytes) -> list[str]:
    """Paths in a PEMCFG file, ``source.NAME = PATH``; relative ones start at its directory."""
    folder = store.path.rpartition("/")[0]
    paths = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        name, separator, path = (part.strip() for part in text.partition("="))
        if not separator or not path:
            raise store.error(f"line {number}: no 'name = value'")
        if name.startswith("source."):
            paths.append(path if path.startswith("/") or not folder else f"{folder}/{path}")
    return paths


def _certificates(store: Store, data: bytes) -> list[bytes]:
    try:
        found = list(pem_blocks(data, "CERTIFICATE"))
    except ValueError as error:
        raise store.error(f"a certificate is not valid PEM: {error}") from None
    if not found:
        raise store.error("contains no certificate")
    return found


def _pkcs12(store: Store, data: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise store.error("PKCS12 needs the Python package cryptography", hint="install it, or use PEM") from error
    password = store.password
    try:
        return pkcs12.load_pkcs12(data, password.encode() if password else None)
    except Exception as error:  # the library raises ValueError, TypeError and errors of its own for unusual contents
        raise store.error(f"cannot be read as PKCS12: {error}", hint=f"is {store.parameter}Password right?") from None


def _pkcs12_identity(store: Store, data: bytes) -> Identity:
    loaded = _pkcs12(store, data)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if loaded.key is None:
        raise store.error("contains no private key")
    if loaded.cert is None:
        raise store.error("contains no certificate for its key")
    name = (loaded.cert.friendly_name or b"").decode("utf-8", "replace")
    if store.alias is not None and store.alias.lower() != name.lower():
        raise store.error(f"has no entry {store.alias!r} (keyStoreAlias), but {name!r}")
    chain = [loaded.cert.certificate, *(entry.certificate for entry in loaded.additional_certs)]
    key = loaded.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem = b"".join(certificate.public_bytes(Encoding.PEM) for certificate in _chain_of(chain)) + key
    return Identity(pem, None, loaded.cert.certificate.public_bytes(Encoding.DER))


def _chain_of(certificates: list[Any]) -> list[Any]:
    """The certificate and its issuers in order; the file may hold them in any order, and others."""
    chain, rest = [certificates[0]], certificates[1:]
    while True:
        issuer = chain[-1].issuer
        following = next((each for each in rest if each.subject == issuer and each is not chain[-1]), None)
        if following is None or following in chain:
            return chain
        chain.append(following)
