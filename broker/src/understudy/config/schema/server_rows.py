"""Schema rows of the server itself: the plain values directly below ``core``.

Names and defaults are Artemis' own (artemis-configuration.xsd; artemis-ha s. 1, 2 and 9);
the one-line meanings are ours. Not here: elements with a structure of their own.
"""

from __future__ import annotations

from typing import Final

from understudy.config.schema.grammar import Attribute, Element, Kind, container, no_effect, not_yet, row
from understudy.limits import ID_CACHE_SIZE

BOOLEAN, INTEGER, LONG, TEXT, PATH = Kind.BOOLEAN, Kind.INTEGER, Kind.LONG, Kind.TEXT, Kind.PATH
MS, BYTES, NS, PERCENT, CHOICE = Kind.MILLISECONDS, Kind.BYTES, Kind.NANOSECONDS, Kind.PERCENT, Kind.CHOICE

_JVM: Final = "there is no Java machine here"
_CLASSES: Final = "Java classes cannot be loaded here"
_ONE_LOG: Final = "one append-only log with group commit takes the place of the Artemis journals"
_PAGING: Final = "page files are never synced, and go when nothing in them is needed"
_SYNCED: Final = "a confirmation always waits until its data are synced"
_THREADS: Final = "one thread runs the broker and one writes the log"

_CLASS_NAMES: Final = row("class-name", TEXT, None, "Fully qualified class name.", repeated=True)

_IDENTITY: Final[tuple[Element, ...]] = (
    row("name", TEXT, "localhost", "Name of this node in logs, notifications and management."),
    row("cluster-user", TEXT, "ACTIVEMQ.CLUSTER.ADMIN.USER", "User by which the brokers of a cluster know each other."),
    row(
        "cluster-password",
        TEXT,
        "CHANGE ME!!",
        "Password of cluster-user, at least 12 characters. The default is public: with it members link over loopback"
        " addresses only, and each start warns of it.",
    ),
    row(
        "mask-password",
        BOOLEAN,
        None,
        "true: cluster-password is masked; false: it is not, whatever it looks like; without it ENC(...) is masked.",
    ),
    row(
        "password-codec",
        TEXT,
        None,
        "Codec of masked passwords: org.apache.activemq.artemis.utils.DefaultSensitiveStringCodec, with ;key=KEY for a"
        " key other than that of the variable ARTEMIS_DEFAULT_SENSITIVE_STRING_CODEC_KEY. `understudy mask` masks.",
    ),
    *no_effect(
        _CLASSES,
        row("resolve-protocols", BOOLEAN, "true", "Look for protocol modules on the class path."),
        row("log-delegate-factory-class-name", TEXT, None, "Class that writes the log."),
        container("remoting-incoming-interceptors", "Classes that see every arriving packet.", _CLASS_NAMES),
        container("remoting-outgoing-interceptors", "Classes that see every leaving packet.", _CLASS_NAMES),
    ),
    *no_effect(
        _JVM,
        row("system-property-prefix", TEXT, None, "Prefix of system properties that override elements."),
        row("jmx-management-enabled", BOOLEAN, "true", "Offer management through JMX."),
        row("jmx-domain", TEXT, "org.apache.activemq", "Domain of the JMX beans."),
        row("jmx-use-broker-name", BOOLEAN, "true", "Put the broker's name into the names of JMX beans."),
        row("memory-warning-threshold", PERCENT, "25", "Free memory below which a warning is logged.", maximum=100),
        row("memory-measure-interval", MS, "-1", "How often memory is measured; -1 is never."),
    ),
    row(
        "uuid-namespace",
        TEXT,
        "",
        "Words before a name that is a UUID (temporary queues) when its settings are looked up.",
        aliases=("temporary-queue-namespace",),
    ),
    *not_yet(
        row("amqp-use-core-subscription-naming", BOOLEAN, "false", "Name AMQP subscriptions as CORE does."),
    ),
    row("message-counter-enabled", BOOLEAN, "false", "Count the messages of each queue by hour and day."),
    row("message-counter-sample-period", MS, "10000", "Time between two samples of the counters; at least a second."),
    row(
        "message-counter-max-day-history",
        INTEGER,
        "10",
        "Days that management shows as the limit; message-counter-history-day-limit of the address decides.",
    ),
    row(
        "configuration-file-refresh-period",
        MS,
        "5000",
        "How often this file is looked at for changed addresses, address-settings, security-settings and diverts, which"
        " count at once; the log names changes that need a restart. -1 is never.",
    ),
    row("server-dump-interval", MS, "-1", "How often a summary of the server is logged; -1 is never."),
    row("suppress-session-notifications", BOOLEAN, "false", "Send no notification when sessions come and go."),
    row("management-address", TEXT, "activemq.management", "Address that takes management requests as messages."),
    row("management-notification-address", TEXT, "activemq.notifications", "Address notifications are sent to."),
    row(
        "internal-naming-prefix",
        TEXT,
        "$.artemis.internal.",
        "Prefix of names given by the broker: queues for other members, and the resources of retroactive addresses.",
    ),
)

