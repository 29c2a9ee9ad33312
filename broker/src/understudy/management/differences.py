"""Deliberate differences from Artemis' management, for the documentation and for the tests that compare both.

A key names a difference in those tests; the text is printed in the documentation. Not here: operations that are not
supported, which are missing in the tables of operations.
"""

from __future__ import annotations

from typing import Final

DIFFERENCES: Final[dict[str, str]] = {
    "texts": "Error texts are ours, after the number of Artemis (`AMQ229019: queue 'q' already exists …`); errors "
    "that Java itself raises there (unknown constants, invalid JSON) have no number. An attribute that cannot be "
    "read says why.",
    "refused": "Requests that cannot be carried out exactly are refused: unknown names in a configuration as JSON, a "
    "divert with the name of another, a move to the same queue, pages of `browse` that do not exist, unknown "
    "routing types.",
    "bridges": "`createBridge` refuses a name that is taken, an unknown connector and an unknown name in the JSON; "
    "Artemis answers without an error and creates nothing, or ignores the name.",
    "connectors": "`addConnector` refuses a name that is taken and `removeConnector` a connector of `broker.xml`; "
    "Artemis replaces the one and forgets the other until the next start.",
    "counters": "Bytes and times of deliveries, and messages sent by a producer, are not counted, so lists leave "
    "`messagesDeliveredSize`, `messagesAcknowledgedAwaitingCommit`, `lastDeliveredTime`, `lastAcknowledgedTime`, "
    "`msgSent`, `msgSizeSent` and `lastProducedMessageID` out.",
    "browse": "`browse` answers with JSON, not with serialised objects of Java; `listMessages` is the same in both.",
    "settings": "`getAddressSettingsAsJSON` shows all settings that apply to an address, not only those that were "
    "set; `addAddressSettings` answers with the given values, without defaults.",
    "added settings": "After a setting is removed, that of `broker.xml` for the same match applies at once, in "
    "Artemis at the next start. `addAddressSettings` refuses unknown names, which Artemis ignores.",
    "queue": "A queue as JSON is always complete: with `enabled`, and with its present values if `ignoreIfExists` "
    "found it.",
    "bindings": "`listBindingsForAddress` describes queues and diverts instead of naming objects in memory.",
    "divert": "The routing name of a divert defaults to its name, not to a random one.",
    "retry": "After a retry a message does not keep the properties with its original address and queue.",
    "scheduled": "Scheduled messages that are released keep their order.",
    "producers": "The name of a producer is its number.",
    "prefetch": "`prefetchPageMessages` of lists is the number of messages, as it is as an attribute.",
    "target": "A missing target queue has the error number of a missing queue.",
    "removed": "A message removed by id counts as killed, like those removed by selector.",
    "permitted": "Retries, moves and copies need the permission `send` of their caller on the queue or address that "
    "the messages go to; Artemis requires none.",
    "sender": "`sendMessage` without a user sends as the user of the request, also with security.",
    "internal": "The address of notifications is internal, and messages without a queue are not counted as unrouted.",
    "routing": "A routing type that an address does not allow has one error number, when a queue is created or "
    "changed.",
    "more": "Attributes that Artemis' management does not have: `MessagesReplaced` of a queue, `Blocked` of an "
    "address, `QuarantinedMessageCount` and `ConnectionFactoryNames` of the broker.",
    "node": "`getVersion` is that of this broker, `getActivationSequence` the epoch of the log; `getStatus` has no "
    "checksums of the configuration, and `identity` is the name.",
    "absent": "Management does not change users, which are in files (`artemis user`). There are no operations for "
    "replays, thread pools and the web console.",
    "notified": "`ADDRESS_ADDED`, `ADDRESS_REMOVED`, `CONNECTION_CREATED` and `CONNECTION_DESTROYED` need no plugin, "
    "and there is one for the removal of a divert, too.",
}
