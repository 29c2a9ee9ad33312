"""Requests to a real Artemis and to this broker, in this order and each from its beginning.

Queues and addresses are named here once: the brokers have nothing else but what the ``Target`` of the
tests configures. ``EXPECTED`` says where answers may differ, by a key of
``understudy.management.differences``; all other answers must be the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from support.management_driver import ManagementDriver
from support.targets import PASSWORD, USER


@dataclass(frozen=True, slots=True)
class Ask:
    """One request; parameters that are functions are made from what the broker says itself."""

    resource: str
    name: str
    parameters: tuple[object, ...] = ()

    def __str__(self) -> str:
        shown = ("…" if callable(each) else json.dumps(each) for each in self.parameters)
        return f"{self.resource}.{self.name}({', '.join(shown)})"


@dataclass(frozen=True, slots=True)
class Load:
    """Text messages for a queue, numbered by ``n``, every second one red."""

    queue: str
    count: int = 3
    deliver_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Until a queue lists so many messages: what management sends arrives after its answer there."""

    queue: str
    count: int


Step = Ask | Load | Wait


def ask(resource: str, name: str, *parameters: object) -> Ask:
    return Ask(resource, name, parameters)


def _json(**values: object) -> str:
    return json.dumps({name.replace("_", "-"): value for name, value in values.items()})


def _options(field: str, operation: str, value: str, **more: str) -> str:
    return json.dumps({"field": field, "operation": operation, "value": value} | more)


def _first(queue: str, operation: str = "listMessagesAsJSON") -> Callable[[ManagementDriver], object]:
    """The id of the first message in a queue."""

    def find(asking: ManagementDriver) -> object:
        parameters = (None,) if operation == "listMessagesAsJSON" else ()
        return json.loads(asking.operation(f"queue.{queue}", operation, *parameters).value)[0]["messageID"]

    return find


def _connection(asking: ManagementDriver) -> object:
    return asking.operation("broker", "listConnectionIDs").value[0]


_ADDRESSES: Final = (
    ask("broker", "createAddress", "q", "ANYCAST,MULTICAST"),
    ask("broker", "createAddress", "q", "ANYCAST"),
    ask("broker", "createAddress", "bad", "UNICAST"),
    ask("broker", "createAddress", "none", ""),
    ask("broker", "createAddress", "null", None),
    ask("broker", "getAddressInfo", "q"),
    ask("broker", "getAddressInfo", "absent"),
    ask("broker", "updateAddress", "q", "ANYCAST"),
    ask("broker", "updateAddress", "q", "MULTICAST,ANYCAST"),
    ask("broker", "updateAddress", "absent", "ANYCAST"),
    ask("broker", "updateAddress", "q", None),
    ask("broker", "listAddresses", _options("name", "EQUALS", "q"), 1, 50),
    ask("broker", "listAddresses", _options("queueCount", "LESS_THAN", "1", sortField="name", sortOrder="asc"), 1, 9),
    ask("broker", "getAddressNames"),
    ask("broker", "listNetworkTopology"),
    ask("broker", "getRoles", "x"),
    ask("broker", "getRolesAsJSON", "x"),
    ask("broker", "getAddressSettingsAsJSON", "paging.x"),
    ask("broker", "listBindingsForAddress", "absent"),
)

