"""Forms of broker.xml with which Artemis starts: they are used, with a warning where something is left aside."""

from __future__ import annotations

import pytest

from support.config import PASSWORD, cluster, core, fails, read
from understudy.cluster.discovery.carriers import AnnouncementDirectory
from understudy.cluster.discovery.jgroups import read_stack
from understudy.config.high_availability import HighAvailabilityPolicy, Role, ScaleDownConfiguration
from understudy.config.model import DEFAULT_CLUSTER_PASSWORD, AddressConfiguration, QueueConfiguration
from understudy.config.reading.reader import read_broker_xml
from understudy.errors import ConfigError
from understudy.terms import Permission, RoutingType

ANYCAST, MULTICAST = frozenset({RoutingType.ANYCAST}), frozenset({RoutingType.MULTICAST})


def warnings(body: str) -> list[str]:
    return [str(each) for each in read(body).warnings]


def acceptor(url: str) -> str:
    return f'<acceptors><acceptor name="a">{url}</acceptor></acceptors>'


@pytest.mark.parametrize("written", ["useKQueue", "useKQueue=", "tcpReceiveBufferSize=", "backlog= "])
def test_a_parameter_without_a_value_is_ignored(written: str) -> None:
    """Switches and numbers may also have an empty value, which Artemis takes for the default."""
    body = acceptor(f"tcp://h:1?tcpSendBufferSize=1048576;{written};protocols=CORE")
    name = written.partition("=")[0]
    assert any(f"parameter {name!r} has no value and is ignored" in each for each in warnings(body))
    assert name not in read(body).configuration.acceptors[0].parameters


def test_a_switch_that_is_neither_on_nor_off_is_refused() -> None:
    assert "neither true nor false" in str(fails(acceptor("tcp://h:1?useKQueue=maybe")))


def test_the_last_value_of_a_parameter_counts() -> None:
    body = acceptor("tcp://h:1?backlog=5;backlog=6")
    assert read(body).configuration.acceptors[0].backlog == 6
    assert any("'backlog' stands twice, the last is used" in each for each in warnings(body))


@pytest.mark.parametrize("name", ["cluster-user", "cluster-password"])
def test_an_empty_login_of_the_cluster_is_fine_without_a_cluster(name: str) -> None:
    body = f"<{name}/>"
    assert [f"core/{name}" in each and "counts as not given" in each for each in warnings(body)] == [True]
    assert read(body).configuration.cluster_user == read("").configuration.cluster_user


def test_an_empty_user_is_refused_with_a_cluster() -> None:
    assert "the value is empty" in str(fails("<cluster-user/>" + cluster("")))


def test_the_default_cluster_password_is_warned_of_without_a_cluster() -> None:
    texts = DEFAULT_CLUSTER_PASSWORD, "a password of my own"
    public, own = (f"<cluster-password>{text}</cluster-password>" for text in texts)
    assert any("the default is public" in each for each in warnings(public))
    assert not warnings(own)


def test_a_small_segment_size_is_raised() -> None:
    loaded = read("<journal-file-size>512000</journal-file-size>")
    assert loaded.configuration.journal_file_size_bytes == 1024 * 1024
    assert ["512000 is raised to 1048576" in str(each) for each in loaded.warnings] == [True]
    fails("<journal-file-size>12</journal-file-size>")


def test_no_roles_and_no_filter() -> None:
    body = """<security-settings><security-setting match="a"><permission type="send" roles=""/></security-setting>
        <role-mapping from="outside" to=""/></security-settings>
        <addresses><address name="a"><anycast><queue name="q"><filter string=""/></queue></anycast></address>
        </addresses>"""
    found = read(body).configuration
    assert found.security_settings[0].permissions == {Permission.SEND: frozenset()}
    assert found.addresses[0].queues[0].filter is None


