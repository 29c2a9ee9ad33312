"""Limits for everything that a peer or an operator can make the broker hold, with units.

A limit is checked before memory is taken, and those marked (login) before the peer has
logged in. Configuration may lower or raise the ones that say so.
"""

from __future__ import annotations

#: Largest CORE frame accepted from a peer that has no session yet (login). Bytes.
FRAME_BYTES_BEFORE_LOGIN_MAX = 64 * 1024
#: Largest CORE frame accepted within a session. Bytes. Larger bodies come as large messages.
FRAME_BYTES_MAX = 100 * 1024 * 1024
#: Largest string in a packet. UTF-16 units.
STRING_UNITS_MAX = 1024 * 1024
#: Longest time for which a client may delay the redelivery of a message: ten years.
SETTLE_DELAY_MS_MAX = 10 * 365 * 24 * 3600 * 1000
#: Number of properties in one message of a client.
PROPERTIES_MAX = 16 * 1024
#: Most properties of a message that comes from a broker or its store: those that a broker adds are among them, and
#: brokers of others have other limits.
PROPERTIES_READ_MAX = 1_000_000
#: Largest address or queue name. UTF-16 units.
NAME_UNITS_MAX = 4096
#: Number of parameters in one transport configuration.
TRANSPORT_PARAMETERS_MAX = 256
#: Largest broadcast of a broker's connectors that is looked at (login). Bytes.
BROADCAST_BYTES_MAX = 16 * 1024
#: Number of connectors in one broadcast, and of nodes remembered from broadcasts (login).
BROADCAST_CONNECTORS_MAX = 32
BROADCAST_NODES_MAX = 256
#: Number of nodes remembered from broadcasts of one sending address (login).
BROADCAST_NODES_PER_SOURCE_MAX = 64
#: Largest node id, broadcaster id or channel in a broadcast (login). UTF-16 units.
BROADCAST_NAME_UNITS_MAX = 256
#: Broadcasts that are read from one socket before it is left alone for ``BROADCAST_PAUSE_MS`` (login).
BROADCASTS_PER_PAUSE_MAX = 64
#: Time in ms for which a socket is not read after ``BROADCASTS_PER_PAUSE_MAX`` broadcasts.
BROADCAST_PAUSE_MS = 100
#: Largest file with the stack of a JGroups channel. Bytes.
JGROUPS_BYTES_MAX = 256 * 1024
#: Hosts of a list of members, and ports of one of them, to which a broadcast is sent.
DISCOVERY_HOSTS_MAX = 64
DISCOVERY_PORTS_MAX = 16
#: Most routing types, queue names or transaction ids in one packet.
LIST_ITEMS_MAX = 64 * 1024
#: Largest branch qualifier or global transaction id of an XA transaction (X/Open XA). Bytes.
XID_PART_BYTES_MAX = 64
#: Number of XA branches of one node, prepared ones included.
XA_BRANCHES_MAX = 10_000
#: Nodes whose replica has moved all messages to this one, and of which a record is kept.
MOVED_STORES_MAX = 1_000
#: Records without messages of the last batch of a log, in the record of a store that has moved. Bytes.
LAST_BATCH_BYTES_MAX = 1024 * 1024
#: Largest nonce or proof of a cluster link (login). Bytes.
AUTHENTICATION_BYTES_MAX = 256
#: Shortest cluster password. Characters.
CLUSTER_PASSWORD_CHARACTERS_MIN = 12
#: Longest text that names the end of a cluster link in a proof: a host and a port, a server, a node id. Characters.
LINK_END_CHARACTERS_MAX = 512
#: Bytes of a sealed connection between nodes that have one code; the receiver keeps them until the code is checked.
SEALED_RUN_BYTES_MAX = 256 * 1024
#: Node ids of one cluster that a node knows at the same time, which also limits its connections to other nodes; and
#: removed node ids that it remembers.
CLUSTER_NODES_MAX = 256
#: Places at which clients of other protocols than CORE reach one node, as it tells the other ones.
CLIENT_ENDPOINTS_MAX = 16
#: Largest node id of another node. Characters; those of Artemis have 36.
NODE_ID_CHARACTERS_MAX = 256
#: Messages of one transaction or XA branch, sent (once for each queue) and acknowledged, before it is committed.
TRANSACTION_MESSAGES_MAX = 2_000_000
#: Maximum over all open transactions and branches that one session began, and over all of a node.
TRANSACTION_MESSAGES_OF_SESSION_MAX = 4_000_000
TRANSACTION_MESSAGES_OF_NODE_MAX = 40_000_000
#: Number of duplicate ids in one transaction.
TRANSACTION_DUPLICATE_IDS_MAX = 100_000
#: Largest selector text. Characters.
SELECTOR_CHARACTERS_MAX = 32 * 1024
#: Operands and operators of a selector. Each costs a step of the loop's thread for every message that the selector is
#: evaluated for. A list after IN counts as one.
SELECTOR_STEPS_MAX = 2_000
#: Maximum over all filters of an address together: the cost of a message sent to it.
ADDRESS_FILTER_STEPS_MAX = 100_000
#: Steps of selectors in one turn of the loop, over all consumers, browsers and management requests; the rest goes on
#: in the next turn. Some tenths of a microsecond each.
SELECTOR_STEPS_PER_TURN = 50_000
#: Deepest nesting of a selector expression.
SELECTOR_DEPTH_MAX = 200