_CREATED: Final = (
    ask("broker", "createQueue", "q", "ANYCAST", "q", None, True, -1, False, True),
    ask("broker", "createQueue", "q", "ANYCAST", "q", None, True, -1, False, True),
    ask("broker", "createQueue", "q", "MULTICAST", "m", "n > 1", False, 5, True, True),
    ask("broker", "createQueue", "absent", "MULTICAST", "absent", "", False, 5, True, False),
    ask("broker", "createQueue", "q", "UNICAST", "bad", "", False, 5, True, False),
    ask("broker", "createQueue", "q", "ANYCAST", "bad", "n >", False, 5, True, False),
    ask("broker", "createQueue", _json(name="j", address="j", routing_type="ANYCAST")),
    ask("broker", "createQueue", _json(name="j", address="j", routing_type="ANYCAST")),
    ask("broker", "createQueue", _json(name="j", address="j", routing_type="ANYCAST"), True),
    ask("broker", "createQueue", _json(name="short", routing_type="ANYCAST")),
    ask("broker", "createQueue", _json(
        name="all", address="all", routing_type="MULTICAST", durable="false", exclusive="true", max_consumers="7",
        ring_size="11", last_value="true", last_value_key="key", filter_string="n = 1", purge_on_no_consumers=True,
        group_buckets=4, group_rebalance=True, group_first_key="gf", consumers_before_dispatch=2,
        delay_before_dispatch=5, auto_delete=True, auto_delete_delay=1000, auto_delete_message_count=3,
        enabled=False, non_destructive=True)),
    ask("broker", "createQueue", _json(name="odd", routing_type="ANYCAST", unknown="x")),
    ask("broker", "destroyQueue", "odd", False, True),
    ask("broker", "createQueue", "no json"),
    ask("broker", "createQueue", _json(address="nameless")),
    ask("broker", "createQueue", "a", "a"),
    ask("broker", "createQueue", "b", "b", False),
    ask("broker", "createQueue", "c", "c", "ANYCAST"),
    ask("broker", "createQueue", "long", "ANYCAST", "long", "n = 2", True, 3, False, True, True, 4, False, None, False,
        2, 5, True),
    ask("broker", "updateQueue", "q", "ANYCAST", 9, True),
    ask("broker", "updateQueue", "q", "ANYCAST", -1, False, False),
    ask("broker", "updateQueue", "q", None, None, None, None),
    ask("broker", "updateQueue", "absent", "ANYCAST", 9, True),
    ask("broker", "updateQueue", _json(name="q", max_consumers=4)),
    ask("broker", "updateQueue", _json(name="q", max_consumers=-1)),
    ask("broker", "updateQueue", _json(name="absent", max_consumers=-1)),
    ask("broker", "updateQueue", "q", "ANYCAST", None, -1, False, False, False, -1, None, False, 0, -1, None),
    ask("broker", "updateQueue", "q", "ANYCAST"),
    ask("broker", "updateQueue", "short", "MULTICAST", 9, True),
)  # fmt: skip

_LISTED: Final = (
    *(
        ask("broker", "listQueues", options, 1, 50)
        for options in (
            "",
            _options("name", "EQUALS", "all", sortField="name", sortOrder="asc"),
            _options("NAME", "EQUALS", "all"),
            _options("MAX_CONSUMERS", "GREATER_THAN", "6"),
            _options("maxConsumers", "LESS_THAN", "6", sortField="id", sortOrder="desc"),
            _options("durable", "EQUALS", "false"),
            _options("filter", "CONTAINS", "n"),
            _options("ROUTING_TYPE", "EQUALS", "MULTICAST"),
            # no letter that the random name of the asker's own queue may have
            _options("name", "NOT_CONTAINS", "o"),
            _options("MESSAGE_COUNT", "CONTAINS", "0"),
            _options("MESSAGE_COUNT", "GREATER_THAN", "text"),
            _options("wrong", "EQUALS", "x"),
            _options("name", "WRONG", "x"),
            _options("", "", ""),
            "no json",
        )
    ),
    ask("broker", "listQueues", _options("name", "NOT_CONTAINS", "$", sortField="name", sortOrder="desc"), 1, 2),
    ask("broker", "listQueues", _options("name", "NOT_CONTAINS", "$"), 0, 2),
    ask("broker", "listQueues", _options("name", "NOT_CONTAINS", "$"), 99, 2),
    ask("broker", "listQueues", "", -1, -1),
    ask("broker", "listQueues", None, -1, -1),
    ask("broker", "listBindingsForAddress", "q"),
    ask("broker", "getQueueNames"),
    ask("broker", "getQueueNames", "MULTICAST"),
    ask("broker", "getQueueNames", "UNICAST"),
    ask("broker", "listConnections", "", 1, 10),
    ask("broker", "listSessions", _options("consumerCount", "EQUALS", "1"), 1, 10),
    ask("broker", "listConsumers", "", 1, 10),
    ask("broker", "listProducers", _options("address", "EQUALS", "activemq.management"), 1, 10),
    ask("broker", "listConnectionsAsJSON"),
    ask("broker", "listSessionsAsJSON", _connection),
    ask("broker", "listConsumersAsJSON", _connection),
    ask("broker", "listConsumersAsJSON", "absent"),
    ask("broker", "listProducersInfoAsJSON"),
    ask("broker", "listSessions", "absent"),
)

