"""URLs of acceptors and connectors."""

from __future__ import annotations

import pytest

from support.config import read
from understudy.config.model import AcceptorConfiguration, ConnectorConfiguration
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import ConfigError
from understudy.limits import CONNECTIONS_MAX, SESSIONS_PER_CONNECTION_MAX


def load(url: str) -> LoadedConfig:
    escaped = url.replace("&", "&amp;").replace("<", "&lt;")
    return read(f'<acceptors><acceptor name="a">{escaped}</acceptor></acceptors>')


def acceptor(url: str) -> AcceptorConfiguration:
    (found,) = load(url).configuration.acceptors
    return found


def connector(url: str) -> ConnectorConfiguration:
    (found,) = read(f'<connectors><connector name="c">{url}</connector></connectors>').configuration.connectors
    return found


def test_a_plain_url() -> None:
    found = acceptor("tcp://0.0.0.0:5445")
    assert (found.name, found.host, found.port) == ("a", "0.0.0.0", 5445)
    assert found.protocols == ("CORE", "AMQP091")
    assert found.handshake_timeout_ms == 10_000
    assert found.connections_allowed == CONNECTIONS_MAX
    assert found.sessions_allowed == SESSIONS_PER_CONNECTION_MAX
    assert acceptor("tcp://0.0.0.0:5445?sessionsAllowed=9000").sessions_allowed == 9000
    assert found.amqp091.acknowledgement_timeout_ms == 1_800_000
    assert acceptor("tcp://0.0.0.0:5445?acknowledgementTimeout=0").amqp091.acknowledgement_timeout_ms == 0
    assert found.url == "tcp://0.0.0.0:5445"


@pytest.mark.parametrize(
    ("url", "host", "port", "shown"),
    [
        ("tcp://h", "h", 61616, "tcp://h:61616"),
        ("tcp://h/", "h", 61616, "tcp://h:61616"),
        ("tcp://h:0", "h", 0, "tcp://h:0"),
        ("TCP://h:1?", "h", 1, "tcp://h:1"),
        ("tcp://[::1]:7", "::1", 7, "tcp://[::1]:7"),
        ("tcp://[::1]", "::1", 61616, "tcp://[::1]:61616"),
        (" tcp://h:1 ", "h", 1, "tcp://h:1"),
    ],
)
def test_hosts_and_ports(url: str, host: str, port: int, shown: str) -> None:
    found = acceptor(url)
    assert (found.host, found.port, found.url) == (host, port, shown)


def test_parameters_by_semicolon_and_ampersand() -> None:
    found = acceptor(
        "tcp://h:1?protocols=CORE;handshake-timeout=3&connectionsAllowed=7;backlog=9;tcpSendBufferSize=4096;"
        "tcpReceiveBufferSize=-1;tcpNoDelay=false;anycastPrefix=jms.queue.,q.;multicastPrefix=jms.topic."
    )
    assert found.handshake_timeout_ms == 3000
    assert found.connections_allowed == 7
    assert found.backlog == 9
    assert (found.tcp_send_buffer_bytes, found.tcp_receive_buffer_bytes) == (4096, -1)
    assert not found.tcp_no_delay
    assert found.anycast_prefixes == ("jms.queue.", "q.")
    assert found.multicast_prefixes == ("jms.topic.",)
    assert found.parameters["handshake-timeout"] == 3
    assert found.amqp091.known_hosts


def test_clients_of_an_acceptor_may_be_left_without_known_hosts() -> None:
    assert not acceptor("tcp://h:1?knownHosts=false").amqp091.known_hosts
    assert acceptor("tcp://h:1").amqp091.session_takeover
    assert not acceptor("tcp://h:1?sessionTakeover=false").amqp091.session_takeover


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:61616",
        "http://h:1",
        "tcp://",
        "tcp://:61616",
        "tcp://h:port",
        "tcp://h:65536",
        "tcp://h:-1",
        "tcp://h:1:2",
        "tcp://::1:61616",
        "tcp://[::1:61616",
        "tcp://[::1]x",
        "tcp://user@h:1",
        "tcp://h h:1",
        "tcp://a:1,b:2",
        "(tcp://a:1,tcp://b:2)",
        "tcp://h:1?tcpNoDelay=1",
        "tcp://h:1?backlog=many",
        "tcp://h:1?backlog=0",
        "tcp://h:1?handshake-timeout=-1",
        "tcp://h:1?connectionsAllowed=99999999",
        "tcp://h:1?=x",
        "tcp://h:1?port=2",
        "tcp://h:1?protocols=KORE",
        "tcp://h:1?" + ";".join(f"p{i}=1" for i in range(257)),
    ],
)
def test_a_bad_url_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(url)
    assert caught.value.path == "core/acceptors/acceptor[@name='a']"
    assert caught.value.line == 1


def test_a_mistyped_protocol_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match="did you mean 'CORE'"):
        load("tcp://h:1?protocols=COR")


def test_protocols_that_are_not_served_are_named() -> None:
    loaded = load("tcp://h:1?protocols=core,AMQP")
    assert loaded.configuration.acceptors[0].protocols == ("CORE",)
    (warning,) = loaded.warnings
    assert warning.path == "core/acceptors/acceptor[@name='a']"
    assert warning.message == "acceptor 'a' does not serve AMQP: not implemented in this version"


def test_an_acceptor_without_a_served_protocol_is_not_opened() -> None:
    loaded = load("tcp://h:1?protocols=AMQP;amqpCredits=1")
    assert loaded.configuration.acceptors == ()
    assert len(loaded.warnings) == 1
    assert "acceptor 'a' is not opened: AMQP" in loaded.warnings[0].message


def test_an_acceptor_that_is_not_to_start_is_not_opened() -> None:
    loaded = load("tcp://h:1?autoStart=false")
    assert loaded.configuration.acceptors == ()
    assert "autoStart=false" in loaded.warnings[0].message


def test_parameters_without_effect_are_named_once() -> None:
    loaded = read(
        '<acceptors><acceptor name="a">tcp://h:1?useEpoll=true;useNIO=true</acceptor>'
        '<acceptor name="b">tcp://h:2?useEpoll=true</acceptor></acceptors>'
    )
    assert [warning.message for warning in loaded.warnings] == [
        "acceptor parameter useEpoll has no effect in this version",
        "unknown acceptor parameter 'useNIO' (did you mean 'useNio'?)",
    ]


def test_what_follows_a_number_sign_is_warned_about_and_not_shown() -> None:
    loaded = load("tcp://h:1?virtualHosts=par#tOfIt;needClientAuth=true")
    (warning,) = loaded.warnings
    assert warning.message == "what follows '#' in the URL is ignored (write '#' in a value as %23)"


def test_a_connector_keeps_every_parameter() -> None:
    found = connector("tcp://h:1?sslEnabled=true;somethingNew=a%3Bb;localPort=5")
    assert found.parameters == {"sslEnabled": True, "somethingNew": "a;b", "localPort": 5}
    assert found.url == "tcp://h:1"


def test_a_connector_to_port_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="port 0"):
        connector("tcp://h:0")


def test_secrets_of_a_url_are_not_shown() -> None:
    found = connector("tcp://h:1?trustStorePassword=secret")
    assert "secret" not in repr(found)
    assert "secret" not in found.url
