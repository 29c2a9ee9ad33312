"""Schema rows of the server itself: the plain values directly below ``core``.

Names and defaults are Artemis' own (artemis-configuration.xsd; artemis-ha s. 1, 2 and 9);
the one-line meanings are ours. Not here: elements with a structure of their own.
"""

from __future__ import annotations

from typing import Final

from understudy.config.schema.grammar import Attribute, Element, Kind, container, no_effect, not_yet
from understudy.config.schema.path_rows import RELATIVE_TO
from understudy.limits import ID_CACHE_SIZE

BOOLEAN, INTEGER, LONG, TEXT, PATH = Kind.BOOLEAN, Kind.INTEGER, Kind.LONG, Kind.TEXT, Kind.PATH
MS, BYTES, NS, PERCENT, CHOICE = Kind.MILLISECONDS, Kind.BYTES, Kind.NANOSECONDS, Kind.PERCENT, Kind.CHOICE

_JVM: Final = "there is no Java machine here"
_CLASSES: Final = "Java classes cannot be loaded here"
_ONE_LOG: Final = "one append-only log with group commit takes the place of the Artemis journals"
_PAGING: Final = "page files are never synced, and go when nothing in them is needed"
_SYNCED: Final = "a confirmation always waits until its data are synced"
_THREADS: Final = "one thread runs the broker and one writes the log"

_CLASS_NAMES: Final = Element("class-name", TEXT, "Fully qualified class name.", repeated=True)

_IDENTITY: Final[tuple[Element, ...]] = (
    Element("name", TEXT, "Name of this node in logs, notifications and management.", "localhost"),
    Element(
        "cluster-user", TEXT, "User by which the brokers of a cluster know each other.", "ACTIVEMQ.CLUSTER.ADMIN.USER"
    ),
    Element(
        "cluster-password",
        TEXT,
        "Password of cluster-user, at least 12 characters. The default is public: with it members link over loopback"
        " addresses only, and each start warns of it.",
        "CHANGE ME!!",
    ),
    Element(
        "mask-password",
        BOOLEAN,
        "true: cluster-password is masked; false: it is not, whatever it looks like; without it ENC(...) is masked.",
    ),
    Element(
        "password-codec",
        TEXT,
        "Codec of masked passwords: org.apache.activemq.artemis.utils.DefaultSensitiveStringCodec, with ;key=KEY for a"
        " key other than that of the variable ARTEMIS_DEFAULT_SENSITIVE_STRING_CODEC_KEY. `understudy mask` masks.",
    ),
    *no_effect(
        _CLASSES,
        Element("resolve-protocols", BOOLEAN, "Look for protocol modules on the class path.", "true"),
        Element("log-delegate-factory-class-name", TEXT, "Class that writes the log."),
        container("remoting-incoming-interceptors", "Classes that see every arriving packet.", _CLASS_NAMES),
        container("remoting-outgoing-interceptors", "Classes that see every leaving packet.", _CLASS_NAMES),
    ),
    *no_effect(
        _JVM,
        Element("system-property-prefix", TEXT, "Prefix of system properties that override elements."),
        Element("jmx-management-enabled", BOOLEAN, "Offer management through JMX.", "true"),
        Element("jmx-domain", TEXT, "Domain of the JMX beans.", "org.apache.activemq"),
        Element("jmx-use-broker-name", BOOLEAN, "Put the broker's name into the names of JMX beans.", "true"),
        Element("memory-warning-threshold", PERCENT, "Free memory below which a warning is logged.", "25", maximum=100),
        Element("memory-measure-interval", MS, "How often memory is measured; -1 is never.", "-1"),
    ),
    Element(
        "uuid-namespace",
        TEXT,
        "Words before a name that is a UUID (temporary queues) when its settings are looked up.",
        "",
        aliases=("temporary-queue-namespace",),
    ),
    *not_yet(
        Element("amqp-use-core-subscription-naming", BOOLEAN, "Name AMQP subscriptions as CORE does.", "false"),
    ),
    Element("message-counter-enabled", BOOLEAN, "Count the messages of each queue by hour and day.", "false"),
    Element(
        "message-counter-sample-period", MS, "Time between two samples of the counters; at least a second.", "10000"
    ),
    Element(
        "message-counter-max-day-history",
        INTEGER,
        "Days that management shows as the limit; message-counter-history-day-limit of the address decides.",
        "10",
    ),
    Element(
        "configuration-file-refresh-period",
        MS,
        "How often this file is looked at for changed addresses, address-settings, security-settings and diverts, which"
        " count at once; the log names changes that need a restart. -1 is never.",
        "5000",
    ),
    Element("server-dump-interval", MS, "How often a summary of the server is logged; -1 is never.", "-1"),
    Element("suppress-session-notifications", BOOLEAN, "Send no notification when sessions come and go.", "false"),
    Element("management-address", TEXT, "Address that takes management requests as messages.", "activemq.management"),
    Element("management-notification-address", TEXT, "Address notifications are sent to.", "activemq.notifications"),
    Element(
        "internal-naming-prefix",
        TEXT,
        "Prefix of names given by the broker: queues for other members, and the resources of retroactive addresses.",
        "$.artemis.internal.",
    ),
)