_WRONG: Final = (
    ask("broker", "nothing"),
    ask("broker", "createAddress", "one"),
    ask("broker", "createAddress", 1, 2),
    ask("broker", "createAddress", "x", True),
    ask("nothing", "x"),
    ask("queue.absent", "getName"),
    ask("queue", "getName"),
    ask("broker.x", "getName"),
    ask("address.absent", "getAddress"),
    ask("divert.absent", "getAddress"),
    ask("acceptor.absent", "getName"),
    ask("broker", "closeConnectionWithID", "absent"),
    ask("broker", "closeConnectionsForAddress", "1.2.3.4"),
    ask("broker", "closeConsumerConnectionsForAddress", "absent"),
    ask("broker", "closeConnectionsForUser", "absent"),
    ask("broker", "closeSessionWithID", "absent", "absent"),
    ask("broker", "closeConsumerWithID", "absent", "0"),
    ask("broker", "listPreparedTransactions"),
    ask("broker", "listPreparedTransactionDetailsAsJSON"),
    ask("broker", "listHeuristicCommittedTransactions"),
    ask("broker", "listHeuristicRolledBackTransactions"),
    ask("broker", "commitPreparedTransaction", "AAAA"),
)

_LOOKED_AT: Final = (
    Load("q"),
    *(
        ask("queue.q", name, *parameters)
        for name, *parameters in (
            ("listMessages", None),
            ("listMessagesAsJSON", ""),
            ("listMessagesAsJSON", "n = 1"),
            ("listMessagesAsJSON", "n ="),
            ("countMessages",),
            ("countMessages", None),
            ("countMessages", "n > 0"),
            ("countMessages", "n >"),
            ("countMessages", None, "colour"),
            ("countMessages", "", "absent"),
            ("browse", ""),
            ("browse", 0, 1),
            ("getFirstMessageAsJSON",),
            ("peekFirstMessageAsJSON",),
            ("peekFirstScheduledMessageAsJSON",),
            ("listDeliveringMessages",),
            ("listDeliveringMessagesAsJSON",),
            ("listScheduledMessages",),
            ("listConsumersAsJSON",),
            ("listGroupsAsJSON",),
            ("countDeliveringMessages", None),
            ("getDurableMessageCount",),
            ("getMessagesAdded",),
        )
    ),
    ask("address.q", "getRoutedMessageCount"),
    ask("address.q", "getUnRoutedMessageCount"),
    ask("address.q", "getQueueNames"),
    ask("address.q", "getRoutingTypesAsJSON"),
    ask("address.q", "getMessageCount"),
)

