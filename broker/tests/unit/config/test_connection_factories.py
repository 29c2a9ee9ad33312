"""Connection factories: their elements, the client URL and the JNDI properties that they make."""

from __future__ import annotations

import pytest

from understudy.client.core.url.parsing import OPTION_PARAMETERS, parse_url
from understudy.config.changes import changes
from understudy.config.profiles.reader import places_of
from understudy.config.profiles.schema import SETTINGS, parameter_of
from understudy.config.reading.reader import read_broker_xml
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import ConfigError, ManagementError

CONNECTORS = (
    '<connectors><connector name="a">tcp://10.0.0.1:61616?sslEnabled=true;trustStorePath=/etc/t;trustStorePassword=s'
    '</connector><connector name="b">tcp://10.0.0.2:61616</connector></connectors>'
)


def read(inside: str) -> LoadedConfig:
    factory = f'<connection-factories><connection-factory name="F">{inside}</connection-factory></connection-factories>'
    return read_broker_xml(f"<configuration><core>{CONNECTORS}{factory}</core></configuration>".encode(), file="f")


def test_a_factory_makes_a_client_url_that_the_client_reads() -> None:
    loaded = read(
        "<connector-ref>a</connector-ref><connector-ref>b</connector-ref><ha>true</ha>"
        "<reconnect-attempts>-1</reconnect-attempts><connection-ttl>5000</connection-ttl><client-id>x&amp;y</client-id>"
        "<retry-interval-multiplier>1.5</retry-interval-multiplier>"
    )
    (factory,) = loaded.configuration.connection_factories
    url = factory.url(places_of(loaded.configuration))
    assert url == (
        "(tcp://10.0.0.1:61616?sslEnabled=true,tcp://10.0.0.2:61616)"
        "?ha=true&reconnectAttempts=-1&retryIntervalMultiplier=1.5&connectionTTL=5000&clientID=x%26y"
    )
    found = parse_url(url)
    assert [each.host for each in found.connectors] == ["10.0.0.1", "10.0.0.2"]
    assert (found.options.client_id, found.options.connection_ttl_ms) == ("x&y", 5000)


def test_a_connector_that_is_not_offset_is_part_of_a_client_url() -> None:
    connectors = '<connectors><connector name="a">tcp://10.0.0.1:61616?doNotOffset=true</connector></connectors>'
    inside = '<connection-factory name="F"><connector-ref>a</connector-ref></connection-factory>'
    factories = f"<connection-factories>{inside}</connection-factories>"
    text = f"<configuration><core>{connectors}{factories}</core></configuration>"
    loaded = read_broker_xml(text.encode(), file="f")
    (found,) = loaded.configuration.connection_factories
    url = found.url(places_of(loaded.configuration))
    assert url == "(tcp://10.0.0.1:61616?doNotOffset=true)"
    # the parameter is for the broker that makes hosted backups, and the client names it as one without effect
    assert parse_url(url).ignored == ("doNotOffset",)
    assert parse_url("tcp://10.0.0.1:61616?doNotOffset=true").connectors[0].port == 61616


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.name)
def test_every_setting_is_a_parameter_of_the_client_url(row) -> None:  # type: ignore[no-untyped-def]
    assert parameter_of(row.name) in OPTION_PARAMETERS


def test_jndi_properties_have_the_entries_without_the_prefix_of_application_servers() -> None:
    loaded = read(
        "<connector-ref>b</connector-ref><entry>java:jboss/exported/jms/F</entry><entry>java:/Other</entry><ha>true</ha>"
    )
    (factory,) = loaded.configuration.connection_factories
    assert factory.jndi_properties(places_of(loaded.configuration)) == (
        "java.naming.factory.initial=org.apache.activemq.artemis.jndi.ActiveMQInitialContextFactory\n"
        "connectionFactory.jms/F=(tcp://10.0.0.2:61616)?ha=true\n"
        "connectionFactory.java\\:/Other=(tcp://10.0.0.2:61616)?ha=true\n"
    )


def test_a_factory_without_a_connector_has_no_url() -> None:
    loaded = read("<ha>true</ha>")
    with pytest.raises(ManagementError, match="'F' has no connector"):
        loaded.configuration.connection_factories[0].url(places_of(loaded.configuration))
    with pytest.raises(ConfigError, match="there is no connector 'c'"):
        read("<connector-ref>c</connector-ref>")


def test_a_changed_factory_needs_no_restart() -> None:
    before, after = (read(f"<ha>{ha}</ha>").configuration for ha in ("true", "false"))
    change = changes(before, after)
    assert (change.applied, change.restart) == (("connection-factories",), ())
