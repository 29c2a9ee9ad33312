"""TLS contexts of OpenSSL from settings: reads the files of stores. Part of the shells of broker and client.

Keys are handed to OpenSSL through an anonymous file in memory, never through a file on a disk.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.limits import TLS_FILE_BYTES_MAX
from understudy.tls.certificates import CertificateFacts, facts_of
from understudy.tls.settings import TlsSettings, is_tls13_suite, openssl_suite
from understudy.tls.stores import Identity, read_identity, read_revoked, read_trusted

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The context of an acceptor, and the facts of its certificate."""

    context: ssl.SSLContext
    certificate: CertificateFacts


def server_context(settings: TlsSettings) -> ServerTls:
    """The context of an acceptor.

    Raises:
        ConfigError: a file cannot be read or used, or a cipher suite is unknown; names the parameter and the file.
    """
    assert settings.key_store is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    identity = read_identity(settings.key_store, read_file)
    _load_identity(context, settings, identity)
    _restrict(context, settings)
    if settings.need_client_auth or settings.want_client_auth:
        context.verify_mode = ssl.CERT_REQUIRED if settings.need_client_auth else ssl.CERT_OPTIONAL
        _load_trusted(context, settings)
    if settings.sni_host is not None:
        context.sni_callback = _name_filter(settings.sni_host)
    try:
        return ServerTls(context, facts_of(identity.certificate))
    except ValueError as error:
        raise settings.key_store.error(str(error)) from None


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a connector or client.

    Raises:
        ConfigError: a file cannot be read or used, or a cipher suite is unknown; names the parameter and the file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, settings)
    if not settings.trust_all:
        _load_trusted(context, settings)
    if settings.key_store is not None:
        _load_identity(context, settings, read_identity(settings.key_store, read_file))
    if settings.trust_all or not settings.verify_host:
        context.check_hostname = False
    if settings.trust_all:
        context.verify_mode = ssl.CERT_NONE
    return context


def reason_of(error: BaseException) -> str:
    """The reason of a failed connection, handshake or record, without the place in the source of Python."""
    if isinstance(error, ConnectionResetError | ssl.SSLEOFError) and not getattr(error, "reason", None):
        return str(error) or "the connection was closed by the other side"
    text = str(error).partition(" (_ssl.c")[0]
    detail = getattr(error, "verify_message", None)
    return f"{text}: {detail}" if detail and detail not in text else text


def read_file(path: str) -> bytes:
    """The contents of a file. Raises OSError: it cannot be read or is larger than ``TLS_FILE_BYTES_MAX``."""
    # a pipe in the place of the file is not waited for
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        data = file.read(TLS_FILE_BYTES_MAX + 1)
    if data is None or len(data) > TLS_FILE_BYTES_MAX:
        raise OSError(f"is no file of at most {TLS_FILE_BYTES_MAX} bytes")
    return data


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """Path of an anonymous file in memory with this content, which is removed at the end."""
    descriptor = os.memfd_create("understudy-tls", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _load_identity(context: ssl.SSLContext, settings: TlsSettings, identity: Identity) -> None:
    store = settings.key_store
    assert store is not None
    try:
        with _in_memory(identity.pem) as path:
            # without a password OpenSSL would ask for one on the terminal
            context.load_cert_chain(path, password=identity.password or "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None)
        if reason == "KEY_VALUES_MISMATCH":
            raise store.error("the private key does not belong to the first certificate") from None
        if b"ENCRYPTED" in identity.pem:
            raise store.error(
                "the private key is encrypted and cannot be read with the password", hint="is keyStorePassword right?"
            ) from None
        raise store.error(f"the certificate or the private key cannot be used: {error}") from None


def _load_trusted(context: ssl.SSLContext, settings: TlsSettings) -> None:
    store = settings.trust_store
    # a certificate in the trust store is trusted whether or not it is a root, as in Java
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    if store is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(cadata=read_trusted(store, read_file))
        except (OSError, ValueError) as error:
            raise store.error(f"a certificate cannot be used: {error}") from None
    if settings.crl_path is not None:
        try:
            with _in_memory(read_revoked(settings.crl_path, read_file)) as path:
                context.load_verify_locations(cafile=path)
        except (OSError, ValueError) as error:
            raise ConfigError(f"crlPath {settings.crl_path}: {error}") from None
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Protocol versions and cipher suites; no renegotiation, no compression."""
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    versions = {_VERSIONS[name] for name in settings.protocols} or set(_VERSIONS.values())
    suites = settings.cipher_suites
    if suites:
        # a TLS version without an enabled cipher suite is not offered
        if not any(is_tls13_suite(name) for name in suites):
            versions.discard(ssl.TLSVersion.TLSv1_3)
        if all(is_tls13_suite(name) for name in suites):
            versions.discard(ssl.TLSVersion.TLSv1_2)
    older = [name for name in suites if not is_tls13_suite(name)]
    for name in suites:
        _check_suite(name)
    if not versions:
        raise ConfigError(f"enabledCipherSuites {', '.join(suites)}: none belongs to enabledProtocols")
    if older:
        context.set_ciphers(":".join(openssl_suite(name) for name in older))
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _check_suite(name: str) -> None:
    """Raises ConfigError: OpenSSL does not know the suite."""
    probe = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if is_tls13_suite(name):
        known = name in {each["name"] for each in probe.get_ciphers()}
    else:
        try:
            probe.set_ciphers(openssl_suite(name))
            known = True
        except ssl.SSLError:
            known = False
    if not known:
        raise ConfigError(f"enabledCipherSuites: {name} is unknown to {ssl.OPENSSL_VERSION}")


def _name_filter(pattern: str) -> Callable[[object, str | None, object], int | None]:
    """Refuses a client that names a server that the pattern does not match (``sniHost`` of an acceptor)."""
    expression = re.compile(pattern)

    def check(connection: object, name: str | None, context: object) -> int | None:
        if name is None or expression.fullmatch(name):
            return None
        return ssl.AlertDescription.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    return check
