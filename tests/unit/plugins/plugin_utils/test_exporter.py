"""Goal: variables that are rendered, exported and rendered again give the same broker.xml, whatever they are.

Method: generated inventories of each shape. Anything that has no variable must come back through broker_config_extra.
"""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.plugin_utils import topology
from ansible_collections.understudy.broker.plugins.plugin_utils.exporter import Exported, export_core, tcp_endpoint
from ansible_collections.understudy.broker.plugins.plugin_utils.render import broker_xml
from ansible_collections.understudy.broker.plugins.plugin_utils.sockets import tcp_url
from ansible_collections.understudy.broker.plugins.plugin_utils.structured import NoConfiguration, core_of_document
from hypothesis import assume, given, settings
from hypothesis import strategies as st

Variables = dict[str, object]

NAMES = st.text(st.sampled_from("abcdef.#*-_ü"), min_size=1, max_size=8) | st.sampled_from(["#", "DLQ"])
TEXTS = st.text(st.sampled_from("abc <>&\"'=;:é-1"), min_size=1, max_size=10).filter(lambda text: bool(text.strip()))
PORTS = st.integers(1, 65535)
PARAMETERS = st.dictionaries(
    st.text(st.sampled_from("abcXYZ"), min_size=1, max_size=5), TEXTS | PORTS.map(str), max_size=3
)
INPUTS = (
    *("security_enabled", "security_settings", "address_settings", "addresses", "diverts", "bridges"),
    *("dead_letter_address", "expiry_address"),
)
ONE_FILE_CANNOT_TELL = ("broker_pair", "broker_port_offset", "broker_grouping_owner", "broker_instance_directory")


def _listed(entries: st.SearchStrategy[Any], key: str) -> st.SearchStrategy[Any]:
    return st.lists(entries, max_size=3, unique_by=lambda entry: entry[key])


