"""TLS settings of one acceptor or connector, and the rules that need no file.

The names of parameters in error messages are those of Artemis (manual, "Configuring Netty SSL"). Stores are files of
the types PEM, PEMCFG and PKCS12; the Java formats JKS and JCEKS are refused with the command that converts the file.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ConfigError

#: Types of stores that can be read.
PEM: Final = "PEM"
PEMCFG: Final = "PEMCFG"
PKCS12: Final = "PKCS12"
STORE_TYPES: Final = (PEM, PEMCFG, PKCS12)
#: Types that only Java reads.
JAVA_TYPES: Final = ("JKS", "JCEKS")
#: Protocol versions that can be enabled.
PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
_JAVA_ENDINGS: Final = {"jks": "JKS", "jceks": "JCEKS", "ks": "JKS"}


@dataclass(frozen=True, slots=True)
class Store:
    """A key store or a trust store."""

    parameter: str
    """``keyStore`` or ``trustStore``, for messages."""
    path: str
    kind: str | None = None
    """Type of the store, one of ``STORE_TYPES``; None: the contents of the file decide."""
    password: str | None = field(default=None, repr=False)
    alias: str | None = None
    """Name of the entry of a PKCS12 key store; None: the only one."""

    def error(self, message: str, *, hint: str | None = None) -> ConfigError:
        """An error that names the parameter and the file."""
        return ConfigError(f"{self.parameter}Path {self.path}: {message}", hint=hint)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS of one acceptor or connector."""

    key_store: Store | None = None
    """Own certificate and key; an acceptor always has one."""
    trust_store: Store | None = None
    """Certificates to trust; None: those of the system."""
    crl_path: str | None = None
    """Revoked certificates, PEM or DER."""
    protocols: tuple[str, ...] = ()
    """A subset of ``PROTOCOLS``; empty: all of them."""
    cipher_suites: tuple[str, ...] = ()
    """Names of Java or OpenSSL; empty: the choice of OpenSSL."""
    need_client_auth: bool = False
    """At an acceptor, a client without a trusted certificate is refused in the handshake."""
    want_client_auth: bool = False
    """At an acceptor, a client may present a certificate; one that is not trusted is refused."""
    verify_host: bool = True
    """At a connector, the certificate must be made out for the host that is dialled."""
    trust_all: bool = False
    """At a connector, no certificate is checked."""
    sni_host: str | None = None
    """At a connector, the name sent to the server. At an acceptor, a regular expression for names that clients send."""
    auto_reload: bool = False
    """At an acceptor, changed files are read without being asked for."""

    def files(self) -> tuple[str, ...]:
        """Paths of the stores and of the revocation list."""
        stores = (store.path for store in (self.key_store, self.trust_store) if store is not None)
        return (*stores, *((self.crl_path,) if self.crl_path is not None else ()))


def make_store(
    parameter: str, path: str, kind: str | None, provider: str | None, password: str | None, alias: str | None
) -> Store:
    """The store that the parameters of a URL describe.

    Args:
        parameter: ``keyStore`` or ``trustStore``.
        path: Path of the file; ``file:`` before it is allowed.
        kind: ``keyStoreType`` or ``trustStoreType``; None if it is not given.
        provider: ``keyStoreProvider`` or ``trustStoreProvider``; old clients give the type there.
        password: Password of the store, not masked.
        alias: ``keyStoreAlias``.

    Raises:
        ConfigError: a type or provider that exists in Java only; the message does not name the element.
    """
    path = _local_path(parameter, path)
    if provider is not None and kind is None and provider.upper() in (*STORE_TYPES, *JAVA_TYPES):
        kind, provider = provider, None
    if provider is not None:
        raise ConfigError(
            f"{parameter}Provider: {provider!r} is a Java security provider", hint=f"use {parameter}Type=PKCS12 or PEM"
        )
    named = kind.upper() if kind is not None else _JAVA_ENDINGS.get(path.rpartition(".")[2].lower())
    if named in JAVA_TYPES:
        raise ConfigError(f"{parameter}Type: {path} is a Java key store ({named})", hint=conversion_hint(path))
    if named is not None and named not in STORE_TYPES:
        raise ConfigError(f"{parameter}Type: unknown type {kind!r}", hint=f"one of {', '.join(STORE_TYPES)}")
    return Store(parameter, path, named, password, alias)


def conversion_hint(path: str) -> str:
    """The command that converts a Java key store into one that can be read."""
    stem = path.rpartition(".")[0] if path.rpartition(".")[2].lower() in _JAVA_ENDINGS else path
    return (
        f"convert it: keytool -importkeystore -srckeystore {path} -destkeystore {stem}.p12 -deststoretype PKCS12;"
        f" then set the path to {stem}.p12 and the type to PKCS12"
    )


def check_protocols(names: tuple[str, ...]) -> None:
    """Raises ConfigError for a protocol version that cannot be enabled."""
    for name in names:
        if name not in PROTOCOLS:
            raise ConfigError(
                f"enabledProtocols: {name!r} cannot be enabled",
                hint=f"{' and '.join(PROTOCOLS)} are; older versions are not secure",
            )


def is_tls13_suite(name: str) -> bool:
    """Whether a cipher suite belongs to TLS 1.3, whose names contain no key exchange."""
    return name.startswith("TLS_") and "_WITH_" not in name


def openssl_suite(name: str) -> str:
    """``ECDHE-RSA-AES128-GCM-SHA256`` for Java's ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256``."""
    if "_WITH_" not in name:
        return name
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    return f"{exchange}_{cipher}".replace("_POLY1305_SHA256", "_POLY1305").removeprefix("RSA_").replace("_", "-")


def _local_path(parameter: str, path: str) -> str:
    scheme, separator, rest = path.partition(":")
    if separator and scheme.lower() == "file":
        return "/" + rest.lstrip("/")
    if "://" in path:
        raise ConfigError(f"{parameter}Path: {path!r} is not a local file")
    if not path or "\0" in path:
        raise ConfigError(f"{parameter}Path: {path!r} is no file")
    return path