def test_one_address_in_two_elements() -> None:
    body = """<addresses><address name="a"><anycast><queue name="q"/></anycast></address>
        <address name="a"><multicast><queue name="m"/></multicast></address></addresses>"""
    (address,) = read(body).configuration.addresses
    assert address.routing_types == ANYCAST | MULTICAST
    assert [queue.name for queue in address.queues] == ["q", "m"]


@pytest.mark.parametrize(
    ("address", "second", "says", "kept"),
    [
        ("a", "a", "queue 'q' stands twice, first on line 1: the last one is used", [("a", "q", 2)]),
        ("a", "b", "first on line 1 at address 'a': it is not made at 'b'", [("a", "q", None)]),
    ],
)
def test_a_queue_that_stands_twice_is_at_the_address_where_it_is_first(
    address: str, second: str, says: str, kept: list[tuple[str, str, int | None]]
) -> None:
    """Artemis changes a queue of the same address and leaves out one of another address; so does the reader."""
    loaded = read(f"""<addresses><address name="{address}"><multicast><queue name="q"/></multicast></address>
        <address name="{second}"><multicast><queue name="q" max-consumers="2"/></multicast></address></addresses>""")
    (warning,) = loaded.warnings
    assert says in warning.message
    assert warning.line == 2
    found = [
        (each.address, each.name, each.max_consumers) for one in loaded.configuration.addresses for each in one.queues
    ]
    assert found == kept


TWICE = {
    "acceptor": (
        "last",
        '<acceptors><acceptor name="x">tcp://h:1</acceptor>\n<acceptor name="x">tcp://h:2</acceptor></acceptors>',
    ),
    "connector": (
        "last",
        '<connectors><connector name="x">tcp://h:1</connector>\n<connector name="x">tcp://h:2</connector></connectors>',
    ),
    "address-setting": (
        "last",
        """<address-settings><address-setting match="x"><redelivery-delay>1</redelivery-delay></address-setting>
        <address-setting match="x"><redelivery-delay>2</redelivery-delay></address-setting></address-settings>""",
    ),
    "security-setting": (
        "last",
        """<security-settings><security-setting match="x"><permission type="send" roles="r1"/></security-setting>
        <security-setting match="x"><permission type="send" roles="r2"/></security-setting></security-settings>""",
    ),
    "divert": (
        "first",
        """<diverts><divert name="x"><address>a</address><forwarding-address>r1</forwarding-address></divert>
        <divert name="x"><address>a</address><forwarding-address>r2</forwarding-address></divert></diverts>""",
    ),
}


@pytest.mark.parametrize("entry", TWICE)
def test_of_two_entries_with_one_name_the_one_is_used_that_artemis_uses(entry: str) -> None:
    counts, body = TWICE[entry]
    loaded = read(body)
    (warning,) = loaded.warnings
    assert f"'x' stands twice, first on line 1: the {counts} one is used" in warning.message
    configuration = loaded.configuration
    used = {
        "acceptor": [each.port for each in configuration.acceptors],
        "connector": [each.port for each in configuration.connectors],
        "address-setting": [each.redelivery_delay for each in configuration.address_settings],
        "security-setting": [
            int(role[1]) for each in configuration.security_settings for role in each.permissions[Permission.SEND]
        ],
        "divert": [int(each.forwarding_address[1]) for each in configuration.diverts],
    }
    assert used[entry] == [2 if counts == "last" else 1]


def test_a_value_that_comes_twice_is_used_once() -> None:
    loaded = read("<journal-min-files>3</journal-min-files>\n<journal-min-files>4</journal-min-files>")
    assert loaded.configuration.journal_min_files == 3
    (warning,) = loaded.warnings
    assert "stands twice, first on line 1, and only that one is used" in str(warning)


def test_an_empty_policy_is_a_node_without_partner() -> None:
    loaded = read("<ha-policy/>")
    assert loaded.configuration.ha_policy == HighAvailabilityPolicy()
    assert len(loaded.warnings) == 1


