"""Schema rows of addresses, queues, address-settings and security-settings.

Names and defaults are Artemis' own (artemis-configuration.xsd); the one-line meanings are ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from understudy.config.schema.grammar import INT_MAX as _INT
from understudy.config.schema.grammar import Attribute, Element, Kind, container, named, no_effect, refused
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
    Element("durable", BOOLEAN, "The queue outlives a restart.", "true"),
    Element("user", TEXT, "User the queue is accounted to."),
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
        Element("address", TEXT, "Its address; the name of the queue by default."),
        Element("user", TEXT, "User the queue is accounted to."),
        FILTER,
        Element("durable", BOOLEAN, "The queue outlives a restart.", "true"),
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
        Element("durable", BOOLEAN, "The queue outlives a restart.", "true"),
        replace(FILTER, aliases=("selector",)),
        attributes=(named("Name."),),
        repeated=True,
    ),
    container("topic", "A multicast address of its name.", attributes=(named("Name."),), repeated=True),
    attributes=(Attribute("domain", TEXT, "Without meaning here."),),
)
"""The element ``jms`` in the namespace ``urn:activemq:jms``."""

_DEAD_AND_EXPIRED: Final = (
    Element("dead-letter-address", TEXT, "Where messages go that cannot be delivered; none drops them."),
    Element("auto-create-dead-letter-resources", BOOLEAN, "Make that address and a queue for each origin.", "false"),
    Element("dead-letter-queue-prefix", TEXT, "Prefix of those queues.", "DLQ."),
    Element("dead-letter-queue-suffix", TEXT, "Suffix of those queues.", ""),
    Element("expiry-address", TEXT, "Where expired messages go; none drops them."),
    Element("auto-create-expiry-resources", BOOLEAN, "Make that address and a queue for each origin.", "false"),
    Element("expiry-queue-prefix", TEXT, "Prefix of those queues.", "EXP."),
    Element("expiry-queue-suffix", TEXT, "Suffix of those queues.", ""),
    Element("no-expiry", BOOLEAN, "Messages never expire, whatever they say.", "false"),
    Element("expiry-delay", MS, "Time to live of messages that name none; -1 leaves them.", "-1"),
    Element("min-expiry-delay", MS, "Shortest time to live; -1 is no bound.", "-1"),
    Element("max-expiry-delay", MS, "Longest time to live; -1 is no bound.", "-1"),
    Element("redelivery-delay", MS, "Wait before a message that was given back is delivered again.", "0", minimum=0),
    Element("redelivery-delay-multiplier", DECIMAL, "Growth of that wait from one attempt to the next.", "1"),
    Element("redelivery-collision-avoidance-factor", DECIMAL, "Share by which that wait is varied at random.", "0"),
    Element("max-redelivery-delay", MS, "Longest such wait; 0 is ten times redelivery-delay.", "0", minimum=0),
    Element("max-delivery-attempts", INTEGER, "Deliveries before a message is given up; -1 is no limit.", "10"),
    Element("send-to-dla-on-no-route", BOOLEAN, "Messages no queue wants go to the dead-letter-address.", "false"),
)

_FULL: Final = (
    Element(
        "max-size-bytes",
        BYTES,
        "Message bytes (under PAGE: in memory) before the address is full; -1: no limit.",
        "-1",
    ),
    Element(
        "max-size-messages",
        LONG,
        "Messages (under PAGE: in memory) before the address is full; -1 is no limit.",
        "-1",
    ),
    Element(
        "address-full-policy", CHOICE, "Policy of a full address.", "PAGE", choices=("DROP", "FAIL", "PAGE", "BLOCK")
    ),
    Element("page-limit-bytes", BYTES, "Bytes held beyond `max-size-bytes` under PAGE; -1 is no limit.", "-1"),
    Element("page-limit-messages", LONG, "Messages held beyond `max-size-messages` under PAGE; -1 is no limit.", "-1"),
    Element("page-full-policy", CHOICE, "What happens at those limits.", choices=("DROP", "FAIL")),
    Element(
        "max-size-bytes-reject-threshold",
        BYTES,
        "Size at which BLOCK refuses; -1: refuses only a producer that goes on without credits, at max-size-*.",
        "-1",
    ),
    Element(
        "disk-full-policy",
        CHOICE,
        "Policy while max-disk-usage or min-disk-free is exceeded: messages are dropped, refused (210), or producers"
        " wait for credits (default). A message for which no block is left is refused with each policy.",
        choices=("DROP", "FAIL", "BLOCK"),
    ),
    Element("page-size-bytes", BYTES, "Size of a page file; it goes when nothing in it is needed. 64K to 1G.", "10M"),
    Element(
        "max-read-page-messages", INTEGER, "Paged messages read ahead at a time for each queue; -1 is no limit.", "-1"
    ),
    Element(
        "max-read-page-bytes", BYTES, "Paged bytes read ahead at a time for each queue; never more than 256K.", "20M"
    ),
    Element("prefetch-page-messages", INTEGER, "The same; the smaller of the two counts.", "-1"),
    Element("prefetch-page-bytes", BYTES, "The same; the smaller of the two counts.", "-1"),
    *no_effect(
        _PAGING,
        Element("page-max-cache-size", INTEGER, "Pages kept in memory.", "5"),
        Element("initial-queue-buffer-size", INTEGER, "First size of a queue's intermediate buffer.", "8192"),
    ),
)

_QUEUE_DEFAULTS: Final = (
    Element("default-last-value-queue", BOOLEAN, "Default of last-value.", "false", aliases=("last-value-queue",)),
    Element("default-last-value-key", TEXT, "Default of last-value-key."),
    Element("default-non-destructive", BOOLEAN, "Default of non-destructive.", "false"),
    Element("default-consumers-before-dispatch", INTEGER, "Default of consumers-before-dispatch.", "0"),
    Element("default-delay-before-dispatch", MS, "Default of delay-before-dispatch.", "-1"),
    Element("default-ring-size", LONG, "Default of ring-size.", "-1"),
    Element("default-exclusive-queue", BOOLEAN, "Default of exclusive.", "false"),
    Element("default-group-rebalance", BOOLEAN, "Default of group-rebalance.", "false"),
    Element("default-group-rebalance-pause-dispatch", BOOLEAN, "Default of group-rebalance-pause-dispatch.", "false"),
    Element("default-group-buckets", INTEGER, "Default of group-buckets.", "-1"),
    Element("default-group-first-key", TEXT, "Default of group-first-key."),
    Element("default-purge-on-no-consumers", BOOLEAN, "Default of purge-on-no-consumers.", "false"),
    Element("default-max-consumers", INTEGER, "Default of max-consumers.", "-1"),
    Element(
        "default-queue-routing-type", CHOICE, "Routing type of auto-created queues.", "MULTICAST", choices=_ROUTING
    ),
    Element(
        "default-address-routing-type", CHOICE, "Routing type of auto-created ones.", "MULTICAST", choices=_ROUTING
    ),
    Element("default-consumer-window-size", INTEGER, "Credits a consumer starts with where it names none.", "1048576"),
)

_LIFE: Final = (
    Element("auto-create-queues", BOOLEAN, "Make a queue when a client sends to it or consumes from it.", "true"),
    Element("auto-delete-queues", BOOLEAN, "Remove an auto-created queue that is empty and unused.", "true"),
    Element("auto-delete-created-queues", BOOLEAN, "Remove also those made by hand.", "false"),
    Element("auto-delete-queues-delay", MS, "How long it has to be unused.", "0"),
    Element("auto-delete-queues-message-count", LONG, "Messages it may still hold; -1 is any number.", "0"),
    Element("auto-create-addresses", BOOLEAN, "Make an address when a client uses it.", "true"),
    Element("auto-delete-addresses", BOOLEAN, "Remove an auto-created address without queues.", "true"),
    Element("auto-delete-addresses-delay", MS, "How long it has to be without.", "0"),
    Element(
        "slow-consumer-threshold",
        LONG,
        "Acknowledgements per unit below which a consumer is slow, while its queue has that much; -1 is never.",
        "-1",
        minimum=-1,
    ),
    Element(
        "slow-consumer-threshold-measurement-unit",
        CHOICE,
        "Unit of that rate.",
        "MESSAGES_PER_SECOND",
        choices=("MESSAGES_PER_SECOND", "MESSAGES_PER_MINUTE", "MESSAGES_PER_HOUR", "MESSAGES_PER_DAY"),
    ),
    Element(
        "slow-consumer-policy",
        CHOICE,
        "Action: its connection is closed, or a notification is sent.",
        "NOTIFY",
        choices=("KILL", "NOTIFY"),
    ),
    Element("slow-consumer-check-period", Kind.SECONDS, "How often consumers are measured.", "5", minimum=1),
    Element("id-cache-size", INTEGER, "Duplicate ids remembered; the server's value by default.", str(ID_CACHE_SIZE)),
    Element(
        "durability-contract",
        CHOICE,
        "What a confirmation waits for while a replica is in sync; the `durability-contract` of the `ha-policy` by"
        " default. Not in Artemis.",
        choices=("local", "replica-memory", "replica-disk"),
    ),
    Element("management-browse-page-size", INTEGER, "Messages a management operation lists at a time.", "200"),
    Element("management-message-attribute-size-limit", INTEGER, "Characters of an attribute it shows.", "256"),
    Element("auto-delete-queues-skip-usage-check", BOOLEAN, "Remove also those never used at all.", "false"),
    Element("auto-delete-addresses-skip-usage-check", BOOLEAN, "Remove also those never used at all.", "false"),
    Element("enable-ingress-timestamp", BOOLEAN, "Stamp every message with the time it arrived.", "false"),
    Element("config-delete-queues", CHOICE, "Whether queues gone from this file go.", "OFF", choices=("OFF", "FORCE")),
    Element(
        "config-delete-addresses",
        CHOICE,
        "Whether addresses that are not in this file and were not made on demand go, with queues and messages.",
        "OFF",
        choices=("OFF", "FORCE"),
    ),
    *no_effect(
        "diverts of this file are made anew by each activation",
        Element("config-delete-diverts", CHOICE, "Whether diverts gone from it go.", "OFF", choices=("OFF", "FORCE")),
    ),
    Element(
        "retroactive-message-count",
        LONG,
        "Last messages of the address that each queue made later gets; 0 is none.",
        "0",
        maximum=RETROACTIVE_MESSAGES_MAX,
    ),
    Element("message-counter-history-day-limit", INTEGER, "Days of message counter history kept; -1 is 366.", "0"),
    Element("redistribution-delay", MS, "Wait before messages without consumers move on; -1: they do not move.", "-1"),
    Element("enable-metrics", BOOLEAN, "Publish metrics of the queues of the address.", "true"),
    *no_effect(
        _REPLACED,
        Element("auto-create-jms-queues", BOOLEAN, "Make queues for JMS queues.", "true"),
        Element("auto-delete-jms-queues", BOOLEAN, "Remove queues of JMS queues.", "true"),
        Element("auto-create-jms-topics", BOOLEAN, "Make addresses for JMS topics.", "true"),
        Element("auto-delete-jms-topics", BOOLEAN, "Remove addresses of JMS topics.", "true"),
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
