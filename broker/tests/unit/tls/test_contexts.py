"""TLS contexts from the files of stores, and errors about files that cannot be used."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from support.certificates import PASSWORD, Made, make, revocation_list
from understudy.errors import ConfigError
from understudy.limits import TLS_FILE_BYTES_MAX
from understudy.tls.contexts import client_context, server_context
from understudy.tls.settings import Store, TlsSettings, make_store


def key_store(path: Path, kind: str | None = None, password: str | None = None, alias: str | None = None) -> Store:
    return make_store("keyStore", str(path), kind, None, password, alias)


def trust_store(path: Path, kind: str | None = None, password: str | None = None) -> Store:
    return make_store("trustStore", str(path), kind, None, password, None)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> ssl.SSLObject:
    """Both sides in memory; the server's. Raises ssl.SSLError of the side that refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=host)
    done: set[ssl.SSLObject] = set()
    for _ in range(10):
        for each in (theirs, ours):
            try:
                each.do_handshake()
                done.add(each)
            except ssl.SSLWantReadError:
                pass
    assert len(done) == 2
    return ours


def test_every_type_of_store(tmp_path: Path) -> None:
    root = make("CN=root", authority=True)
    middle = make("CN=middle", root, authority=True)
    server = make(issuer=middle)
    root_file = root.write_certificate(tmp_path / "root.pem")
    server.write(tmp_path / "server.pem")
    server.write(tmp_path / "secret.pem", password="key-secret")
    server.write_pkcs12(tmp_path / "server.p12")
    (tmp_path / "chain.pem").write_bytes(server.pem)
    (tmp_path / "key.pem").write_bytes(server.key_pem())
    (tmp_path / "server.pemcfg").write_text("# two files\nsource.key = key.pem\nsource.cert = chain.pem\n")
    stores = [
        key_store(tmp_path / "server.pem", "PEM"),
        key_store(tmp_path / "secret.pem", None, "key-secret"),
        key_store(tmp_path / "server.p12", "PKCS12", PASSWORD),
        key_store(tmp_path / "server.p12", None, PASSWORD, "BROKER"),
        key_store(tmp_path / "server.pemcfg", "PEMCFG"),
        make_store("keyStore", f"file:{tmp_path}/server.p12", None, "PKCS12", PASSWORD, None),
    ]
    client = client_context(TlsSettings(trust_store=trust_store(root_file)))
    for store in stores:
        made = server_context(TlsSettings(key_store=store))
        shake_hands(made.context, client)
        assert made.certificate.subject == "CN=localhost, O=Understudy", store


def test_a_pkcs12_trust_store(tmp_path: Path) -> None:
    root = make("CN=root", authority=True)
    root.write_pkcs12(tmp_path / "trust.p12")
    make(issuer=root).write(tmp_path / "server.pem")
    trusting = client_context(TlsSettings(trust_store=trust_store(tmp_path / "trust.p12", None, PASSWORD)))
    shake_hands(server_context(TlsSettings(key_store=key_store(tmp_path / "server.pem"))).context, trusting)


def test_a_certificate_in_the_trust_store_need_not_be_a_root(tmp_path: Path) -> None:
    middle = make("CN=middle", make("CN=root", authority=True), authority=True)
    make(issuer=middle).write(tmp_path / "server.pem")
    trusted = trust_store(middle.write_certificate(tmp_path / "middle.pem"))
    client = client_context(TlsSettings(trust_store=trusted))
    shake_hands(server_context(TlsSettings(key_store=key_store(tmp_path / "server.pem"))).context, client)


def mutual(tmp_path: Path, presented: Made | None, **settings: object) -> ssl.SSLObject:
    """A server that trusts one authority, and a client with a certificate or none."""
    root = make("CN=server root", authority=True)
    make(issuer=root).write(tmp_path / "server.pem")
    store = trust_store(tmp_path / "clients.pem")
    server = server_context(
        TlsSettings(key_store=key_store(tmp_path / "server.pem"), trust_store=store, **settings)  # type: ignore[arg-type]
    )
    own = key_store(presented.write(tmp_path / "client.pem")) if presented is not None else None
    trusted = trust_store(root.write_certificate(tmp_path / "root.pem"))
    # up to TLS 1.2 the refusal is part of the client's handshake, too
    client = client_context(TlsSettings(key_store=own, trust_store=trusted))
    return shake_hands(server.context, client)


def test_a_client_certificate_is_required_and_checked(tmp_path: Path) -> None:
    authority = make("CN=client root", authority=True)
    authority.write_certificate(tmp_path / "clients.pem")
    assert mutual(tmp_path, make("CN=alice", authority), need_client_auth=True).getpeercert(binary_form=True)
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        mutual(tmp_path, None, need_client_auth=True)
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        mutual(tmp_path, make("CN=mallory"), need_client_auth=True)
    with pytest.raises(ssl.SSLError, match="expired"):
        mutual(tmp_path, make("CN=alice", authority, days=-1), need_client_auth=True)
    assert mutual(tmp_path, None, want_client_auth=True).getpeercert(binary_form=True) is None
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        mutual(tmp_path, make("CN=mallory"), want_client_auth=True)


def test_a_revoked_certificate_is_refused(tmp_path: Path) -> None:
    authority = make("CN=client root", authority=True)
    authority.write_certificate(tmp_path / "clients.pem")
    revoked, good = make("CN=revoked", authority), make("CN=good", authority)
    path = tmp_path / "crl.pem"
    path.write_bytes(revocation_list(authority, revoked))
    mutual(tmp_path, good, need_client_auth=True, crl_path=str(path))
    with pytest.raises(ssl.SSLError, match="revoked"):
        mutual(tmp_path, revoked, need_client_auth=True, crl_path=str(path))