_MOVED: Final = (
    ask("queue.q", "removeMessage", _first("q")),
    ask("queue.q", "removeMessage", 12_345_678),
    ask("queue.q", "removeMessages", "n = 1"),
    ask("queue.q", "removeMessages", 1, "n = 2"),
    ask("queue.q", "removeAllMessages"),
    ask("queue.q", "removeMessages", "n ="),
    ask("queue.q", "getFirstMessageAsJSON"),
    ask("queue.q", "peekFirstMessageAsJSON"),
    Load("q", 5),
    ask("queue.q", "copyMessage", _first("q"), "j"),
    ask("queue.q", "copyMessage", 12_345_678, "j"),
    ask("queue.q", "copyMessage", _first("q"), "absent"),
    ask("queue.q", "moveMessage", _first("q"), "j"),
    ask("queue.q", "moveMessage", _first("q"), "absent"),
    ask("queue.q", "moveMessage", 12_345_678, "j"),
    ask("queue.j", "listMessagesAsJSON", ""),
    ask("queue.q", "moveMessages", 5, "n = 3", "j", False, 1),
    ask("queue.q", "moveMessages", None, "j"),
    ask("queue.q", "moveMessages", None, "absent"),
    ask("queue.j", "removeMessages", "n = 0"),
    ask("queue.j", "countMessages"),
    ask("queue.j", "retryMessages"),
    ask("queue.j", "retryMessage", 12),
    ask("queue.q", "listMessagesAsJSON", ""),
    ask("queue.q", "removeAllMessages"),
    Load("q"),
    ask("queue.q", "expireMessage", _first("q")),
    ask("queue.q", "expireMessage", 12_345_678),
    ask("queue.q", "expireMessages", "n = 1"),
    ask("queue.expired", "listMessagesAsJSON", None),
    ask("queue.q", "sendMessageToDeadLetterAddress", _first("q")),
    ask("queue.q", "sendMessageToDeadLetterAddress", 12_345_678),
    ask("queue.dead", "listMessagesAsJSON", None),
    ask("queue.q", "getMessagesExpired"),
    ask("queue.q", "getMessagesKilled"),
    Load("q"),
    ask("queue.q", "changeMessagePriority", _first("q"), 8),
    ask("queue.q", "changeMessagePriority", _first("q"), 18),
    ask("queue.q", "changeMessagePriority", 12_345_678, 8),
    ask("queue.q", "changeMessagesPriority", "n > 1", 9),
    ask("queue.q", "listMessagesAsJSON", None),
    ask("queue.q", "removeAllMessages"),
    Load("q", deliver_at_s=4_000_000_000),
    ask("queue.q", "listMessagesAsJSON", None),
    ask("queue.q", "listScheduledMessagesAsJSON"),
    ask("queue.q", "peekFirstScheduledMessageAsJSON"),
    ask("queue.q", "getScheduledCount"),
    ask("queue.q", "getMessageCount"),
    ask("queue.q", "countMessages", None),
    ask("queue.q", "getFirstMessageAsJSON"),
    ask("queue.q", "deliverScheduledMessage", _first("q", "listScheduledMessagesAsJSON")),
    ask("queue.q", "deliverScheduledMessages", None),
    ask("queue.q", "deliverScheduledMessage", 12_345_678),
    ask("queue.q", "countMessages"),
    ask("queue.q", "removeAllMessages"),
)

_SENT: Final = (
    ask("queue.q", "sendMessage", {"a": "b"}, 3, "hello", True, USER, PASSWORD),
    ask("queue.q", "sendMessage", None, 4, "aGVsbG8=", True, USER, PASSWORD),
    ask("queue.q", "sendMessage", {"a": "b"}, 3, "hello", True, USER, PASSWORD, True),
    ask("queue.q", "sendMessage", {"a": 1}, 3, "hello", True, USER, PASSWORD),
    ask("queue.q", "sendMessage", None, 4, "%%%", True, USER, PASSWORD),
    ask("queue.q", "sendMessage", None, 0, None, False, USER, PASSWORD),
    Wait("q", 4),
    ask("queue.q", "listMessagesAsJSON", None),
    ask("queue.q", "sendMessage", None, 3, "hello", True, None, None),
    ask("address.j", "sendMessage", {"a": "b"}, 3, "hello", True, USER, PASSWORD),
    Wait("j", 1),
    ask("address.j", "purge"),
    ask("queue.j", "countMessages"),
    ask("queue.q", "pause"),
    ask("queue.q", "isPaused"),
    ask("queue.q", "resume"),
    ask("queue.q", "pause", True),
    ask("queue.q", "isPersistedPause"),
    ask("queue.q", "resume"),
    ask("queue.q", "isPersistedPause"),
    ask("queue.q", "resetGroup", "g"),
    ask("queue.q", "resetAllGroups"),
    ask("queue.q", "flushExecutor"),
    ask("queue.q", "resetMessagesAdded"),
    ask("queue.q", "getMessagesAdded"),
    ask("queue.q", "disable"),
    ask("queue.q", "isEnabled"),
    ask("queue.q", "enable"),
)