_SECURITY: Final[tuple[Element, ...]] = (
    Element("security-enabled", BOOLEAN, "Check users, passwords and permissions.", "true"),
    Element(
        "security-invalidation-interval",
        MS,
        "How long a successful login or permission check is remembered; 0 is not at all.",
        "10000",
        minimum=0,
    ),
    Element("authentication-cache-size", INTEGER, "Successful logins remembered; 0 remembers none.", "1000", minimum=0),
    Element("authorization-cache-size", INTEGER, "Permission answers remembered; 0 remembers none.", "1000", minimum=0),
    Element(
        "reject-empty-validated-user",
        BOOLEAN,
        "Reject messages without a validated user: all, unless populate-validated-user and security-enabled are true.",
        "false",
    ),
    Element("management-message-rbac", BOOLEAN, "Check view and edit permissions for each operation.", "false"),
    Element(
        "view-permission-method-match-pattern",
        TEXT,
        "Regular expression of the operations that need only the view permission; all others need edit.",
        "^(get|is|count|list|browse|query).*$",
    ),
    Element("management-rbac-prefix", TEXT, "Address prefix of permissions for management operations.", "mops"),
    Element(
        "literal-match-markers",
        TEXT,
        "Two characters around the match of an address-setting that is to be taken literally.",
        "",
    ),
    Element(
        "populate-validated-user",
        BOOLEAN,
        "Write the user name of a checked login into every message sent (_AMQ_VALIDATED_USER, JMSXUserID).",
        "false",
    ),
    Element(
        "guest-login",
        BOOLEAN,
        "Let clients without user name and password log in as guest-user. Not in Artemis: its GuestLoginModule.",
        "false",
    ),
    Element("guest-user", TEXT, "Name of that user; it must not be in the users file. Not in Artemis.", "guest"),
    Element("guest-role", TEXT, "Its only role, for security-settings. Not in Artemis.", "guests"),
    Element(
        "guest-login-on-wrong-credentials",
        BOOLEAN,
        "Let clients whose user name or password is wrong in as guest-user instead of refusing them. Not in Artemis.",
        "false",
    ),
)

