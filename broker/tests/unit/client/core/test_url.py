"""Client URLs: every parameter, its default, and refused values (artemis-ha s. 8)."""

from __future__ import annotations

import dataclasses

import pytest

from understudy.client.core.url.options import ClientOptions, Connector, DiscoveryGroup, TlsOptions
from understudy.client.core.url.parameters import ALIASES, REFUSED, WITHOUT_EFFECT
from understudy.client.core.url.parsing import (
    CONNECTOR_PARAMETERS,
    GROUP_PARAMETERS,
    OPTION_PARAMETERS,
    connector_of,
    parse_url,
    with_failover,
)
from understudy.errors import ConfigError


def test_defaults_are_those_of_the_manual() -> None:
    options = parse_url("tcp://a:1").options
    assert options == ClientOptions()
    assert (options.ha, options.reconnect_attempts, options.initial_connect_attempts) == (False, 0, 1)
    assert (options.retry_interval_ms, options.retry_interval_multiplier, options.max_retry_interval_ms) == (
        2000,
        1.0,
        2000,
    )
    assert (options.call_timeout_ms, options.call_failover_timeout_ms) == (30_000, 30_000)
    assert (options.connection_ttl_ms, options.client_failure_check_period_ms) == (60_000, 30_000)
    assert (options.confirmation_window_size, options.consumer_window_size) == (-1, 1 << 20)
    assert (options.producer_window_size, options.ack_batch_size) == (64 << 10, 1 << 20)
    assert options.min_large_message_size == 100 << 10
    assert options.block_on_durable_send
    assert not options.block_on_non_durable_send
    assert not options.block_on_acknowledge
    assert options.use_topology_for_load_balancing
    assert options.failover_attempts == 0


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("tcp://a:1", [("a", 1)]),
        ("tcp://a", [("a", 61616)]),
        ("tcp://[::1]:5", [("::1", 5)]),
        ("(tcp://a:1,tcp://b:2)", [("a", 1), ("b", 2)]),
        (" (tcp://a:1, tcp://b:2)?ha=true ", [("a", 1), ("b", 2)]),
        ("tcp://a:1,tcp://b:2?ha=true", [("a", 1), ("b", 2)]),
    ],
)
def test_connectors(url: str, places: list[tuple[str, int]]) -> None:
    assert [each.place for each in parse_url(url).connectors] == places


def test_connection_parameters_go_after_the_bracket() -> None:
    parsed = parse_url("(tcp://a:1?sslEnabled=true&trustStorePath=/ca.pem,tcp://b:2)?ha=true&reconnectAttempts=-1")
    assert parsed.connectors[0].tls == TlsOptions(trust_store_path="/ca.pem")
    assert parsed.connectors[1].tls is None
    assert parsed.options.ha
    assert parsed.options.reconnect_attempts == -1


def test_shared_connector_parameters_serve_every_connector() -> None:
    parsed = parse_url("(tcp://a:1,tcp://b:2?verifyHost=true)?sslEnabled=true&verifyHost=false")
    assert [each.tls.verify_host for each in parsed.connectors if each.tls] == [False, True]


@pytest.mark.parametrize("parameter", sorted(OPTION_PARAMETERS))
def test_every_parameter_is_read(parameter: str) -> None:
    name = OPTION_PARAMETERS[parameter]
    default = getattr(ClientOptions(), name)
    text, value = {
        bool: (str(not default).lower(), not default),
        int: ("7", 7),
        float: ("2.5", 2.5),
    }.get(type(default), ("Random", "Random"))
    assert getattr(parse_url(f"tcp://a:1?{parameter}={text}").options, name) == value


def test_names_are_read_in_any_case_and_sizes_with_units() -> None:
    options = parse_url("tcp://a:1?connectionTtl=5&CONSUMERWINDOWSIZE=10K").options
    assert options.connection_ttl_ms == 5
    assert options.consumer_window_size == 10240


@pytest.mark.parametrize(
    ("parameter", "nearest"),
    [("reconectAttempts", "reconnectAttempts"), ("hat", "ha"), ("ssl", "sslEnabled"), ("calTimeout", "callTimeout")],
)
def test_unknown_parameter_names_itself_and_the_nearest(parameter: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=parameter) as caught:
        parse_url(f"tcp://a:1?{parameter}=1")
    assert repr(nearest) in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a:1",
        "http://a:1",
        "tcp://",
        "tcp://a:0",
        "tcp://a:65536",
        "tcp://a:x",
        "(tcp://a:1",
        "(tcp://a:1)ha=true",
        "(tcp://a:1?ha=true)",
        "tcp://a:1?ha",
        "tcp://a:1?ha=perhaps",
        "tcp://a:1?callTimeout=soon",
        "tcp://a:1?callTimeout=0",
        "tcp://a:1?reconnectAttempts=-2",
        "tcp://a:1?reconnectAttempts=2147483648",
        "tcp://a:1?confirmationWindowSize=2G",
        "tcp://a:1?connectionTTL=9223372036854775808",
        "tcp://a:1?connectionTTL=0",
        "tcp://a:1?compressionLevel=10",
        "tcp://a:1?localPort=65536",
        "tcp://a:1?tcpSendBufferSize=2G",
        "tcp://a:1?connect-timeout-millis=2147483648",
        "tcp://a:1?retryIntervalMultiplier=0.5",
        "tcp://a:1?retryIntervalMultiplier=nan",
        "tcp://a:1?consumerWindowSize=big",
        "tcp://a:1?connectionLoadBalancingPolicyClassName=Best",
        "tcp://a:1?connect-timeout-millis=0",
        "(" + ",".join(["tcp://a:1"] * 65) + ")",
    ],
)
def test_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        parse_url(url)


