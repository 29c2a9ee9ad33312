"""The expected contents of a store: every operation with its sequence, replayed at will."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from understudy.store.messages.reference import LargeReference
from understudy.store.state import StoreState

#: Place of the time before which a message is not delivered, among the fields of a message.
_SCHEDULED = 2


@dataclass
class Model:
    """Meaning of a log, in the plainest way: every operation with its sequence, replayed at will."""

    id_cache_size: int
    operations: list[tuple[int, str, tuple[Any, ...]]] = field(default_factory=list)

    def add(self, sequence: int, name: str, *arguments: Any) -> None:
        """An operation was appended with this sequence."""
        self.operations.append((sequence, name, arguments))

    def crash(self, sequence: int) -> None:
        """The log ends with this sequence and another epoch begins: open transactions are gone."""
        self.operations = [entry for entry in self.operations if entry[0] <= sequence]
        self.add(sequence, "epoch")

    def contents(self) -> dict[str, Any]:
        """Everything, as ``contents_of`` gives it for a state."""
        state: dict[str, Any] = {"addresses": {}, "queues": {}, "messages": {}, "duplicates": {}, "prepared": {}}
        state["settings"] = {}
        open_transactions: dict[int, list[tuple[str, tuple[Any, ...]]]] = {}
        prepared: dict[int, bytes] = {}
        for _, name, arguments in self.operations:
            if name in ("message", "acknowledge", "duplicate"):
                tx_id, *rest = arguments
                if tx_id:
                    open_transactions.setdefault(tx_id, []).append((name, tuple(rest)))
                else:
                    self._apply(state, name, tuple(rest))
            elif name == "commit":
                for inner, rest_of in sorted(
                    open_transactions.pop(arguments[0], []), key=lambda entry: entry[0] == "acknowledge"
                ):
                    self._apply(state, inner, rest_of)
                prepared.pop(arguments[0], None)
            elif name == "rollback":
                open_transactions.pop(arguments[0], None)
                prepared.pop(arguments[0], None)
            elif name == "prepare":
                open_transactions.setdefault(arguments[0], [])
                prepared[arguments[0]] = arguments[1]
            elif name == "epoch":
                open_transactions = {tx: work for tx, work in open_transactions.items() if tx in prepared}
            else:
                self._apply(state, name, arguments)
                if name == "queue-":
                    for tx_id, work in open_transactions.items():
                        open_transactions[tx_id] = [
                            entry
                            for entry in (_without_queue(entry, arguments[0]) for entry in work)
                            if entry is not None
                        ]
        state["prepared"] = {
            tx_id: (
                xid,
                # the order of messages of different queues and priorities is nothing that a log promises
                sorted((q, rest[0]) for name, rest in open_transactions[tx_id] if name == "message" for q in rest[2]),
                _by_queue(
                    (rest[0], i) for name, rest in open_transactions[tx_id] if name == "acknowledge" for i in rest[1]
                ),
            )
            for tx_id, xid in prepared.items()
        }
        state["messages"] = {queue: entries for queue, entries in state["messages"].items() if entries}
        state["duplicates"] = {address: ids for address, ids in state["duplicates"].items() if ids}
        return state

    def _apply(self, state: dict[str, Any], name: str, arguments: tuple[Any, ...]) -> None:
        messages = state["messages"]
        if name == "message":
            message_id, address_id, queue_ids, fields, duplicate_id = arguments
            for queue_id in queue_ids:
                messages.setdefault(queue_id, {})[message_id] = [*fields, 0]
            if duplicate_id:
                self._remember(state, address_id, duplicate_id)
        elif name == "acknowledge":
            queue_id, message_ids = arguments
            for message_id in message_ids:
                messages.get(queue_id, {}).pop(message_id, None)
        elif name == "count":
            queue_id, message_id, count, not_before_ms = arguments
            if message_id in messages.get(queue_id, {}):
                fields = messages[queue_id][message_id]
                fields[-1] = count
                fields[_SCHEDULED] = not_before_ms or fields[_SCHEDULED]
        elif name == "duplicate":
            self._remember(state, *arguments)
        elif name == "address":
            state["addresses"][arguments[0].address_id] = arguments[0]
        elif name == "address-":
            state["addresses"].pop(arguments[0], None)
            state["duplicates"].pop(arguments[0], None)
        elif name == "queue":
            state["queues"][arguments[0].queue_id] = arguments[0]
        elif name == "queue-":
            state["queues"].pop(arguments[0], None)
            messages.pop(arguments[0], None)
        elif name == "setting":
            state["settings"].pop(arguments[0].key, None)
            if arguments[0].values is not None:
                state["settings"][arguments[0].key] = arguments[0]
        else:
            raise AssertionError(name)

    def _remember(self, state: dict[str, Any], address_id: int, duplicate_id: bytes) -> None:
        if address_id not in state["addresses"]:
            # removed between the send and the commit of its transaction
            return
        ids = state["duplicates"].setdefault(address_id, [])
        ids.append(duplicate_id)
        del ids[: -self.id_cache_size]


def _by_queue(acknowledges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Acknowledgements sorted by queue, those of a queue in their order: the order of queues means nothing, and a
    snapshot does not keep it.
    """
    return sorted(acknowledges, key=lambda pair: pair[0])


def _without_queue(entry: tuple[str, tuple[Any, ...]], queue_id: int) -> tuple[str, tuple[Any, ...]] | None:
    """A transaction's operation once the queue is gone."""
    name, rest = entry
    if name == "acknowledge":
        return None if rest[0] == queue_id else entry
    if name == "message":
        message_id, address_id, queue_ids, fields, duplicate_id = rest
        return name, (message_id, address_id, tuple(q for q in queue_ids if q != queue_id), fields, duplicate_id)
    return entry


def contents_of(state: StoreState) -> dict[str, Any]:
    """A state in the model's terms."""
    return {
        "addresses": dict(state.addresses),
        "queues": dict(state.queues),
        "settings": dict(state.settings),
        "messages": {
            queue_id: {
                reference.message_id: [
                    reference.priority,
                    reference.expiration,
                    references.redeliveries.get(reference.message_id, reference.scheduled_ms),
                    reference.size_bytes,
                    reference.file_id if isinstance(reference, LargeReference) else 0,
                    reference.delivery_count,
                ]
                for reference in references.references()
            }
            for queue_id, references in state.references.items()
            if references
        },
        "duplicates": {address_id: list(ids) for address_id, ids in state.duplicate_ids.items() if ids},
        "prepared": {
            tx_id: (
                transaction.xid,
                sorted((queue_id, reference.message_id) for queue_id, reference in transaction.adds),
                _by_queue(transaction.acknowledges),
            )
            for tx_id, transaction in state.transactions.items()
            if transaction.prepared
        },
    }


def order_of(contents: dict[str, Any]) -> dict[int, list[int]]:
    """Message ids per queue, in the order of delivery: priority by priority, each in log order."""
    return {
        queue_id: sorted(messages, key=lambda message_id: -messages[message_id][0])
        for queue_id, messages in contents["messages"].items()
    }
