"""JGroups stacks as they are shipped and as people change them."""

from __future__ import annotations

import pytest

from understudy.cluster.discovery.carriers import AnnouncementDirectory, MemberList, Multicast
from understudy.cluster.discovery.jgroups import read_stack
from understudy.errors import ConfigError
from understudy.limits import DISCOVERY_HOSTS_MAX, JGROUPS_BYTES_MAX

HEAD = (
    '<config xmlns="urn:org:jgroups" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    ' xsi:schemaLocation="urn:org:jgroups http://www.jgroups.org/schema/jgroups.xsd">\n'
)
REST = """
    <MERGE3 max_interval="30000" min_interval="10000"/>
    <FD_SOCK/>
    <FD_ALL timeout="60000" interval="15000"/>
    <VERIFY_SUSPECT timeout="5000"/>
    <pbcast.NAKACK2 xmit_interval="500" discard_delivered_msgs="true"/>
    <UNICAST3 xmit_interval="500"/>
    <pbcast.STABLE desired_avg_gossip="50000" max_bytes="8m"/>
    <pbcast.GMS print_local_addr="true" join_timeout="1000"/>
    <UFC max_credits="2M"/>
    <MFC max_credits="2M"/>
    <FRAG2 frag_size="60K"/>
</config>
"""
#: udp.xml of the JGroups distribution.
UDP = HEAD + '<UDP mcast_port="${jgroups.udp.mcast_port:45588}" ip_ttl="4" tos="8" /><PING/>' + REST
#: tcp.xml of the JGroups distribution; the line breaks of initial_hosts are its own.
TCP = (
    HEAD
    + """<TCP bind_addr="${jgroups.bind_addr:127.0.0.1}" bind_port="${jgroups.bind_port:7800}" recv_buf_size="130k"/>
<TCPPING async_discovery="true"
    initial_hosts="${jgroups.tcpping.initial_hosts:localhost[7800],
        other[7801] , [::1][7802]}" port_range="2"/>"""
    + REST
)
#: As in the examples of Artemis: test-jgroups-file_ping.xml.
FILE = (
    HEAD
    + '<TCP loopback="true" port_range="50"/><FILE_PING location="/shared/jgroups" write_data_on_find="true"/>'
    + REST
)


def read(text: str, **properties: str) -> object:
    return read_stack(text.encode(), "cluster", file="stack.xml", properties=properties)