def test_the_names_that_clients_may_ask_for(tmp_path: Path) -> None:
    made = make(names=("a.example", "b.example"))
    made.write(tmp_path / "server.pem")
    server = server_context(TlsSettings(key_store=key_store(tmp_path / "server.pem"), sni_host=r"a\.example"))
    client = client_context(TlsSettings(trust_store=trust_store(made.write_certificate(tmp_path / "c.pem"))))
    shake_hands(server.context, client, "a.example")
    with pytest.raises(ssl.SSLError):
        shake_hands(server.context, client, "b.example")


def test_protocols_and_suites(tmp_path: Path) -> None:
    made = make()
    made.write(tmp_path / "server.pem")
    store = key_store(tmp_path / "server.pem")
    trusted = trust_store(made.write_certificate(tmp_path / "c.pem"))

    def agreed(server: TlsSettings, client: TlsSettings) -> str | None:
        return shake_hands(server_context(server).context, client_context(client)).version()

    both = TlsSettings(trust_store=trusted)
    assert agreed(TlsSettings(key_store=store), both) == "TLSv1.3"
    assert agreed(TlsSettings(key_store=store, protocols=("TLSv1.2",)), both) == "TLSv1.2"
    older = ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)
    # a version without an enabled suite is not offered
    assert agreed(TlsSettings(key_store=store, cipher_suites=older), both) == "TLSv1.2"
    newer = ("TLS_AES_256_GCM_SHA384",)
    assert agreed(TlsSettings(key_store=store, cipher_suites=newer), both) == "TLSv1.3"
    with pytest.raises(ssl.SSLError):
        agreed(TlsSettings(key_store=store, protocols=("TLSv1.3",)), TlsSettings(protocols=("TLSv1.2",)))
    with pytest.raises(ConfigError, match="enabledCipherSuites: TLS_NO_WITH_SUCH is unknown to OpenSSL"):
        server_context(TlsSettings(key_store=store, cipher_suites=(*older, "TLS_NO_WITH_SUCH")))
    with pytest.raises(ConfigError, match="none belongs to enabledProtocols"):
        server_context(TlsSettings(key_store=store, cipher_suites=older, protocols=("TLSv1.3",)))


def test_neither_renegotiation_nor_compression(tmp_path: Path) -> None:
    made = make()
    context = server_context(TlsSettings(key_store=key_store(made.write(tmp_path / "s.pem")))).context
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    made, other = make(), make()
    files = {
        "no-key.pem": made.pem,
        "no-certificate.pem": made.key_pem(),
        "two.pem": made.pem + other.key_pem(),
        "secret.pem": made.pem + made.key_pem("key-secret"),
        "store": bytes.fromhex("feedfeed") + bytes(20),
        "noise": b"noise",
        "huge": bytes(TLS_FILE_BYTES_MAX + 1),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    made.write_pkcs12(tmp_path / "server.p12")
    for store, said in (
        (key_store(tmp_path / "absent.pem"), "No such file"),
        (key_store(tmp_path), "Is a directory"),
        (key_store(tmp_path / "no-key.pem"), "contains no private key"),
        (key_store(tmp_path / "no-certificate.pem"), "contains no certificate"),
        (key_store(tmp_path / "two.pem"), "does not belong to the first certificate"),
        (key_store(tmp_path / "secret.pem"), "is encrypted"),
        (key_store(tmp_path / "secret.pem", None, "wrong"), "is encrypted"),
        (key_store(tmp_path / "server.p12", None, "wrong"), "keyStorePassword right"),
        (key_store(tmp_path / "server.p12", None, PASSWORD, "other"), "no entry 'other'"),
        (key_store(tmp_path / "server.p12", "PEM", PASSWORD), "looks like PKCS12, but keyStoreType is PEM"),
        (key_store(tmp_path / "noise"), "neither PEM nor PEMCFG nor PKCS12"),
        (key_store(tmp_path / "huge"), "at most"),
        (key_store(tmp_path / "store"), "-srckeystore .*/store -destkeystore .*/store.p12 -deststoretype PKCS12"),
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            server_context(TlsSettings(key_store=store))
        assert store.path in str(caught.value), said
        for secret in ("wrong", PASSWORD, "key-secret", "BEGIN"):
            assert secret not in str(caught.value).replace(store.path, "")


def test_java_types_are_refused_with_the_command_that_converts_them() -> None:
    for path, kind, provider in (("/a/b.jks", None, None), ("/a/b", "JKS", None), ("/a/b", None, "JCEKS")):
        with pytest.raises(ConfigError, match=r"keytool -importkeystore -srckeystore /a/b.* -deststoretype PKCS12"):
            make_store("keyStore", path, kind, provider, None, None)
    with pytest.raises(ConfigError, match="unknown type 'XYZ'"):
        make_store("keyStore", "/a", "XYZ", None, None, None)
    with pytest.raises(ConfigError, match="security provider"):
        make_store("keyStore", "/a", None, "SunPKCS11-x", None, None)
    with pytest.raises(ConfigError, match="not a local file"):
        make_store("keyStore", "http://h/a", None, None, None, None)


def test_a_key_reaches_no_disk_and_no_descriptor_is_left(tmp_path: Path) -> None:
    path = make().write_pkcs12(tmp_path / "server.p12")
    before = os.listdir("/proc/self/fd")
    server_context(TlsSettings(key_store=key_store(path, None, PASSWORD)))
    assert os.listdir("/proc/self/fd") == before
    assert [each.name for each in tmp_path.iterdir()] == ["server.p12"]