def test_errors_and_reprs_never_show_a_password() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_url("(tcp://a:1?keyStorePassword=s3cret)?password=s3cret&nope=1")
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(parse_url("tcp://a:1?sslEnabled=true&keyStorePassword=s3cret&password=s3cret"))


def test_initial_connect_attempts_of_zero_means_one() -> None:
    assert parse_url("tcp://a:1?initialConnectAttempts=0").options.initial_connect_attempts == 1


def test_java_class_names_of_policies() -> None:
    name = "org.apache.activemq.artemis.api.core.client.loadbalance.RandomStickyConnectionLoadBalancingPolicy"
    url = f"tcp://a:1?connectionLoadBalancingPolicyClassName={name}"
    assert parse_url(url).options.load_balancing_policy == "RandomSticky"


def test_advertised_connector_takes_our_trust() -> None:
    template = Connector("x", 1, TlsOptions(trust_store_path="/ca.pem"), 77)
    found = connector_of({"host": "h", "port": 5, "sslEnabled": "true"}, template)
    assert found == Connector("h", 5, TlsOptions(trust_store_path="/ca.pem"), 77)
    assert connector_of({"host": "h", "port": "5"}, template) == Connector("h", 5, None, 77)
    assert connector_of({"port": "5"}) is None
    assert connector_of({"host": "h", "port": "none"}) is None


def test_connector_parameters_are_no_options() -> None:
    assert not set(CONNECTOR_PARAMETERS) & set(OPTION_PARAMETERS)
    assert len(OPTION_PARAMETERS) == len(dataclasses.fields(ClientOptions))


