"""Operations of the broker: addresses, queues, clients, prepared branches, the node itself."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from msgspec import convert, to_builtins

from support.core import NAME, Client
from support.managed import ManagedWorld
from support.routing import callback_of, text
from understudy.config.bridge import BridgeConfiguration, BridgeTarget
from understudy.config.high_availability import HighAvailabilityPolicy, ReplicationConfiguration, Role
from understudy.config.lock_options import FileLockOptions
from understudy.config.model import (
    AcceptorConfiguration,
    ClusterConnectionConfiguration,
    ConnectorConfiguration,
    SecuritySettingConfiguration,
)
from understudy.config.profiles.factory import ConnectionFactoryConfiguration
from understudy.errors import AuthenticationFailed, BrokerError, ConfigError
from understudy.ids import Xid
from understudy.management.operations.broker import duration_text
from understudy.management.operations.invocation import InstanceFiles
from understudy.management.operations.resources import CONTROLS
from understudy.security.authorization import NoSecurity, Principal
from understudy.security.login_guard import FAILURES_OF_USER_MAX
from understudy.terms import Permission, RoutingType
from understudy.wire.core import packets
from understudy.wire.core.transport import TransportConfiguration


class RefusesAllUsers(NoSecurity):
    """A policy without users."""

    def begin(self, user: str | None, password: str | None, certificate: object = None) -> Principal:
        raise AuthenticationFailed("who?")


def connected(node: ManagedWorld, name: str = NAME, peer: str = "10.0.0.1:5000", **options: Any) -> Client:
    client = node.client(peer)
    client.create_session(name, **options)
    return client


# -- addresses and queues -----------------------------------------------------------------------------


def test_addresses() -> None:
    node = ManagedWorld()
    made = "Address [name=a, routingTypes={MULTICAST,ANYCAST}, autoCreated=false]"
    assert node.ask("broker", "createAddress", "a", "ANYCAST, multicast") == made
    assert "exists" in node.refused("broker", "createAddress", "a", "ANYCAST")
    assert "unknown routing type 'UNICAST'" in node.refused("broker", "createAddress", "b", "UNICAST")
    assert node.ask("broker", "getAddressInfo", "a") == made
    assert "{ANYCAST}" in node.ask("broker", "updateAddress", "a", "ANYCAST")
    assert "{ANYCAST}" in node.ask("broker", "updateAddress", "a", None)
    assert node.ask("broker", "listAddresses", "|") == "a|activemq.notifications"
    assert sorted(node.ask("broker", "getAddressNames")) == ["a", "activemq.notifications"]
    assert node.ask("broker", "getAddressCount") == 2
    page = json.loads(node.ask("broker", "listAddresses", None, 1, 10))
    assert page["count"] == 2
    assert page["data"][0]["routingTypes"] == '["ANYCAST"]'
    assert node.ask("broker", "listBindingsForAddress", "nowhere") == ""
    node.ask("broker", "deleteAddress", "a")
    assert "no address 'a'" in node.refused("broker", "deleteAddress", "a")


def test_the_forms_of_creating_a_queue() -> None:
    node = ManagedWorld()
    described = node.ask("broker", "createQueue", "a", "ANYCAST", "q1", "n = 1", True, 5, True, True)
    assert described.startswith(
        "Queue [name=q1, address=a, routingType=ANYCAST, filter=n = 1, durable=true, maxConsumers=5"
    )
    assert "no address 'b'" in node.refused("broker", "createQueue", "b", "ANYCAST", "q", None, True, -1, False, False)
    assert node.ask("broker", "createQueue", None, "q2") is None
    node.ask("broker", "createQueue", "q3", "q3", False)
    node.ask("broker", "createQueue", "q4", "q4", "ANYCAST")
    node.ask("broker", "createQueue", "q5", "q5", False, "ANYCAST")
    node.ask("broker", "createQueue", "q6", "q6", "n = 1", False)
    node.ask("broker", "createQueue", "q7", "q7", None, True, "MULTICAST")
    found = {name: node.office.directory.find_queue(name) for name in ("q2", "q3", "q4", "q5", "q6", "q7")}
    assert [queue.durable for queue in found.values() if queue] == [True, False, True, False, False, True]
    assert [queue.routing_type.name for queue in found.values() if queue] == [
        "MULTICAST", "MULTICAST", "ANYCAST", "ANYCAST", "MULTICAST", "MULTICAST",
    ]  # fmt: skip
    assert found["q6"] is not None
    assert found["q6"].filter is not None
    assert sorted(node.ask("broker", "getQueueNames", "ANYCAST")) == ["q1", "q4", "q5"]
    assert node.ask("broker", "getQueueCount") == 7


def test_queues_from_json() -> None:
    node = ManagedWorld()
    asked = {
        "name": "q", "address": "a", "routing-type": "ANYCAST", "durable": "true", "max-consumers": "3",
        "filter-string": "n = 1", "auto-create-address": True, "transient": False, "user": "u",
    }  # fmt: skip
    made = json.loads(node.ask("broker", "createQueue", json.dumps(asked)))
    assert (made["max-consumers"], made["routing-type"], made["filter-string"]) == (3, "ANYCAST", "n = 1")
    assert "exists" in node.refused("broker", "createQueue", json.dumps(asked))
    assert json.loads(node.ask("broker", "createQueue", json.dumps(asked), True)) == made
    changed = json.loads(node.ask("broker", "updateQueue", json.dumps({"name": "q", "max-consumers": 7})))
    assert (changed["max-consumers"], changed["filter-string"]) == (7, "n = 1")
    queue = node.office.directory.find_queue("q")
    assert queue is not None
    assert queue.configuration.max_consumers == 7


@pytest.mark.parametrize(
    "bad",
    ["", "[]", "{", '{"name": 3}', '{"address": "a"}', '{"name": "q", "colour": "red"}',
     '{"name": "q", "internal": true}',
     '{"name": "q", "durable": "maybe"}', '{"name": "q", "ring-size": "x"}', '{"name": "q", "routing-type": "X"}'],
)  # fmt: skip
def test_json_that_is_no_queue(bad: str) -> None:
    node = ManagedWorld()
    assert node.refused("broker", "createQueue", bad)
    assert node.office.queues() == []


def test_a_queue_from_json_may_be_one_that_was_created_automatically() -> None:
    node = ManagedWorld()
    for name in ("q", "r"):
        asked = {"name": name, "routing-type": "ANYCAST", "auto-create-address": True, "auto-created": name == "q"}
        made = json.loads(node.ask("broker", "createQueue", json.dumps(asked)))
        assert made["auto-created"] is (name == "q")
    assert node.refused("broker", "createQueue", '{"name": "s", "auto-created": "perhaps"}')
    changed = json.loads(node.ask("broker", "updateQueue", json.dumps({"name": "q", "auto-created": False})))
    assert changed["auto-created"] is True


def test_an_address_names_the_queues_of_wildcard_addresses_that_cover_it() -> None:
    node = ManagedWorld()
    for address, name in (("w.a.b", "Q1"), ("w.#", "Q"), ("x", "R")):
        node.ask("broker", "createQueue", address, "MULTICAST", name, None, True, -1, False, True)
    assert node.ask("address.w.a.b", "getQueueNames") == ["Q1", "Q"]
    assert node.ask("address.w.a.b", "getQueueCount") == 2
    assert node.ask("address.w.#", "getQueueNames") == ["Q"]


def test_updating_and_destroying() -> None:
    node = ManagedWorld()
    node.ask("broker", "createQueue", "a", "ANYCAST", "q", None, True, -1, False, True)
    assert "maxConsumers=2" in node.ask("broker", "updateQueue", "q", None, 2, None)
    assert "exclusive=true" in node.ask("broker", "updateQueue", "q", "ANYCAST", 2, False, True)
    values = (None, "n = 1", None, None, None, None, None, None, None, None, None)
    assert "filter=n = 1" in node.ask("broker", "updateQueue", "q", *values)
    assert "no queue 'r'" in node.refused("broker", "updateQueue", "r", None, 2, None)
    session = node.world.session()
    session.consumers.create(0, "q")
    assert "has 1 consumer" in node.refused("broker", "destroyQueue", "q")
    node.ask("broker", "destroyQueue", "q", True, True)
    assert callback_of(session).disconnected == [0]
    assert "a" not in node.office.directory.addresses


def test_pages_of_queues() -> None:
    node = ManagedWorld()
    for number in range(3):
        node.world.queue(f"q{number}")
    node.world.session().sends.send(text("x", "q1"))
    options = json.dumps({"field": "MESSAGE_COUNT", "operation": "GREATER_THAN", "value": "0"})
    page = json.loads(node.ask("broker", "listQueues", options, 1, 50))
    assert (page["count"], page["data"][0]["name"], page["data"][0]["messageCount"]) == (1, "q1", "1")
    page = json.loads(node.ask("broker", "listQueues", None, 2, 2))
    assert [row["name"] for row in page["data"]] == ["q2"]
    assert json.loads(ManagedWorld().ask("broker", "listQueues", "", 1, 50)) == {"data": [], "count": 0}


# -- clients ------------------------------------------------------------------------------------------


def test_lists_show_sessions_by_alias() -> None:
    node = ManagedWorld()
    node.world.queue("q")
    client = connected(node)
    client.consume()
    client.send(packets.CreateProducer(1, "q"))
    (session,) = node.world.registry
    (connection_id,) = node.ask("broker", "listConnectionIDs")
    shown = [
        node.ask("broker", name, None, 1, 10)
        for name in ("listConnections", "listSessions", "listConsumers", "listProducers")
    ]
    shown += [
        node.ask("broker", name)
        for name in (
            "listConnectionsAsJSON",
            "listAllSessionsAsJSON",
            "listAllConsumersAsJSON",
            "listProducersInfoAsJSON",
        )
    ]
    shown += [node.ask("broker", name, connection_id) for name in ("listSessionsAsJSON", "listConsumersAsJSON")]
    shown.append(node.ask("queue.q", "listConsumersAsJSON"))
    assert all(NAME not in each for each in shown)
    assert all(json.loads(each) for each in shown)
    assert json.loads(shown[0])["data"][0]["remoteAddress"] == "10.0.0.1:5000"
    assert json.loads(shown[2])["data"][0]["session"] == session.state.alias
    assert json.loads(shown[7])[0]["destination"] == "q"
    assert node.ask("broker", "listSessions", connection_id) == [session.state.alias]
    assert node.ask("broker", "listRemoteAddresses") == ["10.0.0.1:5000"]
    assert node.ask("broker", "listRemoteAddresses", "10.9") == []
    assert node.ask("broker", "getConnectionCount") == 1
    assert node.ask("broker", "getTotalConsumerCount") == 1


@pytest.mark.parametrize(
    ("operation", "value", "missing"),
    [
        ("closeConnectionsForAddress", "10.0.0.1", "10.0.0.2"),
        ("closeConsumerConnectionsForAddress", "q", "other"),
        ("closeConnectionsForUser", "bob", "eve"),
    ],
)
def test_closing_connections(operation: str, value: str, missing: str) -> None:
    node = ManagedWorld()
    node.world.queue("q")
    client, other = connected(node, user="bob"), connected(node, "z" * 36, "10.0.9.9:1", user="carol")
    client.consume()
    assert node.ask("broker", operation, missing) is False
    assert node.ask("broker", operation, value) is True
    node.settle()
    assert (client.connection.closed, other.connection.closed) == (True, False)


def test_an_empty_address_does_not_mean_all_connections() -> None:
    node = ManagedWorld()
    client = connected(node)
    assert "no address" in node.refused("broker", "closeConnectionsForAddress", "")
    node.settle()
    assert not client.connection.closed


def test_closing_one_connection_session_or_consumer() -> None:
    node = ManagedWorld()
    node.world.queue("q")
    client = connected(node)
    client.consume()
    (session,) = node.world.registry
    (connection_id,) = node.ask("broker", "listConnectionIDs")
    assert node.ask("broker", "closeConsumerWithID", session.state.alias, "9") is False
    assert node.ask("broker", "closeConsumerWithID", session.state.alias, "0") is True
    node.settle()
    assert session.consumers.by_id == {}
    assert packets.DisconnectConsumer(0) in client.received()
    client.consume(1)
    assert node.ask("broker", "closeSessionWithID", connection_id, NAME) is False, "a name is no id"
    assert node.ask("broker", "closeSessionWithID", connection_id, session.state.alias, True) is True
    node.settle()
    assert session.state.closed
    assert packets.DisconnectConsumer(1) in client.received()
    assert node.ask("broker", "closeConnectionWithID", connection_id) is True
    node.settle()
    assert client.connection.closed


# -- prepared branches --------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_an_operator_decides_a_prepared_branch(commit: bool) -> None:
    node = ManagedWorld()
    queue = node.world.queue()
    session = node.world.session(xa=True, transacted=True)
    xid = Xid(0x1FF, b"global", b"branch")
    session.branches.start(xid)
    session.sends.send(text("a"))
    session.branches.end(xid, failed=False)
    session.branches.prepare(xid)
    name = base64.b64encode(b"branchglobal\xff\x01\x00\x00").decode()
    (listed,) = node.ask("broker", "listPreparedTransactions")
    assert name in listed
    (details,) = json.loads(node.ask("broker", "listPreparedTransactionDetailsAsJSON"))
    assert details["xid_as_base64"] == name
    operation = "commitPreparedTransaction" if commit else "rollbackPreparedTransaction"
    assert node.ask("broker", operation, "AAAA") is False
    assert node.ask("broker", operation, name) is True
    assert node.ask("broker", operation, name) is False
    assert queue.message_count == int(commit)
    assert node.ask("broker", "listPreparedTransactionDetailsAsJSON") == ""
    decided = "listHeuristicCommittedTransactions" if commit else "listHeuristicRolledBackTransactions"
    assert node.ask("broker", decided) == [name]


# -- sending ------------------------------------------------------------------------------------------


def test_sending_to_an_address_and_to_one_queue() -> None:
    node = ManagedWorld()
    queue, other = node.world.queue("q", address="a"), node.world.queue("r", address="a")
    sent = node.ask("queue.q", "sendMessage", {"colour": "red"}, 3, "hello", True, None, None)
    assert sent.isdigit()
    (shown,) = node.ask("queue.q", "browse")
    assert (shown["text"], shown["colour"], shown["messageID"]) == ("hello", "red", int(sent))
    assert "userID" not in shown
    assert other.message_count == 0
    raw = base64.b64encode(b"\x00\x01").decode()
    node.ask("address.a", "sendMessage", None, 4, raw, False, "", "", True)
    assert queue.message_count + other.message_count == 2
    assert "Base64" in node.refused("queue.q", "sendMessage", None, 4, "not base64!", True, None, None)
    assert "not a string" in node.refused("queue.q", "sendMessage", {"n": 1}, 3, "x", True, None, None)
    assert "0 to 127" in node.refused("queue.q", "sendMessage", None, 300, None, True, None, None)


def test_a_named_sender_needs_its_password_and_its_permission() -> None:
    node = ManagedWorld(security=RefusesAllUsers())
    node.world.queue("q")
    for _ in range(FAILURES_OF_USER_MAX):
        assert "who?" in node.refused("queue.q", "sendMessage", None, 3, "x", True, "eve", "guess")
    assert "wait" in node.refused("queue.q", "sendMessage", None, 3, "x", True, "eve", "guess"), "guesses are counted"
    assert node.ask("queue.q", "countMessages") == 0


# -- addresses, links, the node -----------------------------------------------------------------------


def test_an_address_and_its_numbers() -> None:
    node = ManagedWorld(
        configuration={
            "security_settings": (
                SecuritySettingConfiguration("#", {Permission.SEND: frozenset({"all"})}),
                SecuritySettingConfiguration("a", {Permission.SEND: frozenset({"few"})}),
            )
        }
    )
    node.world.queue("q", address="a")
    node.world.queue("r", address="a", routing_type=RoutingType.MULTICAST)
    node.world.session().sends.send(text("x", "a"))
    assert node.ask("address.a", "getQueueNames") == ["q", "r"]
    assert node.ask("address.a", "getMessageCount") == 1
    assert node.ask("address.a", "getRoutedMessageCount") == 1
    assert node.ask("address.a", "getRoutingTypesAsJSON") == '["MULTICAST","ANYCAST"]'
    assert node.ask("address.a", "getAddressLimitPercent") == 0
    (role,) = json.loads(node.ask("address.a", "getRolesAsJSON"))
    assert (role["name"], role["send"], role["consume"]) == ("few", True, False)
    nothing = [False] * 11
    assert node.ask("broker", "getRoles", "b") == [["all", True, *nothing]], "the order of the columns is fixed"
    assert node.ask("address.a", "getRoles") == [["few", True, *nothing]]
    assert node.ask("address.a", "purge") == 2
    assert node.ask("address.a", "getMessageCount") == 0


def test_the_node_itself() -> None:
    node = ManagedWorld(
        configuration={
            "name": "n1",
            "acceptors": (AcceptorConfiguration("core", "127.0.0.1", 61616),),
            "cluster_connections": (ClusterConnectionConfiguration("pair", "self"),),
        }
    )
    node.topology.set_primary("one", TransportConfiguration("c", parameters={"host": "h1", "port": 1}), 1)
    node.topology.set_backup("one", TransportConfiguration("d", parameters={"host": "h2", "port": 2}))
    assert json.loads(node.ask("broker", "listNetworkTopology")) == [
        {"nodeID": "one", "live": "h1:1", "primary": "h1:1", "backup": "h2:2"}
    ]
    assert json.loads(node.ask("broker", "getStatus"))["server"]["identity"] == "n1"
    assert node.ask("broker", "getClusterConnectionNames") == ["pair"]
    assert node.ask("clusterconnection.pair", "getNodes") == {"one": "h1:1"}
    assert node.ask("acceptor.core", "getParameters") == {
        "scheme": "tcp", "host": "127.0.0.1", "port": "61616",
    }  # fmt: skip
    (acceptor,) = json.loads(node.ask("broker", "getAcceptorsAsJSON"))
    assert (acceptor["name"], acceptor["params"]["port"], acceptor["extraProps"]) == ("core", "61616", {})
    assert node.ask("broker", "getAcceptors") == [["core", acceptor["factoryClassName"], acceptor["params"]]]
    settings = json.loads(node.ask("broker", "getAddressSettingsAsJSON", "q"))
    assert (settings["addressFullMessagePolicy"], settings["maxDeliveryAttempts"]) == ("PAGE", 10)
    assert node.ask("broker", "getAddressMemoryUsagePercentage") == 0
    assert node.ask("broker", "getMaxDiskUsage") == 90
    assert node.ask("broker", "isStarted") is True
    node.services.connections.accepting = False
    assert node.ask("broker", "isStarted") is False
    assert node.ask("broker", "forceFailover") is None
    assert node.failed_over == 0, "the answer first"
    node.settle()
    assert node.failed_over == 1
    assert node.ask("broker", "failback") is None
    assert node.failed_back == 1
    node.refuses_failback = True
    assert "no failback" in node.refused("broker", "failback")
    assert node.ask("broker", "scaleDown", None) is None
    assert node.ask("broker", "scaleDown", "other") is None
    assert node.scaled_down == [None, "other"]


def test_every_attribute_of_every_resource_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No getter of the tables fails on a node at rest."""
    node = ManagedWorld(
        configuration={
            "acceptors": (AcceptorConfiguration("x", "127.0.0.1", 1),),
            "connectors": (ConnectorConfiguration("self", "127.0.0.1", 1),),
            "cluster_connections": (ClusterConnectionConfiguration("x", "self"),),
            "bridges": (BridgeConfiguration("x", "x", BridgeTarget(("self",))),),
        }
    )
    monkeypatch.setattr(type(node.store), "disk_used_percent", 12.5)
    node.world.queue("x")
    node.world.session().sends.send(text("m", "x"))
    node.ask("broker", "createDivert", "x", None, "x", "y", False, None, None)
    for kind in CONTROLS:
        resource = kind.operations.kind if kind.operations.kind == "broker" else f"{kind.operations.kind}.x"
        for row in kind.operations.rows:
            if row.attribute is not None:
                value = node.ask(resource, row.name)
                typed = json.loads(json.dumps(to_builtins(convert(value, row.result, strict=True))))
                assert typed == value, f"{row.name} is declared as {row.result}"
    assert node.ask("broker", "getDiskStoreUsage") == 0.125