QUEUES = _listed(
    st.fixed_dictionaries(
        {"name": NAMES},
        optional={"max_consumers": PORTS, "filter": TEXTS, "durable": st.booleans(), "ring_size": PORTS},
    ),
    "name",
)
CONTENT = st.fixed_dictionaries(
    {},
    optional={
        "security_enabled": st.booleans(),
        "security_settings": _listed(
            st.fixed_dictionaries(
                {
                    "match": NAMES,
                    "permissions": st.dictionaries(
                        st.sampled_from(["send", "consume", "browse"]), st.lists(NAMES, min_size=1, max_size=3)
                    ),
                }
            ),
            "match",
        ),
        "address_settings": _listed(
            st.fixed_dictionaries(
                {
                    "match": NAMES,
                    "settings": st.dictionaries(
                        st.sampled_from(["dead-letter-address", "expiry-address", "max-size-bytes"]),
                        TEXTS | PORTS | st.booleans() | st.just("DLQ"),
                    ),
                }
            ),
            "match",
        ),
        "addresses": _listed(
            st.fixed_dictionaries({"name": NAMES}, optional={"anycast": QUEUES, "multicast": QUEUES}), "name"
        ),
        "dead_letter_address": st.sampled_from(["", "DLQ", "of <two>"]),
        "expiry_address": st.sampled_from(["", "DLQ", "ExpiryQueue"]),
        "diverts": _listed(
            st.fixed_dictionaries(
                {"name": NAMES, "address": NAMES, "forwarding-address": NAMES},
                optional={"filter": TEXTS, "exclusive": st.booleans()},
            ),
            "name",
        ),
        "bridges": _listed(
            st.fixed_dictionaries(
                {"name": NAMES, "queue_name": NAMES, "connectors": st.lists(NAMES, min_size=1, max_size=2)},
                optional={"retry_interval": PORTS, "filter": TEXTS, "ha": st.booleans()},
            ),
            "name",
        ),
        "extra": st.fixed_dictionaries(
            {},
            optional={
                "journal-file-size": st.just("10M"),
                "critical-analyzer-policy": st.sampled_from(["HALT", "LOG"]),
                "wildcard-addresses": st.just({"delimiter": ".", "any-words": "#"}),
                "journal-retention-directory": st.just({"@unit": "DAYS", "@period": "7", "#text": "/srv/kept"}),
                "acceptors": st.just({"acceptor": {"@name": "vm", "#text": "vm://0"}}),
            },
        ),
    },
)
COMMON = st.fixed_dictionaries(
    {},
    optional={
        "broker_port": st.integers(1000, 2000),
        "broker_port_offset": st.integers(0, 100),
        "broker_bind_address": st.sampled_from(["0.0.0.0", "::1", "10.1.1.1"]),
        "broker_connector_parameters": PARAMETERS,
        "broker_cluster_load_balancing": st.sampled_from(["STRICT", "OFF"]),
        "broker_cluster_addresses": st.sampled_from(["", "orders"]),
        "broker_cluster_retry_interval_multiplier": st.sampled_from([1.0, 2.5]),
        "broker_cluster_duplicate_detection": st.booleans(),
        "broker_cluster_connection": st.just({"call-timeout": "7000"}),
        "broker_connectors": _listed(
            st.fixed_dictionaries(
                {"name": NAMES.map("x{}".format), "address": st.just("10.9.9.9")}, optional={"port": PORTS}
            ),
            "name",
        ),
        "broker_interfaces": st.just({"cluster": {"bind_address": "10.2.2.2"}}),
        "broker_sockets": st.sampled_from(
            [
                {
                    "core": {"protocols": ["CORE", "AMQP"]},
                    "mqtt": {"port": 1883, "parameters": {"connectionsAllowed": "5"}},
                },
                {
                    "core": {"parameters": {"connectionsAllowed": "5", "protocols": "CORE"}},
                    "mqtt": {"port": 1883, "protocols": ["MQTT"], "parameters": {"connectionsAllowed": "5"}},
                },
            ]
        ),
        "broker_cluster_discovery": st.sampled_from(
            [
                {"address": "231.7.7.7", "port": 9876, "broadcast_period_ms": 500},
                {"jgroups_file": "s", "jgroups_channel": "c"},
            ]
        ),
    },
)
PAIR: Variables = {"broker_ha_policy": "shared_store", "broker_pair": "p", "broker_store_directory": "/srv/p"}
REPLICATED: Variables = {"broker_ha_policy": "replication", "broker_pair": "p"}
SHAPES: dict[str, list[Variables]] = {
    "alone": [{}],
    "cluster": [{}, {"broker_cluster_members": ["n2"], "broker_cluster_direct_connections_only": True}, {}],
    "chain": [{"broker_cluster_members": ["n1"]}, {"broker_cluster_connects": False}],
    "scale-down": [
        {"broker_scale_down": True, "broker_scale_down_to": ["n1"], "broker_scale_down_commit_interval": 50},
        {"broker_scale_down_group_name": "g"},
    ],
    "grouping": [{"broker_grouping_owner": "n0", "broker_grouping_timeout_ms": 70}, {"broker_grouping_owner": "n0"}],
    "shared": [PAIR, {**PAIR, "broker_ha_role": "backup", "broker_restart_backup": False}],
    "replicated": [
        {**REPLICATED, "broker_lock_manager_properties": {"addresses": "10.0.0.9:61619"}},
        {
            **REPLICATED,
            "broker_ha_role": "backup",
            "broker_durability_contract": "local",
            "broker_lock_manager": "votes",
            "broker_vote_retries": 3,
        },
    ],
    "colocated": [
        {
            "broker_ha_policy": "colocated_shared_store",
            "broker_store_directory": f"/srv/{number}",
            "broker_backups_max": 2,
            "broker_connectors": [{"name": "far", "address": "10.8.8.8"}],
            "broker_backup_excludes": ["far"],
        }
        for number in range(2)
    ],
}


def inventory(shape: str, common: Variables) -> dict[str, Variables]:
    return {
        f"n{number}": {"broker_advertise_address": f"10.0.0.{number + 1}", **common, **own}
        for number, own in enumerate(SHAPES[shape])
    }


def document(hosts: dict[str, Variables], host: str, inputs: Variables) -> str:
    nodes: Any = topology.build_topology(hosts, hosts).as_dict()["nodes"]
    secrets = {"cluster_user": "c", "cluster_password": "a password of a <test>"}
    return broker_xml({"core": nodes[host]["core"], **secrets, **inputs}).text


