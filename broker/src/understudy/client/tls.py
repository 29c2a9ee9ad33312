"""TLS contexts of the asyncio client, from PEM files. Part of ``aio``."""

from __future__ import annotations

import ssl
from typing import Final

from understudy.client.core.options import TlsOptions
from understudy.client.core.url import PEM_HINT
from understudy.errors import ConfigError

_JKS: Final = (bytes.fromhex("feedfeed"), bytes.fromhex("cececece"))
_PKCS12: Final = b"\x30\x82"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def tls_context(tls: TlsOptions) -> ssl.SSLContext:
    """Raises:
    ConfigError: a store is missing, not PEM, or its password is wrong; names the file.
    """
    for path in (tls.trust_store_path, tls.key_store_path, tls.crl_path):
        if path is not None:
            _check_pem(path)
    try:
        context = ssl.create_default_context(cafile=tls.trust_store_path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"trust store {tls.trust_store_path}: {error}") from error
    if tls.key_store_path is not None:
        try:
            # a password that is asked for on the terminal would stop the loop
            context.load_cert_chain(tls.key_store_path, password=tls.key_store_password or "")
        except (OSError, ValueError) as error:
            raise ConfigError(f"key store {tls.key_store_path}: {error}") from error
    if tls.crl_path is not None:
        try:
            context.load_verify_locations(cafile=tls.crl_path)
        except (OSError, ValueError) as error:
            raise ConfigError(f"revocation list {tls.crl_path}: {error}") from error
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    if tls.protocols:
        versions = sorted(_VERSIONS[each] for each in tls.protocols)
        context.minimum_version, context.maximum_version = versions[0], versions[-1]
    _choose_ciphers(context, tls.cipher_suites)
    if tls.trust_all or not tls.verify_host:
        context.check_hostname = False
    if tls.trust_all:
        context.verify_mode = ssl.CERT_NONE
    return context


def _check_pem(path: str) -> None:
    try:
        with open(path, "rb") as file:
            start = file.read(4)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    if start in _JKS:
        raise ConfigError(f"{path} is a Java key store (JKS)", hint=PEM_HINT)
    if start.startswith(_PKCS12):
        raise ConfigError(f"{path} is no PEM file but looks like PKCS12", hint=PEM_HINT)


def _choose_ciphers(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    chosen = [openssl_suite(each) for each in suites if "_WITH_" in each or not each.startswith("TLS_")]
    if not chosen:
        return
    try:
        context.set_ciphers(":".join(chosen))
    except ssl.SSLError as error:
        raise ConfigError(f"enabledCipherSuites {', '.join(suites)}: {error}") from error


def openssl_suite(name: str) -> str:
    """``ECDHE-RSA-AES128-GCM-SHA256`` for Java's ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256``."""
    if "_WITH_" not in name:
        return name
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    return f"{exchange}_{cipher}".replace("_POLY1305_SHA256", "_POLY1305").removeprefix("RSA_").replace("_", "-")