def test_logins_permissions_connections_and_sessions_are_counted() -> None:
    node = ManagedWorld()
    connected(node)
    connected(node, "other", peer="10.0.0.2:5000")
    assert node.ask("broker", "getTotalConnectionCount") == 2
    before = node.ask("broker", "getTotalSessionCount")
    node.session().close(failed=False)
    assert node.ask("broker", "getTotalSessionCount") == before + 2, "that of the request itself counts, too"
    assert node.ask("broker", "getAuthenticationSuccessCount") == 0, "there is nothing to check"
    assert node.ask("broker", "getAuthenticationCacheSize") == 0


@pytest.mark.parametrize(
    ("duration_ms", "expected"),
    [
        (12_345, "12.345 seconds"),
        (60_000, "1 minute"),
        (3_599_999, "59 minutes"),
        (3_600_000, "1 hour"),
        (7_500_000, "2 hours 5 minutes"),
        (86_400_000, "1 day"),
        (4 * 86_400_000 + 3_600_000, "4 days 1 hour"),
    ],
)
def test_durations_are_shown_in_their_two_largest_units(duration_ms: int, expected: str) -> None:
    assert duration_text(duration_ms) == expected


def test_a_page_before_the_first_is_empty() -> None:
    node = ManagedWorld()
    node.world.queue("q")
    assert json.loads(node.ask("broker", "listQueues", "", 0, 5)) == {"data": [], "count": 1}