_LIFE: Final[tuple[Element, ...]] = (
    Element("connection-ttl-check-interval", MS, "How often connections are looked at for silence.", "2000", minimum=1),
    Element(
        "message-expiry-scan-period",
        MS,
        "How often queues are searched for expired messages; -1 is never.",
        "30000",
    ),
    Element(
        "address-queue-scan-period", MS, "How often unused auto-created queues and addresses are removed.", "30000"
    ),
    Element(
        "connection-ttl-override", MS, "Drop a connection this silent, whatever its client asked; -1 leaves it.", "-1"
    ),
    Element("id-cache-size", INTEGER, "Duplicate ids remembered for each address.", str(ID_CACHE_SIZE), minimum=0),
    Element("persist-id-cache", BOOLEAN, "Keep duplicate ids over a restart or failover.", "true"),
    Element("wild-card-routing-enabled", BOOLEAN, "Queues on a wildcard address get what matches it.", "true"),
    Element(
        "max-redelivery-records",
        INTEGER,
        "Delivery counts above this are not stored; -1 stores all.",
        "10",
    ),
    *no_effect(
        _THREADS,
        Element("scheduled-thread-pool-max-size", INTEGER, "Threads for timed work.", "5"),
        Element("thread-pool-max-size", INTEGER, "Threads for other work.", "30"),
        Element("async-connection-execution-enabled", BOOLEAN, "Hand packets to other threads.", "true"),
        Element("message-expiry-thread-priority", INTEGER, "Priority of the expiry thread.", "3"),
    ),
    Element(
        "critical-analyzer", BOOLEAN, "Watch whether the loop and the threads that write to the store go on.", "true"
    ),
    Element("critical-analyzer-timeout", MS, "How long one of them may take for one thing.", "120000", minimum=1_000),
    Element(
        "critical-analyzer-check-period",
        MS,
        "How often they are looked at; 0 is half of the timeout.",
        "0",
    ),
    Element(
        "critical-analyzer-policy",
        CHOICE,
        "What to do then: say so with every stack, end the process at once, or stop, and end it if that hangs too.",
        "LOG",
        choices=("LOG", "HALT", "SHUTDOWN"),
    ),
    *not_yet(
        Element("mqtt-session-scan-interval", MS, "How often MQTT sessions are looked at for expiry.", "5000"),
        Element(
            "mqtt-session-state-persistence-timeout", MS, "Longest wait for MQTT session state to be stored.", "5000"
        ),
        Element("mqtt-subscription-persistence-enabled", BOOLEAN, "Store MQTT subscriptions.", "true"),
        Element(
            "mirror-ack-manager-queue-attempts", INTEGER, "Retries of a mirrored acknowledgement on the queue.", "5"
        ),
        Element("mirror-ack-manager-page-attempts", INTEGER, "Retries of a mirrored acknowledgement on paging.", "2"),
        Element("mirror-ack-manager-retry-delay", MS, "Wait between those retries.", "100"),
        Element("mirror-ack-manager-warn-unacked", BOOLEAN, "Warn when all of those retries failed.", "false"),
        Element("mirror-page-transaction", BOOLEAN, "Use page transactions on a mirror's target.", "false"),
    ),
    Element("transaction-timeout", MS, "Age at which an XA branch that is not prepared is rolled back.", "300000"),
    Element("transaction-timeout-scan-period", MS, "How often XA branches are looked at for their age.", "1000"),
    Element(
        "graceful-shutdown-enabled",
        BOOLEAN,
        "On stop, take no new clients and wait until the sessions are closed; a second stop ends the wait.",
        "false",
    ),
    Element("graceful-shutdown-timeout", MS, "Longest graceful wait; -1 means no limit.", "-1"),
    Element(
        "persist-delivery-count-before-delivery",
        BOOLEAN,
        "Append the count of a delivery to the log before it is sent; the delivery does not wait for the sync.",
        "false",
    ),
)

