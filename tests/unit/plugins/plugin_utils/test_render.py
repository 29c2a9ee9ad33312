"""Goal: whatever the values, the document is well formed and gives them back, and every line has a known origin.

Method: parse what was rendered with the standard library's reader.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping

import pytest
from ansible_collections.understudy.broker.plugins.plugin_utils.render import Misplaced, Rendered, broker_xml
from hypothesis import given
from hypothesis import strategies as st

CORE = "{urn:activemq:core}"


def inputs(**changes: object) -> dict[str, object]:
    base: dict[str, object] = {
        "core": {
            "name": "east-1",
            "journal-directory": "/srv/j",
            "connectors": {"connector": [{"@name": "east-1", "#text": "tcp://a:1"}]},
            "acceptors": {"acceptor": [{"@name": "core", "#text": "tcp://a:1"}]},
            "ha-policy": {"primary-only": {}},
        },
        "origins": {"broker_config_core.acceptors.acceptor[0]": "broker_port", "broker_config_addresses": "addresses"},
        "cluster_user": "cluster",
        "cluster_password": "cluster-secret",
        "security_enabled": True,
        "security_settings": [{"match": "#", "permissions": {"send": ["a", "b"], "consume": "c"}}],
        "address_settings": [{"match": "#", "settings": {"dead-letter-address": "DLQ"}}],
        "addresses": [
            {"name": "q", "anycast": [{"name": "q", "max_consumers": 2, "filter": "a < 1", "durable": True}]}
        ],
        "diverts": [],
        "extra": {"journal-file-size": "10M"},
    }
    return {**base, **changes}


def rendered(**changes: object) -> Rendered:
    return broker_xml(inputs(**changes))


def core(**changes: object) -> ET.Element:
    found = ET.fromstring(rendered(**changes).text.encode()).find(f"{CORE}core")
    assert found is not None
    return found


def path(*names: str) -> str:
    return "/".join(f"{CORE}{name}" for name in names)


XML_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"))


@given(password=XML_TEXT.filter(bool), name=XML_TEXT, attribute=XML_TEXT)
def test_any_text_comes_back(password: str, name: str, attribute: str) -> None:
    tree = core(
        cluster_password=password, addresses=[{"name": name}], extra={"x": {"@a": attribute, "y": ["1", password]}}
    )
    assert (tree.findtext(path("cluster-password")) or "") == password
    address = tree.find(path("addresses", "address"))
    assert address is not None
    assert address.get("name") == name
    other = tree.find(path("x"))
    assert other is not None
    assert other.get("a") == attribute
    assert [each.text or "" for each in other] == ["1", password]


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,6}", fullmatch=True)
SCALARS = st.one_of(XML_TEXT, st.integers(), st.booleans())
TREES: st.SearchStrategy[object] = st.recursive(
    SCALARS | st.none(),
    lambda below: st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9-]{0,6}", fullmatch=True), below | st.lists(below), max_size=3
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.from_regex(r"x[a-z0-9-]{0,6}", fullmatch=True), TREES, max_size=4))
def test_any_tree_is_well_formed_and_every_element_has_an_origin(tree: dict[str, object]) -> None:
    result = rendered(extra=tree)
    found = ET.fromstring(result.text.encode()).find(f"{CORE}core")
    assert found is not None
    assert {each.tag.removeprefix(CORE) for each in found} >= {name for name, value in tree.items() if value != []}
    assert result.text == rendered(extra=tree).text


@pytest.mark.parametrize("bad", ["\x00", "a\x1bb", "a\rb", "\x0b", "\ud800", "\ufffe"])
def test_what_xml_cannot_carry_is_refused_with_its_path(bad: str) -> None:
    with pytest.raises(Misplaced, match=r"^broker_config_cluster_password: .*cannot stand in XML"):
        rendered(cluster_password=bad)
    with pytest.raises(Misplaced, match=r"^addresses\[0\]\.name: .*cannot stand in XML"):
        rendered(addresses=[{"name": bad}])


def test_elements_have_text_attributes_children_and_repetitions() -> None:
    tree = core(
        extra={
            "broadcast-groups": {"broadcast-group": {"@name": "g", "connector-ref": ["a", "b"], "broadcast-period": 5}},
            "journal-retention-directory": {"@unit": "DAYS", "@period": 7, "@storage-limit": None, "#text": "kept"},
            "empty": None,
            "flag": False,
        }
    )
    group = tree.find(path("broadcast-groups", "broadcast-group"))
    assert group is not None
    assert [(each.tag.removeprefix(CORE), each.text) for each in group] == [
        ("connector-ref", "a"),
        ("connector-ref", "b"),
        ("broadcast-period", "5"),
    ]
    retention = tree.find(path("journal-retention-directory"))
    assert retention is not None
    assert (retention.text, retention.attrib) == ("kept", {"unit": "DAYS", "period": "7"})
    empty = tree.find(path("empty"))
    assert empty is not None
    assert (empty.text, len(empty)) == (None, 0)
    assert tree.findtext(path("flag")) == "false"


def test_settings_of_an_address_may_be_structured() -> None:
    settings = {"max-delivery-attempts": 3, "nested": {"one": [1, 2]}}
    setting = core(address_settings=[{"match": "a.#", "settings": settings}]).find(
        path("address-settings", "address-setting")
    )
    assert setting is not None
    assert [each.text for each in setting.iter(f"{CORE}one")] == ["1", "2"]


def test_diverts() -> None:
    entry = {"name": "d", "address": "a", "forwarding-address": "b", "exclusive": True, "filter": "x > 1"}
    divert = core(diverts=[entry]).find(path("diverts", "divert"))
    assert divert is not None
    assert divert.get("name") == "d"
    assert divert.findtext(f"{CORE}exclusive") == "true"
    found = divert.find(f"{CORE}filter")
    assert found is not None
    assert found.get("string") == "x > 1"


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


def test_entries_are_added_to_a_group() -> None:
    more = {"@name": "more", "#text": "tcp://b:2"}
    acceptors = core(extra={"acceptors": {"acceptor": [more]}}).findall(path("acceptors", "acceptor"))
    assert [each.get("name") for each in acceptors] == ["core", "more"]


def test_a_node_that_hangs_ends_unless_another_policy_is_given() -> None:
    assert core().findtext(path("critical-analyzer-policy")) == "HALT"
    assert core(extra={"critical-analyzer-policy": "LOG"}).findtext(path("critical-analyzer-policy")) == "LOG"


LEFTOVERS = {"dead_letter_address": "DLQ", "expiry_address": "ExpiryQueue"}


def leftovers(**changes: object) -> tuple[list[dict[str, str | None]], list[str | None]]:
    """The settings of each match without the namespace, and the names of the addresses."""
    found = core(**{"address_settings": [], "addresses": [], **LEFTOVERS, **changes})
    settings = [
        {"match": each.get("match"), **{below.tag.removeprefix(CORE): below.text for below in each}}
        for each in found.findall(path("address-settings", "address-setting"))
    ]
    return settings, [each.get("name") for each in found.findall(path("addresses", "address"))]


BOTH = {"dead-letter-address": "DLQ", "expiry-address": "ExpiryQueue"}


def test_messages_that_no_consumer_takes_have_addresses_with_a_queue() -> None:
    assert leftovers() == ([{"match": "#", **BOTH}], ["DLQ", "ExpiryQueue"])
    found = core(**{"address_settings": [], "addresses": [], **LEFTOVERS})
    assert [each.get("name") for each in found.findall(path("addresses", "address", "anycast", "queue"))] == [
        "DLQ",
        "ExpiryQueue",
    ]


@pytest.mark.parametrize(
    ("changes", "settings", "addresses"),
    [
        (dict.fromkeys(LEFTOVERS, ""), [], []),
        (
            {"address_settings": [{"match": "#", "settings": {"redistribution-delay": 0}}]},
            [{"match": "#", "redistribution-delay": "0", **BOTH}],
            ["DLQ", "ExpiryQueue"],
        ),
        (
            {"address_settings": [{"match": "#", "settings": {"dead-letter-address": "own"}}]},
            [{"match": "#", "dead-letter-address": "own", "expiry-address": "ExpiryQueue"}],
            ["ExpiryQueue"],
        ),
        (
            {"extra": {"address-settings": {"address-setting": {"@match": "#", "expiry-address": "own"}}}},
            [{"match": "#", "expiry-address": "own", "dead-letter-address": "DLQ"}],
            ["DLQ"],
        ),
        (
            {"addresses": [{"name": "DLQ", "multicast": []}], "address_settings": [{"match": "a", "settings": {}}]},
            [{"match": "a"}, {"match": "#", **BOTH}],
            ["DLQ", "ExpiryQueue"],
        ),
        (
            {"extra": {"wildcard-addresses": {"any-words": ">"}}},
            [{"match": ">", **BOTH}],
            ["DLQ", "ExpiryQueue"],
        ),
        ({"expiry_address": "DLQ"}, [{"match": "#", **BOTH, "expiry-address": "DLQ"}], ["DLQ"]),
    ],
)
def test_settings_and_addresses_of_other_inputs_stay(
    changes: Mapping[str, object], settings: list[dict[str, str]], addresses: list[str]
) -> None:
    assert leftovers(**changes) == (settings, addresses)


def test_without_a_password_there_is_no_cluster_login() -> None:
    assert core(cluster_password="").find(path("cluster-user")) is None


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            {"cluster-user": "x"},
            "broker_config_extra.cluster-user: sets 'cluster-user', which broker_config_cluster_user",
        ),
        (
            {"ha-policy": {}},
            "broker_config_extra.ha-policy: sets 'ha-policy', which broker_config_core.ha-policy already",
        ),
        ({"acceptors": "x"}, "broker_config_extra.acceptors: sets 'acceptors'"),
        (
            {"acceptors": {"acceptor": [{"@name": "y"}, {"@name": "core"}]}},
            r"broker_config_extra.acceptors.acceptor\[1\]: sets acceptor 'core', which broker_port already sets",
        ),
        ({"addresses": {"address": {"@name": "q"}}}, r"sets address 'q', which addresses\[0\] already sets"),
        ({"a b": 1}, "broker_config_extra.a b: 'a b' cannot be the name"),
        ({"a": {"@b c": 1}}, "broker_config_extra.a: '@b c' cannot be an attribute"),
        ({"a": {"@b": [1]}}, "broker_config_extra.a.@b: must be a scalar, not list"),
        ({"a": [[1]]}, r"broker_config_extra.a\[0\]: is a list in a list"),
        ({"a": {"#text": "x", "b": 1}}, "broker_config_extra.a: has '#text' beside child elements"),
    ],
)
def test_what_cannot_be_added_is_refused_with_its_path(extra: Mapping[str, object], message: str) -> None:
    with pytest.raises(Misplaced, match=f"^{message}" if message.startswith("broker") else message):
        rendered(extra=extra)


@pytest.mark.parametrize("key", ["addresses", "address_settings", "security_settings", "diverts"])
def test_a_mapping_in_place_of_a_list_is_refused(key: str) -> None:
    with pytest.raises(Misplaced, match="must be a list"):
        rendered(**{key: {"name": "x"}})
    with pytest.raises(Misplaced, match=r"\[0\]: must be a mapping, not str"):
        rendered(**{key: ["x"]})


def test_a_line_leads_to_the_input_it_was_made_from() -> None:
    result = rendered(
        extra={"acceptors": {"acceptor": [{"@name": "more", "#text": "tcp://b:2"}]}, "multi": "two\nlines", "last": 1}
    )
    lines = result.text.splitlines()
    by_origin = {origin: lines[line - 1].strip() for line, origin in result.origins.items()}
    assert by_origin["broker_port"] == '<acceptor name="core">tcp://a:1</acceptor>'
    assert by_origin["broker_config_extra.acceptors.acceptor[0]"] == '<acceptor name="more">tcp://b:2</acceptor>'
    assert by_origin["addresses[0].anycast[0].durable"] == "<durable>true</durable>"
    assert by_origin["broker_config_address_settings[0].settings.dead-letter-address"].startswith("<dead-letter")
    assert by_origin["broker_config_core.name"] == "<name>east-1</name>"
    assert by_origin["broker_config_extra.last"] == "<last>1</last>"


def test_secrets_are_found_in_elements_attributes_and_urls() -> None:
    result = rendered(
        extra={
            "bridges": {"bridge": {"@name": "b", "password": "of-bridge", "user": "u"}},
            "mask-password": False,
            "securityToken": {"@secret": "in-attribute"},
            "store": {"property": {"@key": "dbPassword", "@value": "of-property"}},
            "acceptors": {"acceptor": {"@name": "tls", "#text": "tcp://b:2?keyStorePassword=of%20url;x=1"}},
        }
    )
    assert set(result.secrets) == {"cluster-secret", "of-bridge", "in-attribute", "of-property", "of url"}