_SECURITY: Final[tuple[Element, ...]] = (
    row("security-enabled", BOOLEAN, "true", "Check users, passwords and permissions."),
    row(
        "security-invalidation-interval",
        MS,
        "10000",
        "How long a successful login or permission check is remembered; 0 is not at all.",
        minimum=0,
    ),
    row("authentication-cache-size", INTEGER, "1000", "Successful logins remembered; 0 remembers none.", minimum=0),
    row("authorization-cache-size", INTEGER, "1000", "Permission answers remembered; 0 remembers none.", minimum=0),
    row(
        "reject-empty-validated-user",
        BOOLEAN,
        "false",
        "Reject messages without a validated user: all, unless populate-validated-user and security-enabled are true.",
    ),
    row("management-message-rbac", BOOLEAN, "false", "Check view and edit permissions for each operation."),
    row(
        "view-permission-method-match-pattern",
        TEXT,
        "^(get|is|count|list|browse|query).*$",
        "Regular expression of the operations that need only the view permission; all others need edit.",
    ),
    row("management-rbac-prefix", TEXT, "mops", "Address prefix of permissions for management operations."),
    row(
        "literal-match-markers",
        TEXT,
        "",
        "Two characters around the match of an address-setting that is to be taken literally.",
    ),
    row(
        "populate-validated-user",
        BOOLEAN,
        "false",
        "Write the user name of a checked login into every message sent (_AMQ_VALIDATED_USER, JMSXUserID).",
    ),
    row(
        "guest-login",
        BOOLEAN,
        "false",
        "Let clients without user name and password log in as guest-user. Not in Artemis: its GuestLoginModule.",
    ),
    row("guest-user", TEXT, "guest", "Name of that user; it must not be in the users file. Not in Artemis."),
    row("guest-role", TEXT, "guests", "Its only role, for security-settings. Not in Artemis."),
    row(
        "guest-login-on-wrong-credentials",
        BOOLEAN,
        "false",
        "Let clients whose user name or password is wrong in as guest-user instead of refusing them. Not in Artemis.",
    ),
)

_LIFE: Final[tuple[Element, ...]] = (
    row("connection-ttl-check-interval", MS, "2000", "How often connections are looked at for silence.", minimum=1),
    row(
        "message-expiry-scan-period",
        MS,
        "30000",
        "How often queues are searched for expired messages; -1 is never.",
    ),
    row("address-queue-scan-period", MS, "30000", "How often unused auto-created queues and addresses are removed."),
    row("connection-ttl-override", MS, "-1", "Drop a connection this silent, whatever its client asked; -1 leaves it."),
    row("id-cache-size", INTEGER, str(ID_CACHE_SIZE), "Duplicate ids remembered for each address.", minimum=0),
    row("persist-id-cache", BOOLEAN, "true", "Keep duplicate ids over a restart or failover."),
    row("wild-card-routing-enabled", BOOLEAN, "true", "Queues on a wildcard address get what matches it."),
    row(
        "max-redelivery-records",
        INTEGER,
        "10",
        "Delivery counts above this are not stored; -1 stores all.",
    ),
    *no_effect(
        _THREADS,
        row("scheduled-thread-pool-max-size", INTEGER, "5", "Threads for timed work."),
        row("thread-pool-max-size", INTEGER, "30", "Threads for other work."),
        row("async-connection-execution-enabled", BOOLEAN, "true", "Hand packets to other threads."),
        row("message-expiry-thread-priority", INTEGER, "3", "Priority of the expiry thread."),
    ),
    row("critical-analyzer", BOOLEAN, "true", "Watch whether the loop and the threads that write to the store go on."),
    row("critical-analyzer-timeout", MS, "120000", "How long one of them may take for one thing.", minimum=1_000),
    row(
        "critical-analyzer-check-period",
        MS,
        "0",
        "How often they are looked at; 0 is half of the timeout.",
    ),
    row(
        "critical-analyzer-policy",
        CHOICE,
        "LOG",
        "What to do then: say so with every stack, end the process at once, or stop, and end it if that hangs too.",
        choices=("LOG", "HALT", "SHUTDOWN"),
    ),
    *not_yet(
        row("mqtt-session-scan-interval", MS, "5000", "How often MQTT sessions are looked at for expiry."),
        row("mqtt-session-state-persistence-timeout", MS, "5000", "Longest wait for MQTT session state to be stored."),
        row("mqtt-subscription-persistence-enabled", BOOLEAN, "true", "Store MQTT subscriptions."),
        row("mirror-ack-manager-queue-attempts", INTEGER, "5", "Retries of a mirrored acknowledgement on the queue."),
        row("mirror-ack-manager-page-attempts", INTEGER, "2", "Retries of a mirrored acknowledgement on paging."),
        row("mirror-ack-manager-retry-delay", MS, "100", "Wait between those retries."),
        row("mirror-ack-manager-warn-unacked", BOOLEAN, "false", "Warn when all of those retries failed."),
        row("mirror-page-transaction", BOOLEAN, "false", "Use page transactions on a mirror's target."),
    ),
    row("transaction-timeout", MS, "300000", "Age at which an XA branch that is not prepared is rolled back."),
    row("transaction-timeout-scan-period", MS, "1000", "How often XA branches are looked at for their age."),
    row(
        "graceful-shutdown-enabled",
        BOOLEAN,
        "false",
        "On stop, take no new clients and wait until the sessions are closed; a second stop ends the wait.",
    ),
    row("graceful-shutdown-timeout", MS, "-1", "Longest graceful wait; -1 means no limit."),
    row(
        "persist-delivery-count-before-delivery",
        BOOLEAN,
        "false",
        "Append the count of a delivery to the log before it is sent; the delivery does not wait for the sync.",
    ),
)

