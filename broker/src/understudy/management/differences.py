"""Where management answers otherwise than Artemis on purpose: for the page, and for the tests that compare both.

A key names a difference in those tests; the text is what the page says. Not here: what is not served
at all is what the tables of operations do not have.
"""

from __future__ import annotations

from typing import Final

DIFFERENCES: Final[dict[str, str]] = {
    "texts": "What is wrong is said in our words behind Artemis' number (`AMQ229019: queue 'q' already exists …`); "
    "what Java itself says there (unknown constants, no JSON) has no number. An attribute that cannot be read says "
    "why.",
    "refused": "What cannot be done as asked is refused: names that a configuration as JSON does not have, a divert "
    "of a name that is taken, messages moved to where they are, pages of `browse` that do not exist, a routing type "
    "that there is not.",
    "counters": "Bytes and times of deliveries, and what a producer has sent, are not counted for each message, so "
    "lists leave `messagesDeliveredSize`, `messagesAcknowledgedAwaitingCommit`, `lastDeliveredTime`, "
    "`lastAcknowledgedTime`, `msgSent`, `msgSizeSent` and `lastProducedMessageID` out.",
    "browse": "`browse` answers with JSON, not with serialised objects of Java; `listMessages` is the same in both.",
    "settings": "`getAddressSettingsAsJSON` shows all that holds for an address, not only what was set; "
    "`addAddressSettings` answers with what was set, and no defaults beside it.",
    "added settings": "A setting that is removed gives way to that of `broker.xml` for the same match at once, in "
    "Artemis at the next start. `addAddressSettings` refuses names that it does not know, which Artemis leaves aside.",
    "queue": "A queue as JSON is always whole: with `enabled`, and as it is when `ignoreIfExists` found it.",
    "bindings": "`listBindingsForAddress` describes queues and diverts instead of naming objects in memory.",
    "divert": "A divert without a routing name has its own name as one, not a random one.",
    "retry": "A message that was sent back to where it came from does not say any more that it was away.",
    "scheduled": "Scheduled messages that are released keep their order.",
    "producers": "A producer has its number as its name.",
    "prefetch": "`prefetchPageMessages` of lists is the number of messages, as it is as an attribute.",
    "target": "A queue that messages are to go to and that is not there has the number of a missing queue.",
    "removed": "A message that is removed alone counts as killed, like those that are removed together.",
    "permitted": "Retries, moves and copies need the permission `send` of their caller on the queue or address that "
    "the messages go to; Artemis asks for none.",
    "sender": "`sendMessage` without a user sends as the user of the request, also with security.",
    "internal": "The address of notifications is internal, and messages without a queue are not counted as unrouted.",
    "routing": "A routing type that an address does not take has one number, whether a queue is made or changed.",
    "more": "Attributes that Artemis' management does not have: `MessagesReplaced` of a queue, "
    "`QuarantinedMessageCount` of the broker.",
    "node": "`getVersion` is that of this broker, `getActivationSequence` the epoch of the log; `getStatus` tells no "
    "checksums of the configuration, and the name as `identity`.",
    "absent": "What is kept in files here is not changed by management: users (`artemis user`). There are no bridges "
    "made by hand, replays, thread pools or web console, and addresses cannot be blocked.",
    "notified": "`ADDRESS_ADDED`, `ADDRESS_REMOVED`, `CONNECTION_CREATED` and `CONNECTION_DESTROYED` need no plugin, "
    "and a divert that goes is told, too.",
}