#: LIKE in one selector, and longest property that LIKE looks at (longer ones are unknown to it); of patterns with
#: ``_`` between two ``%`` that is divided by how many of them the selector has. Each of those costs a step of the
#: loop's thread per character. Characters.
SELECTOR_LIKES_MAX = 64
LIKE_TEXT_CHARACTERS_MAX = 64 * 1024

#: Time within which a new connection must send eight bytes of a known protocol (login). Acceptor
#: parameter ``handshake-timeout``, seconds there.
HANDSHAKE_TIMEOUT_MS = 10_000
#: TLS handshakes of one acceptor that are under way; further connections wait for one of them to end (login).
TLS_HANDSHAKES_MAX = 256
#: Time for which a handshake may wait for its client while others wait for its place (login).
TLS_HANDSHAKE_STALLED_MS = 2_000
#: Largest file of a key store, trust store or revocation list. Bytes.
TLS_FILE_BYTES_MAX = 16 * 1024 * 1024
#: Time before the end of validity from which the certificate of an acceptor is warned about.
TLS_EXPIRY_WARNING_MS = 30 * 24 * 3600 * 1000
#: Entries of the file that maps certificates to users.
CERTIFICATE_USERS_MAX = 100_000
#: Time within which a connection with a known protocol must log in: with its first session or the cluster password
#: (login). No frame and no subscription to the topology extends it.
LOGIN_TIMEOUT_MS = 30_000
#: Frames carried out for a connection that has not logged in (login).
FRAMES_BEFORE_LOGIN_MAX = 256
#: Bytes waiting in our memory for a connection that has not logged in and does not read (login).
OUTGOING_BYTES_BEFORE_LOGIN_MAX = 64 * 1024
#: Time within which the peer of a connection that is being closed must read the output.
CLOSE_TIMEOUT_MS = 10_000
#: Input that one read of a socket takes: of a connection that has logged in, and of one that has not. The connections
#: of an acceptor share the memory. Bytes.
READ_BYTES_MAX = 1024 * 1024
READ_BYTES_BEFORE_LOGIN_MAX = 64 * 1024
#: Cost of the input of one connection that is handled in one turn of the loop, before other connections are served.
#: Each message, acknowledgement and grant of credits costs 1, every other frame ``FRAME_COST``.
TURN_COST_MAX = 256
FRAME_COST = 8
#: Messages of all connections that wait within a turn to be appended to the log together: with so many they are
#: appended at once. Bytes.
GATHERED_BYTES_MAX = 64 * 1024
#: Logins whose password check waits for its turn, per node and per host (login).
LOGINS_WAITING_MAX = 10_000
LOGINS_WAITING_OF_HOST_MAX = 2_000
#: Servers in the URL of a directory (LDAP), and lookups at directories that are made at once by a node (login).
LDAP_SERVERS_MAX = 16
LDAP_LOOKUPS_MAX = 8
#: Roles of one user in a directory, and entries of which a role may be a member through others (login).
LDAP_ROLES_MAX = 1_000
LDAP_EXPANDED_MAX = 1_000
#: Time for one lookup at a directory, however many servers and searches it takes (login).
LDAP_LOOKUP_MS_MAX = 30_000
#: Bytes of frames that wait for the result of a login, above which their socket is not read any more (login).
LOGIN_HELD_BYTES_PAUSE = 64 * 1024
#: Number of connections of one acceptor that have not logged in yet (login).
CONNECTIONS_BEFORE_LOGIN_MAX = 1_000
#: Number of connections of one acceptor; parameter ``connectionsAllowed``.
CONNECTIONS_MAX = 10_000
#: Number of sessions of one connection, the largest value of the acceptor parameter ``sessionsAllowed``.
SESSIONS_PER_CONNECTION_MAX = 2_047
SESSIONS_ALLOWED_MAX = 100_000
#: Number of consumers of one session.
CONSUMERS_PER_SESSION_MAX = 10_000
#: Number of messages excluded from one consumer (outcome *modified* with undeliverable-here).
EXCLUDED_MESSAGES_MAX = 10_000
#: Bridges with one name, messages that the target of a bridge has not confirmed, and their bytes.
BRIDGE_CONCURRENCY_MAX = 64
#: Arrivals of a message by a bridge at brokers that have bridges themselves; beyond it bridges lead in a circle.
BRIDGE_HOPS_MAX = 16
BRIDGE_UNCONFIRMED_MESSAGES_MAX = 5_000
BRIDGE_UNCONFIRMED_BYTES_MAX = 64 * 1024 * 1024
#: Messages that the target of a bridge refused and that wait here while others pass; beyond it the connection ends.
BRIDGE_REFUSED_MESSAGES_MAX = 1_000
#: Bytes of a bridge that wait in memory for the socket before it takes further messages.
BRIDGE_OUTGOING_BYTES_PAUSE = 1024 * 1024
#: Addresses for which a bridge holds credit of its target.
BRIDGE_ADDRESSES_MAX = 1_000
#: Queues of other nodes of the cluster that a node routes to.
REMOTE_BINDINGS_MAX = 200_000
#: Messages that redistribution leaves waiting for another node before it takes further ones.
REDISTRIBUTED_WAITING_MAX = 10_000
#: Message groups whose queue a node remembers; the least recently used one is forgotten. Longest name of one; a longer
#: name becomes a prefix and a digest. Characters.
GROUP_BINDINGS_MAX = 100_000
GROUP_KEY_CHARACTERS_MAX = 1_024
#: Requests of one session that are taken while one of its messages waits for a decision about its group, and those of
#: all such sessions together; the client of a session that holds more is not read. Bytes.
GROUP_HELD_BYTES_OF_SESSION_MAX = 1024 * 1024
GROUP_HELD_BYTES_OF_NODE_MAX = 64 * 1024 * 1024
#: Number of bytes that each held request of a group counts in addition to its own bytes.
GROUP_HELD_REQUEST_BYTES = 512
#: Number of producers that one session registers.
PRODUCERS_PER_SESSION_MAX = 10_000
#: Number of metadata entries of one session, and of the characters of their keys and values together.
METADATA_PER_SESSION_MAX = 64
METADATA_CHARACTERS_MAX = 64 * 1024
#: Names that the server stores for sessions without any permission: metadata, addresses of producers and
#: credits, session names; 100 is added for each. Per session and per connection. Characters.
NAMES_OF_SESSION_CHARACTERS_MAX = 2 * 1024 * 1024
NAMES_OF_CONNECTION_CHARACTERS_MAX = 8 * 1024 * 1024
#: Longest name of a message group that is stored as is; a longer one becomes a prefix and a digest. Characters.
GROUP_NAME_CHARACTERS_MAX = 64
#: Shortest session name that can be reattached: the name is the secret that authorises it (ADR 0009). Characters.
REATTACH_NAME_CHARACTERS_MIN = 32
#: Unknown session names that one host may ask for within a minute before further names of that host are not looked
#: up (login). A failover asks once per session.
REATTACH_GUESSES_OF_HOST_MAX = 10_000
#: Sessions that wait for their client after a lost connection, per node and per host.
DETACHED_SESSIONS_MAX = 10_000
DETACHED_SESSIONS_OF_HOST_MAX = 2_000
#: Longest time a session waits for its client, whatever connection TTL that asked for.
DETACHED_SESSION_MS_MAX = 300_000
#: Bytes sent and not confirmed that are kept for a reattachment, per session and per node.
RESEND_BYTES_OF_SESSION_MAX = 16 * 1024 * 1024
RESEND_BYTES_OF_NODE_MAX = 512 * 1024 * 1024
#: Bytes waiting in our memory for one slow reader of a socket before deliveries to it pause.
OUTGOING_BYTES_PAUSE = 4 * 1024 * 1024
#: Number of bytes that wait for a client that does not read, above which its connection is closed.
OUTGOING_BYTES_MAX = 256 * 1024 * 1024
#: Largest body of a large message. Bytes.
LARGE_MESSAGE_BYTES_MAX = 1 << 40
#: Bytes of one large message taken from its socket and not yet in its file above which the socket
#: is not read until the disk catches up.
LARGE_BACKLOG_BYTES_PAUSE = 4 * 1024 * 1024
#: Large messages that may be unfinished at a time on one connection and of one user (also at most half
#: of those of the node); the largest header of one; and the time without a further piece after which it is given up.
LARGE_MESSAGES_UNFINISHED_OF_CONNECTION_MAX = 100
LARGE_MESSAGES_UNFINISHED_OF_USER_MAX = 250
LARGE_HEADER_BYTES_MAX = 1024 * 1024
#: Large messages of one session that have come whole and whose files are not safe yet, above which no further one of
#: the session is begun.
LARGE_MESSAGES_STORING_MAX = 16
LARGE_MESSAGE_IDLE_MS = 60_000
#: Large messages that may be unfinished at a time on one node; each keeps a file open.
LARGE_MESSAGES_UNFINISHED_MAX = 500
#: Largest and smallest piece in which a large message is sent to a consumer, whatever its session
#: gave as minLargeMessageSize. Bytes.
LARGE_PIECE_BYTES_MAX = 1024 * 1024
LARGE_PIECE_BYTES_MIN = 1024
#: Bytes collected for the journal, not yet handed to the writer, above which sockets are not
#: read until it catches up.
JOURNAL_BACKLOG_BYTES_PAUSE = 64 * 1024 * 1024
#: Bytes of a read that the first message of a transaction keeps while it waits for the next request of its session.
LONE_WORK_BYTES_MAX = 16 * 1024
#: Time that an acknowledgement without an answer waits for other records with which it is synced.
ACKNOWLEDGEMENT_REST_MS = 5
#: Largest journal record. Bytes.
RECORD_BYTES_MAX = FRAME_BYTES_MAX + 64 * 1024
#: Data about written segments that is kept in memory for the consolidator: of one segment, and of all segments that it
#: has not processed. What exceeds it is read back from the disk. Bytes.
SKIMMED_SEGMENT_BYTES_MAX = 4 * 1024 * 1024
SKIMMED_BYTES_MAX = 32 * 1024 * 1024
#: Removed segments that are kept to be written again: number of files and their bytes.
POOL_FILES_MAX = 64
POOL_BYTES_MAX = 1024 * 1024 * 1024