def export(text: str, host: str, hosts: dict[str, Variables]) -> Exported:
    known = {name: hosts[host][name] for name in ONE_FILE_CANNOT_TELL if name in hosts[host]}
    known.setdefault("broker_instance_directory", "/opt/understudy/instance")
    return export_core(core_of_document(text), host, [name for name in hosts if name != host], known)


def again(exported: Exported, host: str, hosts: dict[str, Variables]) -> str:
    """The document that the exported variables give."""
    own = {name: hosts[host][name] for name in ONE_FILE_CANNOT_TELL if name in hosts[host]}
    inputs = {name: exported.variables[f"broker_{name}"] for name in INPUTS if f"broker_{name}" in exported.variables}
    inputs["extra"] = exported.variables.get("broker_config_extra", {})
    return document({**hosts, host: {**own, **exported.variables}}, host, inputs)


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=40)
@given(common=COMMON, content=CONTENT)
def test_exported_variables_give_the_same_document(shape: str, common: Variables, content: Variables) -> None:
    hosts = inventory(shape, common)
    for host in hosts:
        text = document(hosts, host, content)
        exported = export(text, host, hosts)
        assert exported.unexpressed == []
        assert again(exported, host, hosts) == text


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=40)
@given(common=COMMON)
def test_exported_variables_are_those_of_the_inventory(shape: str, common: Variables) -> None:
    hosts = inventory(shape, common)
    wanted = topology.build_topology(hosts, hosts)
    for host in hosts:
        own = {name: hosts[host][name] for name in ONE_FILE_CANNOT_TELL if name in hosts[host]}
        exported = export(document(hosts, host, {}), host, hosts).variables
        found = topology.build_topology(hosts, {**hosts, host: {**own, **exported}})
        assert next(node.sockets for node in found.nodes if node.name == host) == next(
            node.sockets for node in wanted.nodes if node.name == host
        )
        values = {node.name: node.values for node in found.nodes}[host]
        for node in wanted.nodes:
            if node.name == host:
                for name in exported:
                    key = name.removeprefix("broker_")
                    if key in node.values and key not in ("sockets", "connectors", "cluster_discovery"):
                        assert values[key] == node.values[key], name


@given(st.sampled_from(["10.0.0.1", "::1", "host.example"]), PORTS, PARAMETERS)
def test_a_url_is_read_as_it_was_written(host: str, port: int, parameters: dict[str, str]) -> None:
    assert tcp_endpoint(tcp_url(host, port, parameters)) == (host, port, parameters)


@pytest.mark.parametrize(
    "url", ["vm://0", "tcp://h", "tcp://h:x", "tcp://h:1/path", "tcp://h:1?a", "tcp://h:1?a=1;a=2", ""]
)
def test_other_urls_are_left_to_the_free_yaml(url: str) -> None:
    assert tcp_endpoint(url) is None


def test_an_element_that_no_variable_can_set_is_named() -> None:
    hosts = inventory("alone", {})
    text = document(hosts, "n0", {})
    text = text.replace("<name>n0</name>", "<name>other</name>").replace("instance/data/paging<", "pages<")
    assert export(text, "n0", hosts).unexpressed == [
        "name: is 'other'; the variables give 'n0'",
        "paging-directory: is '/opt/understudy/pages'; the variables give '/opt/understudy/instance/data/paging'",
    ]


@pytest.mark.parametrize("text", ["", "<a", "<configuration/>"])
def test_what_is_no_configuration_is_an_error(text: str) -> None:
    with pytest.raises(NoConfiguration, match=r"broker\.xml"):
        core_of_document(text)


@given(TEXTS)
def test_a_document_of_another_hand_is_kept_whole(value: str) -> None:
    assume(value == value.strip())
    hosts = inventory("alone", {})
    extra = {
        "broker-plugins": {"broker-plugin": [{"@class-name": value}, {"@class-name": "b", "property": {"@key": value}}]}
    }
    text = document(hosts, "n0", {"extra": extra})
    assert export(text, "n0", hosts).variables["broker_config_extra"] == extra
