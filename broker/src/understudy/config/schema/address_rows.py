"""Schema rows of addresses, queues, address-settings and security-settings.

Names and defaults are Artemis' own (artemis-configuration.xsd); the one-line meanings are ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from understudy.config.schema.grammar import INT_MAX as _INT
from understudy.config.schema.grammar import Attribute, Kind, container, named, no_effect, refused, row
from understudy.limits import ID_CACHE_SIZE, RETROACTIVE_MESSAGES_MAX

BOOLEAN, INTEGER, LONG, TEXT = Kind.BOOLEAN, Kind.INTEGER, Kind.LONG, Kind.TEXT
MS, BYTES, CHOICE, DECIMAL = Kind.MILLISECONDS, Kind.BYTES, Kind.CHOICE, Kind.DECIMAL

PERMISSIONS: Final = (
    "send",
    "consume",
    "browse",
    "createAddress",
    "deleteAddress",
    "createDurableQueue",
    "deleteDurableQueue",
    "createNonDurableQueue",
    "deleteNonDurableQueue",
    "manage",
    "view",
    "edit",
)
"""Permission types; ``createTempQueue`` and ``deleteTempQueue`` are old names of the non-durable ones."""

_ROUTING: Final = ("ANYCAST", "MULTICAST")
_REPLACED: Final = "auto-create-queues and auto-delete-queues took its place"
_PAGING: Final = "reading from pages is bounded by max-read-page-bytes, and queues need no buffers"

FILTER: Final = container(
    "filter",
    "Only matching messages; an empty expression is no filter.",
    attributes=(Attribute("string", TEXT, "The expression.", required=True, may_be_empty=True),),
)

_QUEUE_ATTRIBUTES: Final = (
    named("Unique name of the queue."),
    Attribute("max-consumers", INTEGER, "Consumers allowed; -1 is no limit.", maximum=_INT),
    Attribute(
        "purge-on-no-consumers",
        BOOLEAN,
        "Drop the messages when the last consumer leaves, and deliveries that return later.",
    ),
    Attribute("exclusive", BOOLEAN, "One consumer gets everything, the others wait."),
    Attribute("group-rebalance", BOOLEAN, "Deal message groups out again when a consumer joins."),
    Attribute("group-rebalance-pause-dispatch", BOOLEAN, "Let consumers finish before groups are dealt out again."),
    Attribute("group-buckets", INTEGER, "Buckets that groups share; -1 is one for each group.", maximum=_INT),
    Attribute("group-first-key", TEXT, "Property that marks a group's first message for a consumer."),
    Attribute("last-value", BOOLEAN, "Keep only the newest message of each last-value key.", "false"),
    Attribute("last-value-key", TEXT, "Property that holds the last-value key."),
    Attribute("non-destructive", BOOLEAN, "Consuming leaves the messages in place, also after failures.", "false"),
    Attribute(
        "consumers-before-dispatch",
        INTEGER,
        "Consumers with credits that are wanted before delivery starts.",
        "0",
        maximum=_INT,
    ),
    Attribute("delay-before-dispatch", MS, "Longest wait for them; -1 means no limit.", "-1"),
    Attribute("ring-size", LONG, "Maximum number of messages; the oldest are removed. -1 is no limit.", "-1"),
    Attribute("enabled", BOOLEAN, "Whether messages are routed to it.", "true"),
)

_QUEUE: Final = container(
    "queue",
    "One queue.",
    FILTER,
    row("durable", BOOLEAN, "true", "The queue outlives a restart."),
    row("user", TEXT, None, "User the queue is accounted to."),
    attributes=_QUEUE_ATTRIBUTES,
    repeated=True,
)

ADDRESSES: Final = container(
    "addresses",
    "Addresses and queues made at activation.",
    container(
        "address",
        "One address.",
        container("anycast", "Queues of which one gets each message.", _QUEUE),
        container("multicast", "Queues that each get every message.", _QUEUE),
        attributes=(named("Name of the address."),),
        repeated=True,
    ),
)

OLD_QUEUES: Final = container(
    "queues",
    "Multicast queues in the old form; write them below addresses.",
    container(
        "queue",
        "One queue.",
        row("address", TEXT, None, "Its address; the name of the queue by default."),
        row("user", TEXT, None, "User the queue is accounted to."),
        FILTER,
        row("durable", BOOLEAN, "true", "The queue outlives a restart."),
        attributes=_QUEUE_ATTRIBUTES,
        repeated=True,
    ),
)

JMS: Final = container(
    "jms",
    "Queues and topics in the old form, beside core; write them below addresses.",
    container(
        "queue",
        "An anycast address and queue of its name.",
        row("durable", BOOLEAN, "true", "The queue outlives a restart."),
        replace(FILTER, aliases=("selector",)),
        attributes=(named("Name."),),
        repeated=True,
    ),
    container("topic", "A multicast address of its name.", attributes=(named("Name."),), repeated=True),
    attributes=(Attribute("domain", TEXT, "Without meaning here."),),
)
"""The element ``jms`` in the namespace ``urn:activemq:jms``."""

_DEAD_AND_EXPIRED: Final = (
    row("dead-letter-address", TEXT, None, "Where messages go that cannot be delivered; none drops them."),
    row("auto-create-dead-letter-resources", BOOLEAN, "false", "Make that address and a queue for each origin."),
    row("dead-letter-queue-prefix", TEXT, "DLQ.", "Prefix of those queues."),
    row("dead-letter-queue-suffix", TEXT, "", "Suffix of those queues."),
    row("expiry-address", TEXT, None, "Where expired messages go; none drops them."),
    row("auto-create-expiry-resources", BOOLEAN, "false", "Make that address and a queue for each origin."),
    row("expiry-queue-prefix", TEXT, "EXP.", "Prefix of those queues."),
    row("expiry-queue-suffix", TEXT, "", "Suffix of those queues."),
    row("no-expiry", BOOLEAN, "false", "Messages never expire, whatever they say."),
    row("expiry-delay", MS, "-1", "Time to live of messages that name none; -1 leaves them."),
    row("min-expiry-delay", MS, "-1", "Shortest time to live; -1 is no bound."),
    row("max-expiry-delay", MS, "-1", "Longest time to live; -1 is no bound."),
    row("redelivery-delay", MS, "0", "Wait before a message that was given back is delivered again.", minimum=0),
    row("redelivery-delay-multiplier", DECIMAL, "1", "Growth of that wait from one attempt to the next."),
    row("redelivery-collision-avoidance-factor", DECIMAL, "0", "Share by which that wait is varied at random."),
    row("max-redelivery-delay", MS, "0", "Longest such wait; 0 is ten times redelivery-delay.", minimum=0),
    row("max-delivery-attempts", INTEGER, "10", "Deliveries before a message is given up; -1 is no limit."),
    row("send-to-dla-on-no-route", BOOLEAN, "false", "Messages no queue wants go to the dead-letter-address."),
)

_FULL: Final = (
    row(
        "max-size-bytes",
        BYTES,
        "-1",
        "Message bytes (under PAGE: in memory) before the address is full; -1: no limit.",
    ),
    row(
        "max-size-messages",
        LONG,
        "-1",
        "Messages (under PAGE: in memory) before the address is full; -1 is no limit.",
    ),
    row("address-full-policy", CHOICE, "PAGE", "Policy of a full address.", choices=("DROP", "FAIL", "PAGE", "BLOCK")),
    row("page-limit-bytes", BYTES, "-1", "Bytes held beyond `max-size-bytes` under PAGE; -1 is no limit."),
    row("page-limit-messages", LONG, "-1", "Messages held beyond `max-size-messages` under PAGE; -1 is no limit."),
    row("page-full-policy", CHOICE, None, "What happens at those limits.", choices=("DROP", "FAIL")),
    row(
        "max-size-bytes-reject-threshold",
        BYTES,
        "-1",
        "Size at which BLOCK refuses; -1: refuses only a producer that goes on without credits, at max-size-*.",
    ),
    row(
        "disk-full-policy",
        CHOICE,
        None,
        "Policy while max-disk-usage or min-disk-free is exceeded: messages are dropped, refused (210), or producers"
        " wait for credits (default). A message for which no block is left is refused with each policy.",
        choices=("DROP", "FAIL", "BLOCK"),
    ),
    row("page-size-bytes", BYTES, "10M", "Size of a page file; it goes when nothing in it is needed. 64K to 1G."),
    row("max-read-page-messages", INTEGER, "-1", "Paged messages read ahead at a time for each queue; -1 is no limit."),
    row("max-read-page-bytes", BYTES, "20M", "Paged bytes read ahead at a time for each queue; never more than 256K."),
    row("prefetch-page-messages", INTEGER, "-1", "The same; the smaller of the two counts."),
    row("prefetch-page-bytes", BYTES, "-1", "The same; the smaller of the two counts."),
    *no_effect(
        _PAGING,
        row("page-max-cache-size", INTEGER, "5", "Pages kept in memory."),
        row("initial-queue-buffer-size", INTEGER, "8192", "First size of a queue's intermediate buffer."),
    ),
)

_QUEUE_DEFAULTS: Final = (
    row("default-last-value-queue", BOOLEAN, "false", "Default of last-value.", aliases=("last-value-queue",)),
    row("default-last-value-key", TEXT, None, "Default of last-value-key."),
    row("default-non-destructive", BOOLEAN, "false", "Default of non-destructive."),
    row("default-consumers-before-dispatch", INTEGER, "0", "Default of consumers-before-dispatch."),
    row("default-delay-before-dispatch", MS, "-1", "Default of delay-before-dispatch."),
    row("default-ring-size", LONG, "-1", "Default of ring-size."),
    row("default-exclusive-queue", BOOLEAN, "false", "Default of exclusive."),
    row("default-group-rebalance", BOOLEAN, "false", "Default of group-rebalance."),
    row("default-group-rebalance-pause-dispatch", BOOLEAN, "false", "Default of group-rebalance-pause-dispatch."),
    row("default-group-buckets", INTEGER, "-1", "Default of group-buckets."),
    row("default-group-first-key", TEXT, None, "Default of group-first-key."),
    row("default-purge-on-no-consumers", BOOLEAN, "false", "Default of purge-on-no-consumers."),
    row("default-max-consumers", INTEGER, "-1", "Default of max-consumers."),
    row("default-queue-routing-type", CHOICE, "MULTICAST", "Routing type of auto-created queues.", choices=_ROUTING),
    row("default-address-routing-type", CHOICE, "MULTICAST", "Routing type of auto-created ones.", choices=_ROUTING),
    row("default-consumer-window-size", INTEGER, "1048576", "Credits a consumer starts with where it names none."),
)

_LIFE: Final = (
    row("auto-create-queues", BOOLEAN, "true", "Make a queue when a client sends to it or consumes from it."),
    row("auto-delete-queues", BOOLEAN, "true", "Remove an auto-created queue that is empty and unused."),
    row("auto-delete-created-queues", BOOLEAN, "false", "Remove also those made by hand."),
    row("auto-delete-queues-delay", MS, "0", "How long it has to be unused."),
    row("auto-delete-queues-message-count", LONG, "0", "Messages it may still hold; -1 is any number."),
    row("auto-create-addresses", BOOLEAN, "true", "Make an address when a client uses it."),
    row("auto-delete-addresses", BOOLEAN, "true", "Remove an auto-created address without queues."),
    row("auto-delete-addresses-delay", MS, "0", "How long it has to be without."),
    row(
        "slow-consumer-threshold",
        LONG,
        "-1",
        "Acknowledgements per unit below which a consumer is slow, while its queue has that much; -1 is never.",
        minimum=-1,
    ),
    row(
        "slow-consumer-threshold-measurement-unit",
        CHOICE,
        "MESSAGES_PER_SECOND",
        "Unit of that rate.",
        choices=("MESSAGES_PER_SECOND", "MESSAGES_PER_MINUTE", "MESSAGES_PER_HOUR", "MESSAGES_PER_DAY"),
    ),
    row(
        "slow-consumer-policy",
        CHOICE,
        "NOTIFY",
        "Action: its connection is closed, or a notification is sent.",
        choices=("KILL", "NOTIFY"),
    ),
    row("slow-consumer-check-period", Kind.SECONDS, "5", "How often consumers are measured.", minimum=1),
    row("id-cache-size", INTEGER, str(ID_CACHE_SIZE), "Duplicate ids remembered; the server's value by default."),
    row(
        "durability-contract",
        CHOICE,
        None,
        "What a confirmation waits for while a replica is in sync; the `durability-contract` of the `ha-policy` by"
        " default. Not in Artemis.",
        choices=("local", "replica-memory", "replica-disk"),
    ),
    row("management-browse-page-size", INTEGER, "200", "Messages a management operation lists at a time."),
    row("management-message-attribute-size-limit", INTEGER, "256", "Characters of an attribute it shows."),
    row("auto-delete-queues-skip-usage-check", BOOLEAN, "false", "Remove also those never used at all."),
    row("auto-delete-addresses-skip-usage-check", BOOLEAN, "false", "Remove also those never used at all."),
    row("enable-ingress-timestamp", BOOLEAN, "false", "Stamp every message with the time it arrived."),
    row("config-delete-queues", CHOICE, "OFF", "Whether queues gone from this file go.", choices=("OFF", "FORCE")),
    row(
        "config-delete-addresses",
        CHOICE,
        "OFF",
        "Whether addresses that are not in this file and were not made on demand go, with queues and messages.",
        choices=("OFF", "FORCE"),
    ),
    *no_effect(
        "diverts of this file are made anew by each activation",
        row("config-delete-diverts", CHOICE, "OFF", "Whether diverts gone from it go.", choices=("OFF", "FORCE")),
    ),
    row(
        "retroactive-message-count",
        LONG,
        "0",
        "Last messages of the address that each queue made later gets; 0 is none.",
        maximum=RETROACTIVE_MESSAGES_MAX,
    ),
    row("message-counter-history-day-limit", INTEGER, "0", "Days of message counter history kept; -1 is 366."),
    row("redistribution-delay", MS, "-1", "Wait before messages without consumers move on; -1: they do not move."),
    row("enable-metrics", BOOLEAN, "true", "Publish metrics of the queues of the address."),
    *no_effect(
        _REPLACED,
        row("auto-create-jms-queues", BOOLEAN, "true", "Make queues for JMS queues."),
        row("auto-delete-jms-queues", BOOLEAN, "true", "Remove queues of JMS queues."),
        row("auto-create-jms-topics", BOOLEAN, "true", "Make addresses for JMS topics."),
        row("auto-delete-jms-topics", BOOLEAN, "true", "Remove addresses of JMS topics."),
    ),
)

ADDRESS_SETTINGS: Final = container(
    "address-settings",
    "Behaviour of addresses by wildcard match; the more specific setting wins value by value.",
    container(
        "address-setting",
        "Settings of the addresses that match.",
        *_DEAD_AND_EXPIRED,
        *_FULL,
        *_QUEUE_DEFAULTS,
        *_LIFE,
        attributes=(named("Address or wildcard.", "match"),),
        repeated=True,
    ),
)

SECURITY_SETTINGS: Final = container(
    "security-settings",
    "Permissions by wildcard match; only the most specific match counts, nothing is inherited.",
    container(
        "security-setting",
        "Permissions on the addresses that match.",
        container(
            "permission",
            "The roles that have one permission.",
            attributes=(
                Attribute(
                    "type",
                    CHOICE,
                    "The permission.",
                    required=True,
                    choices=(*PERMISSIONS, "createTempQueue", "deleteTempQueue"),
                ),
                Attribute(
                    "roles",
                    TEXT,
                    "Roles that may, separated by commas; empty: none.",
                    required=True,
                    may_be_empty=True,
                ),
            ),
            repeated=True,
        ),
        attributes=(named("Address, wildcard, or address::queue.", "match"),),
        repeated=True,
    ),
    *refused(
        "permissions from a Java class, such as LegacyLDAPSecuritySettingPlugin, cannot be loaded here; list the roles",
        container(
            "security-setting-plugin",
            "Permissions from a Java class.",
            container(
                "setting",
                "Parameter of the class.",
                attributes=(named("Name."), Attribute("value", TEXT, "Value.", required=True)),
                repeated=True,
            ),
            attributes=(named("Its class.", "class-name"),),
        ),
    ),
    container(
        "role-mapping",
        "Users with the outside role get the permissions that the security-settings grant to the roles here.",
        attributes=(
            named("The outside role.", "from"),
            Attribute("to", TEXT, "Roles here, separated by commas; empty: none.", required=True, may_be_empty=True),
        ),
        repeated=True,
    ),
)