_DIVERTED: Final = (
    ask("broker", "createDivert", "d", "r", "q", "j", False, "n = 1", None),
    ask("broker", "createDivert", "d", "r", "q", "j", False, None, None),
    ask("broker", "createDivert", "e", None, "q", "j", False, None, None, "PASS"),
    ask("broker", "createDivert", "bad", None, "q", "j", False, None, None, "BAD"),
    ask("broker", "createDivert", _json(name="f", address="q", forwarding_address="j")),
    ask("broker", "createDivert", "bad", None, "q", "j", False, "n >", None),
    ask("broker", "getDivertNames"),
    ask("broker", "listDivertNames"),
    ask("divert.d", "getUniqueName"),
    ask("divert.d", "getRoutingName"),
    ask("divert.d", "getFilter"),
    ask("divert.d", "isExclusive"),
    ask("divert.d", "getTransformerClassName"),
    ask("divert.d", "getTransformerPropertiesAsJSON"),
    ask("divert.e", "getRoutingType"),
    ask("divert.e", "getRoutingName"),
    ask("divert.e", "getFilter"),
    ask("broker", "updateDivert", _json(name="d", address="q", forwarding_address="dead", filter_string="n = 2")),
    ask("divert.d", "getForwardingAddress"),
    ask("divert.d", "getFilter"),
    ask("divert.d", "getRoutingType"),
    ask("queue.q", "countDeliveringMessages", None, "n"),
    ask("broker", "destroyDivert", "d"),
    ask("broker", "destroyDivert", "d"),
    ask("broker", "destroyDivert", "e"),
    ask("broker", "destroyDivert", "f"),
)

_DESTROYED: Final = (
    ask("broker", "deleteAddress", "q"),
    ask("broker", "destroyQueue", "q"),
    ask("broker", "destroyQueue", "q"),
    ask("broker", "destroyQueue", "m", False, True),
    ask("broker", "deleteAddress", "q"),
    ask("broker", "destroyQueue", "j", True),
    ask("broker", "deleteAddress", "j"),
    ask("broker", "deleteAddress", "j"),
    ask("broker", "deleteAddress", "all", True),
)

_TWENTY_TWO: Final = ("DLA", "EXP", 5, True, 3, 10_000, 1_000, 5, 70, 1.5, 80, -1, True, "DROP", -1, 5, "NOTIFY", True,
                      True, True, True)  # fmt: skip
_SETTINGS: Final = (
    ask(
        "broker",
        "addAddressSettings",
        "set.#",
        json.dumps(
            {
                "redeliveryDelay": 5,
                "maxDeliveryAttempts": 3,
                "addressFullMessagePolicy": "FAIL",
                "redeliveryMultiplier": 2.5,
                "deadLetterAddress": "dead",
                "autoDeleteQueues": False,
            }
        ),
    ),
    ask("broker", "getAddressSettingsAsJSON", "set.x"),
    ask("broker", "addAddressSettings", "set.x", *_TWENTY_TWO),
    ask("broker", "getAddressSettingsAsJSON", "set.x"),
    ask("broker", "addAddressSettings", "set.y", json.dumps({"maxSizeBytes": 10, "pageSizeBytes": 20})),
    ask("broker", "addAddressSettings", "set.z", json.dumps({"notASetting": 1})),
    ask("broker", "removeAddressSettings", "set.x"),
    ask("broker", "removeAddressSettings", "set.#"),
    ask("broker", "removeAddressSettings", "never.set"),
    ask("broker", "addSecuritySettings", "sec.#", "a, b", "b", "", "", "", "", "a", "", "b", ""),
    ask("broker", "getRolesAsJSON", "sec.x"),
    ask("broker", "getRoles", "sec.x"),
    ask("broker", "removeSecuritySettings", "sec.#"),
    ask("broker", "getRolesAsJSON", "sec.x"),
    ask("broker", "createQueue", "pausing", "ANYCAST", "pausing", None, True, -1, False, True),
    ask("address.pausing", "pause"),
    ask("address.pausing", "isPaused"),
    ask("queue.pausing", "isPaused"),
    ask("queue.pausing", "resume"),
    ask("queue.pausing", "isPaused"),
    ask("address.pausing", "pause", True),
    ask("queue.pausing", "isPersistedPause"),
    ask("address.pausing", "resume"),
    ask("queue.pausing", "isPaused"),
    ask("broker", "deleteAddress", "pausing", True),
)

