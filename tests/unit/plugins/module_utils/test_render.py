"""Goal: whatever the values, the document is well formed and gives them back; the elements are the manual's.

Method: parse what was rendered with the standard library's reader.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.render import broker_xml
from hypothesis import given
from hypothesis import strategies as st

CORE = "{urn:activemq:core}"


def model(**changes: object) -> dict[str, object]:
    base: dict[str, object] = {
        "name": "east-1",
        "directories": {"journal": "/srv/j", "node-manager-lock": "/srv/lock"},
        "cluster_user": "cluster",
        "cluster_password": "secret",
        "connectors": [{"name": "east-1", "url": "tcp://a:1"}, {"name": "east-2", "url": "tcp://b:1"}],
        "acceptors": [{"name": "core", "url": "tcp://a:1"}],
        "cluster_connection": {
            "name": "demo",
            "connector": "east-1",
            "remote_connectors": ["east-2"],
            "settings": {"retry-interval": 500},
        },
        "ha": {
            "policy": "shared_store",
            "role": "primary",
            "settings": {
                "failover-on-shutdown": False,
                "allow-failback": True,
                "restart-backup": True,
            },
        },
        "security_enabled": True,
        "security_settings": [{"match": "#", "permissions": {"send": ["a", "b"], "consume": "c"}}],
        "address_settings": [{"match": "#", "settings": {"dead-letter-address": "DLQ"}}],
        "addresses": [
            {"name": "q", "anycast": [{"name": "q", "max_consumers": 2, "filter": "a < 1", "durable": True}]}
        ],
        "extra": {"journal-file-size": "10M"},
    }
    return {**base, **changes}


def core(**changes: object) -> ET.Element:
    found = ET.fromstring(broker_xml(model(**changes)).encode()).find(f"{CORE}core")
    assert found is not None
    return found


def path(*names: str) -> str:
    return "/".join(f"{CORE}{name}" for name in names)


XML_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"))


@given(password=XML_TEXT, name=XML_TEXT)
def test_any_text_comes_back(password: str, name: str) -> None:
    tree = core(cluster_password=password, addresses=[{"name": name}])
    assert (tree.findtext(path("cluster-password")) or "") == password
    address = tree.find(path("addresses", "address"))
    assert address is not None
    assert address.get("name") == name


@pytest.mark.parametrize("bad", ["\x00", "a\x1bb", "a\rb", "\x0b", "\ud800", "\ufffe"])
def test_what_xml_cannot_carry_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="cannot stand in XML"):
        broker_xml(model(cluster_password=bad))


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("primary", ["failover-on-shutdown"]),
        ("backup", ["failover-on-shutdown", "allow-failback", "restart-backup"]),
    ],
)
def test_each_role_gets_its_own_settings(role: str, expected: list[str]) -> None:
    ha = {**model()["ha"], "role": role}  # type: ignore[dict-item]
    element = core(ha=ha).find(path("ha-policy", "shared-store", role))
    assert element is not None
    assert [child.tag.removeprefix(CORE) for child in element] == expected
    assert {child.text for child in element} <= {"true", "false"}


def test_a_node_without_partner_has_no_cluster_connection() -> None:
    tree = core(ha={"policy": "primary_only"}, cluster_connection={})
    assert tree.find(path("ha-policy", "primary-only")) is not None
    assert tree.find(path("cluster-connections")) is None


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be rendered"):
        broker_xml(model(ha={"policy": "raid"}))


def test_queues_carry_attributes_filter_and_durability() -> None:
    queue = core().find(path("addresses", "address", "anycast", "queue"))
    assert queue is not None
    assert queue.attrib == {"name": "q", "max-consumers": "2"}
    found = queue.find(f"{CORE}filter")
    assert found is not None
    assert found.get("string") == "a < 1"
    assert queue.findtext(f"{CORE}durable") == "true"


def test_roles_of_a_permission_are_a_list_or_a_text() -> None:
    permissions = core().findall(path("security-settings", "security-setting", "permission"))
    assert [(one.get("type"), one.get("roles")) for one in permissions] == [("send", "a,b"), ("consume", "c")]


def test_extra_elements_may_not_override_others() -> None:
    assert core().findtext(path("journal-file-size")) == "10M"
    with pytest.raises(ValueError, match="broker_config_extra sets 'cluster-user'"):
        broker_xml(model(extra={"cluster-user": "x"}))


@pytest.mark.parametrize("key", ["addresses", "address_settings", "security_settings", "acceptors"])
def test_a_mapping_in_place_of_a_list_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="must be a list"):
        broker_xml(model(**{key: {"name": "x"}}))