#: Ids remembered per address for duplicate detection; element id-cache-size.
ID_CACHE_SIZE = 20_000
#: Largest duplicate id. Bytes.
DUPLICATE_ID_BYTES_MAX = 1024
#: Bytes of bodies an address (or the node) may keep in memory above its maximum while the log is
#: still writing them; beyond it producers get no credits, whatever the policy.
PAGING_SLACK_BYTES = 16 * 1024 * 1024
#: Share of the memory that the process may use (1/64), and least bytes, that bodies of waiting messages take before
#: those of further durable messages stay in the log only; global-max-size, if it is set, replaces both.
WAITING_BODIES_SHARE = 64
WAITING_BODIES_BYTES_MIN = 64 * 1024 * 1024
#: Number of addresses of one node, and of queues of one node.
ADDRESSES_MAX = 1_000_000
QUEUES_MAX = 1_000_000
#: Named readers of a log, and the most that one may be allowed to hold of it. Bytes.
NAMED_READERS_MAX = 64
READER_HELD_BYTES_MAX = 1 << 50
#: Limit of a named reader that is registered without one. Bytes.
READER_HELD_BYTES = 1 << 30
#: Address settings and security settings that management may add, of each kind; and the JSON of one. Bytes.
SETTINGS_MAX = 10_000
SETTING_BYTES_MAX = 64 * 1024
#: Number of diverts of one node.
DIVERTS_MAX = 10_000
#: Number of addresses to which one divert forwards.
FORWARDING_ADDRESSES_MAX = 1_000
#: Largest body of a management HTTP request. Bytes.
HTTP_BODY_BYTES_MAX = 1024 * 1024
#: Most errors of a broker.xml that are named at once; further ones are counted.
CONFIG_ERRORS_MAX = 50
#: Characters of the largest login.config.
LOGIN_CONFIG_CHARACTERS_MAX = 256 * 1024
#: Bytes of the largest broker.xml.
CONFIG_BYTES_MAX = 16 * 1024 * 1024
#: Bytes of the largest overlay of broker.xml, and number of its entries.
OVERLAY_BYTES_MAX = 4 * 1024 * 1024
OVERRIDES_MAX = 5_000
#: Operations of one composite of the management CLI.
COMPOSITE_STEPS_MAX = 1_000
#: Largest body of a management request in bytes, and largest number of requests that are answered in slices at once.
MANAGEMENT_REQUEST_BYTES_MAX = 1024 * 1024
MANAGEMENT_REQUESTS_MAX = 100
#: Time during which a store is not copied to a replica because a file of it does not fit its checksum and the replica
#: has no better one; afterwards the file is copied as it is. Milliseconds.
REFUSE_DAMAGED_MS = 30_000
#: Number of waiting questions of the other node of a pair about bytes of files.
FILE_QUESTIONS_MAX = 100
#: Files with bytes that were replaced because they did not fit their checksum, kept in each directory of a store.
REPLACED_FILES_MAX = 200

