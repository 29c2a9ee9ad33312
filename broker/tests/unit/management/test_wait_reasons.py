"""Goal: each reason why a message waits is found in the state that causes it, and in no state without it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from understudy.management.waiting.reasons import (
    CODES,
    BridgeState,
    ConsumerState,
    GateState,
    MessageState,
    Place,
    QueueState,
    RedistributionState,
    RemoteState,
    TransactionState,
    explain_message,
    explain_queue,
)

NOW = 1_000_000
READY = ConsumerState("s1:0", "10.0.0.1:5", None, True, 100, True, 0, None)
QUEUE = QueueState("orders", message_count=1, waiting=1, consumers=(READY,))
ALONE = replace(QUEUE, consumers=())
MESSAGE = MessageState(7, Place.WAITING, taken_by=frozenset({"s1:0"}), wanted_elsewhere=True)
BRIDGE = BridgeState("b", "RUNNING", "tcp://berlin:61616", None, None, 3, None)
BRIDGING = replace(READY, bridge=True)
OPEN = TransactionState("of session a1", False, NOW - 5_000, 1, 0)
MOVING = RedistributionState("ON_DEMAND", 1_000, "DELAYED", 700)
THERE = replace(ALONE, members=(RemoteState("node-2", True, 2), RemoteState("node-3", True, 0)), redistribution=MOVING)


def at(place: Place, **more: object) -> MessageState:
    return MessageState(7, place, **more)  # type: ignore[arg-type]


#: Code, queue, message, and a part of the sentence.
CASES: list[tuple[str, QueueState, MessageState, str]] = [
    ("being-delivered", QUEUE,
     at(Place.DELIVERING, deliveries=2, consumer="s1:0", connection="10.0.0.1:5", since_ms=NOW - 90_000),
     "consumer s1:0 (10.0.0.1:5) has had the message for 90.0 s"),
    ("acknowledged-in-transaction", QUEUE, at(Place.SETTLING, transaction=OPEN),
     "of session a1, open since 5.0 s, acknowledges"),
    ("sent-in-transaction", QUEUE, at(Place.SENDING, transaction=replace(OPEN, prepared=True, since_ms=None)),
     "of session a1, prepared, sends"),
    ("scheduled", QUEUE, at(Place.SCHEDULED, at_ms=NOW + 600_000), "it is due in 10 min"),
    ("redelivery-delay", QUEUE, at(Place.SCHEDULED, at_ms=NOW + 3_000, deliveries=2), "delivery 2 failed"),
    ("set-aside", QUEUE, at(Place.SCHEDULED, readable=False), "cannot be read"),
    ("queue-paused", replace(QUEUE, paused=True), MESSAGE, "paused"),
    ("address-paused", replace(QUEUE, paused=True, address_paused=True), MESSAGE, "the address is paused"),
    ("bridge-not-connected",
     replace(ALONE, bridges=(replace(BRIDGE, state="WAITING", retry_in_ms=1_500, error="refused"),)), MESSAGE,
     "not connected to tcp://berlin:61616; the next attempt is in 1.5 s (last error: refused)"),
    ("bridge-not-connected", replace(ALONE, bridges=(replace(BRIDGE, state="CONNECTING", target=None),)), MESSAGE,
     "not connected to its target"),
    ("bridge-stopped", replace(ALONE, bridges=(replace(BRIDGE, state="FAILED", error="x"),)), MESSAGE, "given up"),
    ("bridge-stopped", replace(ALONE, bridges=(replace(BRIDGE, state="PAUSED"),)), MESSAGE, "is paused"),
    ("bridge-window", replace(ALONE, consumers=(BRIDGING,), bridges=(replace(BRIDGE, stall="window"),)), MESSAGE,
     "has not confirmed 3 messages"),
    ("bridge-credit", replace(ALONE, consumers=(BRIDGING,), bridges=(replace(BRIDGE, stall="credit"),)), MESSAGE,
     "gives no credit"),
    ("no-consumer", ALONE, MESSAGE, "no consumer here"),
    ("dispatch-gate", replace(QUEUE, gate=GateState(3, False)), MESSAGE,
     "waits for 3 consumers that take messages and has 1"),
    ("dispatch-gate", replace(QUEUE, gate=GateState(0, True)), MESSAGE, "dealt out again"),
    ("exclusive",
     replace(QUEUE, exclusive=True, consumers=(replace(READY, credits=0), replace(READY, name="s2:0", served=False))),
     replace(MESSAGE, taken_by=frozenset({"s1:0", "s2:0"})), "consumer s1:0 has no credit, and 1 others are spares"),
    ("not-started", replace(QUEUE, consumers=(replace(READY, started=False),)), MESSAGE, "not started"),
    ("no-credit", replace(QUEUE, consumers=(replace(READY, credits=0, delivering=9),)), MESSAGE,
     "s1:0 (9 not acknowledged)"),
    ("socket-full", replace(QUEUE, consumers=(replace(READY, writable=False),)), MESSAGE, "does not take bytes"),
    ("no-filter-matches", replace(QUEUE, consumers=(replace(READY, filter="size > 5"),)),
     replace(MESSAGE, taken_by=frozenset()), "size > 5"),
    ("group-of-consumer", replace(QUEUE, consumers=(READY, replace(READY, name="s2:0", credits=0))),
     replace(MESSAGE, group="g", group_consumer="s2:0", taken_by=frozenset({"s1:0", "s2:0"})),
     "group 'g' belongs to consumer s2:0, which has no credit"),
    ("group-of-member", THERE, replace(MESSAGE, group="g", group_member="node-3"), "member node-3"),
    ("group-stays", THERE, replace(MESSAGE, group="g"), "messages of a group ('g') do not move"),
    ("redistribution-delay", THERE, MESSAGE, "moves to one of node-2 in 0.7 s"),
    ("redistribution-due", replace(THERE, redistribution=replace(MOVING, state="WATCHING")), MESSAGE, "about to move"),
    ("redistribution-off", replace(THERE, redistribution=replace(MOVING, delay_ms=-1)), MESSAGE,
     "redistribution-delay is -1"),
    ("redistribution-off", replace(THERE, redistribution=replace(MOVING, mode="STRICT")), MESSAGE,
     "message-load-balancing is STRICT"),
    ("redistribution-limit", replace(THERE, redistribution=replace(MOVING, full=True)), MESSAGE, "fewer messages"),
    ("no-demand", replace(THERE, members=(RemoteState("node-2", True, 0), RemoteState("node-3", False, 4))), MESSAGE,
     "no member has a consumer"),
    ("no-remote-match", THERE, replace(MESSAGE, wanted_elsewhere=False), "node-2 do not take"),
    ("non-destructive", replace(QUEUE, non_destructive=True), MESSAGE, "stay after"),
    ("last-value", replace(QUEUE, last_value_key="isin"), MESSAGE, "newest message of each isin"),
    ("messages-ahead", replace(QUEUE, paged=50), replace(MESSAGE, ahead=12), "12 messages before it in the queue, 50"),
    ("nothing", QUEUE, MESSAGE, "nothing prevents"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "queue", "message", "text"), CASES)
def test_a_reason_is_named_with_its_values(code: str, queue: QueueState, message: MessageState, text: str) -> None:
    found = {each.code: each for each in explain_message(queue, message, NOW)}
    assert code in found
    assert text in found[code].text
    if code != "nothing":
        # the state without its cause has not the reason
        assert code not in {each.code for each in explain_message(QUEUE, MESSAGE, NOW)}


def test_every_code_has_a_case_and_is_documented() -> None:
    assert {case[0] for case in CASES} == set(CODES)
    page = (Path(__file__).parents[4] / "docs" / "operate" / "management-api.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", page, re.MULTILINE))
    assert {code: rows.get(code) for code in CODES} == CODES


def test_a_consumer_that_can_take_the_message_leaves_nothing_to_explain() -> None:
    spare = replace(READY, name="s2:0", credits=0)
    queue = replace(QUEUE, consumers=(READY, spare), members=THERE.members, redistribution=MOVING)
    assert [each.code for each in explain_message(queue, MESSAGE, NOW)] == ["nothing"]


def test_a_message_that_only_other_members_take_names_both_reasons() -> None:
    queue = replace(THERE, consumers=(replace(READY, filter="size > 5"),))
    reasons = explain_message(queue, replace(MESSAGE, taken_by=frozenset()), NOW)
    assert [each.code for each in reasons] == ["no-filter-matches", "redistribution-delay"]


def test_a_queue_is_explained_without_a_message() -> None:
    reasons = explain_queue(replace(THERE, paused=True, last_value_key="k"))
    codes = [each.code for each in reasons]
    assert codes == ["queue-paused", "no-consumer", "redistribution-delay", "last-value"]
    assert reasons[0].as_json() == {"code": "queue-paused", "text": reasons[0].text, "values": {}}


def test_a_long_list_of_consumers_is_cut_in_the_sentence_only() -> None:
    many = tuple(replace(READY, name=f"s{number}:0", credits=0) for number in range(5))
    (reason,) = explain_queue(replace(QUEUE, consumers=many))
    assert "and 2 more" in reason.text
    assert len(reason.values["consumers"]) == 5  # type: ignore[arg-type]
