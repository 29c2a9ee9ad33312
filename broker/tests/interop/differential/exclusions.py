"""What the programs leave out, and why: where the brokers differ on purpose, or Artemis does not do the same twice.

Each entry is kept to by ``generator`` (it never draws it) or by ``runner`` (it skips the step, at both brokers, from what
it has seen so far). docs/core-protocol.md has the deliberate differences among them in prose.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exclusion:
    """One thing that is left out."""

    name: str
    reason: str


MIXED_COMPARISONS = Exclusion(
    "comparisons of absent properties with each other, of a wide number with a byte or short, negated shorts, and <> between types",
    "JMS has no value for NULL = NULL and no truth for different types; Artemis says true, and false or an error for bytes and shorts",
)
JMS_HEADER_NAMES = Exclusion(
    "JMSPriority, JMSDeliveryMode and the like in selectors",
    "JMS clients send the AMQ names; ours understands both, Artemis takes the others for properties",
)
UNTYPED_TO_NOWHERE = Exclusion(
    "messages without a routing type for which there is no queue",
    "the manual's auto-create applies to every message sent; Artemis confirms and drops these, even where no address may be made",
)
ACKNOWLEDGED_TWICE = Exclusion(
    "cumulative acknowledgements of what is not outstanding",
    "both refuse; Artemis also gives back what was delivered before, ours changes nothing",
)
CREDITS_AFTER_UNLIMITED = Exclusion("FLOWTOKEN after one of -1", "a null pointer in Artemis, which also spoils the transaction")
NEGATIVE_PRODUCER_CREDITS = Exclusion("negative producer credits", "ours grants none")
XA_WITHOUT_XA = Exclusion("XA requests in sessions that are not XA", "an internal error in Artemis, XAER_PROTO here")
XA_ILLEGAL_OUTCOMES = Exclusion(
    "starting or joining a branch while in another; deciding a branch in which another session works, or a suspended one; two phases in one or one in two",
    "X/Open has XAER_PROTO and the branch stays as it was; Artemis does it, or forgets the branch",
)
XA_FAILED_ENDS = Exclusion("TMFAIL", "the branch can only be rolled back (X/Open); Artemis does not look at the flag")
SHARED_QUEUE_OF_NO_ADDRESS = Exclusion(
    "shared queues where auto-create-addresses is off", "the setting holds for them too; Artemis makes the address"
)
OTHER_ADDRESS = Exclusion(
    "address::queue with a queue of another address",
    "there is no such queue (ADR 0012); Artemis looks at the part behind the colons only",
)
NAMELESS = Exclusion("queues without a name", "refused by both, with 216 here and 104 there")
LAST_VALUE_BY_KEY_ALONE = Exclusion(
    "a last-value key without last-value", "it is a last-value queue at both, and said to be one here only"
)
DURABLE_TEMPORARY = Exclusion("queues both durable and temporary", "they are not durable, and here do not say so")
ADDRESS_CHANGED = Exclusion(
    "creating an address that exists with other routing types",
    "it gets what it lacks here, so that two clients may ask; Artemis replaces them, or refuses while queues need them",
)
BROWSED_EXPIRED = Exclusion(
    "expired messages seen by browsers", "clients drop them; Artemis shows them, ours does not"
)
OTHER_ROUTING_TYPE = Exclusion(
    "messages to an address that has queues, none of their routing type",
    "they get their queue where one may be made, or are refused with 215; Artemis confirms and drops them",
)
ORIGINAL_ADDRESS_OF_A_QUEUE = Exclusion(
    "the queue in _AMQ_ORIG_ADDRESS of what was sent to address::queue",
    "the address alone, so that filters of dead letter queues find it; Artemis keeps both parts",
)
