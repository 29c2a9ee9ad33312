"""Files of definitions: errors with their place, differences, and the changes that follow from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from understudy.cli.main import cli
from understudy.cli.managing.definitions.changes import changes_of_xml, differences
from understudy.cli.managing.definitions.values import KINDS, parse, shown
from understudy.config.edit import Add, Remove, Set
from understudy.errors import ConfigError

QUEUE = {"name": "orders", "address": "orders", "routing_type": "ANYCAST", "max_consumers": 4}


def text_of(**sections: Any) -> str:
    return json.dumps({"understudy_definitions": 1, **sections}, indent=2)


@pytest.mark.parametrize(
    ("text", "line", "place"),
    [
        ("{\n\n  nonsense", 3, "is no JSON"),
        ("[]", 1, "understudy_definitions"),
        ("[" * 100_000, None, "is no JSON: it is nested too deeply"),
        ('{"understudy_definitions": 2}', 1, "understudy_definitions"),
        (text_of(queue=[]), 3, "queue: a list of one of"),
        (text_of(queues={}), 3, "queues: a list of one of"),
        (text_of(queues=[QUEUE, 1]), 10, "queues[1]: an object"),
        (text_of(queues=[{"address": "a"}]), 4, "queues[0]: a queue needs 'name'"),
        (text_of(queues=[QUEUE | {"max": 1}]), 9, "queues[0].max: unknown"),
        (text_of(queues=[QUEUE | {"max_consumers": "4"}]), 8, "queues[0].max_consumers"),
        (text_of(queues=[QUEUE, QUEUE]), 10, "is there twice, first on line 4"),
        (text_of(addresses=[{"name": "a", "routing_types": ["TOPIC"]}]), 6, "addresses[0].routing_types"),
        (
            text_of(queues=[QUEUE | {"routing_type": "anycast"}]),
            7,
            "queues[0].routing_type: Invalid enum value 'anycast'; it is one of 'ANYCAST', 'MULTICAST'",
        ),
        (text_of(address_settings=[{"match": "#"}]), 4, "address_settings[0]"),
        (
            text_of(address_settings=[{"match": "#", "values": {"maxDelivery": 3}}]),
            7,
            "address_settings[0].values.maxDelivery",
        ),
        (text_of(security_settings=[{"match": "#", "values": {"send": "a"}}]), 7, "security_settings[0].values.send"),
        (text_of(security_settings=[{"match": "#", "values": {"send": ["a,b"]}}]), 7, "'a,b' is no name of a role"),
        (text_of(users=[{"name": "al", "roles": ["amq", "a,b"]}]), 6, "users[0].roles: 'a,b' is no name of a role"),
    ],
)
def test_errors_name_the_element_and_its_line(text: str, line: int | None, place: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text, "defs.json")
    start = "defs.json" if line is None else f"defs.json:{line}"
    assert str(refused.value).startswith((f"{start} ", f"{start}: "))
    assert place in str(refused.value)


def test_shown_definitions_are_read_as_they_were() -> None:
    values = {
        "address_settings": {"#": {"maxDeliveryAttempts": 3}},
        "security_settings": {"#": {"send": ["amq"]}},
        "addresses": {"a": {"routing_types": ["ANYCAST", "MULTICAST"]}},
        "queues": {"orders": {key: value for key, value in QUEUE.items() if key != "name"}},
        "exchanges": {"logs": {"type": "topic", "durable": True, "alternate": None}},
        "exchange_bindings": {
            "logs to queue orders, key 'a.#'": {"source": "logs", "destination": "orders", "routing_key": "a.#"}
        },
        "diverts": {"d": {"address": "a", "forwarding_address": "b", "exclusive": False}},
        "users": {"alice": {"roles": ["amq"]}},
    }
    assert set(values) == set(KINDS)
    assert parse(shown(values), "f").values == values
    assert differences(values, values) == []


RABBITMQ = {
    "rabbit_version": "3.10.8",
    "users": [{"name": "guest", "password_hash": "x", "tags": []}],
    "vhosts": [{"name": "/"}, {"name": "shop"}],
    "policies": [],
    "queues": [
        {"name": "q", "vhost": "shop", "durable": True, "auto_delete": False,
         "arguments": {"x-queue-type": "classic", "x-message-ttl": 5000, "x-unknown": 1}},
    ],
    "exchanges": [
        {"name": "logs", "vhost": "shop", "type": "topic", "durable": True, "auto_delete": False, "internal": False,
         "arguments": {"alternate-exchange": "rest"}},
    ],
    "bindings": [
        {"source": "logs", "vhost": "shop", "destination": "q", "destination_type": "queue", "routing_key": "a.#",
         "arguments": {}},
    ],
}  # fmt: skip


def test_a_file_of_rabbitmq_is_read_and_the_rest_of_it_is_named() -> None:
    read = parse(json.dumps(RABBITMQ, indent=2), "rabbit.json")
    assert read.values["queues"] == {
        "shop/q": {
            "address": "shop/q", "routing_type": "ANYCAST", "durable": True, "auto_delete": False,
            "virtual_host": "shop", "arguments": {"x-message-ttl": 5000},
        }
    }  # fmt: skip
    exchange = {"type": "topic", "durable": True, "auto_delete": False, "internal": False, "alternate": "shop/rest"}
    assert read.values["exchanges"] == {"shop/logs": exchange}
    (binding,) = read.values["exchange_bindings"].values()
    assert binding == {
        "source": "shop/logs", "destination": "shop/q", "destination_type": "queue", "routing_key": "a.#",
        "arguments": {},
    }  # fmt: skip
    assert read.place("exchanges", "shop/logs").startswith("rabbit.json:")
    users, hosts = read.left_out
    assert users.startswith("users (1) not taken over: ")
    assert "virtualHosts=shop" in hosts


@pytest.mark.parametrize(
    ("section", "entry", "error"),
    [
        ("queues", {"name": ""}, "queues[0]: a queue needs 'name'"),
        ("queues", {"name": 3}, "queues[0]: name is no text"),
        ("bindings", {"source": "e"}, "needs 'destination'"),
        ("bindings", 3, "bindings[0]: an object is expected"),
    ],
)
def test_errors_of_a_file_of_rabbitmq_name_the_element(section: str, entry: object, error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(json.dumps({"rabbit_version": "3", section: [entry]}, indent=1), "f")
    assert error in str(refused.value)
    assert str(refused.value).startswith("f:4")


def test_what_a_node_cannot_have_of_a_file_of_rabbitmq_takes_nothing_else_with_it() -> None:
    stream = {"name": "s", "arguments": {"x-queue-type": "stream"}}
    delayed = {"name": "d", "type": "x-delayed-message"}
    ends = [("e", "s", "queue"), ("d", "q", "queue"), ("e", "d", "exchange"), ("e", "q", "queue")]
    bindings = [{"source": a, "destination": b, "destination_type": kind} for a, b, kind in ends]
    text = {"rabbit_version": "3", "queues": [stream, {"name": "q"}], "exchanges": [delayed, {"name": "e"}],
            "bindings": bindings}  # fmt: skip
    read = parse(json.dumps(text, indent=1), "f")
    assert {kind: len(values) for kind, values in read.values.items()} == {
        "queues": 1, "exchanges": 1, "exchange_bindings": 1,
    }  # fmt: skip
    reasons = {name: why for (_, name), why in read.impossible.items()}
    assert "type stream are not served" in reasons["s"]
    assert "x-delayed-message" in reasons["d"]
    assert sorted(why for why in reasons.values() if why.startswith("it needs")) == [
        "it needs the exchange 'd', which a node cannot have",
        "it needs the exchange 'd', which a node cannot have",
        "it needs the queue 's', which a node cannot have",
    ]
    assert {read.place(*each)[:2] for each in read.impossible} == {"f:"}


def test_a_binding_has_the_name_of_its_values() -> None:
    name = KINDS["exchange_bindings"].identify
    assert name is not None
    fields = {"source": "logs", "destination": "x", "destination_type": "exchange", "arguments": {"b": 1, "a": "z"}}
    assert name(fields) == 'logs to exchange x, key \'\', arguments {"a": "z", "b": 1}'


def test_what_differs_is_created_changed_impossible_or_left() -> None:
    present: dict[str, Any] = {
        "queues": {"orders": {"address": "orders", "max_consumers": None}, "old": {}, "same": {"exclusive": False}},
        "users": {"alice": {"roles": ["amq"]}},
    }
    wanted: dict[str, Any] = {
        "queues": {
            "orders": {"max_consumers": 4},
            "new": {"address": "new", "routing_type": "ANYCAST"},
            "same": {"exclusive": False, "durable": True},
        },
        "users": {"alice": {"roles": ["amq", "x"]}, "bert": {"roles": ["amq"]}},
        "diverts": {"d": {}},
    }
    rows = [each.row for each in differences(present, wanted)]
    assert [(each["kind"], each["name"], each["action"]) for each in rows] == [
        ("queue", "orders", "change"),
        ("queue", "new", "create"),
        ("queue", "old", "only there"),
        ("user", "alice", "change"),
        ("user", "bert", "impossible"),
    ]
    assert rows[0]["details"] == "max_consumers: null -> 4"
    assert "understudy user add bert --role amq" in str(rows[4]["details"])
    moved = differences({"queues": {"q": {"address": "a"}}}, {"queues": {"q": {"address": "b"}}})
    assert moved[0].action == "impossible"
    assert "delete the queue first" in moved[0].why


def test_changes_of_broker_xml() -> None:
    there: dict[str, Any] = {
        "addresses": {"a": {"routing_types": ["ANYCAST"]}},
        "queues": {"q": {"address": "a", "routing_type": "ANYCAST", "last_value_key": "k", "group_first_key": "g"}},
    }
    wanted: dict[str, Any] = {
        "addresses": {"a": {"routing_types": ["MULTICAST"]}},
        "queues": {"q": {"group_first_key": None, "ring_size": 5, "filter": "x = 'y'", "exclusive": True}},
    }
    queue = "core/addresses/address[@name='a']/anycast/queue[@name='q']"
    assert changes_of_xml(differences(there, wanted)) == [
        Add("core/addresses/address[@name='a']/multicast"),
        Remove("core/addresses/address[@name='a']/anycast"),
        Remove(f"{queue}/@group-first-key"),
        Set(f"{queue}/@ring-size", "5"),
        Set(f"{queue}/filter/@string", "x = 'y'"),
        Set(f"{queue}/@exclusive", "true"),
    ]


def test_broker_xml_takes_definitions_and_gives_them_back(tmp_path: Path) -> None:
    def run(*arguments: str, code: int) -> str:
        found = CliRunner().invoke(cli, [*arguments])
        assert found.exit_code == code, (found.output, found.exception)
        return found.output

    (tmp_path / "password").write_text("a password\n")
    login = ("--user", "admin", "--password-file", str(tmp_path / "password"))
    run("create", str(tmp_path / "node"), *login, code=0)
    config = tmp_path / "node/etc/broker.xml"
    before = config.read_bytes()
    file = tmp_path / "defs.json"
    file.write_text(
        text_of(
            address_settings=[
                {"match": "orders.#", "values": {"maxDeliveryAttempts": 3, "addressFullMessagePolicy": "BLOCK"}}
            ],
            security_settings=[{"match": "orders.#", "values": {"send": ["amq"], "consume": ["amq", "reader"]}}],
            addresses=[{"name": "orders.eu", "routing_types": ["ANYCAST", "MULTICAST"]}],
            queues=[
                {
                    "name": "orders.eu", "address": "orders.eu", "routing_type": "ANYCAST", "max_consumers": None,
                    "filter": "region = 'eu'", "exclusive": True, "durable": True,
                },
            ],
            diverts=[{"name": "copy", "address": "orders.eu", "forwarding_address": "audit", "exclusive": False}],
        )
    )  # fmt: skip
    place = ("--config", str(config))
    assert "create" in run("definitions", "diff", str(file), *place, code=1)
    run("definitions", "import", str(file), *place, "--dry-run", code=0)
    assert config.read_bytes() == before
    run("definitions", "import", str(file), *place, code=2)
    assert "5 changes made" in run("definitions", "import", str(file), *place, "--yes", code=0)
    found = json.loads(run("definitions", "export", *place, code=0))
    permissions = {"consume": ["amq", "reader"], "send": ["amq"]}
    assert {"match": "orders.#", "values": permissions} in found["security_settings"]
    left = json.loads(run("definitions", "diff", str(file), *place, "--json", code=1))
    assert {each["action"] for each in left} == {"only there"}, "those that the file has are as in the file"
    written = config.read_bytes()
    run("definitions", "import", str(file), *place, "--yes", code=0)
    assert config.read_bytes() == written, "a second import changes nothing"