def test_discovery_groups() -> None:
    parsed = parse_url(
        "udp://231.7.7.7:9000?refreshTimeout=5&discoveryInitialWaitTimeout=6&localBindAddress=127.0.0.1"
        "&ha=true&sslEnabled=true&trustStorePath=/ca.pem"
    )
    assert parsed.discovery == DiscoveryGroup("231.7.7.7", 9000, 5, 6, "127.0.0.1")
    assert parsed.connectors == ()
    assert parsed.options.ha
    assert parsed.template is not None
    assert parsed.template.tls == TlsOptions(trust_store_path="/ca.pem")
    assert parse_url("udp://[ff02::1]").discovery == DiscoveryGroup("ff02::1")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("udp://10.0.0.1:1", "10.0.0.1"),
        ("udp://host:1", "host"),
        ("tcp://a:1?refreshTimeout=5", "refreshTimeout"),
        ("udp://231.7.7.7?refreshTimeout=0", "refreshTimeout"),
        ("jgroups://x", "jgroups"),
        ("vm://0", "vm"),
    ],
)
def test_discovery_that_cannot_be(url: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        parse_url(url)


@pytest.mark.parametrize("parameter", sorted(WITHOUT_EFFECT))
def test_parameters_without_effect_are_taken_and_named(parameter: str) -> None:
    assert parse_url(f"tcp://a:1?{parameter}=1").ignored == (parameter,)
    assert parse_url(f"(tcp://a:1?{parameter}=1)").ignored == (parameter,)


@pytest.mark.parametrize("parameter", sorted(REFUSED))
def test_parameters_that_mean_something_else_are_refused(parameter: str) -> None:
    with pytest.raises(ConfigError, match=parameter):
        parse_url(f"tcp://a:1?{parameter}=true")
    assert parse_url(f"tcp://a:1?{parameter}=false").options == ClientOptions()


def test_no_parameter_is_two_things() -> None:
    known = [*OPTION_PARAMETERS, *CONNECTOR_PARAMETERS, *GROUP_PARAMETERS, *WITHOUT_EFFECT, *REFUSED, *ALIASES]
    assert len({each.lower() for each in known}) == len(known)


@pytest.mark.parametrize(
    "store",
    ["keyStorePath=/me.jks", "trustStorePath=/ca.JCEKS", "keyStorePath=/me&keyStoreType=JKS"],
)
def test_java_stores_are_refused_with_the_command_that_converts_them(store: str) -> None:
    with pytest.raises(ConfigError, match=r"keytool -importkeystore .*-deststoretype PKCS12"):
        parse_url(f"tcp://a:1?sslEnabled=true&{store}")


def test_masked_passwords_are_refused() -> None:
    with pytest.raises(ConfigError, match="keyStorePassword: masked") as caught:
        parse_url("tcp://a:1?sslEnabled=true&keyStorePassword=ENC(12ab)")
    assert "12ab" not in str(caught.value)


def test_connector_settings() -> None:
    (found,) = parse_url(
        "tcp://a:1?name=n&sslEnabled=true&crlPath=/crl&enabledProtocols=TLSv1.3,TLSv1.2&enabledCipherSuites=A,B"
        "&localAddress=127.0.0.1&localPort=7&tcpNoDelay=false&tcpSendBufferSize=1K&tcpReceiveBufferSize=-1"
    ).connectors
    assert found.tls == TlsOptions(crl_path="/crl", protocols=("TLSv1.3", "TLSv1.2"), cipher_suites=("A", "B"))
    assert (found.name, found.local_address, found.local_port, found.tcp_no_delay) == ("n", "127.0.0.1", 7, False)
    assert (found.tcp_send_buffer_size, found.tcp_receive_buffer_size) == (1024, 0)
    with pytest.raises(ConfigError, match="SSLv3"):
        parse_url("tcp://a:1?sslEnabled=true&enabledProtocols=SSLv3")


def test_batch_sizes_follow_ack_batch_size() -> None:
    options = parse_url("tcp://a:1?ackBatchSize=5&dupsOKBatchSize=7").options
    assert (options.dups_ok_ack_batch_size, options.transaction_ack_batch_size) == (7, 5)


def test_the_wait_of_a_group_has_two_names() -> None:
    for name in ("initialWaitTimeout", "discoveryInitialWaitTimeout"):
        group = parse_url(f"udp://231.7.7.7:9876?{name}=77").discovery
        assert group is not None
        assert group.initial_wait_timeout_ms == 77


@pytest.mark.parametrize(
    ("url", "user", "password"),
    [
        ("tcp://guest:secret@h:1", "guest", "secret"),
        ("tcp://guest@h:1", "guest", None),
        ("tcp://gu%40st:se%2Fcr%2Cet%3F@h:1?ha=true", "gu@st", "se/cr,et?"),
        ("(tcp://guest:secret@a,tcp://b)?ha=true", "guest", "secret"),
        ("tcp://guest:secret@a,tcp://guest:secret@b", "guest", "secret"),
        ("tcp://guest:a@b@h:1", "guest", "a@b"),
    ],
)
def test_a_login_in_front_of_a_host(url: str, user: str, password: str | None) -> None:
    found = parse_url(url)
    assert (found.options.user, found.options.password) == (user, password)
    assert found.connectors[0].host in {"h", "a"}


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("tcp://u:p@a,tcp://v:p@b", "different users"),
        ("tcp://u:p@a?user=v", "as parameters"),
        ("tcp://u:p,w@a", "%2C for a comma"),
        ("udp://u:p@231.7.7.7:9876", "in front of a group"),
    ],
)
def test_a_login_that_is_not_clear(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse_url(url)
    assert "p,w" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "attempts", "ha"),
    [
        ("tcp://a", 0, False),
        ("tcp://a,tcp://b", -1, True),
        ("(tcp://a,tcp://b)?ha=true", -1, True),
        ("(tcp://a,tcp://b)?ha=false", 0, False),
        ("(tcp://a,tcp://b)?reconnectAttempts=3", 3, False),
        ("(tcp://a,tcp://b)?failoverAttempts=3", 0, False),
    ],
)
def test_several_hosts_fail_over_unless_the_url_says_otherwise(url: str, attempts: int, ha: bool) -> None:
    options = parse_url(url).options
    assert (options.reconnect_attempts, options.ha) == (attempts, ha)


@pytest.mark.parametrize(
    ("url", "with_backup"),
    [
        ("tcp://a", True),
        ("tcp://a?callTimeout=5", True),
        ("udp://231.7.7.7:9876", True),
        ("tcp://a?ha=false", False),
        ("tcp://a?ha=true", False),
        ("tcp://a?reconnectAttempts=3", False),
        ("tcp://a?failoverAttempts=3", False),
    ],
)
def test_a_known_backup_decides_if_the_url_says_nothing_about_failover(url: str, with_backup: bool) -> None:
    found = parse_url(url)
    assert found.failover_with_backup is with_backup
    expected = (-1, True) if with_backup else (found.options.reconnect_attempts, found.options.ha)
    assert (found.options_with_backup.reconnect_attempts, found.options_with_backup.ha) == expected


def test_an_argument_decides_about_failover() -> None:
    url = parse_url("tcp://a,tcp://b")
    assert with_failover(url, None) is url
    assert with_failover(url, False).options.reconnect_attempts == 0
    assert not with_failover(parse_url("tcp://a"), False).failover_with_backup
    options = with_failover(parse_url("tcp://a"), True).options
    assert (options.reconnect_attempts, options.ha) == (-1, True)
