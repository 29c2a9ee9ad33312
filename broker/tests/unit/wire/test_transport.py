"""Connector descriptions: wire form, URL form, bounds."""

from __future__ import annotations

import pytest

from understudy.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError
from understudy.wire.core.transport import NETTY_CONNECTOR_FACTORY, TransportConfiguration


def test_wire_form_keeps_types() -> None:
    connector = TransportConfiguration(
        "c", NETTY_CONNECTOR_FACTORY, {"host": "h", "port": 61616, "sslEnabled": True, "ttl": 2**40, "$.EP.x": "y"}
    )
    found = TransportConfiguration.decode(connector.encode())
    assert found == connector
    assert [type(value) for value in found.parameters.values()] == [str, int, bool, int, str]


@pytest.mark.parametrize(
    ("url", "host", "port", "extra"),
    [
        ("tcp://a:61617", "a", 61617, {}),
        ("tcp://a", "a", 61616, {}),
        ("tcp://[::1]:5?sslEnabled=true", "::1", 5, {"sslEnabled": "true"}),
        ("tcps://a:1", "a", 1, {"sslEnabled": "true"}),
        ("tcp://a:1?keyStorePath=/etc/a%20b.p12&x=", "a", 1, {"keyStorePath": "/etc/a b.p12", "x": ""}),
        ("tcp://a:1?p=%C3%A9%26%3D", "a", 1, {"p": "é&="}),
    ],
)
def test_url_both_ways(url: str, host: str, port: int, extra: dict[str, str]) -> None:
    connector = TransportConfiguration.from_url(url, "n")
    assert (connector.name, connector.host, connector.port) == ("n", host, port)
    assert connector.parameters == {"host": host, "port": str(port), **extra}
    assert TransportConfiguration.from_url(connector.to_url(), "n") == connector


@pytest.mark.parametrize(
    "url", ["a:1", "http://a:1", "tcp://a:x", "tcp://a:70000", "tcp://u:p@a:1", "tcp://a/b", "tcp://[::1", ""]
)
def test_bad_urls(url: str) -> None:
    with pytest.raises(LocalProtocolError):
        TransportConfiguration.from_url(url)


def test_booleans_are_written_as_java_does() -> None:
    assert TransportConfiguration("", "", {"host": "h", "port": 1, "b": True}).to_url() == "tcp://h:1?b=true"


@pytest.mark.parametrize("port", ["", "-1", "65536", "6_1", "٣", True, 2**40])
def test_a_peer_cannot_make_us_dial_nonsense(port: str | int) -> None:
    with pytest.raises(RemoteProtocolError):
        _ = TransportConfiguration("c", "", {"port": port}).port


def test_defaults_and_hash() -> None:
    connector = TransportConfiguration()
    assert (connector.host, connector.port) == ("localhost", 61616)
    assert len({connector, TransportConfiguration()}) == 1


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        ("00000000 00000000 00000101" + "00" * 2000, LimitExceeded),
        ("00000000 00000000 00000001 00000000 04 00", RemoteProtocolError),
        ("00000000 00000000 00000001 00000000 01 00", RemoteProtocolError),
        ("00000000 00000000 00000000 00", RemoteProtocolError),
    ],
)
def test_bad_bytes(raw: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        TransportConfiguration.decode(bytes.fromhex(raw))


@pytest.mark.parametrize("value", [2**63, 1.5, None])
def test_values_that_cannot_travel(value: object) -> None:
    with pytest.raises(LocalProtocolError):
        TransportConfiguration("c", "f", {"x": value}).encode()  # type: ignore[dict-item]


def test_half_a_surrogate_pair_makes_a_url_too() -> None:
    """Found by fuzzing: an announced connector with one broke the log line about it."""
    connector = TransportConfiguration("c", parameters={"host": "h", "port": "1", "ho\ud800t": "\udfff"})
    assert connector.to_url() == "tcp://h:1?ho%ED%A0%80t=%ED%BF%BF"