_STORE: Final[tuple[Element, ...]] = (
    row("bindings-directory", PATH, "data/bindings", "Directory of addresses and queues."),
    row("journal-directory", PATH, "data/journal", "Directory of the message log."),
    row("large-messages-directory", PATH, "data/largemessages", "Directory of large messages."),
    row(
        "paging-directory",
        PATH,
        "data/paging",
        "Directory of page files: what left memory and is not in the log.",
    ),
    row("node-manager-lock-directory", PATH, None, "Directory of the lock files; the journal-directory by default."),
    row("journal-lock-acquisition-timeout", MS, "-1", "Longest wait for the store's lock; -1 means no limit."),
    row(
        "journal-file-size",
        BYTES,
        "10M",
        "Size of one segment of the log; at least 1 MiB is used.",
        minimum=1024,
        maximum=2**31,
        raised_to=1024 * 1024,
    ),
    row(
        "max-disk-usage",
        PERCENT,
        "90",
        "Use of the disk, as `df` counts it (without blocks reserved for root), above which producers are stopped;"
        " -1 is never.",
        maximum=100,
    ),
    row("min-disk-free", BYTES, "-1", "Free space below which producers are stopped; -1 uses max-disk-usage."),
    row("disk-scan-period", MS, "5000", "How often the disk is looked at.", minimum=1),
    row("global-max-messages", LONG, "-1", "Messages in memory over all addresses before they page; -1 is no limit."),
    row(
        "global-max-size",
        BYTES,
        "-1",
        "Message bytes in memory over all addresses; -1 is half of the memory, and then bodies of durable messages"
        " leave memory at 1/64 of it already (at least 64 MiB).",
    ),
    row(
        "journal-compact-percentage",
        PERCENT,
        "30",
        "Live share below which what lives in a segment is copied forward; 0 is never, 75 at most.",
        maximum=100,
    ),
    row(
        "journal-compact-min-files",
        INTEGER,
        "10",
        "Segments after which the log is consolidated; 0 is never: only its dead beginning goes.",
    ),
    row(
        "quarantine-damaged-records",
        BOOLEAN,
        "false",
        "Set damaged records of the log aside at a start or takeover if their extent is known, and serve the rest, as"
        " understudy run --quarantine does; false refuses to start. An element of Understudy's own.",
    ),
    row(
        "other-copy-wait",
        MS,
        "3600000",
        "How long a damaged message of a replicated pair waits for the copy of the other node while that is not there;"
        " then it goes to the quarantine. -1 waits until an operator decides. An element of Understudy's own.",
    ),
    row(
        "scrub-rate",
        BYTES,
        "10M",
        "Bytes per second at which the files of the store are compared with their checksums in the background; 0 is"
        " never. An element of Understudy's own.",
        minimum=0,
    ),
    row(
        "scrub-period",
        MS,
        "86400000",
        "Time from the begin of one pass over all files of the store to the begin of the next. An element of"
        " Understudy's own.",
        minimum=1000,
    ),
    row(
        "journal-retention-directory",
        PATH,
        None,
        "Where segments go that leave the log, for understudy data replay; without it they are removed.",
        attributes=(
            Attribute("unit", Kind.CHOICE, "Unit of period.", "DAYS", choices=("DAYS", "HOURS", "MINUTES", "SECONDS")),
            Attribute("period", Kind.INTEGER, "How long they are kept; without it there is no limit."),
            Attribute("storage-limit", Kind.BYTES, "How much is kept, the newest of it; without it all."),
        ),
    ),
    row(
        "journal-min-files",
        INTEGER,
        "2",
        "Segments in use and prepared ahead: that many less one are made in advance, at least 1 and at most 4.",
    ),
    row(
        "journal-datasync",
        BOOLEAN,
        "true",
        "Sync records before they are confirmed; false confirms after the write, for everything. Unsafe.",
    ),
    row(
        "journal-sync-transactional",
        BOOLEAN,
        "true",
        "Sync before a commit is confirmed; false counts only with journal-sync-non-transactional false. Unsafe.",
    ),
    row(
        "journal-sync-non-transactional",
        BOOLEAN,
        "true",
        "Sync before a send or acknowledgement is confirmed; false confirms after the write. Unsafe.",
    ),
    *no_effect(
        _SYNCED,
        row("large-message-sync", BOOLEAN, "true", "Sync large messages."),
    ),
    *no_effect(
        "the log is written with plain writes and fdatasync by one thread, which needs no special library",
        row("journal-type", CHOICE, "ASYNCIO", "How the log is written.", choices=("ASYNCIO", "NIO", "MAPPED")),
    ),
    *no_effect(
        "a write never waits on purpose: it collects only while the one before is synced, below any such bound",
        row("journal-buffer-timeout", NS, None, "How long a write may wait for company."),
    ),
    *no_effect(
        "a write takes everything that was collected, up to 8 MiB or one message",
        row("journal-buffer-size", BYTES, "490K", "Size of the write buffer."),
    ),
    *no_effect(
        "trimmed segments are removed, or kept in the journal-retention-directory, and never written again",
        row("journal-pool-files", INTEGER, "-1", "Files kept for reuse."),
    ),
    *no_effect(
        "one batch is written and synced at a time, and everything that came meanwhile goes with the next",
        row("journal-max-io", INTEGER, None, "Writes under way at a time."),
    ),
    *no_effect(
        "the next segment is ready before it is needed; where the disk is full, producers wait and it is tried again",
        row("journal-file-open-timeout", Kind.SECONDS, "5", "Longest wait for a new file."),
    ),
    *no_effect(
        _ONE_LOG,
        row("journal-device-block-size", BYTES, "4096", "Block size of the device."),
        row("log-journal-write-rate", BOOLEAN, "false", "Log how fast the log is written."),
    ),
    *no_effect(
        _PAGING,
        row("purge-page-folders", BOOLEAN, "false", "Remove a page folder that is not in use."),
        row("page-max-concurrent-io", INTEGER, "5", "Page reads under way at a time."),
        row("read-whole-page", BOOLEAN, "false", "Read whole pages."),
        row("page-sync-timeout", NS, None, "How long a page write may wait for company."),
    ),
    *no_effect(
        _JVM,
        row("global-max-size-percent-of-jvm-max-memory", PERCENT, "50", "Default of global-max-size.", maximum=100),
    ),
    row(
        "persistence-enabled",
        BOOLEAN,
        "true",
        "Keep durable messages over a restart. With false the node has a store of its own in run/volatile of the"
        " instance, without syncs and emptied at each start; the configured directories are left alone.",
    ),
    row("create-bindings-dir", BOOLEAN, "true", "Make the bindings-directory if it is missing; else that is an error."),
    row("create-journal-dir", BOOLEAN, "true", "Make the journal-directory if it is missing; else that is an error."),
)