def fails(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return caught.value


def stack(*protocols: str) -> str:
    return HEAD + "\n".join(protocols) + "\n</config>"


def test_the_shipped_stack_for_udp() -> None:
    assert read(UDP) == Multicast("228.8.8.8", 45588, ttl=4, channel="cluster")


def test_the_shipped_stack_for_tcp() -> None:
    assert read(TCP) == MemberList(
        (("localhost", 7800), ("other", 7801), ("::1", 7802)), "cluster", 2, "127.0.0.1", 7800, 10
    )


def test_a_stack_with_files() -> None:
    assert read(FILE) == AnnouncementDirectory("/shared/jgroups", "cluster")


def test_mping_is_multicast_beside_any_transport() -> None:
    found = read(stack("<TCP/>", '<MPING mcast_addr="231.1.2.3" mcast_port="7000" ip_ttl="2" bind_addr="10.0.0.1"/>'))
    assert found == Multicast("231.1.2.3", 7000, "10.0.0.1", ttl=2, channel="cluster")
    assert read(stack("<UDP/>", "<MPING/>")) == Multicast("230.5.6.7", 7555, ttl=8, channel="cluster")


def test_defaults_are_those_of_jgroups() -> None:
    assert read(stack("<UDP/>", "<PING/>")) == Multicast("228.8.8.8", 7600, ttl=8, channel="cluster")
    found = read(stack("<TCP_NIO2/>", '<TCPPING initial_hosts="a[1]"/>'))
    assert found == MemberList((("a", 1),), "cluster", 1, None, 7800, 10)


@pytest.mark.parametrize(("text", "address"), [("SITE_LOCAL", None), ("loopback", "127.0.0.1"), ("::1", "::1")])
def test_bind_addr(text: str, address: str | None) -> None:
    found = read(stack(f'<UDP bind_addr="{text}"/>', "<PING/>"))
    assert isinstance(found, Multicast)
    assert found.bind_address == address


def test_properties_replace_defaults() -> None:
    assert read(UDP, **{"jgroups.udp.mcast_port": "5"}) == Multicast("228.8.8.8", 5, ttl=4, channel="cluster")


@pytest.mark.parametrize(
    ("protocols", "line", "place", "text"),
    [
        (["<TCP/>", "<S3_PING/>"], 3, "config/S3_PING", "S3_PING cannot be mapped"),
        (["<TCP/>", "<TCPGOSSIP/>"], 3, "config/TCPGOSSIP", "TCPPING"),
        (["<TUNNEL/>", "<PING/>"], 2, "config/TUNNEL", "TUNNEL cannot be mapped"),
        (["<UDP/>", "<PING/>", "<SYM_ENCRYPT/>"], 4, "config/SYM_ENCRYPT", "neither encrypted nor authenticated"),
        (["<UDP/>", "<PING/>", "<AUTH/>"], 4, "config/AUTH", "neither encrypted"),
        (["<UDP/>", "<PING/>", "<pbcast.STABEL/>"], 4, "config/pbcast.STABEL", "did you mean 'STABLE'"),
        (["<TCP/>", "<PING/>"], 3, "config/PING", "PING with the transport TCP"),
        (["<UDP/>", '<TCPPING initial_hosts="a[1]"/>'], 3, "config/TCPPING", "with the transport UDP"),
        (["<TCP/>", "<TCPPING/>"], 3, "config/TCPPING", "initial_hosts has 0 entries"),
        (["<TCP/>", '<TCPPING initial_hosts="a:7800"/>'], 3, "config/TCPPING", "'a:7800' is no host"),
        (["<TCP/>", '<TCPPING initial_hosts="a[70000]"/>'], 3, "config/TCPPING", "is no host"),
        (["<TCP/>", "<FILE_PING/>"], 3, "config/FILE_PING", "location"),
        (["<UDP/>", "<PING/>", "<MPING/>"], 4, "config/MPING", "second discovery protocol, after PING"),
        (["<UDP/>", "<TCP/>", "<PING/>"], 3, "config/TCP", "second transport, after UDP"),
        (['<UDP mcast_addr="10.0.0.1"/>', "<PING/>"], 2, "config/UDP", "no multicast address"),
        (['<UDP mcast_port="x"/>', "<PING/>"], 2, "config/UDP", "mcast_port='x'"),
        (['<UDP bind_addr="match-interface:eth.*"/>', "<PING/>"], 2, "config/UDP", "cannot be mapped"),
        (['<UDP mcast_port="${port}"/>', "<PING/>"], 2, "config/UDP/@mcast_port", "'port' has no value and no default"),
    ],
)
def test_errors_name_the_element_and_the_line(protocols: list[str], line: int, place: str, text: str) -> None:
    error = fails(stack(*protocols))
    assert (error.file, error.line, error.path) == ("stack.xml", line, place)
    assert text in f"{error} {error.hint}"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("<config><UDP/></config>", "no discovery protocol"),
        ("<config><PING/></config>", "no transport"),
        ("<stacks><stack/></stacks>", "root element is 'stacks'"),
        ("<config><UDP></config>", "not well-formed"),
        ("", "not well-formed"),
        ("<!DOCTYPE config [<!ENTITY a 'b'>]><config/>", "DOCTYPE"),
        ("<config>" + "<a>" * 20 + "</a>" * 20 + "</config>", "inside each other"),
        ("<config>" + "<FD/>" * 100 + "</config>", "more than 64 protocols"),
        ("<config>" + " " * JGROUPS_BYTES_MAX + "</config>", "limit"),
        (
            f'<config><TCP/><TCPPING initial_hosts="{"a[1]," * (DISCOVERY_HOSTS_MAX + 1)}"/></config>',
            "65 entries",
        ),
    ],
)
def test_files_that_are_no_stack(text: str, named: str) -> None:
    assert named in str(fails(text))


def test_a_channel_has_a_name() -> None:
    with pytest.raises(ConfigError, match="channel name of 0"):
        read_stack(UDP.encode(), "", file="stack.xml")