def test_names_of_queues_of_an_unknown_routing_type() -> None:
    node = ManagedWorld()
    node.world.queue("q")
    assert node.ask("broker", "getQueueNames", "anycast") == ["q"]
    assert node.ask("broker", "getQueueNames", "UNICAST") == []


def test_bindings_of_an_address_name_its_diverts() -> None:
    node = ManagedWorld()
    node.world.queue("q")
    node.ask("broker", "createDivert", "d", None, "q", "r", False, None, None)
    assert node.ask("broker", "listBindingsForAddress", "q").endswith(",DivertBinding [address=q, divert=d]")


def test_producers_of_an_address_are_blocked_and_let_go_on() -> None:
    node = ManagedWorld()
    address = node.world.queue("q").address
    assert node.ask("address.q", "block") is True
    assert address.blocked
    assert node.ask("address.q", "isBlocked") is True
    node.ask("address.q", "unblock")
    assert not address.blocked


def test_an_address_is_paused_and_resumed() -> None:
    node = ManagedWorld()
    node.ask("broker", "createQueue", '{"name": "q", "address": "a", "routing-type": "ANYCAST"}')
    assert node.ask("address.a", "isPaused") is False
    node.ask("address.a", "pause", True)
    assert node.ask("address.a", "isPaused") is True
    assert node.ask("queue.q", "isPaused") is True
    assert node.ask("queue.q", "isPersistedPause") is False
    page = json.loads(
        node.ask("broker", "listAddresses", json.dumps({"field": "NAME", "operation": "EQUALS", "value": "a"}), 1, 10)
    )
    assert [row["paused"] for row in page["data"]] == ["true"]
    node.ask("address.a", "resume")
    assert node.ask("queue.q", "isPaused") is False