_NETWORK_CHECK: Final[tuple[Element, ...]] = (
    row(
        "network-check-list",
        TEXT,
        "",
        "Hosts to reach, with commas between them. A node that reaches none of them and none of network-check-URL-list"
        " stops, and starts again when it does. Loopback addresses are left out.",
    ),
    row("network-check-URL-list", TEXT, "", "URLs to fetch (http, https), with commas between them; see above."),
    row("network-check-period", MS, "5000", "Time between two checks.", minimum=1),
    row("network-check-timeout", MS, "1000", "Longest wait for a response.", minimum=1),
    row("network-check-NIC", TEXT, "", "Network interface by which hosts are reached before they are pinged."),
    row(
        "network-check-ping-command",
        TEXT,
        "ping -c 1 -w %d %s",
        "Command that pings an IPv4 address; %d is the time limit in seconds and %s the address. If either command is"
        " changed, hosts are only pinged.",
    ),
    row("network-check-ping6-command", TEXT, "ping6 -c 1 %2$s", "The same for an IPv6 address."),
)

SERVER_ROWS: Final[tuple[Element, ...]] = (*_IDENTITY, *_SECURITY, *_LIFE, *_STORE, *_NETWORK_CHECK)
"""Everything with a plain value directly below ``core``, in the order of the manual."""
