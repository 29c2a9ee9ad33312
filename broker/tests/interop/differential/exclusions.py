"""Behaviour that the programs leave out, with the reason: the brokers differ on purpose, or Artemis is not repeatable.

Each entry is enforced by ``generator`` (it never draws it), by ``runner`` (it skips the step at both brokers, judged
by the state so far) or by ``normaliser`` (it leaves the value out). docs/build/core-protocol.md lists them; a test
holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exclusion:
    """One thing that is left out."""

    name: str
    reason: str


MIXED_COMPARISONS = Exclusion(
    "comparisons of absent properties with each other, of a wide number with a byte or short, negated shorts,"
    " and `<>` between types",
    "JMS has no value for NULL = NULL and no truth for different types; Artemis says true, and false or an "
    "error for bytes and shorts",
)
JMS_HEADER_NAMES = Exclusion(
    "JMSPriority, JMSDeliveryMode and the like in selectors",
    "JMS clients send the AMQ names; ours understands both, Artemis takes the others for properties",
)
UNTYPED_TO_NOWHERE = Exclusion(
    "messages without a routing type for which there is no queue",
    "the manual's auto-create applies to every message sent; Artemis confirms and drops these, even where no "
    "address may be made",
)
ACKNOWLEDGED_TWICE = Exclusion(
    "cumulative acknowledgements of messages that are not outstanding",
    "both refuse; Artemis also returns earlier deliveries, ours changes nothing",
)
CREDITS_AFTER_UNLIMITED = Exclusion(
    "FLOWTOKEN after one of -1",
    "a null pointer in Artemis, which also spoils the transaction",
)
NEGATIVE_PRODUCER_CREDITS = Exclusion(
    "negative producer credits",
    "ours grants none",
)
XA_WITHOUT_XA = Exclusion(
    "XA requests in sessions that are not XA",
    "an internal error in Artemis, XAER_PROTO here",
)
XA_ILLEGAL_OUTCOMES = Exclusion(
    "starting or joining a branch while in another; deciding a branch in which another session works, or a "
    "suspended one; two phases in one or one in two",
    "X/Open has XAER_PROTO and the branch stays as it was; Artemis does it, or forgets the branch",
)
XA_FAILED_ENDS = Exclusion(
    "TMFAIL",
    "the branch can only be rolled back (X/Open); Artemis does not look at the flag",
)
SHARED_QUEUE_OF_NO_ADDRESS = Exclusion(
    "shared queues where auto-create-addresses is off",
    "the setting holds for them too; Artemis makes the address",
)
OTHER_ADDRESS = Exclusion(
    "address::queue with a queue of another address",
    "there is no such queue (ADR 0012); Artemis uses only the part after the colons",
)
NAMELESS = Exclusion(
    "queues without a name",
    "refused by both, with 216 here and 104 there",
)
LAST_VALUE_BY_KEY_ALONE = Exclusion(
    "a last-value key without last-value",
    "it is a last-value queue at both, and said to be one here only",
)
DURABLE_TEMPORARY = Exclusion(
    "queues both durable and temporary",
    "they are not durable, and here do not say so",
)
ADDRESS_CHANGED = Exclusion(
    "creating an address that exists with other routing types",
    "here the missing types are added, so that two clients may ask; Artemis replaces them, or refuses while queues"
    " need them",
)
BROWSED_EXPIRED = Exclusion(
    "expired messages seen by browsers",
    "clients drop them; Artemis shows them, ours does not",
)
OTHER_ROUTING_TYPE = Exclusion(
    "messages to an address that has queues, none of their routing type",
    "they get their queue where one may be made, or are refused with 106; Artemis confirms and drops them",
)
ORIGINAL_ADDRESS_OF_A_QUEUE = Exclusion(
    "the queue in `_AMQ_ORIG_ADDRESS` of messages sent to address::queue",
    "the address alone, so that filters of dead letter queues find it; Artemis keeps both parts",
)
TURNS = Exclusion(
    "several consumers of one priority at a queue that is neither exclusive nor non-destructive",
    "round robin is all that is promised; whose turn it is hangs at Artemis on how often it looked",
)
RESERVED_PROPERTIES = Exclusion(
    "properties of clients under names that only a broker writes",
    "they are removed (ADR 0025); Artemis removes some, overwrites some and believes the rest",
)
SHARED_NOT_DURABLE = Exclusion(
    "whether a shared queue that is not durable is temporary and auto-deleted",
    "auto-deleted here, so that a client that makes it again after a failover does not take it from the "
    "others; temporary at Artemis",
)
BROWSED_ALONE = Exclusion(
    "browsers at shared queues that are not durable",
    "such a queue goes with its last consumer; at Artemis also with a browser that was there alone",
)
RING_THAT_LENDS = Exclusion(
    "queues both ring and non-destructive",
    "Artemis loses count of their messages",
)
EXPIRED_IN_KINDS = Exclusion(
    "messages that have expired already, at last-value and ring queues",
    "they count until the expiry is noticed, which is up to the broker as long as no consumer asks",
)
COUNT_OF_LAST_VALUES = Exclusion(
    "message counts of last-value queues",
    "Artemis does not count messages in delivery there; here they count as in any queue",
)
XA_ROLLBACK_OF_UNKNOWN = Exclusion(
    "rolling back an unknown branch in the middle of another",
    "Artemis rolls back the other; here nothing is undone",
)
DUE_AT_ONCE = Exclusion(
    "messages scheduled for a time that is over",
    "they queue up here; Artemis puts due messages before waiting ones",
)
BROWSED_LOANS = Exclusion(
    "browsers of non-destructive queues while a client consumes",
    "messages that a consumer holds stay in the queue here (ADR 0012), so browsers see them; Artemis hides them",
)
BLANK_SELECTORS = Exclusion(
    "selectors of blanks alone",
    "no selector here; refused by Artemis, which takes only the empty text for none",
)
XA_TIMEOUT_ASKED = Exclusion(
    "asking for a timeout that was set",
    "answered with the configured value (X/Open); Artemis answers with its own default",
)
REFUSED_FILTERS_OF_QUEUES = Exclusion(
    "queues with filters that are no selectors",
    "refused by both; Artemis has made the address by then",
)
LOANS_GIVEN_BACK = Exclusion(
    "rolling back, or a second consumer, at a non-destructive queue",
    "every consumer sees every message, at once and again (manual, ADR 0012); Artemis holds back messages in delivery "
    "and does not offer them again",
)
XA_LOCAL_OUTCOME = Exclusion(
    "SESS_COMMIT and SESS_ROLLBACK in the middle of a branch",
    "a rollback, which clients send after a failover, undoes the branch at both, but Artemis then answers that it is "
    "prepared; a commit in a branch is no request of XA and does nothing here",
)
WHEN_EXPIRY_IS_NOTICED = Exclusion(
    "messages that have expired already while a consumer there cannot take any",
    "Artemis looks at the head of the queue also for consumers without credits; here it is looked at for "
    "consumers that can take it, and by the scan",
)
BROWSED_LATER = Exclusion(
    "what a browser sees of messages that came after it, or were given back",
    "the manual does not say whether a browser is a snapshot; where a new message lies before its place Artemis shows"
    " it and ours does not",
)
PRIORITIES_IN_TRANSACTIONS = Exclusion(
    "priorities in transacted sessions",
    "whether a waiting consumer gets a commit's messages by priority is a race in Artemis",
)
ADDRESS_OF_NO_ROUTING_TYPE = Exclusion(
    "addresses without routing types",
    "an internal error in Artemis once a queue is made there",
)
COUNT_OF_LOANS = Exclusion(
    "message counts of non-destructive queues",
    "Artemis counts delivered messages as removed",
)
XA_SPOILED = Exclusion(
    "acknowledging in a branch messages that are not outstanding",
    "the branch can only be rolled back at both; until then it can be suspended here, and Artemis has an "
    "internal error",
)
XA_REFUSED_SENDS = Exclusion(
    "sending in a branch to an address that is missing and may not be made, or with a duplicate id that was seen",
    "preparing it answers that it was rolled back (X/Open), and it is gone; Artemis refuses to prepare with the error"
    " of the send, and keeps it until its rollback",
)
GROUPS_OF_LOANS = Exclusion(
    "group-first-key of non-destructive queues",
    "groups have no effect where every consumer sees every message (ADR 0012); Artemis still marks the first message",
)
TEMPORARY_QUEUE_OF_ANOTHER_CONNECTION = Exclusion(
    "consumers of another connection's temporary queue",
    "they get a disconnect when it is deleted; Artemis sends them nothing",
)
PURGED_TURNS = Exclusion(
    "anycast messages to several queues of which one is purged without consumers and has none",
    "it takes no turn, because it gets nothing until a consumer comes (manual); Artemis drops the message at its turn",
)
WHEN_IT_IS_PURGED = Exclusion(
    "message counts of queues that are purged without consumers",
    "Artemis purges some time after the consumer is gone",
)
XA_TIMEOUT_ZERO = Exclusion(
    "an XA timeout of 0",
    "the broker's own here (X/Open); at Artemis branches are over at once, or a little later",
)
DELIVERIES_OF_LOANS = Exclusion(
    "what non-destructive queues hold at the end, and how often it was delivered",
    "ADR 0012; Artemis counts every delivery, and may lose messages that a closed consumer had not acknowledged",
)
UNREADABLE_FOR_ONE = Exclusion(
    "a message of a non-destructive queue that one consumer rolls back too often, or rejects",
    "that consumer does not get it again, the others do (ADR 0122); Artemis makes it a dead letter for all",
)
GATE_WITHOUT_CREDITS = Exclusion(
    "`consumers-before-dispatch` and consumers without credits",
    "these do not count (ADR 0122), so all consumers share the first messages; Artemis counts them",
)
RETURNED_AND_PURGED = Exclusion(
    "deliveries that return to a queue that is purged without consumers, after the last consumer",
    "dropped (ADR 0122); Artemis keeps them for the next consumer",
)
DIVISION_BY_ZERO = Exclusion(
    "division by zero, and zero below zero, in selectors",
    "IEEE 754 here: NaN is not greater than anything, and -0 = 0; the opposite in Artemis",
)
GATED_LAST_VALUES = Exclusion(
    "last-value queues that wait for consumers or are rings",
    "older values go at once here and do not count; Artemis clears them away when it delivers",
)
ROLLBACK_AMONG_OTHERS = Exclusion(
    "rolling back a consumer that is not alone at its queue",
    "returned messages go to the next consumer in turn; Artemis stops the session meanwhile, so others may get it",
)
SIZE_UNKNOWN = Exclusion(
    "large messages whose last piece does not say how long the body is",
    "`_AMQ_LARGE_SIZE` is then what came, for clients that ask for it; Artemis leaves it away, and its own client"
    " cannot say how long such a message is",
)
STALE_LAST_VALUES = Exclusion(
    "acknowledging a newer value before an older one at a last-value queue",
    "the older one, given back, is the last value again (ADR 0012); Artemis drops it if the newer one never waited",
)
FIRST_OF_LARGE = Exclusion(
    "group-first-key of large messages",
    "the first of a group is marked, whatever its size; Artemis does not mark large ones",
)
BUSY_GROUPS = Exclusion(
    "several consumers of a queue with message groups, one of them with credits that end",
    "messages that wait for the consumer of their group hold up no other messages; at Artemis it may",
)
DIVERT_AGAIN = Exclusion(
    "creating a divert of a name that there is",
    "refused here; Artemis says that it was done, and does nothing",
)
DIVERT_OF_NO_ADDRESS = Exclusion(
    "creating a divert of an address that there is not",
    "the address is made, for it keeps its diverts (ADR 0012); at Artemis they hang in the air",
)
DIVERTS_IN_CIRCLES = Exclusion(
    "diverts in circles",
    "each takes part once for each message (ADR 0012); an internal error in Artemis",
)
HALF_DIVERTED = Exclusion(
    "diverts into an address that is missing and may not be made, beside other diverts",
    "a message and its copies are all taken or all refused (ADR 0012); Artemis refuses the message and keeps the"
    " copies that it has routed by then",
)
TURNS_OF_QUEUES = Exclusion(
    "address::queue where an address has several anycast queues, and whose turn it is there after a restart",
    "the turn is not passed on here by what names its queue; at Artemis it is. Neither keeps it over a restart",
)
NAME_TAKEN = Exclusion(
    "anycast messages to an address without a queue while another address has a queue of that name",
    "refused with 106, for they have nowhere to be; Artemis confirms and drops them if that queue is anycast too",
)
WORDS_AFTER_ANY = Exclusion(
    "words after # in the address of a queue",
    "# is any number of words (manual), and the words after it must match too; Artemis misses some addresses, takes"
    " others that end before it, and has internal errors when such queues go",
)
SETTINGS_OF_WILDCARDS = Exclusion(
    "queues of addresses that begin with a wildcard",
    "their settings are those whose match fits the name as it stands; Artemis takes those of addresses that it covers",
)
COVERED_WITHOUT_QUEUE = Exclusion(
    "anycast messages to an address without a queue that a wildcard address covers",
    "it gets its queue like any other address; at Artemis only if the address is new",
)
MADE_ON_THE_WAY = Exclusion(
    "addresses that came with a queue, and routing types that came with a message, over a restart or where"
    " auto-delete-addresses is off",
    "the setting holds however the last queue is deleted, and resources that a reply reported exist after a restart;"
    " Artemis deletes such addresses nevertheless and forgets such routing types",
)
STOPPED_DELIVERIES = Exclusion(
    "deliveries that are outstanding when a broker is stopped",
    "their clients may have seen them, so the next delivery says that it is not the first, as after any lost"
    " connection; Artemis forgets them. After SIGKILL it is unknown",
)
NAMED_AFTER_PLAIN = Exclusion(
    "address::queue right after the address alone, or the other way round, from one session",
    "one queue is promised (ADR 0012); Artemis sends where it sent before, for it compares the address alone",
)
READ_BACK = Exclusion(
    "max-read-page-bytes and max-read-page-messages",
    "they limit one reading here and change nothing that a client sees; Artemis delivers nothing more from the pages"
    " while that much is not acknowledged",
)
SELECTORS_OF_PAGED = Exclusion(
    "consumers with a selector at queues of addresses that page",
    "a message that follows others that do not match is delivered (ADR 0008); Artemis reads no more pages while"
    " messages that do not match fill its memory",
)
PAGED_AND_SCHEDULED = Exclusion(
    "scheduled messages at addresses that page",
    "no client sees them before their time; Artemis shows them to browsers while they are in a page",
)
PAGED_AND_COMMITTED = Exclusion(
    "several producers at an address that pages, one of them transacted",
    "messages line up when they are committed; at Artemis those sent before the address paged come before the"
    " messages in pages",
)
TEMPORARY_AND_LAST = Exclusion(
    "temporary queues beside others at an address that came with a queue",
    "the address goes with its last queue, temporary or not; Artemis leaves it to the scan if that was temporary",
)
TWICE_IN_A_TRANSACTION = Exclusion(
    "a duplicate id twice in one transaction",
    "the commit is refused with 113, as for one that the address knew before; Artemis delivers both messages",
)
FORGOTTEN_DUPLICATES = Exclusion(
    "duplicate ids at an address whose last queue was deleted",
    "an address knows them as long as it exists; Artemis forgets them with the last queue",
)
PAGED_NOT_DURABLE = Exclusion(
    "messages that are not durable at addresses that page, over a restart",
    "they are gone like others that are not durable (ADR 0008); Artemis finds them in its pages",
)
DELIVERIES_OF_PAGED = Exclusion(
    "delivery counts at addresses that page, after a restart",
    "they are stored like all delivery counts; Artemis does not store that of a message in a page",
)
EXCLUSIVE_SELECTORS = Exclusion(
    "several consumers of an exclusive queue, one of them with a selector",
    "all messages are for one consumer (manual), so messages that its selector does not match wait;"
    " Artemis gives them to the others",
)
BROWSED_IN_PAGES = Exclusion(
    "browsers of queues that page while a client consumes",
    "delivered messages are not in the queue any more; Artemis shows them as long as they are in a page",
)
IDLE_AT_START = Exclusion(
    "addresses that would be deleted for being idle, over a restart",
    "an activation deletes queues made on demand that are empty, and the address that goes with them; of other"
    " addresses the scan deletes those that were idle for long enough, Artemis all at every start",
)

#: All of them, as docs/build/core-protocol.md lists them.
EVERY = tuple(value for value in tuple(globals().values()) if isinstance(value, Exclusion))