#: Entries in the quarantine of one store, and bytes of their files. A message damaged beyond that stays in its
#: queue, out of reach of consumers, until entries are dropped and the node activates again.
QUARANTINE_ENTRIES_MAX = 10_000
QUARANTINE_BYTES_MAX = 1024 * 1024 * 1024
#: Entries of the quarantine in one answer of management.
QUARANTINE_SHOWN_MAX = 1_000

#: Most messages that a retroactive address keeps: a new queue gets them all at once. Messages.
RETROACTIVE_MESSAGES_MAX = 10_000

#: Names of files and other texts in replicated operations and messages of the copy. Bytes.
REPLICATED_NAME_BYTES_MAX = 255
#: Encoded operations of one submission that a replica accepts: the ends of all unfinished bodies of a node, or a record
#: of the largest size. Bytes.
REPLICATED_SUBMISSION_BYTES_MAX = 256 * 1024 * 1024
#: Zeros, and bytes that are written again, that one replicated operation may ask for. Bytes.
REPLICATED_ZEROS_BYTES_MAX = 1024 * 1024
REPLICATED_REWRITE_BYTES_MAX = RECORD_BYTES_MAX + 64 * 1024 * 1024
#: Bytes of one message of the copy of a store.
COPY_MESSAGE_BYTES_MAX = 2 * 1024 * 1024
#: Bytes of a file in one message of the copy of a store, and bytes of files that are sent and not yet written there.
COPY_PIECE_BYTES_MAX = 512 * 1024
COPY_WINDOW_BYTES_MAX = 8 * 1024 * 1024
#: The note about earlier data of a replica that was moved away. Bytes.
DIVERGENCE_NOTE_BYTES_MAX = 4 * 1024
#: Activations in the history of a log, and its file. Bytes.
EPOCH_HISTORY_MAX = 500
EPOCH_HISTORY_BYTES_MAX = 64 * 1024
#: Files in one list of a message of the copy, and files of a store that can be copied.
COPY_LIST_FILES_MAX = 2_000
COPY_FILES_MAX = 4_000_000
#: Bytes of operations that a replica has received and not yet executed; one submission may exceed it. Bytes.
REPLICA_BACKLOG_BYTES_MAX = 512 * 1024 * 1024