_STORE: Final[tuple[Element, ...]] = (
    Element(
        "bindings-directory",
        PATH,
        "Directory of addresses and queues.",
        "data/bindings",
        attributes=(RELATIVE_TO,),
    ),
    Element("journal-directory", PATH, "Directory of the message log.", "data/journal", attributes=(RELATIVE_TO,)),
    Element(
        "large-messages-directory",
        PATH,
        "Directory of large messages.",
        "data/largemessages",
        attributes=(RELATIVE_TO,),
    ),
    Element(
        "paging-directory",
        PATH,
        "Directory of page files: what left memory and is not in the log.",
        "data/paging",
        attributes=(RELATIVE_TO,),
    ),
    Element("node-manager-lock-directory", PATH, "Directory of the lock files; the journal-directory by default."),
    Element("journal-lock-acquisition-timeout", MS, "Longest wait for the store's lock; -1 means no limit.", "-1"),
    Element(
        "journal-file-size",
        BYTES,
        "Size of one segment of the log; at least 1 MiB is used.",
        "10M",
        minimum=1024,
        maximum=2**31,
        raised_to=1024 * 1024,
    ),
    Element(
        "max-disk-usage",
        PERCENT,
        "Use of the disk, as `df` counts it (without blocks reserved for root), above which producers are stopped;"
        " -1 is never.",
        "90",
        maximum=100,
    ),
    Element("min-disk-free", BYTES, "Free space below which producers are stopped; -1 uses max-disk-usage.", "-1"),
    Element("disk-scan-period", MS, "How often the disk is looked at.", "5000", minimum=1),
    Element(
        "global-max-messages", LONG, "Messages in memory over all addresses before they page; -1 is no limit.", "-1"
    ),
    Element(
        "global-max-size",
        BYTES,
        "Message bytes in memory over all addresses; -1 is half of the memory, and then bodies of durable messages"
        " leave memory at 1/64 of it already (at least 64 MiB).",
        "-1",
    ),
    Element(
        "journal-compact-percentage",
        PERCENT,
        "Live share below which what lives in a segment is copied forward; 0 is never, 75 at most.",
        "30",
        maximum=100,
    ),
    Element(
        "journal-compact-min-files",
        INTEGER,
        "Segments after which the log is consolidated; 0 is never: only its dead beginning goes.",
        "10",
    ),
    Element(
        "quarantine-damaged-records",
        BOOLEAN,
        "Set damaged records of the log aside at a start or takeover if their extent is known, and serve the rest, as"
        " understudy run --quarantine does; false refuses to start. An element of Understudy's own.",
        "false",
    ),
    Element(
        "other-copy-wait",
        MS,
        "How long a damaged message of a replicated pair waits for the copy of the other node while that is not there;"
        " then it goes to the quarantine. -1 waits until an operator decides. An element of Understudy's own.",
        "3600000",
    ),
    Element(
        "scrub-rate",
        BYTES,
        "Bytes per second at which the files of the store are compared with their checksums in the background; 0 is"
        " never. An element of Understudy's own.",
        "10M",
        minimum=0,
    ),
    Element(
        "scrub-period",
        MS,
        "Time from the begin of one pass over all files of the store to the begin of the next. An element of"
        " Understudy's own.",
        "86400000",
        minimum=1000,
    ),
    Element(
        "journal-retention-directory",
        PATH,
        "Where segments go that leave the log, for understudy data replay; without it they are removed. Neither the"
        " journal-directory nor the large-messages-directory, because files are removed there by age and size.",
        attributes=(
            Attribute("unit", Kind.CHOICE, "Unit of period.", "DAYS", choices=("DAYS", "HOURS", "MINUTES", "SECONDS")),
            Attribute("period", Kind.INTEGER, "How long they are kept; without it there is no limit."),
            Attribute("storage-limit", Kind.BYTES, "How much is kept, the newest of it; without it all."),
        ),
    ),
    Element(
        "journal-min-files",
        INTEGER,
        "Segments in use and prepared ahead: that many less one are made in advance, at least 1 and at most 4.",
        "2",
    ),
    Element(
        "journal-pool-files",
        INTEGER,
        "Files of removed segments that are kept and become the next ones, so that their blocks are written already;"
        " at most 64 files and 1 GiB, and fewer on a disk that is short. -1 is 64; 0 removes each file at once, and"
        " with it the old messages.",
        "-1",
    ),
    Element(
        "journal-datasync",
        BOOLEAN,
        "Sync records before they are confirmed; false confirms after the write, for everything. Unsafe.",
        "true",
    ),
    Element(
        "journal-sync-transactional",
        BOOLEAN,
        "Sync before a commit is confirmed; false counts only with journal-sync-non-transactional false. Unsafe.",
        "true",
    ),
    Element(
        "journal-sync-non-transactional",
        BOOLEAN,
        "Sync before a send or acknowledgement is confirmed; false confirms after the write. Unsafe.",
        "true",
    ),
    *no_effect(
        _SYNCED,
        Element("large-message-sync", BOOLEAN, "Sync large messages.", "true"),
    ),
    *no_effect(
        "the log is written with plain writes and fdatasync by one thread, which needs no special library",
        Element("journal-type", CHOICE, "How the log is written.", "ASYNCIO", choices=("ASYNCIO", "NIO", "MAPPED")),
    ),
    *no_effect(
        "a write never waits on purpose: it collects only while the one before is synced, below any such bound",
        Element("journal-buffer-timeout", NS, "How long a write may wait for company."),
    ),
    *no_effect(
        "a write takes everything that was collected, up to 8 MiB or one message",
        Element("journal-buffer-size", BYTES, "Size of the write buffer.", "490K"),
    ),
    *no_effect(
        "one batch is written and synced at a time, and everything that came meanwhile goes with the next",
        Element("journal-max-io", INTEGER, "Writes under way at a time."),
    ),
    *no_effect(
        "the next segment is ready before it is needed; where the disk is full, producers wait and it is tried again",
        Element("journal-file-open-timeout", Kind.SECONDS, "Longest wait for a new file.", "5"),
    ),
    *no_effect(
        _ONE_LOG,
        Element("journal-device-block-size", BYTES, "Block size of the device.", "4096"),
        Element("log-journal-write-rate", BOOLEAN, "Log how fast the log is written.", "false"),
    ),
    *no_effect(
        _PAGING,
        Element("purge-page-folders", BOOLEAN, "Remove a page folder that is not in use.", "false"),
        Element("page-max-concurrent-io", INTEGER, "Page reads under way at a time.", "5"),
        Element("read-whole-page", BOOLEAN, "Read whole pages.", "false"),
        Element("page-sync-timeout", NS, "How long a page write may wait for company."),
    ),
    *no_effect(
        _JVM,
        Element("global-max-size-percent-of-jvm-max-memory", PERCENT, "Default of global-max-size.", "50", maximum=100),
    ),
    Element(
        "persistence-enabled",
        BOOLEAN,
        "Keep durable messages over a restart. With false the node has a store of its own in run/volatile of the"
        " instance, without syncs and emptied at each start; the configured directories are left alone.",
        "true",
    ),
    Element(
        "create-bindings-dir", BOOLEAN, "Make the bindings-directory if it is missing; else that is an error.", "true"
    ),
    Element(
        "create-journal-dir", BOOLEAN, "Make the journal-directory if it is missing; else that is an error.", "true"
    ),
)