STEPS: Final[tuple[Step, ...]] = (
    *_ADDRESSES, *_CREATED, *_LISTED, *_WRONG, *_LOOKED_AT, *_MOVED, *_SENT, *_DIVERTED, *_DESTROYED, *_SETTINGS,
)  # fmt: skip

#: Attributes that differ by nature: of them only the type counts.
OF_THE_NODE: Final = frozenset(
    {"Name", "NodeID", "Version", "Uptime", "UptimeMillis", "CurrentTimeMillis", "BindingsDirectory",
     "JournalDirectory", "LargeMessagesDirectory", "PagingDirectory", "GlobalMaxSize", "AddressMemoryUsage",
     "AddressMemoryUsagePercentage", "DiskStoreUsage", "ID", "Id", "AuthenticationSuccessCount",
     "AuthorizationSuccessCount", "AuthenticationCacheSize", "AuthorizationCacheSize", "ActivationSequence",
     "AddressCount", "QueueCount", "TotalMessagesAdded", "TotalMessagesAcknowledged"}
)  # fmt: skip

#: A pattern of ``resource.operation(…)path``, and which difference it is.
EXPECTED: Final = (
    (r"notASetting", "added settings"),
    (r"createAddress\(\"bad\"|listQueues\(.*(wrong|WRONG|no json)|createDivert\(\"bad\"|\"UNICAST\"", "texts"),
    (r"createQueue\(\"no json|nameless|sendMessage\(.*(\"a\": 1|%%%)|changeMessagePriority\(…, 18", "texts"),
    (r"unknown|destroyQueue\(\"odd|createDivert\(\"d\", .*null, null\)|browse\(0, 1\)", "refused"),
    (r"\.(messagesDeliveredSize|messagesAcknowledgedAwaitingCommit|last\w+Time)", "counters"),
    (r"\.(msgSent|msgSizeSent|lastProducedMessageID)", "counters"),
    (r"browse\(", "browse"),
    (r"getAddressSettingsAsJSON", "settings"),
    # defaults that Artemis shows for every setting
    (r"addAddressSettings\(.*\.(managementBrowsePageSize|slowConsumerThresholdMeasurementUnit)", "settings"),
    (r"createQueue\(.*\.enabled:|createQueue\(.*, true\)\.", "queue"),
    (r"listBindingsForAddress", "bindings"),
    (r"divert.e.getRoutingName", "divert"),
    (r"queue.q.listMessagesAsJSON.*_AMQ_ORIG_", "retry"),
    (r"list(Producers|ProducersInfoAsJSON)\(.*\.name:", "producers"),
    (r"prefetchPageMessages", "prefetch"),
    (r"(copyMessage|moveMessages?)\(.*\"absent\"", "target"),
    (r"broker.Status\.", "node"),
    (
        r"address\.\w+\.Blocked|MessagesReplaced|QuarantinedMessageCount|MessagesWaitingForOtherNodeCount|ConnectionFactoryNames|ExchangeNames",
        "more",
    ),
    (r"updateQueue\(\"short\", \"MULTICAST\"", "routing"),
    (r"getMessagesKilled", "removed"),
    (r"sendMessage\(.*null, null\):", "sender"),
    (r"listAddresses\(.*LESS_THAN.*data\[0\]\.(unroutedMessageCount|internal):", "internal"),
)