def test_a_reload_tells_what_is_wrong_but_not_where_the_file_lies() -> None:
    node = ManagedWorld()
    assert "no configuration file" in node.refused("broker", "reloadConfigurationFile")
    invalid = ConfigError("the value is empty", path="core/name", file="/srv/secret/etc/broker.xml", line=4)
    outcomes: list[tuple[BrokerError, ...]] = [(invalid,), (invalid, ConfigError("no key", path="acceptor 'a'")), ()]
    node.invocations.node = replace(node.managed, files=InstanceFiles(lambda done: done(outcomes.pop(0))))
    told = node.refused("broker", "reloadConfigurationFile")
    assert "broker.xml:4 core/name: the value is empty" in told
    assert "/srv" not in told
    told = node.refused("broker", "reloadConfigurationFile")
    assert "the value is empty; acceptor 'a': no key" in told, "each part that failed"
    assert node.ask("broker", "reloadConfigurationFile") is None


_REPLICATION = ReplicationConfiguration()
_LOCKED = ReplicationConfiguration(lock_manager=FileLockOptions("/locks"))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (HighAvailabilityPolicy(), "Primary Only"),
        (HighAvailabilityPolicy(Role.PRIMARY), "Shared Store Primary"),
        (HighAvailabilityPolicy(Role.BACKUP), "Shared Store Backup"),
        (HighAvailabilityPolicy(Role.PRIMARY, replication=_REPLICATION), "Replication Primary w/quorum voting"),
        (HighAvailabilityPolicy(Role.BACKUP, replication=_REPLICATION), "Replication Backup w/quorum voting"),
        (HighAvailabilityPolicy(Role.PRIMARY, replication=_LOCKED), "Replication Primary w/lock manager"),
        (HighAvailabilityPolicy(Role.BACKUP, replication=_LOCKED), "Replication Backup w/lock manager"),
    ],
)
def test_the_ha_policy_has_the_name_of_artemis(policy: HighAvailabilityPolicy, expected: str) -> None:
    node = ManagedWorld(configuration={"ha_policy": policy})
    assert node.ask("broker", "getHAPolicy") == expected


def test_a_connection_factory_that_a_running_node_got_is_known() -> None:
    node = ManagedWorld()
    assert node.ask("broker", "getConnectionFactoryNames") == []
    assert "no connection factory 'Remote'" in node.refused("broker", "getClientUrl", "Remote")
    factory = ConnectionFactoryConfiguration("Remote", ("netty",), ("jms/Remote",), (("ha", "true"),))
    netty = ConnectorConfiguration("netty", "10.0.0.1", 61616, None, {})
    changed = replace(node.configuration, connectors=(netty,), connection_factories=(factory,))
    node.invocations.reconfigure(changed)
    assert node.ask("broker", "getConnectionFactoryNames") == ["Remote"]
    assert node.ask("broker", "getClientUrl", "Remote") == "(tcp://10.0.0.1:61616)?ha=true"
    assert node.ask("broker", "getJndiProperties", "Remote").endswith(
        "connectionFactory.jms/Remote=(tcp://10.0.0.1:61616)?ha=true\n"
    )