#: Largest frame of the protocol of the witness, after and before the proof of the secret (login). Bytes.
WITNESS_FRAME_BYTES_MAX = 64 * 1024
WITNESS_FRAME_BYTES_BEFORE_LOGIN_MAX = 512
#: Time within which a client of the witness must prove the secret (login), and without a frame after which a
#: connection is closed.
WITNESS_LOGIN_TIMEOUT_MS = 5_000
WITNESS_IDLE_MS = 60_000
#: Number of connections of one witness, those included that have not proved the secret (login).
WITNESS_CONNECTIONS_MAX = 1_000
#: Number of requests of one connection that wait for the disk of the witness.
WITNESS_REQUESTS_WAITING_MAX = 100
#: Ids of locks and numbers that one witness keeps, and the longest id or name of a client. Bytes.
WITNESS_IDS_MAX = 10_000
WITNESS_NAME_BYTES_MAX = 128
#: Shortest shared secret of a witness. Bytes.
WITNESS_SECRET_BYTES_MIN = 24
#: Shortest and longest lease of a lock that a client may ask for.
LEASE_MS_MIN = 500
LEASE_MS_MAX = 300_000

#: Longest time for which a replica promises at once not to take over (``ha.replication.given_promise``). Milliseconds.
PROMISE_MS_MAX = 60_000

