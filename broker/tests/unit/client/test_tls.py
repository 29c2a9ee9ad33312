"""TLS contexts from PEM files, and the errors for files of another format."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from understudy.client.core.url.options import TlsOptions
from understudy.client.tls import tls_context
from understudy.errors import ConfigError
from understudy.tls.settings import openssl_suite


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_names_of_suites(java: str, ours: str) -> None:
    assert openssl_suite(java) == ours
    chosen = tls_context(TlsOptions(cipher_suites=(java,))).get_ciphers()
    assert ours in {each["name"] for each in chosen}


def test_an_unknown_suite_is_named() -> None:
    with pytest.raises(ConfigError, match="NO_SUCH"):
        tls_context(TlsOptions(cipher_suites=("NO_SUCH_WITH_X",)))


def test_versions() -> None:
    context = tls_context(TlsOptions(protocols=("TLSv1.3",)))
    assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_3


def test_trust() -> None:
    assert tls_context(TlsOptions()).check_hostname
    assert tls_context(TlsOptions(verify_host=False)).verify_mode == ssl.CERT_REQUIRED
    blind = tls_context(TlsOptions(trust_all=True))
    assert (blind.check_hostname, blind.verify_mode) == (False, ssl.CERT_NONE)


@pytest.mark.parametrize(
    ("start", "said"), [(bytes.fromhex("feedfeed"), "JKS"), (b"\x30\x82\x01\x02", "PKCS12"), (b"nonsense", "PEM")]
)
def test_files_that_are_no_pem(tmp_path: Path, start: bytes, said: str) -> None:
    path = tmp_path / "store"
    path.write_bytes(start + bytes(100))
    for tls in (TlsOptions(trust_store_path=str(path)), TlsOptions(key_store_path=str(path))):
        with pytest.raises(ConfigError, match=said):
            tls_context(tls)
