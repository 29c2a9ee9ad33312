"""TLS parameters of acceptors and connectors."""

from __future__ import annotations

import pytest

from support.config import core
from understudy.config.model import AcceptorConfiguration, ConnectorConfiguration
from understudy.config.password_codec import PasswordCodec
from understudy.config.reading.reader import read_broker_xml
from understudy.errors import ConfigError
from understudy.tls.settings import Store, TlsSettings

KEYS = "sslEnabled=true;keyStorePath=server.pem"


def load(elements: str) -> tuple[AcceptorConfiguration | ConnectorConfiguration, list[str]]:
    found = read_broker_xml(core(elements), file="/tmp/copy/broker.xml", base_directory="/srv/node")
    configuration = found.configuration
    (one,) = (*configuration.acceptors, *configuration.connectors)
    return one, [str(warning) for warning in found.warnings]


def acceptor(parameters: str) -> TlsSettings | None:
    return load(f'<acceptors><acceptor name="a">tcp://h:1?{parameters}</acceptor></acceptors>')[0].tls


def connector(parameters: str) -> TlsSettings | None:
    return load(f'<connectors><connector name="c">tcp://h:1?{parameters}</connector></connectors>')[0].tls


def test_the_smallest_acceptor() -> None:
    found = acceptor(KEYS)
    assert found == TlsSettings(key_store=Store("keyStore", "/srv/node/etc/server.pem"))
    assert acceptor("sslEnabled=false") is None
    assert acceptor("sslEnabled=false;keyStorePath=server.pem;needClientAuth=true") is None


def test_every_parameter_of_an_acceptor_has_an_effect() -> None:
    url = (
        "sslEnabled=true;keyStorePath=/k.p12;keyStoreType=pkcs12;keyStorePassword=first-secret;keyStoreAlias=broker;"
        "trustStorePath=file:/t.pem;trustStoreType=PEM;trustStorePassword=other-secret;crlPath=revoked.pem;needClientAuth=true;"
        "enabledProtocols=TLSv1.2, TLSv1.3;enabledCipherSuites=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384;"
        "sniHost=.*example;sslAutoReload=true"
    )
    one, warnings = load(f'<acceptors><acceptor name="a">tcp://h:1?{url}</acceptor></acceptors>')
    assert one.tls == TlsSettings(
        key_store=Store("keyStore", "/k.p12", "PKCS12", "first-secret", "broker"),
        trust_store=Store("trustStore", "/t.pem", "PEM", "other-secret"),
        crl_path="/srv/node/etc/revoked.pem",
        protocols=("TLSv1.2", "TLSv1.3"),
        cipher_suites=("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",),
        need_client_auth=True,
        sni_host=".*example",
        auto_reload=True,
    )
    assert not warnings
    assert one.tls.files() == ("/k.p12", "/t.pem", "/srv/node/etc/revoked.pem")
    assert "first-secret" not in repr(one)
    assert "other-secret" not in repr(one)


def test_a_connector() -> None:
    assert connector("sslEnabled=true") == TlsSettings()
    found = connector("sslEnabled=true;verifyHost=false;trustAll=true;sniHost=b;trustStorePath=/t.pem")
    assert found == TlsSettings(
        trust_store=Store("trustStore", "/t.pem"), verify_host=False, trust_all=True, sni_host="b"
    )


def test_a_masked_password() -> None:
    masked = PasswordCodec().mask("geheim")
    found = acceptor(f"{KEYS};keyStorePassword={masked}")
    assert found is not None
    assert found.key_store is not None
    assert found.key_store.password == "geheim"
    with pytest.raises(ConfigError, match="keyStorePassword: a masked password is hexadecimal"):
        acceptor(f"{KEYS};keyStorePassword=ENC(xyz)")


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("sslEnabled=true", "needs keyStorePath"),
        ("sslEnabled=true;keyStorePassword=x", "keyStorePath is missing"),
        ("keyStorePath=server.pem", "parameter keyStorePath needs sslEnabled=true"),
        ("needClientAuth=true", "parameter needClientAuth needs sslEnabled=true"),
        (f"{KEYS};needClientAuth=true", "needClientAuth=true needs trustStorePath"),
        (f"{KEYS};wantClientAuth=true", "wantClientAuth=true needs trustStorePath"),
        (f"{KEYS};trustAll=true", "trustAll belongs to connectors"),
        (f"{KEYS};verifyHost=true", "verifyHost: host names of clients cannot be checked"),
        (f"{KEYS};sslContext=x", "sslContext names a Java object"),
        (f"{KEYS};trustManagerFactoryPlugin=x", "trustManagerFactoryPlugin names a Java class"),
        (f"{KEYS};enabledProtocols=TLSv1.1", "'TLSv1.1' cannot be enabled .TLSv1.2 and TLSv1.3"),
        (f"{KEYS};enabledProtocols=SSLv3", "'SSLv3' cannot be enabled"),
        (f"{KEYS};sniHost=(", "sniHost is no regular expression"),
        (f"{KEYS};keyStoreType=JKS", "keytool -importkeystore -srckeystore /srv/node/etc/server.pem "),
        ("sslEnabled=true;keyStorePath=a.jks", "-srckeystore /srv/node/etc/a.jks -destkeystore /srv/node/etc/a.p12"),
        (f"{KEYS};keyStoreProvider=SunPKCS11", "keyStoreProvider: 'SunPKCS11' is a Java security provider"),
        (f"{KEYS};trustStorePath=t;trustStoreType=BKS", "trustStoreType: unknown type 'BKS'"),
    ],
)
def test_contradictions_are_errors_that_name_the_acceptor(parameters: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        acceptor(parameters)
    assert caught.value.path == "core/acceptors/acceptor[@name='a']"


def test_suites_of_tls_13_cannot_be_chosen_one_by_one() -> None:
    url = f"{KEYS};enabledCipherSuites=TLS_AES_128_GCM_SHA256"
    _, warnings = load(f'<acceptors><acceptor name="a">tcp://h:1?{url}</acceptor></acceptors>')
    assert any("all suites of TLS 1.3" in warning for warning in warnings)
