"""All errors of a broker.xml are named at once, and none that only follows from another one."""

from __future__ import annotations

import pytest

from support.config import core
from understudy.config.reading.document import ConfigErrors
from understudy.config.reading.reader import read_broker_xml
from understudy.errors import ConfigError
from understudy.limits import CONFIG_ERRORS_MAX


def errors(body: str) -> list[str]:
    """The texts of the errors of a broker.xml with this body."""
    with pytest.raises(ConfigError) as caught:
        read_broker_xml(core(body), file="broker.xml", base_directory="/srv/node")
    error = caught.value
    return [str(each) for each in (error.errors if isinstance(error, ConfigErrors) else [error])]


def test_errors_of_every_kind_are_named_in_the_order_of_their_lines() -> None:
    found = errors("""
        <journal-file-sise>1</journal-file-sise>
        <journal-min-files>many</journal-min-files>
        <connectors><connector name="own">tcp://a:1</connector><connector name="bad">tcp://:1</connector></connectors>
        <acceptors><acceptor name="a" surprise="x">tcp://h:1</acceptor>
        <acceptor name="b">tcp://h:2?backlog=0</acceptor></acceptors>
        <cluster-connections><cluster-connection name="c"><connector-ref>other</connector-ref></cluster-connection>
        </cluster-connections>
        <addresses><address name="q"><anycast><queue name="q"><filter string="a ="/></queue></anycast></address>
        </addresses>
        <diverts><divert name="d"><address>x</address></divert></diverts>
        <address-settings><address-setting match="a.#.b#"><max-size-bytes>few</max-size-bytes></address-setting>
        </address-settings>
        """)
    wanted = [
        ("broker.xml:2 core/journal-file-sise", "did you mean 'journal-file-size'"),
        ("broker.xml:3 core/journal-min-files", "'many'"),
        ("broker.xml:4 core/connectors/connector[@name='bad']", "names no host"),
        ("broker.xml:5 core/acceptors/acceptor[@name='a']/@surprise", "unknown attribute"),
        ("broker.xml:6 core/acceptors/acceptor[@name='b']", "backlog: 0 is outside"),
        ("broker.xml:7 core/cluster-connections/cluster-connection[@name='c']/connector-ref", "no connector 'other'"),
        ("broker.xml:9 core/addresses/address[@name='q']/anycast/queue[@name='q']/filter", "at position"),
        ("broker.xml:11 core/diverts/divert[@name='d']", "forwarding-address is missing"),
        ("broker.xml:12 core/address-settings/address-setting[@match='a.#.b#']/max-size-bytes", "few"),
    ]
    assert len(found) == len(wanted), found
    for text, (place, reason) in zip(found, wanted, strict=True):
        assert text.startswith(place), text
        assert reason in text


def test_an_error_that_follows_from_another_one_is_not_named() -> None:
    (only,) = errors("""
        <cluster-user>u</cluster-user><cluster-password>a password of this test</cluster-password>
        <connectors><connector name="own">udp://a:1</connector></connectors>
        <broadcast-groups><broadcast-group name="b"><group-address>231.7.7.7</group-address>
        <group-port>1</group-port><connector-ref>own</connector-ref></broadcast-group></broadcast-groups>
        <cluster-connections><cluster-connection name="c"><connector-ref>own</connector-ref></cluster-connection>
        </cluster-connections>
        <ha-policy><replication><primary/></replication></ha-policy>""")
    assert "scheme 'udp'" in only


def test_an_error_in_a_group_does_not_make_its_name_unknown() -> None:
    (only,) = errors("""
        <cluster-user>u</cluster-user><cluster-password>a password of this test</cluster-password>
        <connectors><connector name="own">tcp://a:1</connector></connectors>
        <discovery-groups><discovery-group name="g"><group-address>1.2.3.4</group-address><group-port>1</group-port>
        </discovery-group></discovery-groups>
        <cluster-connections><cluster-connection name="c"><connector-ref>own</connector-ref>
        <discovery-group-ref discovery-group-name="g"/></cluster-connection></cluster-connections>""")
    assert "no multicast address" in only


def test_errors_of_several_servers_are_named_together() -> None:
    data = b"""<configuration><core><name>a</name><journal-min-files>x</journal-min-files></core>
        <server name="b"><journal-min-files>y</journal-min-files></server></configuration>"""
    with pytest.raises(ConfigErrors) as caught:
        read_broker_xml(data, file="broker.xml", base_directory="/srv/node")
    assert [each.line for each in caught.value.errors] == [1, 2]


def test_errors_beyond_the_limit_are_counted() -> None:
    body = "\n".join(f"<unknown{number}/>" for number in range(CONFIG_ERRORS_MAX + 7))
    with pytest.raises(ConfigErrors) as caught:
        read_broker_xml(core(body), file="broker.xml")
    lines = str(caught.value).splitlines()
    assert lines[0] == f"broker.xml: {CONFIG_ERRORS_MAX + 7} errors"
    assert len(lines) == CONFIG_ERRORS_MAX + 2
    assert lines[-1] == "  and 7 more"


def test_errors_of_an_included_file_name_that_file() -> None:
    inside = b'<addresses xmlns="urn:activemq:core"><address/><adress name="a"/></addresses>'
    body = '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="more.xml"/>\n<nonsense/>'
    with pytest.raises(ConfigErrors) as caught:
        read_broker_xml(core(body), file="broker.xml", read_file=lambda name: inside)
    places = [(each.file, each.line) for each in caught.value.errors]
    assert places == [("broker.xml", 2), ("more.xml", 1), ("more.xml", 1)]