#: Bytes of operations that a replica in sync has not executed, above which no client is read until it has. Bytes.
REPLICA_BEHIND_BYTES_PAUSE = 16 * 1024 * 1024
#: Largest frame of AMQP 0-9-1 before connection.tune-ok (login), and the one that is offered then. Bytes.
AMQP091_FRAME_BYTES_BEFORE_LOGIN_MAX = 8192
AMQP091_FRAME_BYTES_MAX = 131_072
#: Smallest frame size that an AMQP 0-9-1 client may choose. Bytes.
AMQP091_FRAME_BYTES_MIN = 4096
#: Field tables of AMQP 0-9-1 inside each other, and values in one with all inside it: before and after the login.
AMQP091_TABLE_DEPTH_BEFORE_LOGIN_MAX = 8
AMQP091_TABLE_VALUES_BEFORE_LOGIN_MAX = 256
AMQP091_TABLE_DEPTH_MAX = 32
AMQP091_TABLE_VALUES_MAX = 1_024
#: Channels of one AMQP 0-9-1 connection.
AMQP091_CHANNELS_MAX = 2_047
#: Longest lifetime of a message or of an unused queue of AMQP 0-9-1, ten years as in RabbitMQ. Milliseconds.
AMQP091_LIFETIME_MS_MAX = 315_360_000_000
#: Largest body of an AMQP 0-9-1 message. Bytes.
AMQP091_MESSAGE_BYTES_MAX = 16 * 1024 * 1024
#: Body frames of a message beyond those that its size needs.
AMQP091_BODY_FRAMES_EXTRA_MAX = 8_192
#: Property lists and bodies of the AMQP 0-9-1 messages of one connection that have not come whole. Bytes.
AMQP091_CONTENTS_OF_CONNECTION_BYTES_MAX = 128 * 1024 * 1024
#: Channels that one AMQP 0-9-1 connection opens in a second; further input waits for its end.
AMQP091_OPENS_PER_SECOND_MAX = 1_000
#: Input of an AMQP 0-9-1 connection after a request that waits: from this number on its socket is not read. Bytes.
AMQP091_HELD_INPUT_BYTES_PAUSE = 256 * 1024
#: Time for the next frame of an AMQP 0-9-1 message that has not come whole.
AMQP091_CONTENT_TIMEOUT_MS = 30_000
#: Messages that the open transaction of an AMQP 0-9-1 channel returns to their publisher. Bytes.
AMQP091_RETURNS_BYTES_MAX = 64 * 1024 * 1024
#: Number of bytes that each returned message counts in addition to its own bytes.
AMQP091_RETURN_BYTES = 512
#: Time after which the frames of one AMQP 0-9-1 connection wait for the next turn of the loop.
AMQP091_TURN_MS = 20
#: Ways of publishes that are remembered for a connection.
AMQP091_WAYS_MAX = 64
#: Deliveries of an AMQP 0-9-1 channel that are not acknowledged.
AMQP091_UNACKNOWLEDGED_MAX = 1_000_000
#: Default time for the acknowledgement of a delivery of AMQP 0-9-1 (``acknowledgementTimeout``), as in RabbitMQ.
AMQP091_ACKNOWLEDGEMENT_TIMEOUT_MS = 30 * 60 * 1000
#: Time for the close-ok of an AMQP 0-9-1 client.
AMQP091_CLOSE_TIMEOUT_MS = 30_000
#: Consumers of one AMQP 0-9-1 channel.
AMQP091_CONSUMERS_MAX = 1_000
#: Client sessions of AMQP 0-9-1: of a node, of clients of one host, and of one user.
AMQP091_SESSIONS_MAX = 10_000
AMQP091_SESSIONS_OF_HOST_MAX = 2_000
AMQP091_SESSIONS_OF_USER_MAX = 100
#: State of a session of AMQP 0-9-1 without a connection, in nominal bytes (ADR 0195): above it deliveries are returned
#: to their queues, then channels end.
AMQP091_SESSION_BYTES_MAX = 64 * 1024
#: Sessions of AMQP 0-9-1 for which this node asks the other members at the same time, and those for which clients of
#: one host may have it ask within a second.
AMQP091_SEARCHES_MAX = 1_000
AMQP091_SEARCHES_OF_HOST_PER_SECOND_MAX = 100
#: Time in which the other members answer, and for which a client waits for its session.
AMQP091_SEARCH_MS = 5_000
#: Time for which a member that cannot be reached may still have a session that is sought.
AMQP091_MEMBER_MISSING_MS = 30_000
#: State of a session of AMQP 0-9-1 that moves to another node. Bytes of JSON; a frame of a link to a member has at most
#: ``FRAME_BYTES_BEFORE_LOGIN_MAX``.
AMQP091_MOVED_STATE_BYTES_MAX = 60_000
#: Encoded arguments of a consumer that a session keeps. Bytes.
AMQP091_KEPT_ARGUMENTS_BYTES_MAX = 4 * 1024
#: Numbers of publishes of a channel that were returned or rejected, of which its client learns when it resumes: the
#: newest ones of each.
AMQP091_KEPT_NUMBERS_MAX = 256
#: Exchanges of a node, bindings of one exchange and of all, words of a pattern and of a routing key that topics
#: look at, arguments of a binding to a headers exchange, and further routing keys (CC, BCC) of a message.
EXCHANGES_MAX = 10_000
BINDINGS_OF_EXCHANGE_MAX = 10_000
BINDINGS_MAX = 100_000
TOPIC_WORDS_MAX = 128
TOPIC_KEY_WORDS_MAX = 256
HEADERS_ARGUMENTS_MAX = 64
FURTHER_ROUTING_KEYS_MAX = 100
#: Different words after a ``#`` in the patterns of one topic exchange: a message may be compared with all of them at
#: each of its words. And arguments of all bindings of one headers exchange: a message is compared with all of them.
TOPIC_PLACES_AFTER_HASH_MAX = 10_000
HEADERS_ARGUMENTS_OF_EXCHANGE_MAX = 100_000
#: Encoded arguments of one binding. Bytes.
BINDING_ARGUMENTS_BYTES_MAX = 8 * 1024
