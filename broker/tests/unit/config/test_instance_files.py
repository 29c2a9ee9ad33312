"""The configuration of a new instance is read back by the reader that the broker uses."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from understudy.config.high_availability import Role
from understudy.config.instance_files import InstanceOptions, Pair, _escape, _quoted, broker_xml, roles_file, users_file
from understudy.config.model import Configuration
from understudy.terms import Permission, RoutingType


def read(options: InstanceOptions, **properties: str) -> Configuration:
    from understudy.config.reading.reader import read_broker_xml

    loaded = read_broker_xml(
        broker_xml(options).encode(), file="broker.xml", base_directory="/srv/node", properties=properties
    )
    assert loaded.warnings == ()
    return loaded.configuration


def test_the_default_instance_listens_on_loopback_without_login() -> None:
    configuration = read(InstanceOptions(name="one", role=None))
    assert configuration.name == "one"
    assert not configuration.security_enabled
    assert [each.url for each in configuration.acceptors] == ["tcp://127.0.0.1:61616"]
    assert configuration.journal_directory == "/srv/node/data/journal"
    assert configuration.address_settings[0].auto_create_queues
    assert {each.name for each in configuration.addresses} == {"DLQ", "ExpiryQueue"}


def test_a_property_changes_the_port() -> None:
    assert read(InstanceOptions(name="one"), port="5445").acceptors[0].port == 5445


def test_a_role_gets_every_permission_and_login_is_required() -> None:
    configuration = read(InstanceOptions(name="one", role="operators"))
    assert configuration.security_enabled
    (setting,) = configuration.security_settings
    assert setting.match == "#"
    assert set(setting.permissions) >= {Permission.SEND, Permission.CONSUME, Permission.MANAGE, Permission.BROWSE}
    assert all(roles == {"operators"} for roles in setting.permissions.values())


@pytest.mark.parametrize(("backup", "role"), [(False, Role.PRIMARY), (True, Role.BACKUP)])
def test_a_pair_shares_a_store_and_names_its_partner(backup: bool, role: Role) -> None:
    pair = Pair(backup, "192.0.2.7", 61617, "a long password")
    configuration = read(InstanceOptions(name="one", host="192.0.2.6", data="/mnt/store", pair=pair))
    assert configuration.ha_policy.role is role
    assert configuration.ha_policy.failover_on_shutdown
    assert configuration.cluster_password == "a long password"
    assert configuration.connector("self").url == "tcp://192.0.2.6:61616"
    assert configuration.connector("partner").url == "tcp://192.0.2.7:61617"
    assert configuration.store_directories()[0] == "/mnt/store/bindings"


def test_queues_are_anycast_and_addresses_multicast() -> None:
    made = {each.name: each for each in read(InstanceOptions("one", queues=("q", "DLQ"), addresses=("t",))).addresses}
    assert set(made) == {"DLQ", "ExpiryQueue", "q", "t"}
    assert made["q"].queues[0].routing_type is RoutingType.ANYCAST
    assert made["t"].routing_types == {RoutingType.MULTICAST}


@pytest.mark.parametrize("name", ["a<b", 'a"b', "a&b", "ümlaut", "a--b"])
def test_names_with_signs_of_xml_are_kept(name: str) -> None:
    configuration = read(InstanceOptions(name=name, queues=(name,), role=None))
    assert configuration.name == name
    assert name in {each.name for each in configuration.addresses}


def test_ipv6_addresses_are_written_in_brackets() -> None:
    assert read(InstanceOptions("one", host="::1")).acceptors[0].url == "tcp://[::1]:61616"


def test_an_acceptor_for_amqp_0_9_1_serves_nothing_else() -> None:
    core, amqp = read(InstanceOptions("one", amqp_port=5672)).acceptors
    assert (core.protocols, core.port) == (("CORE", "AMQP091"), 61616)
    assert (amqp.name, amqp.protocols, amqp.port) == ("amqp091", ("AMQP091",), 5672)


def test_users_and_roles_have_one_line_each() -> None:
    assert users_file("admin", "ENC(x)").splitlines()[-1] == "admin = ENC(x)"
    assert roles_file("admin", "amq").splitlines()[-1] == "amq = admin"


@pytest.mark.parametrize("text", ["plain", "a<b>&c", 'it\'s "quoted"', "&amp;", "tab\tand\nline", ""])
def test_text_is_escaped_for_xml(text: str) -> None:
    element = ElementTree.fromstring(f"<e a={_quoted(text)}>{_escape(text)}</e>")
    assert element.get("a") == text
    assert (element.text or "") == text