def test_queues_and_topics_of_jms() -> None:
    data = b"""<configuration xmlns="urn:activemq"><jms xmlns="urn:activemq:jms" domain="x">
        <queue name="DLQ"/><queue name="orders"><selector string="a = 1"/><durable>false</durable></queue>
        <topic name="news"/></jms><core xmlns="urn:activemq:core">
        <addresses><address name="news"><multicast><queue name="mine"/></multicast></address></addresses>
        </core></configuration>"""
    found = read_broker_xml(data, file="broker.xml").configuration.addresses
    assert found == (
        AddressConfiguration("news", MULTICAST, (QueueConfiguration("mine", "news", RoutingType.MULTICAST),)),
        AddressConfiguration("DLQ", ANYCAST, (QueueConfiguration("DLQ", "DLQ", RoutingType.ANYCAST),)),
        AddressConfiguration(
            "orders", ANYCAST, (QueueConfiguration("orders", "orders", RoutingType.ANYCAST, "a = 1", durable=False),)
        ),
    )


def test_the_namespace_of_jms_is_no_namespace_of_core() -> None:
    data = b'<configuration><core><addresses xmlns="urn:activemq:jms"/></core></configuration>'
    with pytest.raises(ConfigError, match="unknown namespace"):
        read_broker_xml(data, file="broker.xml")


IN_VM = '<connectors><connector name="c">vm://0</connector></connectors>'


def test_an_acceptor_in_the_virtual_machine_is_not_opened() -> None:
    loaded = read(acceptor("vm://0"))
    assert loaded.configuration.acceptors == ()
    assert "no transports inside a virtual machine" in str(loaded.warnings[0])


def test_a_connector_in_the_virtual_machine_leads_to_an_acceptor_of_the_server() -> None:
    both = (
        '<acceptors><acceptor name="v">vm://0</acceptor><acceptor name="a">tcp://0.0.0.0:61616</acceptor></acceptors>'
    )
    (connector,) = read(IN_VM + both).configuration.connectors
    assert (connector.host, connector.port) == ("127.0.0.1", 61616)
    assert any("leads to acceptor 'a' of this server" in each for each in warnings(IN_VM + both))


def test_a_connector_into_another_virtual_machine_is_left_aside_until_it_is_needed() -> None:
    assert read(IN_VM).configuration.connectors == ()
    needed = cluster("", head=PASSWORD + IN_VM).replace(">own<", ">c<")
    assert "leads into the virtual machine of Java" in str(fails(needed))


# --- high availability as it was written before ha-policy, and beside it ---------------------------------


def test_a_backup_of_a_shared_store_in_the_old_form() -> None:
    old = "<failover-on-shutdown>true</failover-on-shutdown><allow-failback>false</allow-failback>"
    loaded = read(f"{cluster('')}<backup>true</backup>{old}")
    policy = loaded.configuration.ha_policy
    assert policy == HighAvailabilityPolicy(Role.BACKUP, failover_on_shutdown=True, allow_failback=False)
    (warning,) = loaded.warnings
    names = "backup, failover-on-shutdown, allow-failback"
    assert f"{names}: the old form of ha-policy, read as <shared-store><backup>" in str(warning)


def test_a_replicated_primary_in_the_old_form() -> None:
    body = (
        cluster("")
        + """<shared-store>false</shared-store><check-for-live-server>true</check-for-live-server>
        <backup-group-name>g</backup-group-name><replication-clustername>c</replication-clustername>
        <max-saved-replicated-journals-size>7</max-saved-replicated-journals-size>"""
    )
    policy = read(body).configuration.ha_policy
    assert policy.role is Role.PRIMARY
    assert policy.replication is not None
    found = policy.replication
    assert (found.group_name, found.cluster_name, found.check_for_active_server) == ("g", "c", True)
    assert found.max_saved_replicated_journals_size == 7


