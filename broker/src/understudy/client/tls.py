"""TLS contexts of the client's connectors. Part of its two shells."""

from __future__ import annotations

import ssl

from understudy.client.core.url.options import TlsOptions
from understudy.tls.contexts import client_context
from understudy.tls.settings import TlsSettings, make_store


def tls_context(tls: TlsOptions) -> ssl.SSLContext:
    """The context of a connector; reads the files.

    Raises:
        ConfigError: a store cannot be read, has an unknown type, or its password is wrong; names the file.
    """
    trust_store = key_store = None
    if tls.trust_store_path is not None:
        trust_store = make_store(
            "trustStore", tls.trust_store_path, tls.trust_store_type, None, tls.trust_store_password, None
        )
    if tls.key_store_path is not None:
        key_store = make_store(
            "keyStore", tls.key_store_path, tls.key_store_type, None, tls.key_store_password, tls.key_store_alias
        )
    return client_context(
        TlsSettings(
            key_store=key_store,
            trust_store=trust_store,
            crl_path=tls.crl_path,
            protocols=tls.protocols,
            cipher_suites=tls.cipher_suites,
            verify_host=tls.verify_host,
            trust_all=tls.trust_all,
            sni_host=tls.sni_host,
        )
    )