_NETWORK_CHECK: Final[tuple[Element, ...]] = (
    Element(
        "network-check-list",
        TEXT,
        "Hosts to reach, with commas between them. A node that reaches none of them and none of network-check-URL-list"
        " stops, and starts again when it does. Loopback addresses are left out.",
        "",
    ),
    Element("network-check-URL-list", TEXT, "URLs to fetch (http, https), with commas between them; see above.", ""),
    Element("network-check-period", MS, "Time between two checks.", "5000", minimum=1),
    Element("network-check-timeout", MS, "Longest wait for a response.", "1000", minimum=1),
    Element("network-check-NIC", TEXT, "Network interface by which hosts are reached before they are pinged.", ""),
    Element(
        "network-check-ping-command",
        TEXT,
        "Command that pings an IPv4 address; %d is the time limit in seconds and %s the address. If either command is"
        " changed, hosts are only pinged.",
        "ping -c 1 -w %d %s",
    ),
    Element("network-check-ping6-command", TEXT, "The same for an IPv6 address.", "ping6 -c 1 %2$s"),
)

SERVER_ROWS: Final[tuple[Element, ...]] = (*_IDENTITY, *_SECURITY, *_LIFE, *_STORE, *_NETWORK_CHECK)
"""Everything with a plain value directly below ``core``, in the order of the manual."""