def test_scale_down_in_the_old_form() -> None:
    body = cluster("") + "<backup>true</backup><scale-down-clustername>c</scale-down-clustername>"
    assert read(body).configuration.ha_policy.scale_down == ScaleDownConfiguration()
    unknown = cluster("") + "<backup>true</backup><scale-down-clustername>x</scale-down-clustername>"
    assert "there is no cluster-connection 'x'" in str(fails(unknown))


def test_an_old_element_that_the_role_does_not_have_is_warned_of() -> None:
    body = cluster("") + "<backup>true</backup><check-for-live-server>true</check-for-live-server>"
    assert any("check-for-live-server has no effect in a backup with shared-store" in each for each in warnings(body))


def test_both_forms_exclude_each_other() -> None:
    assert "there is an ha-policy" in str(fails("<backup>true</backup><ha-policy><primary-only/></ha-policy>"))


FOLDER = '<properties><property key="locks-folder" value="/l"/></properties>'
MANAGER = f"<manager><class-name>file</class-name>{FOLDER}</manager>"


@pytest.mark.parametrize("role", ["primary", "backup"])
def test_a_manager_beside_the_role_counts_for_it(role: str) -> None:
    beside = read(cluster("") + f"<ha-policy><replication>{MANAGER}<{role}/></replication></ha-policy>")
    inside = read(cluster("") + f"<ha-policy><replication><{role}>{MANAGER}</{role}></replication></ha-policy>")
    assert beside.configuration.ha_policy == inside.configuration.ha_policy
    twice = cluster("") + f"<ha-policy><replication>{MANAGER}<{role}>{MANAGER}</{role}></replication></ha-policy>"
    assert "has a manager already" in str(fails(twice))


def test_a_skeleton_of_a_policy_names_the_missing_line() -> None:
    for name in ("replication", "shared-store"):
        error = str(fails(cluster("") + f"<ha-policy><{name}/></ha-policy>"))
        assert f"write <{name}><primary/></{name}> in one node of a pair" in error


def test_the_other_spelling_of_the_retry_wait() -> None:
    backup = "<backup><vote-retries-wait>77</vote-retries-wait></backup>"
    policy = read(cluster("") + f"<ha-policy><replication>{backup}</replication></ha-policy>").configuration.ha_policy
    assert policy.replication is not None
    assert policy.replication.vote_retry_wait_ms == 77


def test_a_pair_without_a_cluster_connection_is_warned_of() -> None:
    (warning,) = warnings("<ha-policy><shared-store><primary/></shared-store></ha-policy>")
    assert "clients with one address do not follow" in warning


# --- JGroups ---------------------------------------------------------------------------------------------

#: A stack with the attributes of the example of 003: addresses from properties, a relative directory.
STACK = b"""<config xmlns="urn:org:jgroups"><TCP external_addr="${jgroups.external_addr}" bind_port="7800"/>
<FILE_PING location="../file.ping.dir"/><MERGE3/></config>"""


def test_an_attribute_that_is_not_used_needs_no_value_and_a_relative_path_starts_at_the_folder_of_the_file() -> None:
    found = read_stack(STACK, "c", file="/srv/node/etc/stack.xml")
    assert found == AnnouncementDirectory("/srv/node/file.ping.dir", "c")


def test_an_attribute_that_is_used_needs_one() -> None:
    data = STACK.replace(b"../file.ping.dir", b"${where}")
    with pytest.raises(ConfigError, match=r"property 'where' has no value and no default.*--property where=VALUE"):
        read_stack(data, "c", file="stack.xml")
    assert read_stack(data, "c", file="stack.xml", properties={"where": "/w"}) == AnnouncementDirectory("/w", "c")


def test_properties_of_broker_xml_reach_the_stack() -> None:
    group = """<discovery-groups><discovery-group name="d"><jgroups-file>s.xml</jgroups-file>
        <jgroups-channel>c</jgroups-channel></discovery-group></discovery-groups>"""
    loaded = read_broker_xml(core(group), file="broker.xml", properties={"where": "/w"})
    assert loaded.configuration.discovery_groups[0].carrier.jgroups_properties == (("where", "/w"),)
